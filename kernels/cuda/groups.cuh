/* groups.cuh - rows of a matrix in groups of eight elements: one 16-byte access of a short type (two of f32), and what one block
 * of dropout's generator decides on (kernels/dropout.h). */
#ifndef BATCHMARK_KERNELS_CUDA_GROUPS_CUH
#define BATCHMARK_KERNELS_CUDA_GROUPS_CUH

#include "launch.cuh"

#include "../dropout.h"

enum { GROUP = 8 };
template <class T> using Group = Pack<T, GROUP>;

static __host__ __device__ __forceinline__ int64_t group_count(int64_t columns) { return (columns + GROUP - 1) / GROUP; }

/* Whether all groups of rows of `columns` elements are whole and aligned, given the addresses of what is accessed so. NULL fits. */
static inline bool groups_are_wide(int64_t columns, Dtype dtype, std::initializer_list<const void *> addresses)
{
    uintptr_t bits = 0;
    for (const void *address : addresses)
        bits |= (uintptr_t)address;
    return columns % GROUP == 0 && bits % (uintptr_t)(GROUP * dtype_bits(dtype) / 8) == 0;
}

/* The n elements from p on, n <= GROUP or more, none if n <= 0; zeros in place of those that are missing. */
template <class T> static __device__ __forceinline__ Group<T> load_group(const T *p, int64_t n, bool wide)
{
    Group<T> v;
    if (wide && n > 0)
        return *reinterpret_cast<const Group<T> *>(p);
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        v.at[k] = k < n ? p[k] : narrow<T>(0.0f);
    return v;
}

template <class T> static __device__ __forceinline__ void store_group(T *p, const Group<T> &v, int64_t n, bool wide)
{
    if (wide && n > 0)
        *reinterpret_cast<Group<T> *>(p) = v;
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        if (!wide && k < n)
            p[k] = v.at[k];
}

/* Dropout of one op on rows of so many groups. rng is device memory; NULL: nothing is dropped. */
struct Drop {
    const int32_t *rng;
    int64_t        groups;
    uint32_t       stream, threshold;
    float          scale; /* of what is kept: 1 / (1 - p) */
};

static inline Drop drop_of(const OpDesc *op, const void *rng)
{
    const float p = op->attr.dropout;
    return Drop{ p > 0 ? (const int32_t *)rng : nullptr, group_count(op->in[0].dim[1]), op->attr.stream, dropout_threshold(p),
                 (float)(1.0 / (1.0 - (double)p)) };
}

/* Bit k is set where element k of this group is kept. */
static __device__ __forceinline__ unsigned drop_kept(const Drop &d, int64_t row, int64_t group)
{
    const uint64_t seed = (uint32_t)d.rng[0] | (uint64_t)(uint32_t)d.rng[1] << 32;
    const RngBlock b = philox(seed, (uint64_t)d.stream << 32 | (uint32_t)d.rng[2], (uint64_t)(row * d.groups + group));
    unsigned kept = 0;
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        kept |= (unsigned)((b.word[k / 2] >> 16 * (k % 2) & 0xffffu) >= d.threshold) << k;
    return kept;
}

#endif
