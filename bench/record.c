/* record.c - the bodies of record.h: the document in memory, its checks, and its way to the disk. */
#include "record.h"

#include "env.h"
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_FORMAT = 1 };

static const char record_name[] = "record.json";

struct Record {
    char   *dir, *path; /* the folder as given; the file in it */
    int     lock;       /* the open folder, locked: two runs must not write one record; -1 = none */
    json_t *root;
};

/* The names of the lists, and the member that names an entry. */
static const struct { const char *list, *key; } lists[] = {
    [RECORD_CELLS] = { "cells", "name" },
    [RECORD_TRAININGS] = { "trainings", "name" },
    [RECORD_CLAIMS] = { "claims", "id" },
};

static Status out_of_memory(const char *what) { return status_error(STATUS_OOM, "out of memory for %s", what); }

/* ---- the file system ---- */

static Status join_path(const char *dir, const char *name, char **out)
{
    size_t nd = strlen(dir), nn = strlen(name);
    bool   slash = nd > 0 && dir[nd - 1] != '/';
    *out = malloc(nd + slash + nn + 1);
    if (!*out)
        return out_of_memory("a path");
    memcpy(*out, dir, nd);
    if (slash)
        (*out)[nd] = '/';
    memcpy(*out + nd + slash, name, nn + 1);
    return status_ok();
}

/* Makes one folder; one that is there already is fine. *made tells whether it is new. */
static Status make_folder(const char *path, bool *made)
{
    *made = mkdir(path, 0777) == 0;
    if (*made)
        return status_ok();
    int error = errno;
    struct stat st;
    if (error == EEXIST || error == EROFS || error == EACCES) /* the latter two also for parents that exist */
        if (stat(path, &st) == 0) {
            if (S_ISDIR(st.st_mode))
                return status_ok();
            return whole_file_error("make the folder", path, ENOTDIR);
        }
    return whole_file_error("make the folder", path, error);
}

/* The folder and its parents. *made: the last one is new. */
static Status make_folders(const char *dir, bool *made)
{
    *made = false;
    if (!*dir)
        return status_error(STATUS_USAGE, "the output folder has an empty name");
    char *path;
    TRY(join_path(dir, "", &path));
    Status s = status_ok();
    for (char *at = path + 1; *at && s.code == STATUS_OK; at++)
        if (*at == '/' && at[-1] != '/') {
            *at = '\0';
            s = make_folder(path, made);
            *at = '/';
        }
    free(path);
    return s;
}

static Status lock_folder(const char *dir, int *lock)
{
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return whole_file_error("open the folder", dir, errno);
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) /* where locks do not work, go without */
        return status_error(STATUS_USAGE, "%s is being written by another run; wait for it or choose another folder", dir);
    return status_ok();
}

/* ---- writing ---- */

json_t *record_real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* jansson itself turns the locale's decimal separator into '.', both ways. */
Status record_dump(const json_t *root, FILE *to)
{
    errno = 0;
    bool ok = json_dumpf(root, to, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0;
    if (!ok && !ferror(to))
        return out_of_memory("writing JSON");
    if (ok && fputc('\n', to) != EOF && fflush(to) == 0)
        return status_ok();
    return status_error(STATUS_IO, "%s", strerror(errno ? errno : EIO));
}

Status record_save(const json_t *root, const char *path)
{
    WholeFile file;
    TRY(whole_file_open(path, &file));
    return whole_file_close(&file, status_context(record_dump(root, file.to), "cannot write %s", path));
}

/* ---- checking what was read ---- */

static Status wrong(const char *path, const char *format, ...) PRINTF_LIKE(2, 3);
static Status wrong(const char *path, const char *format, ...)
{
    char what[STATUS_TEXT_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    for (char *c = what; *c; c++) /* texts of the record are quoted in it, and a Status is one line */
        if ((unsigned char)*c < ' ')
            *c = ' ';
    return status_error(STATUS_INPUT, "%s: %s", path, what);
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = { "an object", "an array", "a text", "an integer", "a real", "true", "false", "null" };
    return value ? names[json_typeof(value)] : "missing";
}

static Status check_member(const char *path, const json_t *object, const char *where, const char *name, json_type type)
{
    static const char *const wanted[] = { "an object", "an array", "a text", "an integer" };
    const json_t *value = json_object_get(object, name);
    if (value && json_typeof(value) == type)
        return status_ok();
    return wrong(path, "%s%s must be %s, but is %s", where, name, wanted[type], type_name(value));
}

static Status check_status(const char *path, const json_t *entry, const char *where)
{
    static const char *const known[] = { "ok", "oom", "skipped", "failed" };
    TRY(check_member(path, entry, where, "status", JSON_STRING));
    const char *status = json_string_value(json_object_get(entry, "status"));
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strcmp(status, known[i]) == 0)
            return status_ok();
    return wrong(path, "%sstatus is \"%.40s\", must be ok, oom, skipped or failed", where, status);
}

static Status check_list(const char *path, const json_t *root, RecordList list)
{
    TRY(check_member(path, root, "", lists[list].list, JSON_ARRAY));
    const json_t *entries = json_object_get(root, lists[list].list);
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        char where[48];
        snprintf(where, sizeof where, "%s[%zu]", lists[list].list, i);
        if (!json_is_object(entry))
            return wrong(path, "%s must be an object, but is %s", where, type_name(entry));
        strcat(where, ".");
        TRY(check_member(path, entry, where, lists[list].key, JSON_STRING));
        if (list == RECORD_CLAIMS) {
            TRY(check_member(path, entry, where, "verdict", JSON_STRING));
            continue;
        }
        TRY(check_member(path, entry, where, "axes", JSON_OBJECT));
        TRY(check_status(path, entry, where));
    }
    return status_ok();
}

