/* test_nifti.c - volumes from NIfTI-1 files: every datatype in both byte orders, and everything a header can get wrong. */
#include "../datasets/nifti.h"
#include "fault_alloc.h"
#include "nifti_files.h"
#include "sample_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { X = 2, Y = 3, Z = 4, VOXELS = X * Y * Z };
enum { DIM = 40, DATATYPE = 70, BITPIX = 72, VOX_OFFSET = 108, SLOPE = 112, INTER = 116, MAGIC = 344 };

static double values[VOXELS];

static int number_the_voxels(void **state)
{
    (void)state;
    for (int i = 0; i < VOXELS; i++)
        values[i] = 3 * i;
    return 0;
}

static NiftiSample sample_of(int16_t datatype, int16_t bits)
{
    return (NiftiSample){ .dim = { 3, X, Y, Z, 1, 1, 1, 1 }, .datatype = datatype, .bits = bits, .offset = 352, .values = values };
}

/* Parses and frees the bytes; every voxel must be slope * value + inter. */
static void expect_voxels(uint8_t *file, size_t bytes, double slope, double inter)
{
    Volume volume;
    Status status = nifti_parse("head.nii", &(Bytes){ file, bytes }, &volume);
    if (status.code != STATUS_OK)
        fail_msg("nifti_parse: %s", status.text);
    assert_int_equal(volume.dim[0], X);
    assert_int_equal(volume.dim[1], Y);
    assert_int_equal(volume.dim[2], Z);
    for (int i = 0; i < VOXELS; i++)
        assert_true((double)volume.voxels[i] == slope * values[i] + inter);
    free(volume.voxels);
    free(file);
}

static void every_datatype_in_both_byte_orders(void **state)
{
    (void)state;
    static const int16_t types[][3] = { /* code, bits, the value of voxel 5 */
        { 2, 8, 255 }, { 256, 8, -128 }, { 4, 16, -32768 }, { 512, 16, 32767 }, { 8, 32, -30000 }, { 768, 32, 32000 },
        { 16, 32, -7 }, { 64, 64, -9 },
    };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        for (int variant = 0; variant < 4; variant++) {
            NiftiSample sample = sample_of(types[t][0], types[t][1]);
            values[5] = types[t][2];
            sample.big_endian = variant & 1;
            size_t bytes;
            uint8_t *file = nifti_sample_make(&sample, &bytes);
            if (variant & 2) {
                uint8_t *plain = file;
                file = nifti_pack(plain, bytes, &bytes);
                free(plain);
            }
            expect_voxels(file, bytes, 1, 0);
        }
    }
    number_the_voxels(NULL);
}

static void expect_sample(const NiftiSample *sample, double slope, double inter)
{
    size_t bytes;
    uint8_t *file = nifti_sample_make(sample, &bytes);
    expect_voxels(file, bytes, slope, inter);
}

static void offset_scale_and_trailing_dimensions(void **state)
{
    (void)state;
    NiftiSample sample = sample_of(2, 8);
    sample.offset = 416;
    sample.slope = 2;
    sample.inter = -3;
    expect_sample(&sample, 2, -3);
    sample.slope = 0; /* not scaled, whatever the intercept */
    expect_sample(&sample, 1, 0);
    sample.dim[0] = 5; /* one volume of one kind */
    expect_sample(&sample, 1, 0);
}

typedef struct Defect {
    size_t      at;
    bool        is_float;
    double      value;
    const char *field, *why;
} Defect;

