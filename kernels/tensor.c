/* tensor.c - shapes, counts and names; see tensor.h. */
#include "tensor.h"

#include <inttypes.h>
#include <stdio.h>

Tensor tensor_1d(Dtype dtype, int64_t a)
{
    return (Tensor){ .dtype = dtype, .rank = 1, .dim = { a } };
}

Tensor tensor_2d(Dtype dtype, int64_t a, int64_t b)
{
    return (Tensor){ .dtype = dtype, .rank = 2, .dim = { a, b } };
}

Tensor tensor_4d(Dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (Tensor){ .dtype = dtype, .rank = 4, .dim = { a, b, c, d } };
}

Tensor tensor_act(Dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c)
{
    Tensor t = tensor_4d(dtype, n, h, w, c);
    t.layout = LAYOUT_ACT;
    return t;
}

int64_t tensor_count(const Tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

size_t tensor_bytes(const Tensor *t)
{
    return ((size_t)tensor_count(t) * (size_t)dtype_bits(t->dtype) + 7) / 8;
}

bool tensor_same_shape(const Tensor *a, const Tensor *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

int dtype_bits(Dtype dtype)
{
    static const int bits[DTYPE_COUNT] = { 32, 16, 16, 32, 8, 1 };
    return bits[dtype];
}

bool dtype_is_float(Dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

const char *dtype_name(Dtype dtype)
{
    static const char *const names[DTYPE_COUNT] = { "f32", "bf16", "f16", "i32", "u8", "bit" };
    return names[dtype];
}

const char *tensor_format(const Tensor *t, char *text, size_t size)
{
    int n = snprintf(text, size, "%s[", dtype_name(t->dtype));
    for (int i = 0; i < t->rank && n >= 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%" PRId64, i ? "," : "", t->dim[i]);
    if (n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "]");
    return text;
}