static Status check_run(const char *path, const json_t *run)
{
    TRY(check_member(path, run, "run.", "id", JSON_STRING));
    TRY(check_member(path, run, "run.", "started", JSON_STRING));
    TRY(check_member(path, run, "run.", "command", JSON_ARRAY));
    const json_t *command = json_object_get(run, "command");
    for (size_t i = 0; i < json_array_size(command); i++)
        if (!json_is_string(json_array_get(command, i)))
            return wrong(path, "run.command[%zu] must be a text, but is %s", i, type_name(json_array_get(command, i)));
    return check_member(path, run, "run.", "options", JSON_OBJECT);
}

static Status check_record(const char *path, const json_t *root)
{
    const json_t *tool = json_object_get(root, "tool"), *format = json_object_get(root, "format");
    const char *name = json_string_value(json_object_get(tool, "name"));
    if (!name)
        return wrong(path, "not a batchmark record: tool.name is %s", type_name(json_object_get(tool, "name")));
    if (strcmp(name, "batchmark") != 0)
        return wrong(path, "not a batchmark record: it was written by \"%.60s\"", name);
    if (!json_is_integer(format))
        return wrong(path, "format must be the integer %d, but is %s", RECORD_FORMAT, type_name(format));
    if (json_integer_value(format) != RECORD_FORMAT)
        return wrong(path, "the record has format %lld, this build reads format %d", (long long)json_integer_value(format),
                     RECORD_FORMAT);
    TRY(check_member(path, root, "", "run", JSON_OBJECT));
    TRY(check_run(path, json_object_get(root, "run")));
    TRY(check_member(path, root, "", "environment", JSON_OBJECT));
    TRY(check_list(path, root, RECORD_CELLS));
    TRY(check_list(path, root, RECORD_TRAININGS));
    return check_list(path, root, RECORD_CLAIMS);
}

/* ---- reading ---- */

static Status parse(const char *path, FILE *from, json_t **root)
{
    json_error_t at = { .text = "" };
    *root = json_loadf(from, JSON_REJECT_DUPLICATES, &at);
    if (ferror(from))
        return whole_file_error("read", path, errno ? errno : EIO);
    /* jansson 2.14 takes some failed allocations for a syntax error and loses letters at others; malloc's errno tells */
    if (errno == ENOMEM || (!*root && json_error_code(&at) == json_error_out_of_memory))
        return out_of_memory(path);
    if (*root)
        return status_ok();
    if (at.position == 0 && feof(from))
        return wrong(path, "the file is empty");
    bool cut = json_error_code(&at) == json_error_premature_end_of_input;
    return wrong(path, "%s at line %d, column %d: %s", cut ? "cut short" : "not JSON, or cut short", at.line, at.column, at.text);
}

Status record_read(FILE *from, const char *path, json_t **root)
{
    *root = NULL;
    errno = 0;
    Status s = parse(path, from, root);
    if (s.code == STATUS_OK)
        s = check_record(path, *root);
    if (s.code != STATUS_OK) {
        json_decref(*root);
        *root = NULL;
    }
    return s;
}

static Status load_file(const char *path, json_t **root)
{
    *root = NULL;
    FILE *from = fopen(path, "re");
    if (!from) {
        int error = errno;
        if (error == ENOENT || error == ENOTDIR)
            return wrong(path, "there is no such record");
        return whole_file_error("read", path, error);
    }
    Status s = record_read(from, path, root);
    fclose(from);
    return s;
}

Status record_load(const char *path, json_t **root)
{
    *root = NULL;
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return load_file(path, root);
    char *file;
    TRY(join_path(path, record_name, &file));
    Status s = load_file(file, root);
    free(file);
    return s;
}

/* ---- a record being written ---- */

