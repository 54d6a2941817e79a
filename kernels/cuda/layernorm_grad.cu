/* layernorm_grad.cu - the gradient of layer normalisation, of the residual's add and dropout with it.
 *
 * With g = dy gamma and n = (sum - mean) invstd, means over a row, sums over the rows:
 *   d = invstd (g - mean of g - n mean of g n),  dgamma = sum of dy n,  dbeta = sum of dy
 *
 * A warp takes a row of up to 1,024 features, in whole groups of eight, and keeps it in registers. A block takes any other row and
 * reads it again from the caches. So memory is read once and written once, as op_cost counts it. Column sums are taken over
 * chunks of rows first and then over the chunks in double; chunks depend on the shape alone, so the bits are always the same. What
 * the chunks leave in scratch, 2 K floats each, is written and read besides: for 16,384 rows of 768 in bf16 a sixteenth of
 * the rest. */
#include "groups.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, MOST_GROUPS = 4, MOST_KEPT = 32 * MOST_GROUPS * GROUP, MOST_CHUNKS = 384, SLICES = 8 };

struct Backward {
    int64_t      rows, columns, chunk;  /* chunk: rows of one, a multiple of WARPS */
    const void  *sum, *dy;
    const float *gamma, *mean, *invstd;
    void        *dx, *dresidual;        /* dresidual: NULL where dx serves for both; dx may lie on dy */
    float       *partial;               /* [chunks][2][columns]: of dgamma and dbeta */
    bool         wide;
    Drop         drop;
};

static int64_t chunk_rows(int64_t rows)
{
    const int64_t even = (rows + MOST_CHUNKS - 1) / MOST_CHUNKS;
    return (even + WARPS - 1) / WARPS * WARPS;
}

static int64_t chunk_count(int64_t rows) { return (rows + chunk_rows(rows) - 1) / chunk_rows(rows); }

/* What a row needs for its gradient. */
struct RowMeans { float mean, invstd, g, product; };

/* d of one group, and what becomes of it; `kept` is drop_kept's. */
template <class T> static __device__ __forceinline__ void output_group(const Backward &b, int64_t row, int64_t group, const RowMeans &m,
                                                                       const Group<T> &sum, const Group<T> &dy, unsigned kept)
{
    const int64_t left = b.columns - group * GROUP, at = row * b.columns + group * GROUP;
    if (left <= 0)
        return;
    const Group<float> gamma = load_group(b.gamma + group * GROUP, left, b.wide);
    float              d[GROUP];
    Group<T>           rounded;
#pragma unroll
    for (int k = 0; k < GROUP; k++) {
        const float n = (widen(sum.at[k]) - m.mean) * m.invstd;
        d[k] = m.invstd * (widen(dy.at[k]) * gamma.at[k] - m.g - n * m.product);
        rounded.at[k] = narrow<T>(d[k]);
    }
    if (!b.drop.rng) {
        store_group((T *)b.dx + at, rounded, left, b.wide);
        return;
    }
    store_group((T *)b.dresidual + at, rounded, left, b.wide);
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        rounded.at[k] = narrow<T>(kept >> k & 1u ? d[k] * b.drop.scale : 0.0f);
    store_group((T *)b.dx + at, rounded, left, b.wide);
}

/* Adds one group to the sums over its row and returns what its columns get. */
template <class T> static __device__ __forceinline__ void gather_group(const Backward &b, int64_t group, const RowMeans &m,
                                                                       const Group<T> &sum, const Group<T> &dy, float *g_total,
                                                                       float *product_total, float *dgamma, float *dbeta)
{
    const Group<float> gamma = load_group(b.gamma + group * GROUP, b.columns - group * GROUP, b.wide);
#pragma unroll
    for (int k = 0; k < GROUP; k++) {
        const float v = widen(dy.at[k]), n = (widen(sum.at[k]) - m.mean) * m.invstd, g = v * gamma.at[k];
        *g_total += g;
        *product_total = fmaf(g, n, *product_total);
        dgamma[k] = fmaf(v, n, dgamma[k]);
        dbeta[k] += v;
    }
}

