/* choice_cache.c - see choice_cache.h.
 *
 * The file is text: a line that says what it is, then one line a choice,
 *     key <tab> name <tab> workspace bytes <tab> nanoseconds a call, -1 = not timed
 * It is read once. To write, a process takes a lock (fcntl, on a file beside it), reads the file again for what others added,
 * writes all of it under another name and renames that. */
#include "choice_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char FIRST_LINE[] = "batchmark choices 1\n";
static const char FILE_NAME[] = "choices.txt";
enum { PATH_BYTES = 1024, LINE_BYTES = CHOICE_KEY_BYTES + CHOICE_NAME_BYTES + 64 };
static const double WRITE_EVERY = 5.0; /* seconds: what a crash may lose */

typedef struct Entry { uint64_t hash; char *key; Choice choice; } Entry;
typedef struct Entries { Entry *entry; size_t count, room; } Entries;

struct ChoiceCache {
    char    folder[PATH_BYTES]; /* "" = nothing is kept on disk */
    Entries known, used;        /* used: by the text of the op, for the record */
    bool    has_new, warned;
    double  written;            /* clock_seconds */
};

/* ---- entries */

static uint64_t hash_of(const char *key) /* FNV-1a, 64 bits */
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    return h;
}

static Entry *entries_find(const Entries *e, const char *key)
{
    const uint64_t h = hash_of(key);
    for (size_t i = 0; i < e->count; i++)
        if (e->entry[i].hash == h && strcmp(e->entry[i].key, key) == 0)
            return &e->entry[i];
    return NULL;
}

static Status out_of_memory(void) { return status_error(STATUS_OOM, "no memory for choices of kernels"); }

static Status entries_put(Entries *e, const char *key, const Choice *choice)
{
    Entry *old = entries_find(e, key);
    if (old) {
        old->choice = *choice;
        return status_ok();
    }
    if (e->count == e->room) {
        const size_t room = e->room ? 2 * e->room : 64;
        Entry       *more = realloc(e->entry, room * sizeof *more);
        if (!more)
            return out_of_memory();
        e->entry = more;
        e->room = room;
    }
    char *copy = malloc(strlen(key) + 1);
    if (!copy)
        return out_of_memory();
    strcpy(copy, key);
    e->entry[e->count++] = (Entry){ hash_of(key), copy, *choice };
    return status_ok();
}

static void entries_free(Entries *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->entry[i].key);
    free(e->entry);
    *e = (Entries){ 0 };
}

/* ---- the file */

static void warn_once(ChoiceCache *c, const char *path, const char *what)
{
    if (!c->warned)
        log_warn("%s %s", path, what);
    c->warned = true;
}

/* A whole number >= least that ends at `end`. */
static bool parse_number(const char *text, char end, long long least, long long *out, const char **next)
{
    char *stop;
    errno = 0;
    *out = strtoll(text, &stop, 10);
    *next = stop;
    return stop > text && *stop == end && errno == 0 && *out >= least;
}

/* One line into its parts; the line is cut up. False if it is not one of ours. */
static bool parse_line(char *line, char **key, Choice *choice)
{
    long long   bytes, ns;
    const char *at;
    char *name = strchr(line, '\t'), *numbers = name ? strchr(name + 1, '\t') : NULL;
    if (!numbers || name == line || numbers - name - 1 >= CHOICE_NAME_BYTES || numbers == name + 1)
        return false;
    *name++ = *numbers++ = '\0';
    if (!parse_number(numbers, '\t', 0, &bytes, &at) || !parse_number(at + 1, '\n', -1, &ns, &at))
        return false;
    *key = line;
    *choice = (Choice){ .bytes = (size_t)bytes, .us = ns < 0 ? (double)NAN : (double)ns / 1e3 };
    memcpy(choice->name, name, strlen(name) + 1);
    return true;
}

/* Adds what the file has and we have not. A missing file is an empty one. */
static Status read_file(ChoiceCache *c, const char *path)
{
    char   line[LINE_BYTES];
    Status status = status_ok();
    FILE  *f = fopen(path, "r");
    if (!f)
        return status;
    if (!fgets(line, sizeof line, f) || strcmp(line, FIRST_LINE) != 0) {
        warn_once(c, path, "is not a list of choices of this program: it is ignored, and written anew");
        goto out;
    }
    while (fgets(line, sizeof line, f)) {
        char  *key;
        Choice choice;
        if (!parse_line(line, &key, &choice))
            warn_once(c, path, "has a line that is cut or broken: it is ignored, and the file is written anew");
        else if (!entries_find(&c->known, key))
            TRY_GOTO(status, entries_put(&c->known, key, &choice), out);
    }
out:
    fclose(f);
    return status;
}