static const Defect defects[] = {
    { DIM, false, 0, "dim[0] is 0", "3..7" },
    { DIM, false, 2, "dim[0] is 2", "3..7" },
    { DIM, false, 8, "dim[0] is 8", "3..7" },
    { DIM, false, -3, "dim[0] is -3", "3..7" },
    { DIM + 2, false, 0, "dim[1] is 0", "at least 1" },
    { DIM + 4, false, -3, "dim[2] is -3", "at least 1" },
    { DIM + 6, false, 32767, "32767", "cut short" },
    { DIM + 6, false, 5, "2 x 3 x 5 needs 60 bytes", "cut short" },
    { DIM + 6, false, 3, "2 x 3 x 3 needs 36 bytes", "48 follow" },
    { DATATYPE, false, 128, "datatype 128", "not one of" }, /* RGB */
    { DATATYPE, false, 1, "datatype 1", "not one of" },
    { DATATYPE, false, 0, "datatype 0", "not one of" },
    { DATATYPE, false, 2, "bitpix is 16", "datatype 2 has 8 bits" },
    { BITPIX, false, 8, "bitpix is 8", "datatype 4 has 16 bits" },
    { VOX_OFFSET, true, 0, "vox_offset is 0", "352.." },
    { VOX_OFFSET, true, -352, "vox_offset is -352", "352.." },
    { VOX_OFFSET, true, 352.5, "vox_offset is 352.5", "whole number" },
    { VOX_OFFSET, true, 1e30, "vox_offset is 1e+30", "352.." },
    { VOX_OFFSET, true, (double)NAN, "vox_offset is ", "352.." },
    { VOX_OFFSET, true, (double)INFINITY, "vox_offset is inf", "352.." },
    { VOX_OFFSET, true, 400, "0 follow vox_offset 400", "cut short" },
    { VOX_OFFSET, true, 354, "46 follow vox_offset 354", "cut short" },
    { SLOPE, true, (double)NAN, "scl_slope", "finite" },
    { INTER, true, (double)INFINITY, "scl_inter inf", "finite" },
    { MAGIC, false, 1, "magic 'ni1'", "another file" },
    { MAGIC, false, 0, "magic 0x0000", "n+1" },
    { 0, false, 540, "sizeof_hdr is 540", "348" }, /* NIfTI-2 */
    { 0, false, 0, "sizeof_hdr is 0", "348" },
};

static void expect_refusal(const uint8_t *file, size_t bytes, const char *word, const char *word2)
{
    Volume volume;
    int64_t live = fault_alloc_live();
    Status status = nifti_parse("dir/head.nii", &(Bytes){ (uint8_t *)(uintptr_t)file, bytes }, &volume);
    if (status.code != STATUS_INPUT || !strstr(status.text, word) || !strstr(status.text, word2) ||
        strncmp(status.text, "dir/head.nii: ", 14) != 0)
        fail_msg("expected input, '%s' and '%s', got %s: %s", word, word2, status_code_name(status.code), status.text);
    assert_null(volume.voxels);
    assert_int_equal(fault_alloc_live(), live);
}

static void every_field_is_checked(void **state)
{
    (void)state;
    for (int big = 0; big < 2; big++) {
        for (size_t i = 0; i < COUNT_OF(defects); i++) {
            const Defect *d = &defects[i];
            NiftiSample sample = sample_of(4, 16);
            sample.big_endian = big;
            size_t bytes;
            uint8_t *file = nifti_sample_make(&sample, &bytes);
            if (d->at == MAGIC)
                memcpy(file + MAGIC, d->value > 0 ? "ni1" : "\0\0\0\0", 4);
            else if (d->is_float)
                nifti_put_float(file, d->at, (float)d->value, big);
            else if (d->at == 0)
                nifti_put_int16(file, big ? 2 : 0, (int16_t)d->value, big);
            else
                nifti_put_int16(file, d->at, (int16_t)d->value, big);
            if (d->at != 0 || !big) /* a wrong sizeof_hdr has no byte order */
                expect_refusal(file, bytes, d->field, d->why);
            free(file);
        }
    }
}

static void huge_dimensions_cost_nothing(void **state)
{
    (void)state;
    NiftiSample sample = sample_of(64, 64);
    size_t bytes, packed_bytes;
    uint8_t *file = nifti_sample_make(&sample, &bytes);
    for (size_t i = 1; i <= 3; i++)
        nifti_put_int16(file, DIM + 2 * i, 32767, false);
    uint8_t *packed = nifti_pack(file, bytes, &packed_bytes);
    expect_refusal(file, bytes, "32767 x 32767 x 32767", "cut short");
    expect_refusal(packed, packed_bytes, "32767 x 32767 x 32767", "cut short");
    free(packed);
    free(file);
}

