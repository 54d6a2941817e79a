/* attention.cu - attention over spans of rows: choice of the kernels, the check of the spans, rows in no span.
 *
 * Not cuDNN's: dropout has to be ours (dropout.h), which its graph can take only as a tensor of seq x seq numbers for each head. 9.19
 * finalises that for sm_80, 90 and 100 with a mask of 16 bits a number (not of booleans), forward and backward; but at
 * 16 sequences of 512 rows and 12 heads the mask is 100 MB, to be written and read again in both directions, and a
 * gradient that gives the same bits always takes a workspace of 100 MB more. Here both are nothing. */
#include "attention.cuh"

enum { CHECK_ROWS = 64, CHECK_THREADS = 256, CHECK_SHARE = CHECK_THREADS / CHECK_ROWS, DELTA_LANES = 8 };

AttentionShape attention_shape(const OpDesc *op)
{
    AttentionShape s = {};
    s.op = op->kind;
    s.inputs = op->n_in;
    s.tokens = op->in[0].dim[0];
    s.width = op->in[0].dim[1] / 3;
    s.sequences = op->in[op->kind == OP_attention ? 1 : 4].dim[0];
    s.seq = op->attr.seq;
    s.heads = op->attr.heads;
    s.size = (int)(s.width / s.heads);
    s.scale = (float)(1 / sqrt((double)s.size));
    s.dropped_scale = (float)(1 / (1 - (double)op->attr.dropout));
    s.threshold = op->attr.dropout > 0 ? dropout_threshold(op->attr.dropout) : 0;
    s.stream = op->attr.stream;
    return s;
}

/* A span outside the tensor or too long; what is wrong with it, by its first number that is. */
static __device__ void check_span(const int32_t *spans, const AttentionShape &s, int64_t b, CudaFault *fault)
{
    const int first = spans[2 * b], rows = spans[2 * b + 1];
    if (first < 0 || first > s.tokens)
        report_fault(fault, s.op, first, s.tokens + 1, b);
    else if (rows < 0 || rows > s.seq)
        report_fault(fault, s.op, rows, s.seq + 1, b);
    else if ((int64_t)first + rows > s.tokens)
        report_fault(fault, s.op, rows, s.tokens - first + 1, b);
}

/* Threads of a row share the spans. A row in two of them is a fault: value 2, limit 2, place the row. */
static __device__ int count_spans(const int32_t *spans, const AttentionShape &s, int64_t row, int share)
{
    int count = 0;
    for (int64_t b = share; b < s.sequences; b += CHECK_SHARE) {
        const Span span = attention_span(spans, s, b);
        count += row >= span.first && row < span.first + span.rows;
    }
    return count;
}

/* out1 may be NULL. */
template <class T> __global__ void __launch_bounds__(CHECK_THREADS)
attention_check(AttentionShape s, const int32_t *__restrict__ spans, CudaFault *fault, T *out0, int64_t width0, float *out1,
                int64_t width1)
{
    __shared__ int counts[CHECK_ROWS];
    const int tid = threadIdx.x;
    const int64_t base = (int64_t)blockIdx.x * CHECK_ROWS, row = base + tid / CHECK_SHARE;
    if (tid < CHECK_ROWS)
        counts[tid] = 0;
    __syncthreads();
    const int count = row < s.tokens ? count_spans(spans, s, row, tid % CHECK_SHARE) : 0;
    if (count)
        atomicAdd(&counts[tid / CHECK_SHARE], count);
    for (int64_t b = (int64_t)blockIdx.x * CHECK_THREADS + tid; b < s.sequences; b += (int64_t)gridDim.x * CHECK_THREADS)
        check_span(spans, s, b, fault);
    __syncthreads();
    for (int r = 0; r < CHECK_ROWS && base + r < s.tokens; r++) {
        if (tid == 0 && counts[r] > 1)
            report_fault(fault, s.op, counts[r], 2, base + r);
        if (counts[r])
            continue;
        for (int64_t i = tid; i < width0; i += CHECK_THREADS)
            out0[(base + r) * width0 + i] = narrow<T>(0.0f);
        for (int64_t i = tid; out1 && i < width1; i += CHECK_THREADS)
            out1[(base + r) * width1 + i] = 0.0f;
    }
}

