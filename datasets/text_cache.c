/* text_cache.c - a tokenised corpus in one local file, so that only the first run reads and trains.
 *
 * CacheHeader, then the vocabulary as the text of a vocab.txt, then end (int64), tokens (int32), labels (int32) and
 * test (bytes) of the corpus, all in this machine's byte order. The header says what the corpus was made from; a file
 * that does not fit, is cut or fails its checksum is passed over and written anew. */
#include "text_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CACHE_VERSION = 1 };

static const char magic[8] = { 'b', 'm', 't', 'e', 'x', 't', '\r', '\n' };

typedef struct CacheHeader {
    char     magic[8];
    uint32_t version;
    uint32_t byte_order;   /* 0x01020304 */
    uint64_t source_bytes;
    uint32_t source_crc, vocab_crc;
    int64_t  vocab_size;   /* as asked for; the vocabulary itself may be larger or smaller where that is 0 */
    int64_t  vocab_bytes;  /* of the section that follows */
    int64_t  documents, tokens;
    uint32_t payload_crc;  /* of all that follows the header */
    uint32_t header_crc;   /* of the header up to here */
} CacheHeader;

static uint32_t crc(uint32_t start, const void *bytes, size_t length)
{
    return (uint32_t)crc32_z(start, bytes, length);
}

/* ---- where ---- */

