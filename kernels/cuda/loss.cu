/* loss.cu - softmax cross-entropy with its gradient and the step's metrics.
 *
 * A row is read twice, the second time from the cache if at all it has room, and its gradient written once: first the maximum and
 * the sum of exponentials in one go (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"), then dlogits,
 * which may lie on the logits. No probabilities are kept. A team of threads does a row: a warp up to SHORT_ROW columns, beyond
 * that a block of BLOCK_THREADS.
 *
 * The label's own exponential is kept out of the sum: with t the largest logit, R the sum of e^(x - t) without it and d = t - x[label]
 *   loss = log(R + e^-d) + d, which is log(1 + R) where the label is the largest: small losses keep their digits;
 *   dlogits = scale e^(x - t) / (R + e^-d), at the label -scale R / (R + e^-d): nothing cancels.
 *
 * Bytes, for M rows of C columns of s bytes: M C s logits, 4 M labels, 4 scale, 2 x 16 metrics, M C s dlogits. What rows leave for the
 * metrics are 8 M bytes of scratch on top. */
#include "launch.cuh"

#include <cfloat>

enum { WARP_THREADS = 32, BLOCK_THREADS = 512, TOTAL_THREADS = 512, SHORT_ROW = 1024, MOST_BLOCKS = 4096 };

typedef struct RowLoss {
    float   loss;
    int16_t counted, hit;
} RowLoss;

template <class T> struct LossJob {
    const T       *x;
    const int32_t *labels;
    const float   *scale;
    T             *dx;      /* may be x; NULL: only the metrics */
    RowLoss       *results; /* [rows] */
    int64_t        rows, columns;
    CudaFault     *fault;
};

/* ---- what a team shares; `room` is a block's shared memory of 32 floats */
template <int TEAM> static __device__ __forceinline__ float team_sum(float v, float *room)
{
    return TEAM == WARP_THREADS ? warp_sum(v) : block_sum(v, room);
}
template <int TEAM> static __device__ __forceinline__ float team_max(float v, float *room)
{
    return TEAM == WARP_THREADS ? warp_max(v) : block_max(v, room);
}
template <int TEAM> static __device__ __forceinline__ bool team_any(bool v)
{
    return TEAM == WARP_THREADS ? __any_sync(0xffffffffu, v) != 0 : __syncthreads_or(v) != 0;
}

/* Runs body(constant N, column) over a row for this thread's share: N = a pack's values where 16 bytes can be read, 1 before and
 * after. Rows of an odd number of columns begin anywhere. */
template <class T, int TEAM, class Body> static __device__ __forceinline__ void for_columns(const T *row, int64_t columns, Body body)
{
    constexpr int N = Wide<T>::N;
    const int     member = threadIdx.x % TEAM, past = (int)(reinterpret_cast<uintptr_t>(row) / sizeof(T) % N);
    const int64_t ahead = past ? N - past : 0, head = ahead < columns ? ahead : columns, packs = (columns - head) / N;
#pragma unroll 1
    for (int64_t c = member; c < head; c += TEAM)
        body(std::integral_constant<int, 1>(), c);
    for (int64_t p = member; p < packs; p += TEAM)
        body(std::integral_constant<int, N>(), head + p * N);
#pragma unroll 1
    for (int64_t c = head + packs * N + member; c < columns; c += TEAM)
        body(std::integral_constant<int, 1>(), c);
}

/* The label's place among N columns from `column` on: -1 before them, N after them. */
template <int N> static __device__ __forceinline__ int place_of(int label, int64_t column)
{
    return label < column ? -1 : label >= column + N ? N : (int)(label - column);
}

/* ---- one thread's share of a row so far */
typedef struct Share {
    float top;    /* largest, the label's logit included; never below the least finite number, so that differences exist */
    float sum;    /* of e^(x - top) without the label's */
    bool  beaten; /* something is larger than the label's logit, or equal and before it */
} Share;