/* Eight threads a row and head. */
template <class T> __global__ void __launch_bounds__(CHECK_THREADS)
attention_delta(const T *__restrict__ y, const T *__restrict__ dy, int64_t pairs, int size, float *__restrict__ delta)
{
    const int64_t step = (int64_t)gridDim.x * (CHECK_THREADS / DELTA_LANES), lane = threadIdx.x % DELTA_LANES;
    const int64_t rounds = (pairs + step - 1) / step;
    int64_t pair = (int64_t)blockIdx.x * (CHECK_THREADS / DELTA_LANES) + threadIdx.x / DELTA_LANES;
    for (int64_t i = 0; i < rounds; i++, pair += step) { /* all threads as often: they shuffle */
        float sum = 0;
        const int length = pair < pairs ? size : 0; /* no branch around the loops: it cost registers on sm_100 */
        if (size % 8 == 0)
            for (int c = 8 * (int)lane; c < length; c += 8 * DELTA_LANES) {
                const Pack<T, 8> a = *reinterpret_cast<const Pack<T, 8> *>(y + pair * size + c);
                const Pack<T, 8> b = *reinterpret_cast<const Pack<T, 8> *>(dy + pair * size + c);
                for (int k = 0; k < 8; k++)
                    sum += widen(a.at[k]) * widen(b.at[k]);
            }
        else
            for (int c = (int)lane; c < length; c += DELTA_LANES)
                sum += widen(y[pair * size + c]) * widen(dy[pair * size + c]);
        for (int k = DELTA_LANES / 2; k > 0; k /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, k);
        if (pair < pairs && lane == 0)
            delta[pair] = sum;
    }
}

#define EACH_TYPE(T) LAUNCHABLE(attention_check<T>); LAUNCHABLE(attention_delta<T>);
EACH_TYPE(float)
EACH_TYPE(bf16)
EACH_TYPE(f16)

template <class T> static Status prepare_rows(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, float *delta)
{
    const bool gradient = op->kind == OP_attention_grad;
    void *const *out = buf + op->n_in;
    TRY(cuda_launch(be, attention_check<T>, dim3(cuda_blocks(s->tokens, CHECK_ROWS, INT32_MAX)), CHECK_THREADS, 0, *s,
                    (const int32_t *)buf[gradient ? 4 : 1], cuda_of(be)->fault, (T *)out[0], (gradient ? 3 : 1) * s->width,
                    (float *)(gradient ? nullptr : out[1]), s->heads));
    const int64_t pairs = s->tokens * s->heads;
    return gradient ? cuda_launch(be, attention_delta<T>, dim3(cuda_blocks(pairs, CHECK_THREADS / DELTA_LANES)), CHECK_THREADS, 0,
                                  (const T *)buf[1], (const T *)buf[2], pairs, s->size, delta)
                    : status_ok();
}

Status attention_prepare_rows(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, float *delta)
{
    return CUDA_BY_TYPE(op->in[0].dtype, prepare_rows, be, op, s, buf, delta);
}

static Status attention_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    const AttentionShape s = attention_shape(op);
    if (!dtype_is_float(op->in[0].dtype))
        return cuda_unsupported(op_names[op->kind], op->in[0].dtype);
    if (s.size > ATTENTION_MAX_SIZE)
        return status_error(STATUS_UNSUPPORTED, "the CUDA backend does %s for heads of up to %d features, not %d", op_names[op->kind],
                            ATTENTION_MAX_SIZE, s.size);
    needs->scratch = op->kind == OP_attention_grad ? (size_t)(s.tokens * s.heads) * sizeof(float) : 0;
    return cuda_query_rows(op);
}

static Status attention_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const AttentionShape s = attention_shape(op);
    float *delta = (float *)scratch;
    TRY(attention_prepare_rows(be, op, &s, buf, delta));
    if (attention_has_mma(be, op, &s))
        return op->kind == OP_attention ? attention_forward_mma(be, op, &s, buf) : attention_backward_mma(be, op, &s, buf, delta);
    return op->kind == OP_attention ? attention_forward_plain(be, op, &s, buf) : attention_backward_plain(be, op, &s, buf, delta);
}

CUDA_KERNEL(attention, attention_query, nullptr, attention_run, nullptr, nullptr)
CUDA_KERNEL(attention_grad, attention_query, nullptr, attention_run, nullptr, nullptr)
