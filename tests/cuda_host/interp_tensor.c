/* interp_tensor.c - between memory as a tensor descriptor describes it and dense arrays of doubles: types, strides, packed bits,
 * ragged offsets. See interp.h. */
#include "interp.h"

#include "../../kernels/tensor.h"

#include <math.h>
#include <string.h>

/* ---- numbers */

static const uint64_t HOLE_BITS = UINT64_C(0x7ff8401e401e401e);

double interp_hole(void)
{
    double v;
    memcpy(&v, &HOLE_BITS, sizeof v);
    return v;
}

bool interp_is_hole(double v) { return memcmp(&v, &HOLE_BITS, sizeof v) == 0; }

int interp_type_bits(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE: case CUDNN_DATA_INT64: return 64;
    case CUDNN_DATA_FLOAT: case CUDNN_DATA_INT32: return 32;
    case CUDNN_DATA_HALF: case CUDNN_DATA_BFLOAT16: return 16;
    case CUDNN_DATA_INT8: case CUDNN_DATA_UINT8: return 8;
    case CUDNN_DATA_BOOLEAN: return 1;
    default: return 0;
    }
}

/* To the nearest integer, half to even, and into the range; NaN becomes 0 (cvt.rni.sat). */
static double round_integer(double v, double least, double largest)
{
    return isnan(v) ? 0 : fmin(fmax(nearbyint(v), least), largest);
}

double interp_round(cudnnDataType_t type, double v)
{
    if (interp_is_hole(v))
        return v;
    switch (type) {
    case CUDNN_DATA_FLOAT: return (double)(float)v;
    case CUDNN_DATA_HALF: return (double)f16_to_f32(f16_from_f32((float)v));
    case CUDNN_DATA_BFLOAT16: return (double)bf16_to_f32(bf16_from_f32((float)v));
    case CUDNN_DATA_INT8: return round_integer(v, INT8_MIN, INT8_MAX);
    case CUDNN_DATA_UINT8: return round_integer(v, 0, UINT8_MAX);
    case CUDNN_DATA_INT32: return round_integer(v, INT32_MIN, INT32_MAX);
    case CUDNN_DATA_INT64: return round_integer(v, -0x1p53, 0x1p53); /* as far as a double can count */
    case CUDNN_DATA_BOOLEAN: return v != 0;
    default: return v;
    }
}

/* 8 bits of exponent, 10 of fraction, to nearest, half away from zero (cvt.rna.tf32.f32). */
double interp_round_tf32(double v)
{
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7f800000u) != 0x7f800000u)
        u = (u + 0x1000u) & ~0x1fffu;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

static double load_one(cudnnDataType_t type, const void *memory, int64_t i)
{
    switch (type) {
    case CUDNN_DATA_FLOAT: return (double)((const float *)memory)[i];
    case CUDNN_DATA_DOUBLE: return ((const double *)memory)[i];
    case CUDNN_DATA_HALF: return (double)f16_to_f32(((const uint16_t *)memory)[i]);
    case CUDNN_DATA_BFLOAT16: return (double)bf16_to_f32(((const uint16_t *)memory)[i]);
    case CUDNN_DATA_INT8: return ((const int8_t *)memory)[i];
    case CUDNN_DATA_UINT8: return ((const uint8_t *)memory)[i];
    case CUDNN_DATA_INT32: return ((const int32_t *)memory)[i];
    case CUDNN_DATA_INT64: return (double)((const int64_t *)memory)[i];
    case CUDNN_DATA_BOOLEAN: return ((const uint8_t *)memory)[i / 8] >> (i % 8) & 1;
    default: CHECK(!"a type that compile lets through"); return 0;
    }
}

static void store_bit(uint8_t *byte, int bit, bool on)
{
    *byte = (uint8_t)((*byte & ~(1u << bit)) | (unsigned)on << bit);
}

/* v is a value of the type already. */
static void store_one(cudnnDataType_t type, void *memory, int64_t i, double v)
{
    switch (type) {
    case CUDNN_DATA_FLOAT: ((float *)memory)[i] = (float)v; break;
    case CUDNN_DATA_DOUBLE: ((double *)memory)[i] = v; break;
    case CUDNN_DATA_HALF: ((uint16_t *)memory)[i] = f16_from_f32((float)v); break;
    case CUDNN_DATA_BFLOAT16: ((uint16_t *)memory)[i] = bf16_from_f32((float)v); break;
    case CUDNN_DATA_INT8: ((int8_t *)memory)[i] = (int8_t)v; break;
    case CUDNN_DATA_UINT8: ((uint8_t *)memory)[i] = (uint8_t)v; break;
    case CUDNN_DATA_INT32: ((int32_t *)memory)[i] = (int32_t)v; break;
    case CUDNN_DATA_INT64: ((int64_t *)memory)[i] = (int64_t)v; break;
    case CUDNN_DATA_BOOLEAN: store_bit((uint8_t *)memory + i / 8, (int)(i % 8), v != 0); break;
    default: CHECK(!"a type that compile lets through");
    }
}

