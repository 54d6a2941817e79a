/* gunzip.c - the bodies of gunzip.h. */
#include "gunzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void *allocate_for_zlib(void *unused, unsigned items, unsigned size)
{
    (void)unused;
    return calloc(items, size);
}

static void free_for_zlib(void *unused, void *block)
{
    (void)unused;
    free(block);
}

static Status start(Gunzip *g)
{
    g->z.zalloc = allocate_for_zlib;
    g->z.zfree = free_for_zlib;
    int result = inflateInit2(&g->z, 15 + 16); /* window 2^15; + 16: a gzip header is required */
    if (result != Z_OK)
        return status_error(STATUS_OOM, "%s: zlib cannot start: %s", g->path, zError(result));
    g->started = true;
    return status_ok();
}

Status gunzip_open(Gunzip *g, const char *path)
{
    memset(g, 0, sizeof *g);
    g->path = dataset_shown_path(path);
    g->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang it */
    if (g->file < 0)
        return dataset_file_error(path, errno);
    struct stat info;
    if (fstat(g->file, &info) != 0)
        return dataset_file_error(path, errno);
    g->packed_bytes = info.st_size > 0 ? (size_t)info.st_size : 0;
    return start(g);
}

Status gunzip_open_memory(Gunzip *g, const char *path, const uint8_t *data, size_t bytes)
{
    memset(g, 0, sizeof *g);
    g->path = dataset_shown_path(path);
    g->file = -1;
    g->rest = data;
    g->rest_bytes = g->packed_bytes = bytes;
    return start(g);
}

void gunzip_close(Gunzip *g)
{
    if (g->started)
        inflateEnd(&g->z);
    if (g->file >= 0)
        close(g->file);
}

bool gunzip_can_hold(const Gunzip *g, uint64_t bytes)
{
    return bytes / 1032 <= g->packed_bytes;
}

/* More packed bytes for zlib; leaves avail_in 0 at the end of the file. */
static Status refill(Gunzip *g)
{
    if (g->file < 0) {
        size_t most = (size_t)1 << 30, piece = g->rest_bytes < most ? g->rest_bytes : most; /* avail_in is 32 bits */
        g->z.next_in = (Bytef *)(uintptr_t)g->rest; /* zlib only reads it */
        g->z.avail_in = (unsigned)piece;
        g->rest += piece;
        g->rest_bytes -= piece;
        return status_ok();
    }
    ssize_t n;
    do
        n = read(g->file, g->in, sizeof g->in);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return dataset_file_error(g->path, errno);
    g->z.next_in = g->in;
    g->z.avail_in = (unsigned)n;
    return status_ok();
}

Status gunzip_some(Gunzip *g, uint8_t *out, size_t bytes, size_t *got)
{
    size_t done = 0;
    while (done < bytes && !g->ended) {
        if (g->z.avail_in == 0) {
            TRY(refill(g));
            if (g->z.avail_in == 0)
                return status_error(STATUS_INPUT, "%s: the gzip data is cut short", g->path);
        }
        size_t room = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30; /* avail_out is 32 bits */
        g->z.next_out = out + done;
        g->z.avail_out = (unsigned)room;
        int result = inflate(&g->z, Z_NO_FLUSH);
        done += room - g->z.avail_out;
        if (result == Z_MEM_ERROR)
            return status_error(STATUS_OOM, "%s: no memory to unpack", g->path);
        if (result != Z_OK && result != Z_STREAM_END)
            return status_error(STATUS_INPUT, "%s: gzip data: %s", g->path, g->z.msg ? g->z.msg : zError(result));
        g->ended = result == Z_STREAM_END;
    }
    *got = done;
    return status_ok();
}

Status gunzip_exactly(Gunzip *g, uint8_t *out, size_t bytes, const char *what)
{
    size_t got;
    TRY(gunzip_some(g, out, bytes, &got));
    if (got != bytes)
        return status_error(STATUS_INPUT, "%s: %s ends after %zu of %zu bytes", g->path, what, got, bytes);
    return status_ok();
}

Status gunzip_expect_end(Gunzip *g)
{
    uint8_t extra;
    size_t got;
    TRY(gunzip_some(g, &extra, 1, &got));
    if (got != 0)
        return status_error(STATUS_INPUT, "%s: more data than the header's counts say", g->path);
    if (g->z.avail_in == 0)
        TRY(refill(g));
    if (g->z.avail_in != 0)
        return status_error(STATUS_INPUT, "%s: trailing bytes after the gzip data", g->path);
    return status_ok();
}

/* Doubles the block until everything is in it. */
static Status unpack_growing(Gunzip *g, size_t most, Bytes *out)
{
    size_t room = g->packed_bytes < most / 4 ? 4 * g->packed_bytes + 1024 : most;
    for (;;) {
        room = room < most ? room : most;
        uint8_t *data = realloc(out->data, room);
        if (!data)
            return status_error(STATUS_OOM, "%s: no memory to unpack %zu bytes", g->path, room);
        out->data = data;
        size_t got;
        TRY(gunzip_some(g, data + out->size, room - out->size, &got));
        out->size += got;
        if (out->size < room || room == most)
            return gunzip_expect_end(g);
        room *= 2;
    }
}

Status gunzip_memory(const char *path, const Bytes *packed, size_t most, Bytes *out)
{
    *out = (Bytes){ NULL, 0 };
    Gunzip *g = malloc(sizeof *g); /* 33 kB: not on the stack */
    if (!g)
        return status_error(STATUS_OOM, "%s: no memory to unpack", dataset_shown_path(path));
    Status status = gunzip_open_memory(g, path, packed->data, packed->size);
    if (status.code == STATUS_OK)
        status = unpack_growing(g, most, out);
    gunzip_close(g);
    free(g);
    return status;
}
