/* nifti.h - private to datasets/: one volume of numbers from a NIfTI-1 file (Cox et al. 2004, nifti1.h), packed by gzip
 * or not. */
#ifndef BATCHMARK_DATASETS_NIFTI_H
#define BATCHMARK_DATASETS_NIFTI_H

#include "files.h"

/* A larger file, packed or unpacked, is refused: 2^30 bytes are a head of 0.2 mm in 16 bits. */
#define NIFTI_MAX_BYTES (INT64_C(1) << 30)

typedef struct Volume {
    int64_t dim[3]; /* x, y, z; x varies fastest */
    float  *voxels; /* (z, y, x), scaled by the header's slope and intercept; all finite; free() */
} Volume;

/* From a file, or from the bytes of one; `name` begins the error lines. Both byte orders; voxels of 8 to 32 bits, signed
 * or unsigned, float32 or float64; one volume (dim 4 and up are 1). The orientation fields are not read. Errors:
 * STATUS_INPUT naming file and field for anything that the file's size or the standard contradicts; STATUS_IO;
 * STATUS_OOM. On success the caller frees out->voxels. */
Status nifti_read(const char *path, Volume *out);
Status nifti_parse(const char *name, const Bytes *file, Volume *out);

#endif
