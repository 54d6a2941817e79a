/* layernorm.cu - layer normalisation (Ba et al. 2016) over the rows of a matrix, with the residual's add and dropout fused in.
 *
 * A warp takes a row of up to 1,024 features and keeps it in registers: memory is read once and written once, as op_cost counts
 * it. A block takes a longer row and reads it again from the caches. The statistics are taken the safe way, the mean first and
 * then the squares about it. The gradient is layernorm_grad.cu. */
#include "groups.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, MOST_GROUPS = 4, MOST_KEPT = 32 * MOST_GROUPS * GROUP };

struct Forward {
    int64_t      rows, columns;
    const void  *x, *residual;
    const float *gamma, *beta;
    void        *y, *sum;   /* sum and residual: NULL where x itself is normalised */
    float       *mean, *invstd;
    float        eps;
    bool         wide;
    Drop         drop;
};

/* One group of what is normalised; stored where it is not x itself: sum = dropout(x) + residual, rounded as ops.h says. */
template <class T> static __device__ __forceinline__ Group<T> make_group(const Forward &f, int64_t row, int64_t group)
{
    const int64_t left = f.columns - group * GROUP, at = row * f.columns + group * GROUP;
    Group<T> v = load_group((const T *)f.x + at, left, f.wide);
    if (!f.sum || left <= 0)
        return v;
    const Group<T> residual = load_group((const T *)f.residual + at, left, f.wide);
    const unsigned kept = f.drop.rng ? drop_kept(f.drop, row, group) : 0;
#pragma unroll
    for (int k = 0; k < GROUP; k++) {
        float x = widen(v.at[k]);
        if (f.drop.rng)
            x = kept >> k & 1u ? __fmul_rn(x, f.drop.scale) : 0.0f;
        v.at[k] = narrow<T>(__fadd_rn(x, widen(residual.at[k])));
    }
    store_group((T *)f.sum + at, v, left, f.wide);
    return v;
}

template <class T> static __device__ __forceinline__ float add_group(const Group<T> &v)
{
    float total = 0;
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        total += widen(v.at[k]);
    return total;
}

/* Squares about the mean of the `left` elements that exist. */
template <class T> static __device__ __forceinline__ float square_group(const Group<T> &v, float mean, int64_t left)
{
    float total = 0;
#pragma unroll
    for (int k = 0; k < GROUP; k++) {
        const float d = k < left ? widen(v.at[k]) - mean : 0.0f;
        total += d * d;
    }
    return total;
}

/* y = gamma (sum - mean) invstd + beta */
template <class T> static __device__ __forceinline__ void normalize_group(const Forward &f, int64_t row, int64_t group,
                                                                          const Group<T> &v, float mean, float invstd)
{
    const int64_t left = f.columns - group * GROUP;
    if (left <= 0)
        return;
    const Group<float> gamma = load_group(f.gamma + group * GROUP, left, f.wide), beta = load_group(f.beta + group * GROUP, left, f.wide);
    Group<T> y;
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        y.at[k] = narrow<T>(fmaf((widen(v.at[k]) - mean) * invstd, gamma.at[k], beta.at[k]));
    store_group((T *)f.y + row * f.columns + group * GROUP, y, left, f.wide);
}

static __device__ __forceinline__ float invstd_of(const Forward &f, float squares)
{
    return 1.0f / sqrtf(squares / (float)f.columns + f.eps);
}

/* Rows of at most 32 x GROUPS groups, a warp each. */
template <class T, int GROUPS> static __global__ void __launch_bounds__(THREADS, 2) normalize_rows(Forward f)
{
    const int lane = threadIdx.x % 32;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; row < f.rows; row += (int64_t)gridDim.x * WARPS) {
        Group<T> v[GROUPS];
        float    total = 0, squares = 0;
#pragma unroll
        for (int a = 0; a < GROUPS; a++) {
            v[a] = make_group<T>(f, row, lane + 32 * a);
            total += add_group(v[a]);
        }
        const float mean = warp_sum(total) / (float)f.columns;
#pragma unroll
        for (int a = 0; a < GROUPS; a++)
            squares += square_group(v[a], mean, f.columns - GROUP * (lane + 32 * a));
        const float invstd = invstd_of(f, warp_sum(squares));
        if (lane == 0) {
            f.mean[row] = mean;
            f.invstd[row] = invstd;
        }
#pragma unroll
        for (int a = 0; a < GROUPS; a++)
            normalize_group(f, row, lane + 32 * a, v[a], mean, invstd);
    }
}

