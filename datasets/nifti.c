/* nifti.c - the bodies of nifti.h.
 *
 * The header is 348 bytes at fixed places; the ones that matter here are dim (int16[8], byte 40), datatype and bitpix
 * (int16, 70 and 72), vox_offset, scl_slope and scl_inter (float, 108, 112, 116) and magic (char[4], 344). Files carry
 * the byte order of the machine that wrote them; sizeof_hdr (int32, byte 0) is 348 in the right one. */
#include "nifti.h"
#include "gunzip.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 348, FIRST_VOXEL = 352 }; /* the header and four bytes that announce extensions */
enum { AT_DIM = 40, AT_DATATYPE = 70, AT_BITPIX = 72, AT_VOX_OFFSET = 108, AT_SLOPE = 112, AT_INTER = 116, AT_MAGIC = 344 };

typedef struct Header {
    int64_t dim[3], voxels;
    int     datatype;
    size_t  voxel_bytes, offset;
    double  slope, inter;
    bool    swapped; /* big-endian: every field and voxel is turned round */
} Header;

/* The codes of nifti1.h that hold one real number. */
enum { DT_UINT8 = 2, DT_INT16 = 4, DT_INT32 = 8, DT_FLOAT32 = 16, DT_FLOAT64 = 64 };
enum { DT_INT8 = 256, DT_UINT16 = 512, DT_UINT32 = 768 };
static const struct { int code; size_t bytes; } datatypes[] = {
    { DT_UINT8, 1 }, { DT_INT8, 1 },   { DT_INT16, 2 },   { DT_UINT16, 2 },
    { DT_INT32, 4 }, { DT_UINT32, 4 }, { DT_FLOAT32, 4 }, { DT_FLOAT64, 8 },
};

/* ---- numbers of either byte order ---- */

static uint64_t get_bits(const uint8_t *at, size_t bytes, bool swapped)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits |= (uint64_t)at[i] << 8 * (swapped ? bytes - 1 - i : i);
    return bits;
}

static int get_int16(const uint8_t *at, bool swapped)
{
    return (int16_t)get_bits(at, 2, swapped);
}

