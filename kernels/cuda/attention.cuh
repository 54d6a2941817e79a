/* attention.cuh - what the kernels of attention share: where a head of a sequence lies, its dropout, and the tile products of
 * the plain kernels.
 *
 * Work goes by (sequence b, head h, tile of rows); nothing of size seq x seq is kept: scores are made, used and forgotten
 * (Dao et al. 2022). Every output has one writer, so the bits do not depend on the order of blocks.
 *
 * Plain kernels: a tile is TILE rows of up to 32 CHUNKS features, f32 in shared memory, what is missing is 0. 4 TILE threads,
 * thread (y, x) = (tid / 8, tid % 8), hold of a TILE x TILE product the rows 2 y, 2 y + 1 and the columns x + 8 k, and of a
 * TILE x D product the same rows and the columns 32 chunk + 4 x .. + 3. */
#ifndef BATCHMARK_KERNELS_CUDA_ATTENTION_CUH
#define BATCHMARK_KERNELS_CUDA_ATTENTION_CUH

#include "../dropout.h"
#include "launch.cuh"

enum { ATTENTION_MAX_SIZE = 128, ATTENTION_MMA_SIZE = 64 };

typedef struct AttentionShape {
    int64_t  tokens, width, sequences, seq; /* T, W, B, attr.seq */
    int      heads, size;                   /* D = W / heads */
    float    scale, dropped_scale;          /* 1 / sqrt(D), 1 / (1 - p) */
    uint32_t threshold, stream;             /* of dropout; 0 = keep all */
    int      inputs;                        /* op->n_in */
    OpKind   op;
} AttentionShape;

AttentionShape attention_shape(const OpDesc *op);

/* Marks bad spans as a fault, zeroes the outputs' rows in no span, and for the gradient makes delta[t][h] = dy[t] y[t] over head h. */
Status attention_prepare_rows(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, float *delta);

/* Plain kernels, and those on tensor cores (16-bit types, head sizes 8, 16, .. 64, compute capability 8.0). */
Status attention_forward_plain(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf);
Status attention_backward_plain(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, const float *delta);
bool   attention_has_mma(Backend *be, const OpDesc *op, const AttentionShape *s);
Status attention_forward_mma(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf);
Status attention_backward_mma(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, const float *delta);

/* ---- on the device */

typedef struct Span { int64_t first; int rows; } Span; /* rows = 0: none, or one that is no span of this tensor */

static __device__ __forceinline__ Span attention_span(const int32_t *spans, const AttentionShape &s, int64_t b)
{
    const int64_t first = spans[2 * b], rows = spans[2 * b + 1];
    const bool good = first >= 0 && rows >= 0 && rows <= s.seq && first + rows <= s.tokens;
    Span span = { first, good ? (int)rows : 0 };
    return span;
}

/* The block's head, and its tile of ROWS rows: element numbers of the head's first row in q of qkv, y and lse; dropout's row of query 0. */
typedef struct Head { Span span; int64_t qkv, y, lse, mask_row; int first; } Head;

template <int ROWS> static __device__ __forceinline__ Head attention_head(const AttentionShape &s, const int32_t *spans)
{
    const int64_t tiles = (s.seq + ROWS - 1) / ROWS, item = blockIdx.x / tiles, b = item / s.heads, h = item % s.heads;
    Head head;
    head.span = attention_span(spans, s, b);
    head.y = head.span.first * s.width + h * s.size;
    head.qkv = 3 * head.span.first * s.width + h * s.size;
    head.lse = head.span.first * s.heads + h;
    head.mask_row = (b * s.heads + h) * s.seq;
    head.first = (int)(blockIdx.x % tiles) * ROWS;
    return head;
}

static inline dim3 attention_grid(const AttentionShape *s, int rows)
{
    const int64_t tiles = (s->seq + rows - 1) / rows, blocks = tiles * s->heads * s->sequences;
    CHECK(blocks <= INT32_MAX);
    return dim3((unsigned)blocks);
}

