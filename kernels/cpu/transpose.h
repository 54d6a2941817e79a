/* transpose.h - a 16 x 16 matrix of 32-bit words turned over in AVX-512 registers. */
#ifndef BATCHMARK_KERNELS_CPU_TRANSPOSE_H
#define BATCHMARK_KERNELS_CPU_TRANSPOSE_H

#ifdef __AVX512F__
#include <immintrin.h>

/* v[i] is row i before and column i after. Unpacks build 4 x 4 corners, then whole 128-bit lanes move. */
static inline __attribute__((always_inline)) void transpose_16x16(__m512i v[16])
{
    __m512i a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (int g = 0; g < 16; g += 4) {
        b[g] = _mm512_unpacklo_epi64(a[g], a[g + 2]);
        b[g + 1] = _mm512_unpackhi_epi64(a[g], a[g + 2]);
        b[g + 2] = _mm512_unpacklo_epi64(a[g + 1], a[g + 3]);
        b[g + 3] = _mm512_unpackhi_epi64(a[g + 1], a[g + 3]);
    }
    for (int j = 0; j < 4; j++) { /* b[4 g + j], 128-bit lane l: rows 4 g .. 4 g + 3 of column 4 l + j */
        __m512i even01 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88), odd01 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        __m512i even23 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88), odd23 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        v[j] = _mm512_shuffle_i32x4(even01, even23, 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
        v[4 + j] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
        v[12 + j] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
    }
}

#endif
#endif