static double get_float(const uint8_t *at, bool swapped)
{
    uint32_t bits = (uint32_t)get_bits(at, 4, swapped);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double get_voxel(const uint8_t *at, int datatype, bool swapped)
{
    switch (datatype) {
    case DT_UINT8: return at[0];
    case DT_INT8: return (int8_t)at[0];
    case DT_INT16: return get_int16(at, swapped);
    case DT_UINT16: return (double)get_bits(at, 2, swapped);
    case DT_INT32: return (int32_t)get_bits(at, 4, swapped);
    case DT_UINT32: return (double)get_bits(at, 4, swapped);
    case DT_FLOAT32: return get_float(at, swapped);
    default: break;
    }
    CHECK(datatype == DT_FLOAT64);
    uint64_t bits = get_bits(at, 8, swapped);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- the header ---- */

static Status check_kind(const char *name, const Bytes *file, bool *swapped)
{
    if (file->size < HEADER_BYTES)
        return status_error(STATUS_INPUT, "%s: the NIfTI header ends after %zu of %d bytes", name, file->size, HEADER_BYTES);
    *swapped = get_bits(file->data, 4, true) == HEADER_BYTES;
    if (!*swapped && get_bits(file->data, 4, false) != HEADER_BYTES)
        return status_error(STATUS_INPUT, "%s: sizeof_hdr is %" PRIu64 ", expected %d: not a NIfTI-1 file", name,
                            get_bits(file->data, 4, false), HEADER_BYTES);
    const uint8_t *magic = file->data + AT_MAGIC;
    if (memcmp(magic, "ni1", 4) == 0)
        return status_error(STATUS_INPUT, "%s: magic 'ni1': its voxels are in another file; expected one .nii file, 'n+1'", name);
    if (memcmp(magic, "n+1", 4) != 0)
        return status_error(STATUS_INPUT, "%s: magic 0x%02X%02X%02X%02X, expected 'n+1'", name, magic[0], magic[1], magic[2], magic[3]);
    return status_ok();
}

static Status read_dim(const char *name, const uint8_t *data, Header *h)
{
    const uint8_t *dim = data + AT_DIM;
    int count = get_int16(dim, h->swapped);
    if (count < 3 || count > 7)
        return status_error(STATUS_INPUT, "%s: dim[0] is %d, expected 3..7 dimensions", name, count);
    h->voxels = 1;
    for (int i = 1; i <= count; i++) {
        int n = get_int16(dim + 2 * i, h->swapped);
        if (n < 1)
            return status_error(STATUS_INPUT, "%s: dim[%d] is %d, expected at least 1", name, i, n);
        if (i > 3 && n != 1)
            return status_error(STATUS_INPUT, "%s: dim[%d] is %d, expected 1: a single volume", name, i, n);
        if (i <= 3) {
            h->dim[i - 1] = n;
            h->voxels *= n; /* below 2^45 */
        }
    }
    return status_ok();
}

static Status read_datatype(const char *name, const uint8_t *data, Header *h)
{
    h->datatype = get_int16(data + AT_DATATYPE, h->swapped);
    int bits = get_int16(data + AT_BITPIX, h->swapped);
    for (size_t i = 0; i < COUNT_OF(datatypes); i++)
        if (datatypes[i].code == h->datatype)
            h->voxel_bytes = datatypes[i].bytes;
    if (h->voxel_bytes == 0)
        return status_error(STATUS_INPUT, "%s: datatype %d is not one of 2, 4, 8, 16, 64, 256, 512, 768 (real numbers)", name,
                            h->datatype);
    if (bits != (int)(8 * h->voxel_bytes))
        return status_error(STATUS_INPUT, "%s: bitpix is %d, but datatype %d has %zu bits", name, bits, h->datatype, 8 * h->voxel_bytes);
    return status_ok();
}

/* Where the voxels are, and that the file ends with the last of them. */
static Status read_extent(const char *name, const Bytes *file, Header *h)
{
    double offset = get_float(file->data + AT_VOX_OFFSET, h->swapped);
    if (!(offset >= FIRST_VOXEL && offset <= (double)file->size) || offset != floor(offset))
        return status_error(STATUS_INPUT, "%s: vox_offset is %g, expected a whole number in %d..%zu (the file's end)", name, offset,
                            FIRST_VOXEL, file->size);
    h->offset = (size_t)offset;
    uint64_t need = (uint64_t)h->voxels * h->voxel_bytes, have = file->size - h->offset;
    if (have != need)
        return status_error(STATUS_INPUT, "%s: dim %" PRId64 " x %" PRId64 " x %" PRId64 " needs %" PRIu64
                            " bytes of voxels, but %" PRIu64 " follow vox_offset %zu%s", name, h->dim[0], h->dim[1],
                            h->dim[2], need, have, h->offset, have < need ? ": the file is cut short" : "");
    return status_ok();
}

static Status read_scale(const char *name, const uint8_t *data, Header *h)
{
    h->slope = get_float(data + AT_SLOPE, h->swapped);
    h->inter = get_float(data + AT_INTER, h->swapped);
    if (!isfinite(h->slope) || !isfinite(h->inter))
        return status_error(STATUS_INPUT, "%s: scl_slope %g and scl_inter %g, expected finite numbers", name, h->slope, h->inter);
    if (h->slope == 0) { /* by the standard: not scaled */
        h->slope = 1;
        h->inter = 0;
    }
    return status_ok();
}

static Status read_header(const char *name, const Bytes *file, Header *h)
{
    memset(h, 0, sizeof *h);
    TRY(check_kind(name, file, &h->swapped));
    TRY(read_dim(name, file->data, h));
    TRY(read_datatype(name, file->data, h));
    TRY(read_extent(name, file, h));
    return read_scale(name, file->data, h);
}

/* ---- the voxels ---- */

static Status read_voxels(const char *name, const Bytes *file, const Header *h, float *out)
{
    const uint8_t *at = file->data + h->offset;
    for (int64_t i = 0; i < h->voxels; i++, at += h->voxel_bytes) {
        double value = get_voxel(at, h->datatype, h->swapped) * h->slope + h->inter;
        if (!(fabs(value) <= 3.0e38)) /* what a float holds; also false for NaN */
            return status_error(STATUS_INPUT, "%s: voxel %" PRId64 " is %g, expected a finite number", name, i, value);
        out[i] = (float)value;
    }
    return status_ok();
}

static Status parse_plain(const char *name, const Bytes *file, Volume *out)
{
    Header h;
    TRY(read_header(name, file, &h));
    float *voxels = malloc((size_t)h.voxels * sizeof *voxels);
    if (!voxels)
        return status_error(STATUS_OOM, "%s: no memory for %" PRId64 " voxels", name, h.voxels);
    Status status = read_voxels(name, file, &h, voxels);
    if (status.code != STATUS_OK) {
        free(voxels);
        return status;
    }
    memcpy(out->dim, h.dim, sizeof out->dim);
    out->voxels = voxels;
    return status;
}

Status nifti_parse(const char *name, const Bytes *file, Volume *out)
{
    *out = (Volume){ { 0, 0, 0 }, NULL };
    if (file->size < 2 || file->data[0] != 0x1F || file->data[1] != 0x8B) /* gzip's magic */
        return parse_plain(name, file, out);
    Bytes plain;
    Status status = gunzip_memory(name, file, NIFTI_MAX_BYTES, &plain);
    if (status.code == STATUS_OK)
        status = parse_plain(name, &plain, out);
    free(plain.data);
    return status;
}

Status nifti_read(const char *path, Volume *out)
{
    *out = (Volume){ { 0, 0, 0 }, NULL };
    Bytes file = { NULL, 0 };
    Status status = dataset_read_file(path, NIFTI_MAX_BYTES, &file);
    if (status.code == STATUS_OK)
        status = nifti_parse(dataset_shown_path(path), &file, out);
    free(file.data);
    return status;
}