static Status record_alloc(const char *dir, Record **out)
{
    Record *r = calloc(1, sizeof *r);
    if (!r)
        return out_of_memory("the record");
    r->lock = -1;
    Status s = status_ok();
    r->dir = malloc(strlen(dir) + 1);
    if (!r->dir)
        TRY_GOTO(s, out_of_memory("the record"), failed);
    strcpy(r->dir, dir);
    TRY_GOTO(s, join_path(dir, record_name, &r->path), failed);
    *out = r;
    return s;
failed:
    record_close(r);
    return s;
}

/* Adds a member; false when there is no memory. The value is taken over in any case. */
static bool set(json_t *object, const char *name, json_t *value) { return json_object_set_new(object, name, value) == 0; }

static Status make_document(json_t *run, json_t *environment, json_t **out)
{
    json_t *root = json_object(), *tool = NULL;
    Status s = env_tool(&tool);
    bool ok = set(root, "format", json_integer(RECORD_FORMAT));
    ok = set(root, "tool", tool) && ok;
    ok = set(root, "run", json_incref(run)) && ok;
    ok = set(root, "environment", json_incref(environment)) && ok;
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        ok = set(root, lists[i].list, json_array()) && ok;
    if (s.code == STATUS_OK && !ok)
        s = out_of_memory("the record");
    if (s.code != STATUS_OK) {
        json_decref(root);
        root = NULL;
    }
    *out = root;
    return s;
}

Status record_create(const char *dir, json_t *run, json_t *environment, Record **out)
{
    Record *r = NULL;
    bool    made = false;
    struct stat st;
    *out = NULL;
    Status s = record_alloc(dir, &r);
    if (s.code != STATUS_OK)
        goto done;
    TRY_GOTO(s, make_document(run, environment, &r->root), done);
    TRY_GOTO(s, make_folders(dir, &made), done);
    TRY_GOTO(s, lock_folder(dir, &r->lock), done);
    if (lstat(r->path, &st) == 0)
        TRY_GOTO(s, status_error(STATUS_USAGE, "%s is there already; choose another folder, or go on with it by --resume", r->path), done);
    TRY_GOTO(s, record_save(r->root, r->path), done);
    *out = r;
    r = NULL;
done:
    record_close(r);
    if (s.code != STATUS_OK && made)
        rmdir(dir); /* nothing was put into it */
    json_decref(run);
    json_decref(environment);
    return s;
}

Status record_open(const char *dir, Record **out)
{
    Record *r = NULL;
    *out = NULL;
    TRY(record_alloc(dir, &r));
    Status s;
    TRY_GOTO(s, load_file(r->path, &r->root), failed); /* first: it says best what is wrong with the folder */
    TRY_GOTO(s, lock_folder(dir, &r->lock), failed);
    json_decref(r->root); /* again, now that nobody else can write it */
    TRY_GOTO(s, load_file(r->path, &r->root), failed);
    if (!set(json_object_get(r->root, "run"), "finished", json_null()))
        TRY_GOTO(s, out_of_memory("the record"), failed);
    TRY_GOTO(s, record_save(r->root, r->path), failed); /* now, not after the first cell, show that it can be written */
    *out = r;
    return s;
failed:
    record_close(r);
    return s;
}

void record_close(Record *r)
{
    if (!r)
        return;
    if (r->lock >= 0)
        close(r->lock);
    json_decref(r->root);
    free(r->path);
    free(r->dir);
    free(r);
}

const char   *record_dir(const Record *r) { return r->dir; }
const json_t *record_root(const Record *r) { return r->root; }

/* The index of the entry of that name, or the length of the list. */
static size_t find_index(const Record *r, RecordList list, const char *name)
{
    const json_t *entries = json_object_get(r->root, lists[list].list);
    size_t i = 0;
    for (; i < json_array_size(entries); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(entries, i), lists[list].key)), name) == 0)
            break;
    return i;
}

json_t *record_find(const Record *r, RecordList list, const char *name)
{
    return json_array_get(json_object_get(r->root, lists[list].list), find_index(r, list, name));
}

Status record_put(Record *r, RecordList list, json_t *entry)
{
    if (!entry)
        return out_of_memory("an entry of the record");
    const char *name = json_string_value(json_object_get(entry, lists[list].key));
    CHECK(name);
    json_t *entries = json_object_get(r->root, lists[list].list);
    size_t i = find_index(r, list, name);
    int failed = i < json_array_size(entries) ? json_array_set_new(entries, i, entry) : json_array_append_new(entries, entry);
    return failed ? out_of_memory("an entry of the record") : record_save(r->root, r->path);
}

Status record_set_peaks(Record *r, json_t *peaks)
{
    if (!set(json_object_get(r->root, "environment"), "peaks", peaks))
        return out_of_memory("the record");
    return record_save(r->root, r->path);
}

Status record_finish(Record *r)
{
    char now[24];
    if (!set(json_object_get(r->root, "run"), "finished", json_string(env_timestamp(now, sizeof now))))
        return out_of_memory("the record");
    return record_save(r->root, r->path);
}
