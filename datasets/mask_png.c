/* mask_png.c - image_decode_mask: the values in a grey or palette PNG, unchanged.
 *
 * libpng's simplified interface, which image.c uses, turns every picture into colours: it would scale 1-bit values to
 * 255, apply a gamma chunk, and look palette indices up. So this takes the row interface, with its jumps. */
#include "files.h"
#include "image.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

/* libpng reports a failure by calling fail, which must not return: it jumps back into guard. Whatever changes before
 * the jump and is used after it lives here, outside that function's own variables (C11 7.13.2.1). */
typedef struct MaskReader {
    png_structp    png;
    png_infop      info;
    const uint8_t *data; /* the rest of the file */
    size_t         left;
    jmp_buf        failed;
    Status         status;
} MaskReader;

static void fail(png_structp png, png_const_charp words)
{
    MaskReader *reader = png_get_error_ptr(png);
    bool memory = strstr(words, "memory") != NULL;
    reader->status = status_error(memory ? STATUS_OOM : STATUS_INPUT, "PNG data: %s", words);
    longjmp(reader->failed, 1);
}

static void pass_over_warning(png_structp png, png_const_charp words)
{
    (void)png;
    (void)words;
}

static void give_bytes(png_structp png, png_bytep out, size_t bytes)
{
    MaskReader *reader = png_get_io_ptr(png);
    if (bytes > reader->left)
        png_error(png, "the file is cut short");
    memcpy(out, reader->data, bytes);
    reader->data += bytes;
    reader->left -= bytes;
}

static Status check_header(const MaskReader *reader, Image *out)
{
    int64_t width = png_get_image_width(reader->png, reader->info);
    int64_t height = png_get_image_height(reader->png, reader->info);
    int kind = png_get_color_type(reader->png, reader->info), depth = png_get_bit_depth(reader->png, reader->info);
    if ((kind != PNG_COLOR_TYPE_GRAY && kind != PNG_COLOR_TYPE_PALETTE) || depth > 8)
        return status_error(STATUS_INPUT, "PNG header: colour type %d, %d bits; expected class indices: grey or palette, "
                            "up to 8 bits", kind, depth);
    if (width > IMAGE_MAX_PIXELS / height)
        return status_error(STATUS_INPUT, "PNG header: width x height %" PRId64 " x %" PRId64 ", expected up to %" PRId64
                            " pixels", width, height, IMAGE_MAX_PIXELS);
    out->pixels = malloc((size_t)(width * height));
    if (!out->pixels)
        return status_error(STATUS_OOM, "no memory for a mask of %" PRId64 " x %" PRId64, width, height);
    out->width = width;
    out->height = height;
    return status_ok();
}

/* Runs under the setjmp of guard. */
static Status run(MaskReader *reader, Image *out)
{
    png_structp png = reader->png;
    png_set_read_fn(png, reader, give_bytes);
    png_read_info(png, reader->info);
    TRY(check_header(reader, out));
    png_set_packing(png); /* one value a byte */
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < out->height; y++)
            png_read_row(png, out->pixels + y * out->width, NULL);
    png_read_end(png, NULL);
    return status_ok();
}

static void guard(MaskReader *reader, Image *out)
{
    if (setjmp(reader->failed) == 0)
        reader->status = run(reader, out);
}

static Status decode(const Bytes *file, Image *out)
{
    MaskReader reader;
    memset(&reader, 0, sizeof reader);
    reader.data = file->data;
    reader.left = file->size;
    if (file->size < 8 || png_sig_cmp(file->data, 0, 8) != 0)
        return status_error(STATUS_INPUT, "first bytes are not those of a PNG file");
    reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, fail, pass_over_warning);
    reader.info = reader.png ? png_create_info_struct(reader.png) : NULL;
    if (reader.info)
        guard(&reader, out);
    else
        reader.status = status_error(STATUS_OOM, "no memory for libpng");
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    return reader.status;
}

Status image_decode_mask(const char *path, Image *out)
{
    *out = (Image){ 0, 0, NULL };
    Bytes file = { NULL, 0 };
    Status status = dataset_read_file(path, IMAGE_MAX_BYTES, &file);
    if (status.code == STATUS_OK)
        status = status_context(decode(&file, out), "%s", dataset_shown_path(path));
    free(file.data);
    if (status.code != STATUS_OK) {
        free(out->pixels);
        *out = (Image){ 0, 0, NULL };
    }
    return status;
}
