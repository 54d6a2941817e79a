/* activation.cu - gelu and tanh with their gradients: element by element over plain matrices.
 *
 * gelu is x Phi(x) with the exact normal distribution, not its tanh approximation (Hendrycks & Gimpel 2016). Each input is read
 * once and the output written once: 2 or 3 times the elements' bytes. Outputs may lie on the first input. */
#include "launch.cuh"

enum { THREADS = 256 };

/* Phi(-z) = erfc(z / sqrt 2) / 2 for z >= 0 and the density e^(-z^2 / 2) / sqrt(2 pi), by the polynomial of the CPU backend
 * (vec_normal_tail in cpu/vec_math.h, with its error bounds): Phi(-z) = e^(-z^2 / 2) t P(t) with t = 1 / (1 + 0.35 z). It takes
 * a third of the instructions of erfcf, which would be slower than memory. */
static __device__ __forceinline__ float normal_tail(float z, float *density)
{
    z = z > 20.0f ? 20.0f : z; /* NaN stays */
    const float t = __fdividef(1.0f, fmaf(z, 0.35f, 1.0f)), e = expf(-0.5f * z * z);
    float p = fmaf(-0.0291258711f, t, 0.143872261f);
    p = fmaf(p, t, -0.255504638f);
    p = fmaf(p, t, 0.158929363f);
    p = fmaf(p, t, -0.0229371879f);
    p = fmaf(p, t, 0.105432957f);
    p = fmaf(p, t, 0.119852431f);
    p = fmaf(p, t, 0.13985908f);
    p = fmaf(p, t, 0.139621571f);
    *density = 0.3989422804f * e;
    return p * t * e;
}

/* gelu, tanh: of a. Gradients: a = dy; b = x for gelu, y for tanh.
 *   gelu = max(x, 0) - |x| Phi(-|x|), which keeps its accuracy where x is far below 0;  gelu' = Phi(x) + x phi(x) */
template <OpKind kind> static __device__ __forceinline__ float activate(float a, float b)
{
    float density;
    switch (kind) {
    case OP_gelu: {
        const float z = fabsf(a) > 20.0f ? 20.0f : fabsf(a); /* infinity would meet a zero */
        return fmaf(-z, normal_tail(z, &density), a > 0.0f ? a : 0.0f);
    }
    case OP_gelu_grad: {
        const float tail = normal_tail(fabsf(b), &density);
        return a * fmaf(b, density, b > 0.0f ? 1.0f - tail : tail);
    }
    case OP_tanh:
        return tanhf(a);
    default:
        return a * (1.0f - b * b);
    }
}

/* The first `packs` packs of 16 bytes, then the rest of n elements. */
template <OpKind kind, class T> static __global__ void __launch_bounds__(THREADS)
activate_all(int64_t n, int64_t packs, const void *a, const void *b, void *y)
{
    typedef typename Wide<T>::Type Wider;
    const int64_t first = grid_thread(), step = grid_threads();
    for (int64_t i = first; i < packs; i += step) {
        Wider va = ((const Wider *)a)[i], vb = va;
        if (a != b)
            vb = ((const Wider *)b)[i];
#pragma unroll
        for (int k = 0; k < Wide<T>::N; k++)
            va.at[k] = narrow<T>(activate<kind>(widen(va.at[k]), widen(vb.at[k])));
        ((Wider *)y)[i] = va;
    }
    for (int64_t i = packs * Wide<T>::N + first; i < n; i += step)
        ((T *)y)[i] = narrow<T>(activate<kind>(widen(((const T *)a)[i]), widen(((const T *)b)[i])));
}

#define EACH_TYPE(kind) \
    LAUNCHABLE(activate_all<kind, float>); \
    LAUNCHABLE(activate_all<kind, bf16>); \
    LAUNCHABLE(activate_all<kind, f16>)
EACH_TYPE(OP_gelu);
EACH_TYPE(OP_gelu_grad);
EACH_TYPE(OP_tanh);
EACH_TYPE(OP_tanh_grad);

static Status activation_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return cuda_query_rows(op);
}

template <OpKind kind> static Status activation_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const void   *a = buf[0], *b = buf[op->n_in - 1];
    void         *y = buf[op->n_in];
    const int64_t n = tensor_count(&op->out[0]), in_pack = 128 / dtype_bits(op->out[0].dtype);
    const int64_t packs = cuda_is_aligned({ a, b, y }) ? n / in_pack : 0;
    return cuda_launch(be, cuda_of_type(op->out[0].dtype, activate_all<kind, float>, activate_all<kind, bf16>, activate_all<kind, f16>),
                       cuda_blocks(packs ? n / in_pack + 1 : n, THREADS), THREADS, 0, n, packs, a, b, y);
}

CUDA_KERNEL(gelu, activation_query, nullptr, activation_run<OP_gelu>, nullptr, nullptr)
CUDA_KERNEL(gelu_grad, activation_query, nullptr, activation_run<OP_gelu_grad>, nullptr, nullptr)
CUDA_KERNEL(tanh, activation_query, nullptr, activation_run<OP_tanh>, nullptr, nullptr)
CUDA_KERNEL(tanh_grad, activation_query, nullptr, activation_run<OP_tanh_grad>, nullptr, nullptr)