/* Adds the warps' column sums in the order of the warps, and writes them. */
template <int GROUPS> static __device__ __forceinline__ void write_partial(const Backward &b, const float (&dgamma)[GROUPS][GROUP],
                                                                           const float (&dbeta)[GROUPS][GROUP])
{
    __shared__ float room[2][GROUPS][GROUP][32];
    const int lane = threadIdx.x % 32;
    for (int warp = 0; warp < WARPS; warp++) {
        if ((int)threadIdx.x / 32 == warp)
#pragma unroll
            for (int a = 0; a < GROUPS; a++)
#pragma unroll
                for (int k = 0; k < GROUP; k++) {
                    room[0][a][k][lane] = dgamma[a][k] + (warp ? room[0][a][k][lane] : 0.0f);
                    room[1][a][k][lane] = dbeta[a][k] + (warp ? room[1][a][k][lane] : 0.0f);
                }
        __syncthreads();
    }
    for (int j = threadIdx.x; j < (int)b.columns; j += THREADS)
        for (int which = 0; which < 2; which++)
            b.partial[(2 * (int64_t)blockIdx.x + which) * b.columns + j] = room[which][j / GROUP / 32][j % GROUP][j / GROUP % 32];
}

/* A chunk of rows of at most 32 x GROUPS whole groups, a warp each. */
template <class T, int GROUPS> static __global__ void __launch_bounds__(THREADS, GROUPS <= 3 ? 3 : 2) grad_rows(Backward b)
{
    b.wide = true;
    const int     lane = threadIdx.x % 32;
    const int64_t first = blockIdx.x * b.chunk, last = first + b.chunk < b.rows ? first + b.chunk : b.rows;
    float dgamma[GROUPS][GROUP] = {}, dbeta[GROUPS][GROUP] = {};
    for (int64_t row = first + threadIdx.x / 32; row < last; row += WARPS) {
        RowMeans m = { b.mean[row], b.invstd[row], 0, 0 };
        Group<T> sum[GROUPS], dy[GROUPS];
        float    g_total = 0, product_total = 0;
        unsigned kept = 0;
        for (int a = 0; a < GROUPS && b.drop.rng; a++)
            kept |= drop_kept(b.drop, row, lane + 32 * a) << GROUP * a;
#pragma unroll
        for (int a = 0; a < GROUPS; a++) {
            const int64_t left = b.columns - GROUP * (lane + 32 * a), at = row * b.columns + GROUP * (lane + 32 * a);
            sum[a] = load_group((const T *)b.sum + at, left, b.wide);
            dy[a] = load_group((const T *)b.dy + at, left, b.wide);
        }
#pragma unroll
        for (int a = 0; a < GROUPS; a++)
            gather_group(b, lane + 32 * a, m, sum[a], dy[a], &g_total, &product_total, dgamma[a], dbeta[a]);
        m.g = warp_sum(g_total) / (float)b.columns;
        m.product = warp_sum(product_total) / (float)b.columns;
#pragma unroll
        for (int a = 0; a < GROUPS; a++)
            output_group(b, row, lane + 32 * a, m, sum[a], dy[a], kept >> GROUP * a);
    }
    write_partial(b, dgamma, dbeta);
}

/* A chunk of rows of any length, one after the other by the whole block; a thread always has the same columns. */
template <class T> static __global__ void __launch_bounds__(THREADS) grad_long_rows(Backward b)
{
    __shared__ float room[32];
    const int64_t first = blockIdx.x * b.chunk, last = first + b.chunk < b.rows ? first + b.chunk : b.rows;
    float *dgamma = b.partial + 2 * (int64_t)blockIdx.x * b.columns, *dbeta = dgamma + b.columns;
    for (int64_t row = first; row < last; row++) {
        const T *sum = (const T *)b.sum + row * b.columns, *dy = (const T *)b.dy + row * b.columns;
        RowMeans m = { b.mean[row], b.invstd[row], 0, 0 };
        float    g_total = 0, product_total = 0;
        for (int64_t at = GROUP * (int64_t)threadIdx.x; at < b.columns; at += GROUP * THREADS) {
            const int64_t left = b.columns - at, begun = row > first ? left : 0;
            Group<float>  to_gamma = load_group(dgamma + at, begun, b.wide), to_beta = load_group(dbeta + at, begun, b.wide);
            gather_group(b, at / GROUP, m, load_group(sum + at, left, b.wide), load_group(dy + at, left, b.wide), &g_total,
                         &product_total, to_gamma.at, to_beta.at);
            store_group(dgamma + at, to_gamma, left, b.wide);
            store_group(dbeta + at, to_beta, left, b.wide);
        }
        m.g = block_sum(g_total, room) / (float)b.columns;
        m.product = block_sum(product_total, room) / (float)b.columns;
        for (int64_t at = GROUP * (int64_t)threadIdx.x; at < b.columns; at += GROUP * THREADS)
            output_group(b, row, at / GROUP, m, load_group(sum + at, b.columns - at, b.wide),
                         load_group(dy + at, b.columns - at, b.wide), b.drop.rng ? drop_kept(b.drop, row, at / GROUP) : 0);
    }
}

