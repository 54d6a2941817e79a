/* idx.h - private to datasets/: the reader of gzipped IDX data, on a block of memory as well as on idx.c's own files. */
#ifndef BATCHMARK_DATASETS_IDX_H
#define BATCHMARK_DATASETS_IDX_H

#include "../kernels/base.h"

enum { MAGIC_IMAGES = 0x803, MAGIC_LABELS = 0x801 };

/* Reads the bytes of a gzipped IDX file with this magic: *count images of 28 x 28 bytes, or *count labels. *data may be
 * set on failure too: the caller frees it either way. Errors as dataset_open's, beginning with `name`. */
Status idx_read_memory(const char *name, const uint8_t *file, size_t bytes, uint32_t magic, uint8_t **data,
                       int64_t *count);

#endif
