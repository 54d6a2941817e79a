/* pointwise.cu - ops that go element by element over memory as it lies, padding included: add, ReLU's gradient, zero.
 *
 * Bytes, for n elements of s bytes: add 3 s n, relu_grad 3 s n, zero s n; each element is read and written once. */
#include "launch.cuh"

enum { THREADS = 256 };

struct Add {
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
struct ReluGrad {
    static __device__ __forceinline__ float of(float dy, float y) { return y > 0.0f ? dy : 0.0f; }
};

/* y = Combine(a, b); y may be a or b. */
template <class T, class Combine>
static __global__ void __launch_bounds__(THREADS) combine_kernel(const T *a, const T *b, T *y, int64_t count)
{
    constexpr int N = Wide<T>::N;
    const int64_t packs = count / N;
    for (int64_t i = grid_thread(); i < packs; i += grid_threads()) {
        float u[N], v[N];
        load_floats(a + i * N, u);
        load_floats(b + i * N, v);
#pragma unroll
        for (int k = 0; k < N; k++)
            u[k] = Combine::of(u[k], v[k]);
        store_floats(y + i * N, u);
    }
    for (int64_t i = packs * N + grid_thread(); i < count; i += grid_threads())
        y[i] = narrow<T>(Combine::of(widen(a[i]), widen(b[i])));
}
LAUNCHABLE(combine_kernel<float, Add>);
LAUNCHABLE(combine_kernel<bf16, Add>);
LAUNCHABLE(combine_kernel<f16, Add>);
LAUNCHABLE(combine_kernel<float, ReluGrad>);
LAUNCHABLE(combine_kernel<bf16, ReluGrad>);
LAUNCHABLE(combine_kernel<f16, ReluGrad>);

/* All three must lie alike, in whatever layout. */
static Status combine_query(Backend *, const OpDesc *op, OpNeeds *)
{
    const Tensor *y = &op->out[0];
    for (int i = 0; i < 2; i++)
        if (cuda_pitch(&op->in[i]) != cuda_pitch(y))
            return cuda_query_rows(op);
    return dtype_is_float(y->dtype) ? status_ok() : cuda_unsupported(op_names[op->kind], y->dtype);
}

template <class T> static Status combine_run(Backend *be, const OpDesc *op, void *const *buf)
{
    const T      *a = (const T *)buf[0], *b = (const T *)buf[1];
    T            *y = (T *)buf[2];
    const int64_t count = (int64_t)(cuda_tensor_bytes(&op->out[0]) / sizeof(T));
    const unsigned blocks = cuda_blocks(count, (int64_t)THREADS * Wide<T>::N);
    if (op->kind == OP_add)
        return cuda_launch(be, combine_kernel<T, Add>, blocks, THREADS, 0, a, b, y, count);
    return cuda_launch(be, combine_kernel<T, ReluGrad>, blocks, THREADS, 0, a, b, y, count);
}

static Status combine_run_any(Backend *be, const OpDesc *op, void *, void *const *buf, void *)
{
    return CUDA_BY_TYPE(op->out[0].dtype, combine_run, be, op, buf);
}

static Status zero_run(Backend *be, const OpDesc *op, void *, void *const *buf, void *)
{
    CUDA_TRY(cudaMemsetAsync(buf[0], 0, cuda_tensor_bytes(&op->out[0]), cuda_of(be)->stream));
    return status_ok();
}

CUDA_KERNEL(add, combine_query, nullptr, combine_run_any, nullptr, nullptr)
CUDA_KERNEL(relu_grad, combine_query, nullptr, combine_run_any, nullptr, nullptr)
CUDA_KERNEL(zero, nullptr, nullptr, zero_run, nullptr, nullptr)