/* A plain and a packed file, cut at every length. */
static void cut_and_long_files(void **state)
{
    (void)state;
    NiftiSample sample = sample_of(4, 16);
    size_t bytes, packed_bytes;
    uint8_t *file = nifti_sample_make(&sample, &bytes), *packed = nifti_pack(file, bytes, &packed_bytes);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *copy = malloc(n + 1); /* of its own, so that reading past the end shows */
        memcpy(copy, file, n);
        expect_refusal(copy, n, n < 348 ? "header ends" : "head.nii", n < 348 ? "of 348" : n < 352 ? "vox_offset" : "cut short");
        free(copy);
    }
    for (size_t n = 2; n < packed_bytes; n++)
        expect_refusal(packed, n, "gzip", "cut short");
    packed[packed_bytes - 8] ^= 1; /* the checksum */
    expect_refusal(packed, packed_bytes, "gzip data", "incorrect data check");
    packed[packed_bytes - 8] ^= 1;
    uint8_t *longer = calloc(1, bytes + packed_bytes);
    memcpy(longer, packed, packed_bytes);
    expect_refusal(longer, packed_bytes + 1, "trailing", "gzip");
    memcpy(longer, file, bytes);
    expect_refusal(longer, bytes + 1, "49 follow", "48 bytes");
    free(longer);
    free(packed);
    free(file);
}

static void voxels_are_finite(void **state)
{
    (void)state;
    NiftiSample sample = sample_of(16, 32);
    size_t bytes;
    uint8_t *file = nifti_sample_make(&sample, &bytes);
    nifti_put_float(file, 352 + 4 * 7, NAN, false);
    expect_refusal(file, bytes, "voxel 7", "finite");
    nifti_put_float(file, 352 + 4 * 7, 1e38f, false);
    nifti_put_float(file, SLOPE, 1e10f, false);
    expect_refusal(file, bytes, "voxel 7", "finite");
    free(file);
}

static void files_on_disk(void **state)
{
    (void)state;
    char dir[SAMPLE_PATH_BYTES], path[SAMPLE_PATH_BYTES];
    sample_make_dir(dir);
    Volume volume;
    Status status = nifti_read(sample_path(path, dir, "none.nii"), &volume);
    assert_int_equal(status.code, STATUS_INPUT);
    assert_non_null(strstr(status.text, "none.nii: No such file"));
    sample_write(sample_path(path, dir, "empty.nii"), "", 0);
    status = nifti_read(path, &volume);
    assert_int_equal(status.code, STATUS_INPUT);
    assert_non_null(strstr(status.text, "empty.nii: file size 0"));
    NiftiSample sample = sample_of(4, 16);
    nifti_sample_write(&sample, sample_path(path, dir, "head.nii.gz"), true);
    assert_int_equal(nifti_read(path, &volume).code, STATUS_OK);
    assert_true((double)volume.voxels[VOXELS - 1] == values[VOXELS - 1]);
    free(volume.voxels);
    sample_remove_tree(dir);
}

static Status parse_once(void *context)
{
    Volume volume;
    TRY(nifti_parse("head.nii.gz", context, &volume));
    free(volume.voxels);
    return status_ok();
}

static void no_memory_is_an_error_everywhere(void **state)
{
    (void)state;
    NiftiSample sample = sample_of(4, 16);
    sample.offset = 352 + 64 * 1024; /* unpacks in several steps */
    size_t bytes;
    uint8_t *file = nifti_sample_make(&sample, &bytes);
    Bytes packed;
    packed.data = nifti_pack(file, bytes, &packed.size);
    assert_true(fault_alloc_sweep(parse_once, &packed) > 4);
    free(packed.data);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_datatype_in_both_byte_orders),
        cmocka_unit_test(offset_scale_and_trailing_dimensions),
        cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(huge_dimensions_cost_nothing),
        cmocka_unit_test(cut_and_long_files),
        cmocka_unit_test(voxels_are_finite),
        cmocka_unit_test(files_on_disk),
        cmocka_unit_test(no_memory_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, number_the_voxels, NULL);
}
