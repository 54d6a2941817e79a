/* layout.cu - the same values in another type or with another pitch: cast, repack.
 *
 * Bytes, for n elements: n times the size of the input's type read, n times that of the output's written; the zeros of
 * LAYOUT_PADDED come on top. */
#include "launch.cuh"

enum { THREADS = 256 };

/* Both sides lie alike. A thread moves 16 bytes of the wider type. */
template <class From, class To> static __global__ void __launch_bounds__(THREADS) cast_kernel(const From *x, To *y, int64_t count)
{
    constexpr int N = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
    const int64_t packs = count / N;
    for (int64_t i = grid_thread(); i < packs; i += grid_threads()) {
        float v[N];
        load_floats(x + i * N, v);
        store_floats(y + i * N, v);
    }
    for (int64_t i = packs * N + grid_thread(); i < count; i += grid_threads())
        y[i] = narrow<To>(widen(x[i]));
}
LAUNCHABLE(cast_kernel<float, bf16>);
LAUNCHABLE(cast_kernel<float, f16>);
LAUNCHABLE(cast_kernel<bf16, float>);
LAUNCHABLE(cast_kernel<bf16, f16>);
LAUNCHABLE(cast_kernel<f16, float>);
LAUNCHABLE(cast_kernel<f16, bf16>);

/* The last dimension, `width`, from rows of from_pitch to rows of to_pitch elements; zeros behind it. A thread writes N. */
template <class To, int N>
static __global__ void __launch_bounds__(THREADS) repitch_kernel(const float *x, To *y, int64_t rows, int64_t width, int64_t from_pitch,
                                                                 int64_t to_pitch)
{
    const int64_t pieces = to_pitch / N;
    for (int64_t i = grid_thread(); i < rows * pieces; i += grid_threads()) {
        const int64_t row = i / pieces, first = i % pieces * N;
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = first + k < width ? x[row * from_pitch + first + k] : 0.0f;
        store_floats(y + i * N, v);
    }
}
LAUNCHABLE(repitch_kernel<float, 1>);
LAUNCHABLE(repitch_kernel<bf16, 1>);
LAUNCHABLE(repitch_kernel<f16, 1>);
LAUNCHABLE(repitch_kernel<float, CUDA_PAD>);
LAUNCHABLE(repitch_kernel<bf16, CUDA_PAD>);
LAUNCHABLE(repitch_kernel<f16, CUDA_PAD>);

/* From f32 between any two layouts, otherwise between tensors that lie alike. */
static Status convert_query(Backend *, const OpDesc *op, OpNeeds *)
{
    const Tensor *x = &op->in[0], *y = &op->out[0];
    return cuda_pitch(x) == cuda_pitch(y) || x->dtype == DTYPE_F32 ? status_ok() : cuda_unsupported("change the layout", x->dtype);
}

template <class To> static Status repitch(Backend *be, const OpDesc *op, void *const *buf)
{
    const Tensor *x = &op->in[0], *y = &op->out[0];
    const int64_t width = y->dim[y->rank - 1], rows = tensor_count(y) / width;
    const auto    kernel = y->layout == LAYOUT_PADDED ? repitch_kernel<To, CUDA_PAD> : repitch_kernel<To, 1>;
    const int64_t pieces = rows * cuda_pitch(y) / (y->layout == LAYOUT_PADDED ? CUDA_PAD : 1);
    return cuda_launch(be, kernel, cuda_blocks(pieces, THREADS), THREADS, 0, (const float *)buf[0], (To *)buf[1], rows, width,
                       cuda_pitch(x), cuda_pitch(y));
}

template <class From, class To> static Status cast(Backend *be, int64_t count, void *const *buf)
{
    constexpr int N = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
    return cuda_launch(be, cast_kernel<From, To>, cuda_blocks(count, (int64_t)THREADS * N), THREADS, 0, (const From *)buf[0], (To *)buf[1],
                       count);
}

static Status convert_run(Backend *be, const OpDesc *op, void *, void *const *buf, void *)
{
    const Tensor *x = &op->in[0], *y = &op->out[0];
    if (cuda_pitch(x) != cuda_pitch(y))
        return CUDA_BY_TYPE(y->dtype, repitch, be, op, buf);
    const size_t  bytes = cuda_tensor_bytes(x);
    const int64_t count = (int64_t)(bytes * 8 / (size_t)dtype_bits(x->dtype));
    if (x->dtype == y->dtype) {
        CUDA_TRY(cudaMemcpyAsync(buf[1], buf[0], bytes, cudaMemcpyDeviceToDevice, cuda_of(be)->stream));
        return status_ok();
    }
    if (x->dtype == DTYPE_F32)
        return y->dtype == DTYPE_BF16 ? cast<float, bf16>(be, count, buf) : cast<float, f16>(be, count, buf);
    if (x->dtype == DTYPE_BF16)
        return y->dtype == DTYPE_F32 ? cast<bf16, float>(be, count, buf) : cast<bf16, f16>(be, count, buf);
    return y->dtype == DTYPE_F32 ? cast<f16, float>(be, count, buf) : cast<f16, bf16>(be, count, buf);
}

CUDA_KERNEL(cast, convert_query, nullptr, convert_run, nullptr, nullptr)
CUDA_KERNEL(repack, convert_query, nullptr, convert_run, nullptr, nullptr)