static bool write_entries(const ChoiceCache *c, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fputs(FIRST_LINE, f);
    for (size_t i = 0; i < c->known.count; i++) {
        const Entry *e = &c->known.entry[i];
        fprintf(f, "%s\t%s\t%zu\t%lld\n", e->key, e->choice.name, e->choice.bytes,
                isnan(e->choice.us) ? -1LL : (long long)llround(e->choice.us * 1e3));
    }
    const bool good = fflush(f) == 0 && !ferror(f);
    return fclose(f) == 0 && good;
}

static void make_folders(const char *folder)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(path, 0777);
            *p = '/';
        }
    (void)mkdir(path, 0777); /* what cannot be made shows when the file is opened */
}

/* A descriptor whose lock no other process has; -1 if there is none to be had, and then the file is written all the same: rename
 * keeps it whole, only choices of the other process can be lost. */
static int lock(const char *path)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int          fd = open(path, O_RDWR | O_CREAT, 0666);
    if (fd >= 0 && fcntl(fd, F_SETLKW, &whole) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void write_file(ChoiceCache *c)
{
    char path[PATH_BYTES + 32], lock_path[PATH_BYTES + 32], fresh[PATH_BYTES + 64];
    c->written = clock_seconds();
    if (!c->has_new || !c->folder[0])
        return;
    make_folders(c->folder);
    snprintf(path, sizeof path, "%s/%s", c->folder, FILE_NAME);
    snprintf(lock_path, sizeof lock_path, "%s/%s.lock", c->folder, FILE_NAME);
    snprintf(fresh, sizeof fresh, "%s/%s.%ld", c->folder, FILE_NAME, (long)getpid());
    const int fd = lock(lock_path);
    (void)read_file(c, path); /* out of memory: what we have is written, the rest found again another time */
    if (!write_entries(c, fresh) || rename(fresh, path) != 0) {
        warn_once(c, path, "cannot be written: what tuning chose is not kept for the next run");
        (void)remove(fresh);
    }
    if (fd >= 0)
        close(fd); /* and gives the lock back */
    c->has_new = false;
}

/* ---- the cache */

static void default_folder(char *folder, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    folder[0] = '\0';
    if (cache && cache[0] == '/') /* a relative one is to be ignored: XDG Base Directory Specification */
        snprintf(folder, size, "%s/batchmark", cache);
    else if (home && home[0])
        snprintf(folder, size, "%s/.cache/batchmark", home);
}

Status choice_cache_create(const char *folder, ChoiceCache **out)
{
    char path[PATH_BYTES + 32];
    *out = NULL;
    ChoiceCache *c = calloc(1, sizeof *c);
    if (!c)
        return out_of_memory();
    if (folder)
        snprintf(c->folder, sizeof c->folder, "%s", folder);
    else
        default_folder(c->folder, sizeof c->folder);
    c->written = clock_seconds();
    snprintf(path, sizeof path, "%s/%s", c->folder, FILE_NAME);
    Status status = c->folder[0] ? read_file(c, path) : status_ok();
    if (c->warned)
        c->has_new = true; /* so that a broken file is written anew */
    if (status.code == STATUS_OK) {
        *out = c;
    } else {
        c->has_new = false;
        choice_cache_destroy(c);
    }
    return status;
}

void choice_cache_destroy(ChoiceCache *c)
{
    if (!c)
        return;
    write_file(c);
    entries_free(&c->known);
    entries_free(&c->used);
    free(c);
}

const char *choice_key(const CudaBackend *be, const char *library, const char *what, char *text, size_t size)
{
    snprintf(text, size, "%s | %s sm_%d | %s", library, be->title, be->capability, what);
    for (char *p = text; *p; p++)
        if (*p == '\t' || *p == '\n' || *p == '\r')
            *p = ' ';
    return text;
}

bool choice_cache_find(const ChoiceCache *c, const char *key, Choice *out)
{
    const Entry *e = c ? entries_find(&c->known, key) : NULL;
    if (e)
        *out = e->choice;
    return e != NULL;
}

Status choice_cache_keep(ChoiceCache *c, const char *key, const Choice *choice)
{
    if (!c)
        return status_ok();
    CHECK(key[0] && !strpbrk(key, "\t\n") && strlen(key) < CHOICE_KEY_BYTES && choice->name[0] && !strpbrk(choice->name, "\t\n"));
    TRY(entries_put(&c->known, key, choice));
    c->has_new = true;
    if (clock_seconds() - c->written > WRITE_EVERY)
        write_file(c);
    return status_ok();
}

Status choice_cache_use(ChoiceCache *c, const char *op, const Choice *choice)
{
    return c ? entries_put(&c->used, op, choice) : status_ok();
}

void cuda_choices(Backend *be, void (*note)(void *context, const char *op, const char *choice, size_t bytes, double us), void *context)
{
    const ChoiceCache *c = cuda_of(be)->choices;
    for (size_t i = 0; c && i < c->used.count; i++) {
        const Entry *e = &c->used.entry[i];
        note(context, e->key, e->choice.name, e->choice.bytes, e->choice.us);
    }
}