/* ---- places */

void interp_next(const InterpTensor *t, int64_t *at)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        if (++at[d] < t->dim[d])
            return;
        at[d] = 0;
    }
}

int64_t interp_broadcast(const InterpTensor *of, const int64_t *at, int rank)
{
    int64_t offset = 0;
    for (int d = 0; d < of->rank; d++) {
        int64_t i = d + rank - of->rank >= 0 && of->dim[d] > 1 ? at[d + rank - of->rank] : 0;
        offset = offset * of->dim[d] + i;
    }
    return offset;
}

int64_t interp_extent(const InterpTensor *t)
{
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++)
        last += (t->dim[d] - 1) * t->stride[d];
    return last + 1;
}

/* Sorted by stride, each dimension must step over all that the smaller ones reach. (Sufficient, and what dense layouts, pitched
 * rows and interleaved q, k, v satisfy.) */
bool interp_offsets_differ(const InterpTensor *t)
{
    bool done[INTERP_RANK] = { false };
    int64_t reach = 1;
    for (int turn = 0; turn < t->rank; turn++) {
        int best = -1;
        for (int d = 0; d < t->rank; d++)
            if (!done[d] &&
                (best < 0 || t->stride[d] < t->stride[best] || (t->stride[d] == t->stride[best] && t->dim[d] < t->dim[best])))
                best = d;
        done[best] = true;
        if (t->dim[best] == 1)
            continue;
        if (t->stride[best] < reach)
            return false;
        reach = (t->dim[best] - 1) * t->stride[best] + reach;
    }
    return true;
}

/* The elements that ragged offsets promise to exist: up to the largest offset. */
static int64_t ragged_end(const InterpTensor *t, const double *ragged)
{
    double end = 0;
    for (int64_t b = 0; b <= t->dim[0]; b++)
        end = fmax(end, ragged[b]);
    return (int64_t)end;
}

/* Calls for each row of the last dimension: the row's first element in `value`, its place in memory and the number of elements
 * of it that exist. */
typedef struct Rows { int64_t at[INTERP_RANK], row, offset, exist; } Rows;

static void rows_place(const InterpTensor *t, const double *ragged, int64_t end, Rows *r)
{
    const int last = t->rank - 1;
    r->offset = ragged ? (int64_t)ragged[r->at[0]] : 0;
    for (int d = ragged ? 1 : 0; d < last; d++)
        r->offset += r->at[d] * t->stride[d];
    r->exist = t->dim[last];
    if (ragged && r->offset + (r->exist - 1) * t->stride[last] >= end)
        r->exist = r->offset >= end ? 0 : (end - 1 - r->offset) / t->stride[last] + 1;
}

static void rows_next(const InterpTensor *t, Rows *r)
{
    r->row += t->dim[t->rank - 1];
    for (int d = t->rank - 2; d >= 0; d--) {
        if (++r->at[d] < t->dim[d])
            return;
        r->at[d] = 0;
    }
}

void interp_load(const InterpTensor *t, const void *memory, const double *ragged, double *value)
{
    const int64_t n = t->dim[t->rank - 1], step = t->stride[t->rank - 1], end = ragged ? ragged_end(t, ragged) : 0;
    for (Rows r = { .row = 0 }; r.row < t->count; rows_next(t, &r)) {
        rows_place(t, ragged, end, &r);
        for (int64_t i = 0; i < n; i++)
            value[r.row + i] = i < r.exist ? load_one(t->type, memory, r.offset + i * step) : interp_hole();
    }
}

void interp_store(const InterpTensor *t, void *memory, const double *ragged, const double *value)
{
    const int64_t n = t->dim[t->rank - 1], step = t->stride[t->rank - 1], end = ragged ? ragged_end(t, ragged) : 0;
    for (Rows r = { .row = 0 }; r.row < t->count; rows_next(t, &r)) {
        rows_place(t, ragged, end, &r);
        for (int64_t i = 0; i < n; i++)
            if (!interp_is_hole(value[r.row + i])) {
                CHECK(i < r.exist); /* a value for an element past the end of all sequences: the graph lacks an override */
                store_one(t->type, memory, r.offset + i * step, value[r.row + i]);
            }
    }
}
