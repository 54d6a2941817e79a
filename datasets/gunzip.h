/* gunzip.h - private to datasets/: unpacks gzip data strictly, from a file or from memory, piece by piece.
 *
 * zlib's own gzread is not used: it passes files that are not gzip, and ignores what follows the packed data. Errors
 * are STATUS_INPUT, STATUS_IO or STATUS_OOM and begin with the file's name. */
#ifndef BATCHMARK_DATASETS_GUNZIP_H
#define BATCHMARK_DATASETS_GUNZIP_H

#include "files.h"

#include <zlib.h>

typedef struct Gunzip {
    const char    *path;           /* as shown in errors */
    int            file;           /* -1: from memory */
    const uint8_t *rest;           /* from memory: the packed bytes not yet handed to zlib ... */
    size_t         rest_bytes;     /* ... and their number */
    size_t         packed_bytes;   /* in all */
    z_stream       z;
    bool           started, ended; /* inflateInit2 was called; the end of the gzip member was reached */
    uint8_t        in[32768];      /* from a file: a piece of it */
} Gunzip;

/* gunzip_close is due after either, also where it failed. `path` and `data` must outlive g. */
Status gunzip_open(Gunzip *g, const char *path);
Status gunzip_open_memory(Gunzip *g, const char *path, const uint8_t *data, size_t bytes);
void   gunzip_close(Gunzip *g);

/* Could this much come out of the packed bytes? Deflate's best code is 2 bits for 258 bytes, 1 : 1032. A header that
 * claims more is broken, and is not worth an allocation. */
bool gunzip_can_hold(const Gunzip *g, uint64_t bytes);

/* Unpacks up to `bytes` into out; *got is less only when the packed data ended, whole and with a right checksum. */
Status gunzip_some(Gunzip *g, uint8_t *out, size_t bytes, size_t *got);

/* The same, where fewer is an error; `what` names the part of the file that is cut. */
Status gunzip_exactly(Gunzip *g, uint8_t *out, size_t bytes, const char *what);

/* Nothing may follow, neither unpacked nor behind the gzip data. */
Status gunzip_expect_end(Gunzip *g);

/* All of gzip data in memory, at most `most` bytes of it. out->data may be set on failure too: the caller frees it. */
Status gunzip_memory(const char *path, const Bytes *packed, size_t most, Bytes *out);

#endif