/* dgamma and dbeta, one behind the other as in each chunk, = or += the sums over the chunks. A block has 32 neighbouring columns;
 * each of its warps adds every SLICES-th chunk. */
static __global__ void __launch_bounds__(32 * SLICES)
add_chunks(int64_t chunks, int64_t columns, const float *partial, float *dgamma, float *dbeta, bool accumulate)
{
    __shared__ double room[SLICES][32];
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
    for (int64_t first = 32 * (int64_t)blockIdx.x; first < 2 * columns; first += 32 * (int64_t)gridDim.x) {
        const int64_t j = first + lane;
        double        sum = 0;
        for (int64_t c = slice; c < chunks && j < 2 * columns; c += SLICES)
            sum += (double)partial[c * 2 * columns + j];
        room[slice][lane] = sum;
        __syncthreads();
        if (slice == 0 && j < 2 * columns) {
            float *to = j < columns ? dgamma + j : dbeta + (j - columns);
            for (int s = 1; s < SLICES; s++)
                sum += room[s][lane];
            *to = (float)((accumulate ? (double)*to : 0.0) + sum);
        }
        __syncthreads();
    }
}
LAUNCHABLE(add_chunks);

#define EACH_TYPE(...) \
    LAUNCHABLE(grad_rows<float, __VA_ARGS__>); \
    LAUNCHABLE(grad_rows<bf16, __VA_ARGS__>); \
    LAUNCHABLE(grad_rows<f16, __VA_ARGS__>)
EACH_TYPE(1);
EACH_TYPE(2);
EACH_TYPE(3);
EACH_TYPE(4);
LAUNCHABLE(grad_long_rows<float>);
LAUNCHABLE(grad_long_rows<bf16>);
LAUNCHABLE(grad_long_rows<f16>);

template <class T> static void (*backward_kernel(int64_t columns, bool wide))(Backward)
{
    static_assert(MOST_GROUPS == 4, "one kernel for each number of groups");
    switch (wide && columns <= MOST_KEPT ? (group_count(columns) + 31) / 32 : 0) {
    case 1:  return grad_rows<T, 1>;
    case 2:  return grad_rows<T, 2>;
    case 3:  return grad_rows<T, 3>;
    case 4:  return grad_rows<T, 4>;
    default: return grad_long_rows<T>;
    }
}

static Status layernorm_grad_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    needs->scratch = (size_t)(chunk_count(op->in[0].dim[0]) * 2 * op->in[0].dim[1]) * sizeof(float);
    return cuda_query_rows(op);
}

static Status layernorm_grad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const int     n = op->n_in;
    const bool    drops = op->attr.dropout > 0;
    const int64_t rows = op->in[0].dim[0], columns = op->in[0].dim[1], chunks = chunk_count(rows);
    Backward b = { rows, columns, chunk_rows(rows), buf[0], buf[1], (const float *)buf[2], (const float *)buf[3],
                   (const float *)buf[4], buf[n], drops ? buf[n + 3] : nullptr, (float *)scratch, false,
                   drop_of(op, drops ? buf[5] : nullptr) };
    b.wide = groups_are_wide(columns, DTYPE_F32, { b.sum, b.dy, b.gamma, b.dx, b.dresidual, scratch });
    TRY(cuda_launch(be, cuda_of_type(op->in[0].dtype, backward_kernel<float>(columns, b.wide), backward_kernel<bf16>(columns, b.wide),
                                     backward_kernel<f16>(columns, b.wide)), (unsigned)chunks, THREADS, 0, b));
    return cuda_launch(be, add_chunks, cuda_blocks(2 * columns, 32), 32 * SLICES, 0, chunks, columns, (const float *)scratch,
                       (float *)buf[n + 1], (float *)buf[n + 2], op->attr.accumulate);
}

CUDA_KERNEL(layernorm_grad, layernorm_grad_query, nullptr, layernorm_grad_run, nullptr, nullptr)
