/* columns.cu - sums over the rows of a matrix in two steps: each block adds up a piece of the rows of a tile of columns; the same
 * kernel then adds up the pieces. No atomics: the order, and so every bit, depends on the shape alone.
 *
 * Bytes: the matrix is read once, the sums are written once (read too if they accumulate); the pieces are at most 1,024 rows of f32
 * and stay in L2. */
#include "columns.h"
#include "launch.cuh"

enum {
    COLUMNS_BLOCK = 256,  /* threads: `across` of them side by side over columns, the others over rows */
    COLUMNS_ACROSS = 32,  /* most of them side by side: 512 bytes of a row in one access */
    COLUMNS_ROWS = 16,    /* least rows of a thread, so that the sum of a piece is worth a block */
    COLUMNS_PIECES = 512, /* most pieces of one column */
    COLUMNS_BLOCKS = 2048 /* most blocks; enough to fill the largest GPU of gpus.h with 8 an SM */
};

/* One block: tile blockIdx.x of across * V columns, rows blockIdx.y * rows_each and on. out holds one row of sums for each blockIdx.y. */
template <class T, int V>
static __global__ void columns_kernel(const T *x, int64_t rows, int64_t columns, int64_t pitch, int64_t rows_each, int across, float *out,
                                      bool accumulate)
{
    __shared__ float room[V * COLUMNS_BLOCK];
    const int     lane = (int)threadIdx.x % across, down = COLUMNS_BLOCK / across, first = (int)threadIdx.x / across;
    const int64_t column = ((int64_t)blockIdx.x * across + lane) * V, begin = (int64_t)blockIdx.y * rows_each;
    const int64_t end = begin + rows_each < rows ? begin + rows_each : rows;
    float         sum[V];
    for (int i = 0; i < V; i++)
        sum[i] = 0.0f;
    if (column < columns) {
#pragma unroll 4
        for (int64_t r = begin + first; r < end; r += down) {
            const Pack<T, V> p = *(const Pack<T, V> *)(x + r * pitch + column);
            for (int i = 0; i < V; i++)
                sum[i] += widen(p.at[i]);
        }
    }
    for (int i = 0; i < V; i++)
        room[i * COLUMNS_BLOCK + (int)threadIdx.x] = sum[i];
    for (int stride = down / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (first < stride)
            for (int i = 0; i < V; i++)
                room[i * COLUMNS_BLOCK + (int)threadIdx.x] += room[i * COLUMNS_BLOCK + (int)threadIdx.x + stride * across];
    }
    if (first == 0 && column < columns) {
        float *to = out + (int64_t)blockIdx.y * columns + column;
        for (int i = 0; i < V; i++)
            to[i] = (accumulate ? to[i] : 0.0f) + room[i * COLUMNS_BLOCK + lane];
    }
}

LAUNCHABLE(columns_kernel<float, 4>);
LAUNCHABLE(columns_kernel<float, 2>);
LAUNCHABLE(columns_kernel<float, 1>);
LAUNCHABLE(columns_kernel<bf16, 8>);
LAUNCHABLE(columns_kernel<bf16, 2>);
LAUNCHABLE(columns_kernel<bf16, 1>);
LAUNCHABLE(columns_kernel<f16, 8>);
LAUNCHABLE(columns_kernel<f16, 2>);
LAUNCHABLE(columns_kernel<f16, 1>);

/* Columns that a thread takes at once: whole 16-byte accesses where rows allow them. */
static int width_of(const Columns *c)
{
    const int most = c->dtype == DTYPE_F32 ? 4 : 8;
    return c->columns % most == 0 && c->pitch % most == 0 ? most : c->columns % 2 == 0 && c->pitch % 2 == 0 ? 2 : 1;
}

typedef struct Tiling { int across; int64_t tiles, pieces, rows_each; } Tiling;

static Tiling tiling_of(const Columns *c)
{
    const int64_t packs = (c->columns + width_of(c) - 1) / width_of(c);
    Tiling        t = { 1, 0, 1, c->rows };
    while (t.across < COLUMNS_ACROSS && t.across < packs)
        t.across *= 2;
    t.tiles = (packs + t.across - 1) / t.across;
    const int64_t down = COLUMNS_BLOCK / t.across, least = down * COLUMNS_ROWS;
    if (t.tiles == 0 || c->rows <= least)
        return t;
    t.pieces = (c->rows + least - 1) / least;
    if (t.pieces > COLUMNS_PIECES)
        t.pieces = COLUMNS_PIECES;
    if (t.pieces > COLUMNS_BLOCKS / t.tiles)
        t.pieces = COLUMNS_BLOCKS / t.tiles > 0 ? COLUMNS_BLOCKS / t.tiles : 1;
    t.rows_each = (c->rows + t.pieces - 1) / t.pieces;
    t.pieces = (c->rows + t.rows_each - 1) / t.rows_each;
    return t;
}

template <class T, int V>
static Status launch(Backend *be, const Columns *c, const Tiling *t, const void *x, float *out, bool accumulate)
{
    return cuda_launch(be, columns_kernel<T, V>, dim3((unsigned)t->tiles, (unsigned)t->pieces), COLUMNS_BLOCK, 0, (const T *)x, c->rows,
                       c->columns, c->pitch, t->rows_each, t->across, out, accumulate);
}

template <class T>
static Status sum_pieces(Backend *be, const Columns *c, const Tiling *t, const void *x, float *out, bool accumulate)
{
    switch (width_of(c)) {
    case 1:  return launch<T, 1>(be, c, t, x, out, accumulate);
    case 2:  return launch<T, 2>(be, c, t, x, out, accumulate);
    default: return launch<T, Wide<T>::N>(be, c, t, x, out, accumulate);
    }
}

Columns columns_of(const Tensor *t)
{
    Columns c = { t->dtype, 1, t->dim[t->rank - 1], cuda_pitch(t) };
    for (int i = 0; i < t->rank - 1; i++)
        c.rows *= t->dim[i];
    return c;
}

size_t columns_scratch(const Columns *c)
{
    const Tiling t = tiling_of(c);
    return t.pieces > 1 ? (size_t)(t.pieces * c->columns) * sizeof(float) : 0;
}

Status columns_sum(Backend *be, const Columns *c, const void *x, float *sum, bool accumulate, void *scratch)
{
    const Tiling t = tiling_of(c);
    float       *out = t.pieces > 1 ? (float *)scratch : sum;
    const bool   add = t.pieces > 1 ? false : accumulate;
    switch (c->dtype) {
    case DTYPE_F32:  TRY(sum_pieces<float>(be, c, &t, x, out, add)); break;
    case DTYPE_BF16: TRY(sum_pieces<bf16>(be, c, &t, x, out, add)); break;
    case DTYPE_F16:  TRY(sum_pieces<f16>(be, c, &t, x, out, add)); break;
    default:         return cuda_unsupported("sum columns", c->dtype);
    }
    if (t.pieces == 1)
        return status_ok();
    const Columns pieces = { DTYPE_F32, t.pieces, c->columns, c->columns };
    Tiling        last = tiling_of(&pieces);
    last.pieces = 1;
    last.rows_each = t.pieces;
    return sum_pieces<float>(be, &pieces, &last, scratch, sum, accumulate);
}