/* Rows of any length, a block each. A thread reads again what it read and stored itself. */
template <class T> static __global__ void __launch_bounds__(THREADS) normalize_long_rows(Forward f)
{
    __shared__ float room[32];
    const int64_t groups = group_count(f.columns);
    for (int64_t row = blockIdx.x; row < f.rows; row += gridDim.x) {
        const T *stored = (const T *)(f.sum ? f.sum : f.x) + row * f.columns;
        float    total = 0, squares = 0;
        for (int64_t g = threadIdx.x; g < groups; g += THREADS)
            total += add_group(make_group<T>(f, row, g));
        const float mean = block_sum(total, room) / (float)f.columns;
        for (int64_t g = threadIdx.x; g < groups; g += THREADS)
            squares += square_group(load_group(stored + g * GROUP, f.columns - g * GROUP, f.wide), mean, f.columns - g * GROUP);
        const float invstd = invstd_of(f, block_sum(squares, room));
        if (threadIdx.x == 0) {
            f.mean[row] = mean;
            f.invstd[row] = invstd;
        }
        for (int64_t g = threadIdx.x; g < groups; g += THREADS)
            normalize_group(f, row, g, load_group(stored + g * GROUP, f.columns - g * GROUP, f.wide), mean, invstd);
    }
}

#define EACH_TYPE(...) \
    LAUNCHABLE(normalize_rows<float, __VA_ARGS__>); \
    LAUNCHABLE(normalize_rows<bf16, __VA_ARGS__>); \
    LAUNCHABLE(normalize_rows<f16, __VA_ARGS__>)
EACH_TYPE(1);
EACH_TYPE(2);
EACH_TYPE(3);
EACH_TYPE(4);
LAUNCHABLE(normalize_long_rows<float>);
LAUNCHABLE(normalize_long_rows<bf16>);
LAUNCHABLE(normalize_long_rows<f16>);

template <class T> static void (*forward_kernel(int64_t columns))(Forward)
{
    static_assert(MOST_GROUPS == 4, "one kernel for each number of groups");
    switch (columns > MOST_KEPT ? 0 : (group_count(columns) + 31) / 32) {
    case 1:  return normalize_rows<T, 1>;
    case 2:  return normalize_rows<T, 2>;
    case 3:  return normalize_rows<T, 3>;
    case 4:  return normalize_rows<T, 4>;
    default: return normalize_long_rows<T>;
    }
}

static Status layernorm_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return cuda_query_rows(op);
}

static Status layernorm_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int  n = op->n_in;
    const bool residual = op->attr.residual;
    Forward f = { op->in[0].dim[0], op->in[0].dim[1], buf[0], residual ? buf[3] : nullptr, (const float *)buf[1],
                  (const float *)buf[2], buf[n], residual ? buf[n + 3] : nullptr, (float *)buf[n + 1], (float *)buf[n + 2],
                  op->attr.eps, false, drop_of(op, residual ? buf[4] : nullptr) };
    f.wide = groups_are_wide(f.columns, DTYPE_F32, { f.x, f.residual, f.gamma, f.beta, f.y, f.sum });
    return cuda_launch(be, cuda_of_type(op->in[0].dtype, forward_kernel<float>(f.columns), forward_kernel<bf16>(f.columns),
                                        forward_kernel<f16>(f.columns)),
                       cuda_blocks(f.rows, f.columns > MOST_KEPT ? 1 : WARPS), THREADS, 0, f);
}

CUDA_KERNEL(layernorm, layernorm_query, nullptr, layernorm_run, nullptr, nullptr)