/* Bit k: whether element 8 group + k of a row of dropout is kept (dropout.h). */
static __device__ __forceinline__ unsigned attention_keeps(const AttentionShape &s, const int32_t *rng, int64_t row, int64_t group)
{
    const uint64_t seed = (uint32_t)rng[0] | (uint64_t)(uint32_t)rng[1] << 32;
    const RngBlock b = philox(seed, (uint64_t)s.stream << 32 | (uint32_t)rng[2], (uint64_t)(row * ((s.seq + 7) / 8) + group));
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < 8; k++)
        bits |= (unsigned)((b.word[k / 2] >> 16 * (k % 2) & 0xffffu) >= s.threshold) << k;
    return bits;
}

template <int CHUNKS> struct Tile { enum { ROWS = CHUNKS > 2 ? 16 : 32, PITCH = 32 * CHUNKS + 4, THREADS = 4 * ROWS, COLUMNS = ROWS / 8,
                                           FLOATS = ROWS * PITCH, SCORE_PITCH = ROWS + 4, SCORES = ROWS * SCORE_PITCH }; };

/* Rows of `size` features; `rows` of them exist. */
template <int CHUNKS, class T> static __device__ __forceinline__ void tile_load(float *to, const T *from, int64_t row_step, int rows,
                                                                                int size)
{
    typedef Tile<CHUNKS> Shape;
    for (int i = threadIdx.x; i < Shape::ROWS * 32 * CHUNKS; i += Shape::THREADS) {
        const int r = i / (32 * CHUNKS), c = i % (32 * CHUNKS);
        to[r * Shape::PITCH + c] = r < rows && c < size ? widen(from[r * row_step + c]) : 0.0f;
    }
}

/* s[r][k] = a[2 y + r] b[x + 8 k], of rows of two tiles. */
template <int CHUNKS> static __device__ __forceinline__ void tile_products(const float *a, const float *b,
                                                                           float (&s)[2][Tile<CHUNKS>::COLUMNS])
{
    typedef Tile<CHUNKS> Shape;
    const float *from = a + threadIdx.x / 8 * 2 * Shape::PITCH, *with = b + threadIdx.x % 8 * Shape::PITCH;
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < Shape::COLUMNS; k++)
            s[r][k] = 0;
#pragma unroll 4
    for (int c = 0; c < 32 * CHUNKS; c += 4) {
        Pack<float, 4> left[2];
        for (int r = 0; r < 2; r++)
            left[r] = *reinterpret_cast<const Pack<float, 4> *>(from + r * Shape::PITCH + c);
#pragma unroll
        for (int k = 0; k < Shape::COLUMNS; k++) {
            const Pack<float, 4> right = *reinterpret_cast<const Pack<float, 4> *>(with + 8 * k * Shape::PITCH + c);
            for (int r = 0; r < 2; r++)
                for (int i = 0; i < 4; i++)
                    s[r][k] += left[r].at[i] * right.at[i];
        }
    }
}

/* sum[r] += scores[2 y + r] tile: a row of scores by the tile's rows. */
template <int CHUNKS> static __device__ __forceinline__ void tile_accumulate(const float *scores, const float *tile,
                                                                             float (&sum)[2][4 * CHUNKS])
{
    typedef Tile<CHUNKS> Shape;
    const float *from = scores + threadIdx.x / 8 * 2 * Shape::SCORE_PITCH, *with = tile + threadIdx.x % 8 * 4;
#pragma unroll 4
    for (int j = 0; j < Shape::ROWS; j++) {
        const float left[2] = { from[j], from[Shape::SCORE_PITCH + j] };
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            const Pack<float, 4> right = *reinterpret_cast<const Pack<float, 4> *>(with + j * Shape::PITCH + 32 * chunk);
            for (int r = 0; r < 2; r++)
                for (int i = 0; i < 4; i++)
                    sum[r][4 * chunk + i] += left[r] * right.at[i];
        }
    }
}

/* Row 2 y + r of a product of D columns, times `factor`. */
template <int CHUNKS, class T> static __device__ __forceinline__ void tile_store_row(T *to, int size, float factor,
                                                                                     const float (&sum)[4 * CHUNKS])
{
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        for (int i = 0; i < 4; i++) {
            const int c = 32 * chunk + threadIdx.x % 8 * 4 + i;
            if (c < size)
                to[c] = narrow<T>(sum[4 * chunk + i] * factor);
        }
}

#endif
