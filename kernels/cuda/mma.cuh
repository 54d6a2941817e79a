/* mma.cuh - tensor cores: the warp-wide product of small tiles of 16-bit numbers, and the loads that bring its operands from
 * shared memory ("PTX ISA", mma.m16n8k16 and ldmatrix). Compute capability 8.0 and later.
 *
 * Who holds what, lane = 4 g + t (g = 0..7, t = 0..3), two 16-bit numbers a register, the lower half first:
 *   A 16 x 16   a0 (g, 2t) (g, 2t+1)   a1 the same of row g + 8   a2, a3 of columns + 8
 *   B 16 x 8    b0 (2t, g) (2t+1, g)   b1 of rows + 8
 *   D 16 x 8    d0 (g, 2t)  d1 (g, 2t+1)  d2, d3 of row g + 8; f32
 * For host tests the same is written out in plain code. */
#ifndef BATCHMARK_KERNELS_CUDA_MMA_CUH
#define BATCHMARK_KERNELS_CUDA_MMA_CUH

#include "launch.cuh"

static __device__ __forceinline__ uint32_t pack_pair(bf16 low, bf16 high)
{
    return (uint32_t)__bfloat16_as_ushort(low) | (uint32_t)__bfloat16_as_ushort(high) << 16;
}

static __device__ __forceinline__ uint32_t pack_pair(f16 low, f16 high)
{
    return (uint32_t)__half_as_ushort(low) | (uint32_t)__half_as_ushort(high) << 16;
}

template <class T> static __device__ __forceinline__ uint32_t pack_floats(float low, float high)
{
    return pack_pair(narrow<T>(low), narrow<T>(high));
}

#ifdef __CUDACC__

static __device__ __forceinline__ void mma_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

static __device__ __forceinline__ void mma_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* Four 8 x 8 matrices from shared memory; lane 8 m + r gives the address of row r of matrix m, 16-byte aligned. A lane gets of
 * each matrix (g, 2t) and (g, 2t+1); transposed: (2t, g) and (2t+1, g). */
template <bool TRANSPOSED> static __device__ __forceinline__ void mma_load(uint32_t (&r)[4], const void *row)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
#else
    (void)row;
    r[0] = r[1] = r[2] = r[3] = 0;
#endif
}

#else

static inline float mma_half(uint32_t pair, int which, bf16)
{
    return bf16_to_f32((uint16_t)(pair >> 16 * which));
}

static inline float mma_half(uint32_t pair, int which, f16)
{
    return f16_to_f32((uint16_t)(pair >> 16 * which));
}

template <class T> static inline void mma_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T type)
{
    __shared__ float held[32][32][6][2]; /* warp, lane, register, half */
    float (*warp)[6][2] = held[threadIdx.x / 32];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t mine[6] = { a[0], a[1], a[2], a[3], b0, b1 };
    for (int i = 0; i < 12; i++)
        warp[lane][i / 2][i % 2] = mma_half(mine[i / 2], i % 2, type);
    __syncwarp();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++)
            d[i] += warp[4 * g + k % 8 / 2][i / 2 + k / 8 * 2][k % 2] * warp[4 * (2 * t + i % 2) + k % 8 / 2][4 + k / 8][k % 2];
    __syncwarp();
}

template <bool TRANSPOSED> static inline void mma_load(uint32_t (&r)[4], const void *row)
{
    __shared__ const uint16_t *held[32][32];
    const uint16_t **warp = held[threadIdx.x / 32];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    CHECK((uintptr_t)row % 16 == 0);
    warp[lane] = static_cast<const uint16_t *>(row);
    __syncwarp();
    for (int m = 0; m < 4; m++) {
        const uint16_t low = TRANSPOSED ? warp[8 * m + 2 * t][g] : warp[8 * m + g][2 * t];
        const uint16_t high = TRANSPOSED ? warp[8 * m + 2 * t + 1][g] : warp[8 * m + g][2 * t + 1];
        r[m] = (uint32_t)low | (uint32_t)high << 16;
    }
    __syncwarp();
}

#endif

/* Operands from a row-major tile in shared memory, rows PITCH elements apart (PITCH 2 bytes an odd multiple of 16 bytes: no bank
 * conflicts). A: the 16 x 16 part whose upper left is `corner`. */
template <int PITCH, class T> static __device__ __forceinline__ void mma_load_a(uint32_t (&a)[4], const T *corner)
{
    const int lane = threadIdx.x % 32;
    mma_load<false>(a, corner + lane % 16 * PITCH + lane / 16 * 8);
}

/* B of two products side by side, columns 0..7: b[0], b[1], columns 8..15: b[2], b[3]. `corner` is the upper left of the 16 x 16
 * part of a tile whose rows are B's columns ... */
template <int PITCH, class T> static __device__ __forceinline__ void mma_load_b_by_column(uint32_t (&b)[4], const T *corner)
{
    const int lane = threadIdx.x % 32;
    mma_load<false>(b, corner + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8);
}

/* ... or B's rows. */
template <int PITCH, class T> static __device__ __forceinline__ void mma_load_b_by_row(uint32_t (&b)[4], const T *corner)
{
    const int lane = threadIdx.x % 32;
    mma_load<true>(b, corner + lane % 16 * PITCH + lane / 16 * 8);
}

#endif
