/* optim_layerwise.cu - LAMB and LARS: the rate of each tensor follows from norms of that tensor, so there are two passes.
 *
 * A tensor is cut into blocks of BLOCK elements; a block of threads adds up one of them, and a warp the blocks of one tensor, in a
 * fixed order: the bits depend on the table alone. All tensors are done by the same four launches: number the blocks (one
 * block: checks the table and computes what all share), measure, find the trust ratios, apply.
 *
 * What has to move at least, and op_cost says, is every vector once: 28 bytes an element for LAMB, 20 for LARS. The norms are
 * known only after a first pass, so it is 40 (g, w, m, v read, m, v written; m, v, w read, w written) and 28 (g, w read;
 * g, w, m read, w, m written). */
#include "optim.cuh"

enum { BLOCK = 8192, WARPS = OPTIM_THREADS / 32, UPDATE_BLOCKS = 2048 };

/* What the first launch finds out for the others; zero blocks: this update does nothing. */
struct Settled {
    int   blocks;
    float rate;
    Adam  adam;
};

/* The blocks of all tensors in order, and what is known of each; device memory. */
struct Blocks {
    const int32_t *table;
    int            tensors;
    Settled       *settled;
    int32_t       *first;  /* [tensors + 1] first block of each */
    double        *sums;   /* [blocks][2] two square sums */
    float         *trust;  /* [tensors] what the learning rate is multiplied by */
};

/* ---- 1: blocks, constants */

static __device__ __forceinline__ int blocks_of(const Blocks &b, int tensor)
{
    return (b.table[tensor + 1] - b.table[tensor] + BLOCK - 1) / BLOCK;
}

/* 0 <= table[i] <= table[i + 1] <= count; reports the number that is wrong, and the tensor. */
static __device__ bool check_tensor(OpKind op, const Blocks &b, int tensor, int64_t count, CudaFault *fault)
{
    const int begin = b.table[tensor], end = b.table[tensor + 1];
    if (begin >= 0 && begin <= end && end <= count)
        return true;
    report_fault(fault, op, begin < 0 || begin > end ? begin : end, begin > end ? end + (int64_t)1 : count + 1, tensor);
    return false;
}

/* One block. A thread has neighbouring tensors. */
static __global__ void __launch_bounds__(OPTIM_THREADS)
number_blocks(OpKind op, AdamAttr attr, Blocks b, int64_t count, const float *hyper, const float *control, CudaFault *fault)
{
    __shared__ int room[OPTIM_THREADS], bad;
    const int each = (b.tensors + OPTIM_THREADS - 1) / OPTIM_THREADS, mine = (int)threadIdx.x * each;
    const int last = mine + each < b.tensors ? mine + each : b.tensors;
    const bool skip = control[CONTROL_SKIP] != 0.0f;
    int sum = 0, total;
    if (threadIdx.x == 0)
        bad = skip;
    __syncthreads();
    for (int i = mine; i < last && !skip; i++)
        if (!check_tensor(op, b, i, count, fault))
            bad = 1;
    __syncthreads();
    for (int i = mine; i < last && !bad; i++)
        sum += blocks_of(b, i);
    int before = block_scan(sum, room, &total);
    for (int i = mine; i < last && !bad; i++) {
        b.first[i] = before;
        before += blocks_of(b, i);
    }
    if (threadIdx.x == 0) {
        b.first[b.tensors] = total;
        b.settled->blocks = bad ? 0 : total;
        b.settled->rate = hyper[HYPER_RATE];
        b.settled->adam = adam_of(attr, control);
    }
}
LAUNCHABLE(number_blocks);

/* ---- 2 and 4: passes over the blocks */

