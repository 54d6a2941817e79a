/* sample_files.h - small data files, whole or broken on purpose, in a temporary directory.
 *
 * All of these end the cmocka test when the system refuses. */
#ifndef BATCHMARK_TESTS_SAMPLE_FILES_H
#define BATCHMARK_TESTS_SAMPLE_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_PATH_BYTES = 512 };

/* A new empty directory; remove it with sample_remove_tree. */
void sample_make_dir(char path[SAMPLE_PATH_BYTES]);
void sample_remove_tree(const char *path);

/* cmocka set-up and tear-down: *state is the path of such a directory. */
int sample_setup(void **state);
int sample_teardown(void **state);

/* "dir/name", with the directories in `name` made where they are missing. */
const char *sample_path(char path[SAMPLE_PATH_BYTES], const char *dir, const char *name);

void sample_write(const char *path, const void *data, size_t bytes);
/* The whole file in a block to be freed. */
uint8_t *sample_read(const char *path, size_t *bytes);

/* A gzip file of an IDX header with these dimensions (count of them: 0..3) and `bytes` bytes of data. */
void sample_write_idx(const char *path, uint32_t magic, int dims, const uint32_t *dim, const uint8_t *data, size_t bytes);

/* A small Fashion-MNIST in dir: image i of a split has pixels that depend on (split, i), label (i + split) % 10. */
enum { SAMPLE_TRAIN = 23, SAMPLE_TEST = 11 };
void sample_write_fashion(const char *dir);
uint8_t sample_fashion_pixel(int split, int64_t index, int64_t place);

typedef enum JpegKind { JPEG_RGB, JPEG_GREY, JPEG_CMYK, JPEG_PROGRESSIVE } JpegKind;
/* pixels: (height, width, 3), 1 or 4 channels (grey, CMYK as Adobe inverts it); quality 95, no chroma subsampling. */
void sample_write_jpeg(const char *path, JpegKind kind, int width, int height, const uint8_t *pixels);

/* Raw rows in PNG's own format (color_type and bit_depth of PNG, 16 bits big-endian). For a palette picture the
 * palette is 4 colours: red, green, blue, white. */
void sample_write_png(const char *path, int color_type, int bit_depth, int width, int height, const uint8_t *rows);

/* A JPEG (or PNG, by the suffix) of a single colour with a gradient in it that depends on `shade`. */
void sample_write_picture(const char *path, int width, int height, int shade);

#endif
