/* image.c - image_decode: one JPEG or PNG file to 8-bit RGB, by libjpeg-turbo and libpng.
 *
 * The file is read whole and decoded from memory. Damage is an error even where the library would only warn and fill
 * the rest with grey: a benchmark must not train on half a picture without saying so. */
#include "image.h"
#include "files.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>

/* Allocates the pixels of an image of this size, once the header's figures make sense. */
static Status allocate_pixels(const char *kind, int64_t width, int64_t height, Image *out)
{
    if (width < 1 || height < 1 || width > IMAGE_MAX_PIXELS / height)
        return status_error(STATUS_INPUT,
                            "%s header: width x height %" PRId64 " x %" PRId64 ", expected 1..%" PRId64 " pixels", kind,
                            width, height, IMAGE_MAX_PIXELS);
    out->pixels = malloc((size_t)(width * height) * 3);
    if (!out->pixels)
        return status_error(STATUS_OOM, "no memory for an image of %" PRId64 " x %" PRId64, width, height);
    out->width = width;
    out->height = height;
    return status_ok();
}

/* ---- JPEG ---- */

/* libjpeg reports a failure by calling error_exit, which must not return: it jumps back into guard_jpeg. Whatever
 * changes before the jump and is used after it lives here, outside that function's own variables (C11 7.13.2.1). */
typedef struct JpegReader {
    struct jpeg_decompress_struct jpeg; /* client_data points back here */
    struct jpeg_error_mgr         errors;
    jmp_buf                       failed;
    Status                        status;
    uint8_t                      *cmyk_row; /* (width, 4), CMYK files only */
} JpegReader;

static void fail_jpeg(j_common_ptr jpeg)
{
    JpegReader *reader = jpeg->client_data;
    char words[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, words);
    bool memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    reader->status = status_error(memory ? STATUS_OOM : STATUS_INPUT, "JPEG data: %s", words);
    longjmp(reader->failed, 1);
}

/* Level -1 is a warning. These are the ones after which pixels are missing or wrong; the rest (stray bytes between
 * segments, odd version numbers) leave the picture whole and are common in real collections. */
static void hear_jpeg_message(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_TOO_MUCH_DATA:
        fail_jpeg(jpeg);
        break;
    default:
        break;
    }
}

/* The smallest of libjpeg's scales n/8 that keeps the shorter side at `size` or more. Decoding at n/8 costs about
 * (n/8)^2 of the inverse DCT, and the rest of the reduction is left to image_resize_square. */
static void choose_scale(struct jpeg_decompress_struct *jpeg, int64_t size)
{
    int64_t shorter = jpeg->image_width < jpeg->image_height ? jpeg->image_width : jpeg->image_height;
    jpeg->scale_denom = 8;
    jpeg->scale_num = 8;
    while (jpeg->scale_num > 1 && shorter * (jpeg->scale_num - 1) / 8 >= size)
        jpeg->scale_num--;
}

/* Adobe writes CMYK inverted (255 = no ink); others do not. RGB = (1 - ink) * (1 - black). */
static void cmyk_to_rgb(const uint8_t *cmyk, int64_t width, bool inverted, uint8_t *rgb)
{
    for (int64_t x = 0; x < width; x++) {
        int black = inverted ? cmyk[4 * x + 3] : 255 - cmyk[4 * x + 3];
        for (int c = 0; c < 3; c++) {
            int ink = inverted ? cmyk[4 * x + c] : 255 - cmyk[4 * x + c];
            rgb[3 * x + c] = (uint8_t)((ink * black + 127) / 255);
        }
    }
}

static void read_jpeg_rows(JpegReader *reader, Image *out)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *rgb = out->pixels + (int64_t)jpeg->output_scanline * out->width * 3;
        JSAMPROW row = cmyk ? reader->cmyk_row : rgb;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (cmyk)
            cmyk_to_rgb(row, out->width, jpeg->saw_Adobe_marker, rgb);
    }
}

