/* optim.cu - the update: square norm, loss scale and clipping, the optimisers that treat every element alike, and restore. Each is
 * one pass over memory that moves what op_cost counts; those that need a norm of each tensor first are in optim_layerwise.cu. */
#include "optim.cuh"

enum { SUM_BLOCKS = 1024, SUM_EACH = 16 * OPTIM_THREADS, UPDATE_BLOCKS = 1024 };

/* ---- square norm. Blocks follow from the number of elements alone; their sums are added in order. */

static unsigned sum_blocks(int64_t n) { return cuda_blocks(n, SUM_EACH, SUM_BLOCKS); }

struct SumSquares {
    enum { READS = VEC_G, WRITES = 0 };
    double sum;
    __device__ __forceinline__ void one(Element *e) { sum += (double)e->g * (double)e->g; }
};

static __global__ void __launch_bounds__(OPTIM_THREADS) add_squares(int64_t n, const float *x, bool wide, double *partial)
{
    __shared__ double room[32];
    SumSquares step = { 0 };
    pass_over(step, Vectors{ x, nullptr, nullptr, nullptr }, 0, n, wide, grid_thread(), grid_threads());
    const double sum = block_sum(step.sum, room);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}
LAUNCHABLE(add_squares);

/* One block. control may be NULL. */
static __global__ void __launch_bounds__(SUM_BLOCKS) add_partial(int blocks, const double *partial, const float *control, float *to)
{
    __shared__ double room[32];
    const double sum = block_sum((int)threadIdx.x < blocks ? partial[threadIdx.x] : 0.0, room);
    const double scale = control ? (double)control[CONTROL_SCALE] : 1.0;
    if (threadIdx.x == 0)
        *to += (float)(sum / (scale * scale));
}
LAUNCHABLE(add_partial);

static Status sqnorm_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    needs->scratch = sum_blocks(physical_count(&op->in[0])) * sizeof(double);
    return status_ok();
}

static Status sqnorm_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const int64_t  n = physical_count(&op->in[0]);
    const unsigned blocks = sum_blocks(n);
    TRY(cuda_launch(be, add_squares, blocks, OPTIM_THREADS, 0, n, (const float *)buf[0], cuda_is_aligned({ buf[0] }),
                    (double *)scratch));
    return cuda_launch(be, add_partial, 1, SUM_BLOCKS, 0, (int)blocks, (const double *)scratch,
                       op->n_in == 2 ? (const float *)buf[1] : nullptr, (float *)buf[op->n_in]);
}

/* ---- loss scale, clipping: one thread, the arithmetic of ops.h */

static __global__ void scale_window(const float *scale, const float *control, float *y) { *y = *scale * control[CONTROL_SCALE]; }
LAUNCHABLE(scale_window);

static Status window_scale_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)op, (void)state, (void)scratch;
    return cuda_launch(be, scale_window, 1, 1, 0, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
}

/* The loss scale for the next window. */
static __device__ float next_scale(const float *hyper, float *control, bool skip)
{
    const float scale = control[CONTROL_SCALE];
    if (skip)
        return fmaxf(scale * hyper[HYPER_BACKOFF], hyper[HYPER_LEAST_SCALE]);
    if (hyper[HYPER_INTERVAL] <= 0 || control[CONTROL_FINITE] < hyper[HYPER_INTERVAL])
        return scale;
    control[CONTROL_FINITE] = 0;
    return fminf(scale * hyper[HYPER_GROWTH], hyper[HYPER_LARGEST_SCALE]);
}

static __global__ void control_step(const float *hyper, const float *square_sum, float *control)
{
    const float  sum = *square_sum;
    const bool   finite = sum - sum == 0.0f, skip = hyper[HYPER_INTERVAL] > 0 && !finite;
    const double clip = hyper[HYPER_MAX_NORM] > 0 ? (double)hyper[HYPER_MAX_NORM] / (sqrt((double)sum) + 1e-6) : 1;
    control[CONTROL_UNSCALE] = 1 / control[CONTROL_SCALE];
    control[CONTROL_CLIP] = skip || clip > 1 ? 1 : (float)clip;
    control[CONTROL_SKIP] = skip;
    control[CONTROL_FINITE] = finite ? control[CONTROL_FINITE] + 1 : 0;
    control[CONTROL_SKIPPED] += skip;
    control[CONTROL_DONE] += !skip;
    control[CONTROL_SKIPPED_IN_ROW] = skip ? control[CONTROL_SKIPPED_IN_ROW] + 1 : 0;
    control[CONTROL_SCALE] = next_scale(hyper, control, skip);
}
LAUNCHABLE(control_step);

static Status step_control_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)op, (void)state, (void)scratch;
    return cuda_launch(be, control_step, 1, 1, 0, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
}

/* ---- SGD: g read; w, m read and written: 20 bytes an element */

