/* amx.h - what the kernels on AMX tiles share: is the code in this build, and the one configuration of tiles that all use.
 * Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18. */
#ifndef BATCHMARK_KERNELS_CPU_AMX_H
#define BATCHMARK_KERNELS_CPU_AMX_H

/* clang 14 writes the names of these two without the second underscore. */
#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && (defined(__AMX_TILE__) || defined(__AMXTILE__)) && defined(__AVX512BW__) \
    && defined(__AVX512BF16__)
#define HAVE_AMX 1
#include <immintrin.h>
#include <stdint.h>
#else
#define HAVE_AMX 0
#endif

/* A tile is 16 rows of 64 bytes: 16 floats or 32 bf16. One product adds 16 x 32 by 32 x 16 into 16 x 16. */
enum { AMX_BLOCK = 16, AMX_STEP = 32 };

#if HAVE_AMX
/* All eight tiles at full size, for the calling thread until amx_release. oneDNN has asked the system for the
 * permission to use tiles when it found them (CpuBackend.amx). */
static inline void amx_configure(void)
{
    struct { uint8_t palette, start_row, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } config = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
}

static inline void amx_release(void) { _tile_release(); }
#else
static inline void amx_configure(void) { }
static inline void amx_release(void) { }
#endif

#endif
