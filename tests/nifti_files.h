/* nifti_files.h - NIfTI-1 files for tests, whole or broken on purpose. Failures end the cmocka test. */
#ifndef BATCHMARK_TESTS_NIFTI_FILES_H
#define BATCHMARK_TESTS_NIFTI_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NiftiSample {
    int16_t dim[8];          /* as in the header: dim[0] is their number */
    int16_t datatype, bits;
    float   offset;          /* vox_offset; bytes from 352 up to it are 0xEE */
    float   slope, inter;
    bool    big_endian;
    const double *values;    /* dim[1] * dim[2] * dim[3] of them */
} NiftiSample;

/* The bytes of such a file, to be freed. */
uint8_t *nifti_sample_make(const NiftiSample *sample, size_t *bytes);

/* The same, or the bytes packed by gzip, as a file. */
void nifti_sample_write(const NiftiSample *sample, const char *path, bool packed);

/* Any bytes packed by gzip, to be freed. */
uint8_t *nifti_pack(const uint8_t *data, size_t bytes, size_t *packed);

/* Overwrites one field of a file in memory. */
void nifti_put_int16(uint8_t *file, size_t at, int16_t value, bool big_endian);
void nifti_put_float(uint8_t *file, size_t at, float value, bool big_endian);

#endif