struct Sgd {
    enum { READS = VEC_G | VEC_W | VEC_M, WRITES = VEC_W | VEC_M };
    float momentum, weight_decay;
    bool  nesterov;
    float scale, rate;
    __device__ __forceinline__ void one(Element *e) const
    {
        const float d = e->g * scale + weight_decay * e->w;
        e->m = momentum * e->m + d;
        e->w -= rate * (nesterov ? d + momentum * e->m : e->m);
    }
};

static __global__ void __launch_bounds__(OPTIM_THREADS)
sgd_update(Sgd step, Vectors x, int64_t n, bool wide, const float *hyper, const float *control)
{
    if (control[CONTROL_SKIP] != 0.0f)
        return;
    step.scale = gradient_scale(control);
    step.rate = hyper[HYPER_RATE];
    pass_over(step, x, 0, n, wide, grid_thread(), grid_threads());
}
LAUNCHABLE(sgd_update);

static Status sgd_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t n = physical_count(&op->in[0]);
    const OpAttr *a = &op->attr;
    return cuda_launch(be, sgd_update, cuda_blocks(n, 4 * OPTIM_THREADS, UPDATE_BLOCKS), OPTIM_THREADS, 0,
                       Sgd{ a->momentum, a->weight_decay, a->nesterov, 0, 0 },
                       Vectors{ (const float *)buf[0], (float *)buf[3], (float *)buf[4], nullptr }, n,
                       cuda_is_aligned({ buf[0], buf[3], buf[4] }), (const float *)buf[1], (const float *)buf[2]);
}

/* ---- AdamW: g read; w, m, v read and written: 28 bytes an element */

struct AdamW {
    enum { READS = VEC_G | VEC_W | VEC_M | VEC_V, WRITES = VEC_W | VEC_M | VEC_V };
    Adam  adam;
    float rate;
    __device__ __forceinline__ void one(Element *e) const
    {
        e->w -= rate * (adam_direction(adam, e->g, &e->m, &e->v) + adam.weight_decay * e->w);
    }
};

static __global__ void __launch_bounds__(OPTIM_THREADS)
adamw_update(AdamAttr attr, Vectors x, int64_t n, bool wide, const float *hyper, const float *control)
{
    __shared__ AdamW shared;
    if (control[CONTROL_SKIP] != 0.0f)
        return;
    if (threadIdx.x == 0)
        shared = AdamW{ adam_of(attr, control), hyper[HYPER_RATE] };
    __syncthreads();
    const AdamW step = shared;
    pass_over(step, x, 0, n, wide, grid_thread(), grid_threads());
}
LAUNCHABLE(adamw_update);

static Status adamw_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t n = physical_count(&op->in[0]);
    return cuda_launch(be, adamw_update, cuda_blocks(n, 4 * OPTIM_THREADS, UPDATE_BLOCKS), OPTIM_THREADS, 0, adam_attr(&op->attr),
                       Vectors{ (const float *)buf[0], (float *)buf[3], (float *)buf[4], (float *)buf[5] }, n,
                       cuda_is_aligned({ buf[0], buf[3], buf[4], buf[5] }), (const float *)buf[1], (const float *)buf[2]);
}

/* ---- restore: saved read, x written, after a skipped update alone */

struct Copy {
    enum { READS = VEC_G, WRITES = VEC_W };
    __device__ __forceinline__ void one(Element *e) const { e->w = e->g; }
};

static __global__ void __launch_bounds__(OPTIM_THREADS) restore_saved(Vectors x, int64_t n, bool wide, const float *control)
{
    const Copy step = {};
    if (control[CONTROL_SKIP] != 0.0f)
        pass_over(step, x, 0, n, wide, grid_thread(), grid_threads());
}
LAUNCHABLE(restore_saved);

static Status restore_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t n = physical_count(&op->out[0]);
    return cuda_launch(be, restore_saved, cuda_blocks(n, 4 * OPTIM_THREADS, UPDATE_BLOCKS), OPTIM_THREADS, 0,
                       Vectors{ (const float *)buf[0], (float *)buf[2], nullptr, nullptr }, n, cuda_is_aligned({ buf[0], buf[2] }),
                       (const float *)buf[1]);
}

CUDA_KERNEL(sqnorm, sqnorm_query, nullptr, sqnorm_run, nullptr, nullptr)
CUDA_KERNEL(window_scale, nullptr, nullptr, window_scale_run, nullptr, nullptr)
CUDA_KERNEL(step_control, nullptr, nullptr, step_control_run, nullptr, nullptr)
CUDA_KERNEL(sgd, nullptr, nullptr, sgd_run, nullptr, nullptr)
CUDA_KERNEL(adamw, nullptr, nullptr, adamw_run, nullptr, nullptr)
CUDA_KERNEL(restore, nullptr, nullptr, restore_run, nullptr, nullptr)