/* The last tensor whose first block is not above `block`: the one that has it, since those without elements come before it. */
static __device__ __forceinline__ int tensor_of(const Blocks &b, int block)
{
    int low = 0, high = b.tensors;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (b.first[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Hands the elements of one block to step.one(). */
template <class Step> static __device__ __forceinline__ void pass_over_block(Step &step, const Blocks &b, const Vectors &x, int block,
                                                                             int tensor, bool wide)
{
    const int64_t begin = b.table[tensor] + (int64_t)(block - b.first[tensor]) * BLOCK;
    const int64_t end = begin + BLOCK < b.table[tensor + 1] ? begin + BLOCK : b.table[tensor + 1];
    pass_over(step, x, begin, end, wide, threadIdx.x, OPTIM_THREADS);
}

template <class Step> static __global__ void __launch_bounds__(OPTIM_THREADS) measure_blocks(Blocks b, Vectors x, bool wide)
{
    __shared__ double room[32];
    const Settled settled = *b.settled;
    for (int block = (int)blockIdx.x; block < settled.blocks; block += (int)gridDim.x) {
        Step step(settled);
        pass_over_block(step, b, x, block, tensor_of(b, block), wide);
        const double first = block_sum(step.sums[0], room), second = block_sum(step.sums[1], room);
        if (threadIdx.x == 0) {
            b.sums[2 * block] = first;
            b.sums[2 * block + 1] = second;
        }
    }
}

template <class Step> static __global__ void __launch_bounds__(OPTIM_THREADS)
apply_to_blocks(Blocks b, Vectors x, bool wide, float momentum, float weight_decay)
{
    const Settled settled = *b.settled;
    for (int block = (int)blockIdx.x; block < settled.blocks; block += (int)gridDim.x) {
        const int  tensor = tensor_of(b, block);
        const Step step(settled, b.trust[tensor], momentum, weight_decay);
        pass_over_block(step, b, x, block, tensor, wide);
    }
}

static __device__ __forceinline__ void add_squares(float x, float y, double *sums)
{
    sums[0] += (double)x * (double)x;
    sums[1] += (double)y * (double)y;
}

/* ---- 3: trust = of(|first|, |second|) of each tensor, a warp each; 1 without adaptation */

template <bool lars> static __global__ void __launch_bounds__(OPTIM_THREADS)
find_trust(Blocks b, bool adapt, float trust, float weight_decay)
{
    if (b.settled->blocks == 0)
        return;
    for (int i = (int)(blockIdx.x * WARPS + threadIdx.x / 32); i < b.tensors; i += (int)gridDim.x * WARPS) {
        double x = 0, y = 0;
        for (int block = b.first[i] + (int)threadIdx.x % 32; block < b.first[i + 1]; block += 32) {
            x += b.sums[2 * block];
            y += b.sums[2 * block + 1];
        }
        x = sqrt(warp_sum(x));
        y = sqrt(warp_sum(y));
        const double ratio = lars ? (double)trust * x / (y + (double)weight_decay * x) : x / y;
        if (threadIdx.x % 32 == 0)
            b.trust[i] = adapt && x > 0 && y > 0 ? (float)ratio : 1.0f;
    }
}
LAUNCHABLE(find_trust<true>);
LAUNCHABLE(find_trust<false>);

/* ---- LAMB: u = m^ / (sqrt(v^) + eps) + weight_decay w */

/* Takes the gradient into the averages; square sums of w and of u. */
struct LambMeasure {
    enum { READS = VEC_G | VEC_W | VEC_M | VEC_V, WRITES = VEC_M | VEC_V };
    Adam   adam;
    double sums[2];
    __device__ explicit LambMeasure(const Settled &s) : adam(s.adam), sums{ 0, 0 } {}
    __device__ __forceinline__ void one(Element *e)
    {
        add_squares(e->w, adam_direction(adam, e->g, &e->m, &e->v) + adam.weight_decay * e->w, sums);
    }
};

struct LambApply {
    enum { READS = VEC_W | VEC_M | VEC_V, WRITES = VEC_W };
    Adam  adam;
    float rate;
    __device__ LambApply(const Settled &s, float trust, float, float) : adam(s.adam), rate(s.rate * trust) {}
    __device__ __forceinline__ void one(Element *e) const
    {
        e->w -= rate * (adam_ratio(adam, e->m, e->v) + adam.weight_decay * e->w);
    }
};

/* ---- LARS */

/* Square sums of w and of the gradient. */
struct LarsMeasure {
    enum { READS = VEC_G | VEC_W, WRITES = 0 };
    float  scale;
    double sums[2];
    __device__ explicit LarsMeasure(const Settled &s) : scale(s.adam.scale), sums{ 0, 0 } {}
    __device__ __forceinline__ void one(Element *e) { add_squares(e->w, e->g * scale, sums); }
};

struct LarsApply {
    enum { READS = VEC_G | VEC_W | VEC_M, WRITES = VEC_W | VEC_M };
    float scale, rate, momentum, weight_decay;
    __device__ LarsApply(const Settled &s, float trust, float of_m, float decay)
        : scale(s.adam.scale), rate(s.rate * trust), momentum(of_m), weight_decay(decay) {}
    __device__ __forceinline__ void one(Element *e) const
    {
        e->m = momentum * e->m + rate * (e->g * scale + weight_decay * e->w);
        e->w -= e->m;
    }
};

LAUNCHABLE(measure_blocks<LambMeasure>);
LAUNCHABLE(measure_blocks<LarsMeasure>);
LAUNCHABLE(apply_to_blocks<LambApply>);
LAUNCHABLE(apply_to_blocks<LarsApply>);

/* ---- both */

/* Cuts scratch; with scratch NULL only the size is of use, which is returned. */
static size_t blocks_carve(const OpDesc *op, char *scratch, Blocks *b)
{
    const size_t tensors = (size_t)op->in[3].dim[0] - 1, most = (size_t)physical_count(&op->in[0]) / BLOCK + tensors;
    size_t at = 0, settled = cuda_place(&at, sizeof *b->settled), first = cuda_place(&at, (tensors + 1) * sizeof *b->first);
    size_t sums = cuda_place(&at, 2 * most * sizeof *b->sums), trust = cuda_place(&at, tensors * sizeof *b->trust);
    if (scratch) {
        b->tensors = (int)tensors;
        b->settled = (Settled *)(scratch + settled);
        b->first = (int32_t *)(scratch + first);
        b->sums = (double *)(scratch + sums);
        b->trust = (float *)(scratch + trust);
    }
    return at;
}

static Status layerwise_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    needs->scratch = blocks_carve(op, nullptr, nullptr);
    return status_ok();
}

template <class Measure, class Apply, bool lars> static Status layerwise_run(Backend *be, const OpDesc *op, void *state,
                                                                             void *const *buf, void *scratch)
{
    (void)state;
    const OpAttr *a = &op->attr;
    const Vectors x = { (const float *)buf[0], (float *)buf[4], (float *)buf[5], op->n_out == 3 ? (float *)buf[6] : nullptr };
    const bool    wide = cuda_is_aligned({ x.g, x.w, x.m, x.v });
    const int64_t count = physical_count(&op->in[0]);
    Blocks        b;
    blocks_carve(op, (char *)scratch, &b);
    b.table = (const int32_t *)buf[3];
    const unsigned blocks = cuda_blocks(count / BLOCK + b.tensors, 1, UPDATE_BLOCKS);
    TRY(cuda_launch(be, number_blocks, 1, OPTIM_THREADS, 0, op->kind, adam_attr(a), b, count, (const float *)buf[1],
                    (const float *)buf[2], cuda_of(be)->fault));
    TRY(cuda_launch(be, measure_blocks<Measure>, blocks, OPTIM_THREADS, 0, b, x, wide));
    TRY(cuda_launch(be, find_trust<lars>, cuda_blocks(b.tensors, WARPS), OPTIM_THREADS, 0, b, a->adapt, a->trust, a->weight_decay));
    return cuda_launch(be, apply_to_blocks<Apply>, blocks, OPTIM_THREADS, 0, b, x, wide, a->momentum, a->weight_decay);
}

CUDA_KERNEL(lamb, layerwise_query, nullptr, (layerwise_run<LambMeasure, LambApply, false>), nullptr, nullptr)
CUDA_KERNEL(lars, layerwise_query, nullptr, (layerwise_run<LarsMeasure, LarsApply, true>), nullptr, nullptr)
