/* tensor.h - what a tensor is: an element type, a dense shape of at most four dimensions, a layout tag.
 *
 * Dimensions are logical and row-major, slowest first:
 *   image activations  (N, H, W, C)      convolution weights  (K, R, S, C)  K = output channels
 *   matrices           (rows, columns)   linear weights       (outputs, inputs)
 * The physical layout is the backend's own business and never seen above it; Tensor.layout only says which. */
#ifndef BATCHMARK_KERNELS_TENSOR_H
#define BATCHMARK_KERNELS_TENSOR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum Dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_I32,
    DTYPE_U8,
    DTYPE_BIT, /* one bit an element, packed in the physical order of the tensor it belongs to; opaque to all but its backend */
    DTYPE_COUNT
} Dtype;

enum {
    LAYOUT_PLAIN = 0,   /* row-major, on every backend */
    LAYOUT_ACT = 1,     /* the backend's layout of rank-4 activations: a pure function of shape and type, same byte count */
    LAYOUT_PRIVATE = 2  /* this and above: a backend's own id, given by a kernel's query (weights in a primitive's layout) */
};

enum { TENSOR_MAX_RANK = 4 };

typedef struct Tensor {
    Dtype   dtype;
    int     layout;
    int     rank;                  /* 1..4 */
    int64_t dim[TENSOR_MAX_RANK];  /* unused ones are 0 */
} Tensor;

Tensor tensor_1d(Dtype dtype, int64_t a);
Tensor tensor_2d(Dtype dtype, int64_t a, int64_t b);
Tensor tensor_4d(Dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d); /* LAYOUT_PLAIN; see tensor_act */
Tensor tensor_act(Dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c); /* LAYOUT_ACT */

/* Number of elements. */
int64_t tensor_count(const Tensor *t);

/* Bytes of the dense row-major form (DTYPE_BIT: rounded up to whole bytes). A backend may need more for a
 * LAYOUT_PRIVATE tensor with padded blocks: ask it with backend_bytes(). */
size_t tensor_bytes(const Tensor *t);

/* Equal shape; type and layout may differ. */
bool tensor_same_shape(const Tensor *a, const Tensor *b);

/* Bits of one element: 32, 16, 8 or 1. */
int dtype_bits(Dtype dtype);
bool dtype_is_float(Dtype dtype); /* f32, bf16 or f16 */
const char *dtype_name(Dtype dtype); /* "f32", "bf16", "f16", "i32", "u8", "bit" */

/* "f32[8,56,56,64]" into text; returns text. */
const char *tensor_format(const Tensor *t, char *text, size_t size);

/* bfloat16 as in Intel's BF16 white paper (2018): the upper half of a float, round to nearest even, NaN kept quiet. */
static inline float bf16_to_f32(uint16_t b)
{
    union { uint32_t u; float f; } v;
    v.u = (uint32_t)b << 16;
    return v.f;
}

static inline uint16_t bf16_from_f32(float f)
{
    union { float f; uint32_t u; } v;
    v.f = f;
    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((v.u >> 16) | 0x40u);
    return (uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16);
}

/* IEEE 754 binary16: 11 significant bits, largest 65504, least 2^-24. From f32: round to nearest even, what is too large
 * becomes infinity, NaN kept quiet. */
static inline float f16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v;
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) { /* infinity, NaN */
        v.u = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
        return v.f;
    }
    v.u = rest << 13;     /* exponent and fraction in place, with a bias that is 112 too small */
    v.f *= 0x1p112f;      /* exact, subnormal ones too */
    v.u |= sign;
    return v.f;
}

static inline uint16_t f16_from_f32(float f)
{
    union { float f; uint32_t u; } v;
    v.f = f;
    const uint16_t sign = (uint16_t)(v.u >> 16 & 0x8000u);
    v.u &= 0x7fffffffu;
    if (v.u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (v.u >> 13 & 0x3ffu));
    if (v.u >= 0x477ff000u) /* 65520 and above */
        return sign | 0x7c00u;
    if (v.u < 0x38800000u) { /* below 2^-14: adding 1/2 leaves a multiple of 2^-24 in the last bits, rounded to even */
        v.f += 0.5f;
        return (uint16_t)(sign | (v.u - 0x3f000000u));
    }
    return (uint16_t)(sign | ((v.u - 0x38000000u + 0xfffu + (v.u >> 13 & 1u)) >> 13));
}

#ifdef __cplusplus
}
#endif
#endif