/* Runs under the setjmp of guard_jpeg. */
static Status run_jpeg(JpegReader *reader, const Bytes *file, int64_t size, Image *out)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg_mem_src(jpeg, file->data, (unsigned long)file->size);
    jpeg_read_header(jpeg, TRUE);
    if ((int64_t)jpeg->image_width * jpeg->image_height > IMAGE_MAX_PIXELS)
        return allocate_pixels("JPEG", jpeg->image_width, jpeg->image_height, out);
    bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    choose_scale(jpeg, size);
    jpeg_start_decompress(jpeg);
    TRY(allocate_pixels("JPEG", jpeg->output_width, jpeg->output_height, out));
    if (cmyk) {
        reader->cmyk_row = malloc((size_t)out->width * 4);
        if (!reader->cmyk_row)
            return status_error(STATUS_OOM, "no memory for a row of %" PRId64 " pixels", out->width);
    }
    read_jpeg_rows(reader, out);
    jpeg_finish_decompress(jpeg);
    return status_ok();
}

static void guard_jpeg(JpegReader *reader, const Bytes *file, int64_t size, Image *out)
{
    if (setjmp(reader->failed) == 0)
        reader->status = run_jpeg(reader, file, size, out);
}

static Status decode_jpeg(const Bytes *file, int64_t size, Image *out)
{
    JpegReader reader;
    memset(&reader, 0, sizeof reader);
    reader.jpeg.err = jpeg_std_error(&reader.errors);
    reader.errors.error_exit = fail_jpeg;
    reader.errors.emit_message = hear_jpeg_message;
    reader.jpeg.client_data = &reader;
    guard_jpeg(&reader, file, size, out);
    jpeg_destroy_decompress(&reader.jpeg);
    free(reader.cmyk_row);
    return reader.status;
}

/* ---- PNG ---- */

static Status png_failure(const png_image *png)
{
    bool memory = strstr(png->message, "memory") != NULL;
    return status_error(memory ? STATUS_OOM : STATUS_INPUT, "PNG data: %s", png->message);
}

/* libpng's simplified interface (libpng-manual.txt, section V) does the conversions and needs no setjmp here. */
static Status decode_png(const Bytes *file, Image *out)
{
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&png, file->data, file->size))
        return png_failure(&png);

    png.format = PNG_FORMAT_RGB;
    png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits without a gamma chunk: sRGB like 8 bits, not linear */
    Status status = allocate_pixels("PNG", png.width, png.height, out);
    if (status.code == STATUS_OK) {
        const png_color white = { 255, 255, 255 };
        if (!png_image_finish_read(&png, &white, out->pixels, (png_int_32)(out->width * 3), NULL))
            status = png_failure(&png);
    }
    png_image_free(&png);
    return status;
}

Status image_decode(const char *path, int64_t size, Image *out)
{
    static const uint8_t jpeg_start[] = { 0xFF, 0xD8 }; /* SOI */
    static const uint8_t png_start[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n' };

    *out = (Image){ 0, 0, NULL };
    Bytes file = { NULL, 0 };
    Status status = dataset_read_file(path, IMAGE_MAX_BYTES, &file);
    if (status.code == STATUS_OK) {
        if (file.size >= sizeof jpeg_start && memcmp(file.data, jpeg_start, sizeof jpeg_start) == 0)
            status = decode_jpeg(&file, size, out);
        else if (file.size >= sizeof png_start && memcmp(file.data, png_start, sizeof png_start) == 0)
            status = decode_png(&file, out);
        else
            status = status_error(STATUS_INPUT, "first bytes are those of neither a JPEG nor a PNG file");
        status = status_context(status, "%s", dataset_shown_path(path));
    }
    free(file.data);
    if (status.code != STATUS_OK) {
        free(out->pixels);
        *out = (Image){ 0, 0, NULL };
    }
    return status;
}