void cache_locate(const char *name, const char *dir, CacheKey *key)
{
    uint32_t place = crc(crc(0, dir, strlen(dir)), &key->vocab_crc, sizeof key->vocab_crc);
    place = crc(place, &key->vocab_size, sizeof key->vocab_size);
    const char *own = getenv("BATCHMARK_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int bytes = 0;
    size_t room = sizeof key->path;
    key->path[0] = '\0';
    if (own && !*own)
        return;
    if (own)
        bytes = snprintf(key->path, room, "%s/text-%s-%08x.cache", own, name, (unsigned)place);
    else if (xdg && *xdg == '/') /* the XDG specification: relative ones are ignored */
        bytes = snprintf(key->path, room, "%s/batchmark/text-%s-%08x.cache", xdg, name, (unsigned)place);
    else if (home && *home)
        bytes = snprintf(key->path, room, "%s/.cache/batchmark/text-%s-%08x.cache", home, name, (unsigned)place);
    if (bytes < 0 || (size_t)bytes >= room)
        key->path[0] = '\0';
}

/* ---- reading ---- */

static size_t payload_bytes(const CacheHeader *h)
{
    return (size_t)h->vocab_bytes + (size_t)h->documents * (sizeof(int64_t) + sizeof(int32_t) + 1) +
           (size_t)h->tokens * sizeof(int32_t);
}

static bool header_fits(const CacheHeader *h, const CacheKey *key, const FileBytes *file)
{
    int64_t most = (int64_t)file->length;
    return memcmp(h->magic, magic, sizeof magic) == 0 && h->version == CACHE_VERSION && h->byte_order == 0x01020304 &&
           h->header_crc == crc(0, h, offsetof(CacheHeader, header_crc)) && h->source_bytes == key->source_bytes &&
           h->source_crc == key->source_crc && h->vocab_crc == key->vocab_crc && h->vocab_size == key->vocab_size &&
           h->vocab_bytes > 0 && h->vocab_bytes <= most && h->documents > 0 && h->documents <= most && h->tokens > 0 &&
           h->tokens <= most && file->length == sizeof *h + payload_bytes(h) &&
           h->payload_crc == crc(0, file->bytes + sizeof *h, payload_bytes(h));
}

static Status copy_arrays(const CacheHeader *h, const char *from, Corpus *out)
{
    size_t documents = (size_t)h->documents, tokens = (size_t)h->tokens;
    out->end = malloc(documents * sizeof *out->end);
    out->tokens.id = malloc(tokens * sizeof *out->tokens.id);
    out->label = malloc(documents * sizeof *out->label);
    out->test = malloc(documents);
    if (!out->end || !out->tokens.id || !out->label || !out->test)
        return status_error(STATUS_OOM, "text: no memory for %zu documents of %zu tokens", documents, tokens);
    memcpy(out->end, from, documents * sizeof *out->end);
    from += documents * sizeof *out->end;
    memcpy(out->tokens.id, from, tokens * sizeof *out->tokens.id);
    from += tokens * sizeof *out->tokens.id;
    memcpy(out->label, from, documents * sizeof *out->label);
    from += documents * sizeof *out->label;
    memcpy(out->test, from, documents);
    out->documents = h->documents;
    out->tokens.count = out->tokens.capacity = h->tokens;
    return status_ok();
}

static bool corpus_is_sound(const Corpus *corpus)
{
    for (int64_t i = 0, before = 0; i < corpus->documents; before = corpus->end[i++])
        if (corpus->end[i] < before || corpus->end[i] > corpus->tokens.count || corpus->test[i] > 1 ||
            corpus->label[i] < 0 || corpus->label[i] >= WORDNET_FILES)
            return false;
    for (int64_t i = 0; i < corpus->tokens.count; i++)
        if (corpus->tokens.id[i] < 0 || corpus->tokens.id[i] >= corpus->vocab.entries.count)
            return false;
    return corpus->end[corpus->documents - 1] == corpus->tokens.count;
}

static Status read_corpus(const FileBytes *file, const CacheKey *key, Corpus *out, bool *found)
{
    CacheHeader h;
    if (file->length < sizeof h)
        return status_ok();
    memcpy(&h, file->bytes, sizeof h);
    if (!header_fits(&h, key, file))
        return status_ok();
    const char *from = file->bytes + sizeof h;
    TRY(vocab_parse(from, (size_t)h.vocab_bytes, "cached vocabulary", 0, &out->vocab));
    TRY(copy_arrays(&h, from + h.vocab_bytes, out));
    *found = corpus_is_sound(out);
    return status_ok();
}

Status cache_load(const CacheKey *key, Corpus *out, bool *found)
{
    *found = false;
    memset(out, 0, sizeof *out);
    if (!key->path[0])
        return status_ok();
    FileBytes file;
    Status status = file_read(key->path, NULL, &file);
    if (status.code == STATUS_OK)
        status = read_corpus(&file, key, out, found);
    file_free(&file);
    if (!*found)
        corpus_free(out);
    return status.code == STATUS_OOM ? status : status_ok();
}

/* ---- writing ---- */

/* Makes the directories that lead to the file; where one is refused, opening the file will tell. */
static void make_directories(char *path)
{
    for (char *slash = path; (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
}

/* The payload in one block that the caller frees; h gets its sizes. */
static Status gather(const Corpus *corpus, CacheHeader *h, char **out)
{
    const Strings *entries = &corpus->vocab.entries;
    h->vocab_bytes = (int64_t)entries->length;
    h->documents = corpus->documents;
    h->tokens = corpus->tokens.count;
    char *to = malloc(payload_bytes(h));
    if (!to)
        return status_error(STATUS_OOM, "text: no memory to write a cache of %zu bytes", payload_bytes(h));
    *out = to;
    memcpy(to, entries->bytes, entries->length);
    for (int64_t i = 0; i < entries->count; i++)
        to[entries->start[i + 1] - 1] = '\n';
    to += entries->length;
    size_t documents = (size_t)corpus->documents, tokens = (size_t)corpus->tokens.count;
    memcpy(to, corpus->end, documents * sizeof *corpus->end);
    to += documents * sizeof *corpus->end;
    memcpy(to, corpus->tokens.id, tokens * sizeof *corpus->tokens.id);
    to += tokens * sizeof *corpus->tokens.id;
    memcpy(to, corpus->label, documents * sizeof *corpus->label);
    memcpy(to + documents * sizeof *corpus->label, corpus->test, documents);
    return status_ok();
}

static bool write_file(const char *temporary, int descriptor, const CacheHeader *h, const char *payload)
{
    FILE *handle = fdopen(descriptor, "wb");
    if (!handle) {
        close(descriptor);
        return false;
    }
    bool written = fwrite(h, sizeof *h, 1, handle) == 1 && fwrite(payload, payload_bytes(h), 1, handle) == 1;
    written = fclose(handle) == 0 && written;
    return written && chmod(temporary, 0644) == 0;
}

Status cache_save(const CacheKey *key, const Corpus *corpus)
{
    if (!key->path[0] || corpus->tokens.count == 0)
        return status_ok();
    CacheHeader h;
    memset(&h, 0, sizeof h); /* padding bytes too */
    memcpy(h.magic, magic, sizeof magic);
    h.version = CACHE_VERSION;
    h.byte_order = 0x01020304;
    h.source_bytes = key->source_bytes;
    h.source_crc = key->source_crc;
    h.vocab_crc = key->vocab_crc;
    h.vocab_size = key->vocab_size;
    char *payload = NULL;
    TRY(gather(corpus, &h, &payload));
    h.payload_crc = crc(0, payload, payload_bytes(&h));
    h.header_crc = crc(0, &h, offsetof(CacheHeader, header_crc));

    char temporary[sizeof key->path + 8];
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", key->path);
    make_directories(temporary);
    int descriptor = mkstemp(temporary);
    if (descriptor >= 0 && (!write_file(temporary, descriptor, &h, payload) || rename(temporary, key->path) != 0))
        unlink(temporary);
    free(payload);
    return status_ok();
}
