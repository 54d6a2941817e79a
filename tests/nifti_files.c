/* nifti_files.c - the bodies of nifti_files.h. */
#include "nifti_files.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

static void put(uint8_t *at, const void *value, size_t bytes, bool big_endian)
{
    for (size_t i = 0; i < bytes; i++)
        at[big_endian ? bytes - 1 - i : i] = ((const uint8_t *)value)[i];
}

void nifti_put_int16(uint8_t *file, size_t at, int16_t value, bool big_endian)
{
    put(file + at, &value, 2, big_endian);
}

void nifti_put_float(uint8_t *file, size_t at, float value, bool big_endian)
{
    put(file + at, &value, 4, big_endian);
}

static void put_voxel(uint8_t *at, int16_t datatype, double value, bool swap)
{
    switch (datatype) {
    case 2: put(at, &(uint8_t){ (uint8_t)value }, 1, swap); break;
    case 4: put(at, &(int16_t){ (int16_t)value }, 2, swap); break;
    case 8: put(at, &(int32_t){ (int32_t)value }, 4, swap); break;
    case 16: put(at, &(float){ (float)value }, 4, swap); break;
    case 64: put(at, &value, 8, swap); break;
    case 256: put(at, &(int8_t){ (int8_t)value }, 1, swap); break;
    case 512: put(at, &(uint16_t){ (uint16_t)value }, 2, swap); break;
    case 768: put(at, &(uint32_t){ (uint32_t)value }, 4, swap); break;
    default: fail_msg("no datatype %d", datatype);
    }
}

uint8_t *nifti_sample_make(const NiftiSample *sample, size_t *bytes)
{
    size_t voxels = (size_t)sample->dim[1] * (size_t)sample->dim[2] * (size_t)sample->dim[3];
    size_t each = (size_t)sample->bits / 8, start = (size_t)sample->offset;
    *bytes = start + voxels * each;
    uint8_t *file = calloc(1, *bytes);
    assert_non_null(file);
    bool big = sample->big_endian;
    put(file, &(int32_t){ 348 }, 4, big);
    for (size_t i = 0; i < 8; i++)
        nifti_put_int16(file, 40 + 2 * i, sample->dim[i], big);
    nifti_put_int16(file, 70, sample->datatype, big);
    nifti_put_int16(file, 72, sample->bits, big);
    nifti_put_float(file, 108, sample->offset, big);
    nifti_put_float(file, 112, sample->slope, big);
    nifti_put_float(file, 116, sample->inter, big);
    memcpy(file + 344, "n+1", 4);
    memset(file + 352, 0xEE, start - 352);
    for (size_t i = 0; i < voxels; i++)
        put_voxel(file + start + i * each, sample->datatype, sample->values[i], big);
    return file;
}

uint8_t *nifti_pack(const uint8_t *data, size_t bytes, size_t *packed)
{
    z_stream z = { .next_in = (Bytef *)(uintptr_t)data, .avail_in = (unsigned)bytes };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK); /* + 16: gzip */
    size_t room = deflateBound(&z, bytes);
    uint8_t *out = malloc(room);
    assert_non_null(out);
    z.next_out = out;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *packed = z.total_out;
    deflateEnd(&z);
    return out;
}

void nifti_sample_write(const NiftiSample *sample, const char *path, bool packed)
{
    size_t bytes;
    uint8_t *file = nifti_sample_make(sample, &bytes);
    if (packed) {
        uint8_t *plain = file;
        file = nifti_pack(plain, bytes, &bytes);
        free(plain);
    }
    sample_write(path, file, bytes);
    free(file);
}