template <int N, class T>
static __device__ __forceinline__ void share_add(Share *s, const T *row, int64_t column, int label, float at_label)
{
    const int at = place_of<N>(label, column);
    float x[N], top = s->top, sum = 0.0f;
    load_floats(row + column, x);
#pragma unroll
    for (int k = 0; k < N; k++) {
        s->beaten |= x[k] > at_label || (x[k] == at_label && k < at);
        x[k] = k == at ? -INFINITY : x[k];
        top = fmaxf(top, x[k]);
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        sum += expf(x[k] - top); /* NaN, which the maximum passes over, comes in here */
    s->sum = (top > s->top ? s->sum * expf(s->top - top) : s->sum) + sum;
    s->top = top;
}

template <class T, int TEAM> static __device__ __forceinline__ void softmax_row(const LossJob<T> &j, int64_t row, float *room)
{
    const T  *x = j.x + row * j.columns;
    T        *dx = j.dx ? j.dx + row * j.columns : nullptr;
    const int  given = j.labels[row];
    const bool leads = threadIdx.x % TEAM == 0, counts = given >= 0 && given < j.columns;
    const int  label = counts ? given : 0; /* a row that does not count goes the same way and leaves zeros */
    if (leads && !counts && given != -1)
        report_fault(j.fault, OP_softmax_xent, given, j.columns, row);
    const float at_label = widen(x[label]);
    Share s = { fmaxf(at_label, -FLT_MAX), 0.0f, at_label != at_label };
    for_columns<T, TEAM>(x, j.columns, [&](auto n, int64_t column) {
        share_add<decltype(n)::value>(&s, x, column, label, at_label);
    });
    const float top = team_max<TEAM>(s.top, room);
    const float rest = team_sum<TEAM>(s.sum * expf(s.top - top), room), all = rest + expf(at_label - top);
    const bool  beaten = team_any<TEAM>(s.beaten);
    if (leads)
        j.results[row] = { !counts ? 0.0f : at_label == top ? log1pf(rest) : logf(all) + (top - at_label), counts, counts && !beaten };
    if (!dx)
        return;
    const float factor = *j.scale / all, own = -factor * rest;
    for_columns<T, TEAM>(x, j.columns, [=](auto n, int64_t column) {
        constexpr int N = decltype(n)::value;
        const int     at = place_of<N>(label, column);
        float v[N];
        load_floats(x + column, v);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = !counts ? 0.0f : k == at ? own : factor * expf(v[k] - top);
        store_floats(dx + column, v);
    });
}

template <class T, int TEAM> static __global__ void __launch_bounds__(BLOCK_THREADS) softmax_kernel(LossJob<T> j)
{
    __shared__ float room[32];
    const int teams = BLOCK_THREADS / TEAM;
    for (int64_t row = (int64_t)blockIdx.x * teams + threadIdx.x / TEAM; row < j.rows; row += (int64_t)gridDim.x * teams)
        softmax_row<T, TEAM>(j, row, room);
}
LAUNCHABLE(softmax_kernel<float, WARP_THREADS>);
LAUNCHABLE(softmax_kernel<bf16, WARP_THREADS>);
LAUNCHABLE(softmax_kernel<f16, WARP_THREADS>);
LAUNCHABLE(softmax_kernel<float, BLOCK_THREADS>);
LAUNCHABLE(softmax_kernel<bf16, BLOCK_THREADS>);
LAUNCHABLE(softmax_kernel<f16, BLOCK_THREADS>);

/* One block: the rows' sums in double, in an order that depends on nothing but their number. */
static __global__ void __launch_bounds__(TOTAL_THREADS) softmax_total_kernel(const RowLoss *results, int64_t rows, float *metrics)
{
    __shared__ double room[32];
    double loss = 0, hits = 0, counted = 0;
    for (int64_t r = threadIdx.x; r < rows; r += TOTAL_THREADS) {
        loss += results[r].loss;
        hits += results[r].hit;
        counted += results[r].counted;
    }
    loss = block_sum(loss, room);
    hits = block_sum(hits, room);
    counted = block_sum(counted, room);
    if (threadIdx.x == 0) {
        metrics[0] += (float)loss;
        metrics[1] += (float)hits;
        metrics[2] += (float)counted;
    }
}
LAUNCHABLE(softmax_total_kernel);

static Status softmax_query(Backend *, const OpDesc *op, OpNeeds *needs)
{
    needs->scratch = (size_t)op->in[0].dim[0] * sizeof(RowLoss);
    return cuda_query_rows(op);
}

template <class T> static Status softmax_run(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    LossJob<T> j = { (const T *)buf[0], (const int32_t *)buf[1], (const float *)buf[2], op->n_out == 2 ? (T *)buf[4] : nullptr,
                     (RowLoss *)scratch, op->in[0].dim[0], op->in[0].dim[1], cuda_of(be)->fault };
    const bool short_rows = j.columns <= SHORT_ROW;
    TRY(cuda_launch(be, short_rows ? softmax_kernel<T, WARP_THREADS> : softmax_kernel<T, BLOCK_THREADS>,
                    cuda_blocks(j.rows, short_rows ? BLOCK_THREADS / WARP_THREADS : 1, MOST_BLOCKS), BLOCK_THREADS, 0, j));
    return cuda_launch(be, softmax_total_kernel, 1, TOTAL_THREADS, 0, j.results, j.rows, (float *)buf[3]);
}

static Status softmax_run_any(Backend *be, const OpDesc *op, void *, void *const *buf, void *scratch)
{
    return CUDA_BY_TYPE(op->in[0].dtype, softmax_run, be, op, buf, scratch);
}

CUDA_KERNEL(softmax_xent, softmax_query, nullptr, softmax_run_any, nullptr, nullptr)
