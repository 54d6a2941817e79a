/* sample_files.c - the bodies of sample_files.h. */
#include "sample_files.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

void sample_make_dir(char path[SAMPLE_PATH_BYTES])
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, SAMPLE_PATH_BYTES, "%.300s/batchmark-test-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(path));
}

void sample_remove_tree(const char *path)
{
    DIR *handle = opendir(path);
    if (!handle) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    for (struct dirent *entry; (entry = readdir(handle)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char child[SAMPLE_PATH_BYTES + 300];
        snprintf(child, sizeof child, "%.500s/%s", path, entry->d_name);
        sample_remove_tree(child);
    }
    closedir(handle);
    assert_int_equal(rmdir(path), 0);
}

int sample_setup(void **state)
{
    *state = malloc(SAMPLE_PATH_BYTES);
    assert_non_null(*state);
    sample_make_dir(*state);
    return 0;
}

int sample_teardown(void **state)
{
    sample_remove_tree(*state);
    free(*state);
    return 0;
}

const char *sample_path(char path[SAMPLE_PATH_BYTES], const char *dir, const char *name)
{
    snprintf(path, SAMPLE_PATH_BYTES, "%.250s/%.250s", dir, name);
    for (char *slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    return path;
}

void sample_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

uint8_t *sample_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

static void put_big_endian(uint8_t *out, uint32_t value)
{
    const uint8_t bytes[4] = { (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value };
    memcpy(out, bytes, sizeof bytes);
}

void sample_write_idx(const char *path, uint32_t magic, int dims, const uint32_t *dim, const uint8_t *data, size_t bytes)
{
    uint8_t header[16];
    put_big_endian(header, magic);
    for (int i = 0; i < dims; i++)
        put_big_endian(header + 4 + 4 * i, dim[i]);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, header, (unsigned)(4 + 4 * dims)), 4 + 4 * dims);
    if (bytes > 0)
        assert_int_equal(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

uint8_t sample_fashion_pixel(int split, int64_t index, int64_t place)
{
    return (uint8_t)(11 * index + 101 * split + place % 28 * 3 + place / 28);
}

void sample_write_fashion(const char *dir)
{
    static const char *const prefix[2] = { "train", "t10k" };
    static const uint32_t counts[2] = { SAMPLE_TRAIN, SAMPLE_TEST };
    for (int split = 0; split < 2; split++) {
        uint8_t pixels[SAMPLE_TRAIN * 784], labels[SAMPLE_TRAIN];
        for (uint32_t i = 0; i < counts[split]; i++) {
            labels[i] = (uint8_t)((i + (uint32_t)split) % 10);
            for (int64_t p = 0; p < 784; p++)
                pixels[i * 784 + p] = sample_fashion_pixel(split, i, p);
        }
        char name[64], path[SAMPLE_PATH_BYTES];
        snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", prefix[split]);
        sample_write_idx(sample_path(path, dir, name), 0x803, 3, (uint32_t[]){ counts[split], 28, 28 }, pixels,
                         counts[split] * 784);
        snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", prefix[split]);
        sample_write_idx(sample_path(path, dir, name), 0x801, 1, &counts[split], labels, counts[split]);
    }
}

void sample_write_jpeg(const char *path, JpegKind kind, int width, int height, const uint8_t *pixels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors; /* the standard one ends the program: fine in a test */
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = kind == JPEG_GREY ? 1 : kind == JPEG_CMYK ? 4 : 3;
    jpeg.in_color_space = kind == JPEG_GREY ? JCS_GRAYSCALE : kind == JPEG_CMYK ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 95, TRUE);
    jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1;
    if (kind == JPEG_PROGRESSIVE)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)y * (size_t)(width * jpeg.input_components));
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    assert_int_equal(fclose(file), 0);
}

void sample_write_png(const char *path, int color_type, int bit_depth, int width, int height, const uint8_t *rows)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    assert_non_null(png);
    png_infop info = png_create_info_struct(png);
    assert_non_null(info);
    if (setjmp(png_jmpbuf(png)))
        fail_msg("libpng cannot write %s", path);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bit_depth, color_type, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    const png_color palette[4] = { { 255, 0, 0 }, { 0, 255, 0 }, { 0, 0, 255 }, { 255, 255, 255 } };
    if (color_type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, 4);
    png_write_info(png, info);
    size_t row_bytes = png_get_rowbytes(png, info);
    for (int y = 0; y < height; y++)
        png_write_row(png, rows + (size_t)y * row_bytes);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(file), 0);
}

void sample_write_picture(const char *path, int width, int height, int shade)
{
    uint8_t *pixels = malloc((size_t)(width * height) * 3);
    assert_non_null(pixels);
    for (int i = 0; i < width * height; i++) {
        pixels[3 * i] = (uint8_t)shade;
        pixels[3 * i + 1] = (uint8_t)(i % width * 255 / width);
        pixels[3 * i + 2] = (uint8_t)(i / width * 255 / height);
    }
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".png") == 0)
        sample_write_png(path, PNG_COLOR_TYPE_RGB, 8, width, height, pixels);
    else
        sample_write_jpeg(path, JPEG_RGB, width, height, pixels);
    free(pixels);
}
