/* norm.cuh - what both directions of batch normalisation share: how a tensor of rows (pixels) of C channels is cut for sums over
 * the rows, and how eight elements are loaded.
 *
 * Sums over rows: blocks of `columns` x `lines` threads; a thread holds V neighbouring channels (8, or 1 where C is not a
 * multiple of 8). Line `l` of part `p` of `parts` takes the rows l + lines (p + parts k), k = 0, 1, ..., so all blocks go
 * through the tensor together. The parts of a channel are merged in one fixed order: no atomics, the same bits always.
 *
 * Elementwise passes: units of 8 consecutive elements (16 or 32 bytes; one byte of the mask), a thread takes every
 * `threads`-th. Where that is a multiple of C / 8 a thread keeps its channels, and their parameters stay in registers. They go
 * from the end of the tensor to its start: what the sums read last may still be in the L2 cache. */
#ifndef BATCHMARK_KERNELS_CUDA_NORM_CUH
#define BATCHMARK_KERNELS_CUDA_NORM_CUH

#include "launch.cuh"

enum { NORM_THREADS = 256, NORM_UNIT = 8, NORM_LANES = 32, NORM_SLICES = 32, NORM_BLOCKS = 1024 };

typedef struct NormShape {
    int64_t rows, channels, count; /* count = rows channels */
    int     vector;                /* V */
    int     columns, lines;        /* columns a power of two; columns lines = NORM_THREADS */
    int64_t tiles;                 /* blocks across the channels */
    int     parts;
} NormShape;

static inline NormShape norm_shape(const OpDesc *op)
{
    NormShape s;
    s.channels = op->in[0].dim[3];
    s.count = tensor_count(&op->in[0]);
    s.rows = s.channels ? s.count / s.channels : 0;
    s.vector = s.channels % NORM_UNIT ? 1 : NORM_UNIT;
    const int64_t groups = s.channels / s.vector;
    for (s.columns = 1; s.columns < NORM_LANES && s.columns < groups;)
        s.columns *= 2;
    s.lines = NORM_THREADS / s.columns;
    s.tiles = (groups + s.columns - 1) / s.columns;
    const int64_t most = s.tiles < NORM_BLOCKS ? NORM_BLOCKS / s.tiles : 1, wanted = (s.rows + 8 * s.lines - 1) / (8 * s.lines);
    s.parts = (int)(wanted < most ? wanted : most); /* 8 rows a thread, unless that makes too many blocks */
    return s;
}

/* Two numbers for each part and channel: partial[(2 part + which) channels + channel]. */
static inline size_t norm_partial_bytes(const NormShape *s)
{
    const size_t bytes = 2 * (size_t)s->parts * (size_t)s->channels * sizeof(float);
    return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

/* Threads of a block that merges parts of NORM_LANES channels: a power of two of slices, no more than there are parts to share. */
static inline int norm_merge_threads(const NormShape *s)
{
    int slices = 1;
    while (slices < NORM_SLICES && slices < s->parts)
        slices *= 2;
    return slices * NORM_LANES;
}

/* Blocks of an elementwise pass; *fixed: threads keep their channels. */
static inline unsigned norm_blocks(const NormShape *s, bool *fixed)
{
    const int64_t groups = s->channels / NORM_UNIT, units = (s->count + NORM_UNIT - 1) / NORM_UNIT;
    int64_t blocks = cuda_blocks(units, 2 * NORM_THREADS, 2 * NORM_BLOCKS), step = groups;
    for (int64_t a = NORM_THREADS; a % 2 == 0 && step % 2 == 0; a /= 2)
        step /= 2; /* blocks must be a multiple of groups / gcd(groups, NORM_THREADS) */
    *fixed = s->channels % NORM_UNIT == 0 && step <= NORM_BLOCKS;
    return (unsigned)(*fixed && step > 1 ? (blocks + step - 1) / step * step : blocks);
}

#ifdef __cplusplus
/* load_floats and store_floats of a unit of which only the first n elements exist. */
template <class T> static __device__ __forceinline__ void load_some(const T *from, int n, float (&to)[NORM_UNIT])
{
#pragma unroll
    for (int k = 0; k < NORM_UNIT; k++)
        to[k] = k < n ? widen(from[k]) : 0.0f;
}

template <class T> static __device__ __forceinline__ void store_some(T *to, int n, const float (&from)[NORM_UNIT])
{
#pragma unroll
    for (int k = 0; k < NORM_UNIT; k++)
        if (k < n)
            to[k] = narrow<T>(from[k]);
}

/* Rows that a part has, and that a line of it has. */
static __device__ __forceinline__ int64_t norm_line_rows(int64_t rows, int lines, int parts, int part, int line)
{
    const int64_t first = (int64_t)part * lines + line, step = (int64_t)lines * parts;
    return first < rows ? (rows - first + step - 1) / step : 0;
}

static __device__ __forceinline__ int64_t norm_part_rows(int64_t rows, int lines, int parts, int part)
{
    const int64_t chunks = rows / lines, left = chunks % parts;
    return (chunks / parts + (part < left)) * lines + (part == left ? rows % lines : 0);
}

/* Adds a and b over the slices of a block of NORM_LANES threads each; slice 0 gets the sums. */
static __device__ __forceinline__ void norm_add_slices(double *a, double *b)
{
    __shared__ double room[2][NORM_SLICES][NORM_LANES];
    const int lane = threadIdx.x % NORM_LANES, slice = threadIdx.x / NORM_LANES;
    room[0][slice][lane] = *a;
    room[1][slice][lane] = *b;
    for (int reach = (int)blockDim.x / NORM_LANES / 2; reach > 0; reach /= 2) {
        __syncthreads();
        if (slice < reach)
            for (int which = 0; which < 2; which++)
                room[which][slice][lane] += room[which][slice + reach][lane];
    }
    *a = room[0][slice][lane];
    *b = room[1][slice][lane];
}
#endif
#endif
