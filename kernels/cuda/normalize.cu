/* normalize.cu - images of bytes become the activations of the first convolution.
 *
 * Bytes, for p pixels of C channels and a type of s bytes: p C read, p C s written. In LAYOUT_PADDED 8 p s are written, zeros in
 * the channels that are not there. */
#include "launch.cuh"

enum { THREADS = 256, MAX_CHANNELS = 4 };

struct Normal { float mean[MAX_CHANNELS], deviation[MAX_CHANNELS]; };

/* No array is indexed by a number that is known at run time only: that would put it into local memory. */
static __device__ __forceinline__ float pick(const float (&v)[MAX_CHANNELS], int c)
{
    return c == 0 ? v[0] : c == 1 ? v[1] : c == 2 ? v[2] : v[3];
}

/* The CPU backend's operations in its order, so that both give the same bits. */
static __device__ __forceinline__ float normal_of(const Normal &s, uint8_t u, int c)
{
    return ((float)u / 255.0f - pick(s.mean, c)) / pick(s.deviation, c);
}

/* y in the image's own order: a thread writes 16 bytes. */
template <class T>
static __global__ void __launch_bounds__(THREADS) normalize_kernel(const uint8_t *image, T *y, int64_t count, int channels, Normal s)
{
    constexpr int N = Wide<T>::N;
    const int64_t packs = count / N;
    const int     step = (int)(grid_threads() * N % channels);
    int           first = (int)(grid_thread() * N % channels);
    for (int64_t i = grid_thread(); i < packs; i += grid_threads()) {
        const Pack<uint8_t, N> u = *reinterpret_cast<const Pack<uint8_t, N> *>(image + i * N);
        float v[N];
        int   c = first;
#pragma unroll
        for (int k = 0; k < N; k++) {
            v[k] = normal_of(s, u.at[k], c);
            c = c + 1 == channels ? 0 : c + 1;
        }
        store_floats(y + i * N, v);
        first = first + step >= channels ? first + step - channels : first + step;
    }
    for (int64_t i = packs * N + grid_thread(); i < count; i += grid_threads())
        y[i] = narrow<T>(normal_of(s, image[i], (int)(i % channels)));
}
LAUNCHABLE(normalize_kernel<float>);
LAUNCHABLE(normalize_kernel<bf16>);
LAUNCHABLE(normalize_kernel<f16>);

/* y in LAYOUT_PADDED, 8 channels a pixel: a thread writes 16 bytes, which is a pixel or half of one. */
template <class T>
static __global__ void __launch_bounds__(THREADS) normalize_padded_kernel(const uint8_t *image, T *y, int64_t pixels, int channels,
                                                                          Normal s)
{
    constexpr int N = Wide<T>::N, PARTS = CUDA_PAD / N;
    for (int64_t i = grid_thread(); i < pixels * PARTS; i += grid_threads()) {
        const uint8_t *pixel = image + i / PARTS * channels;
        const bool     first = i % PARTS == 0;
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = k < MAX_CHANNELS && first && k < channels ? normal_of(s, pixel[k], k) : 0.0f;
        store_floats(y + i * N, v);
    }
}
LAUNCHABLE(normalize_padded_kernel<float>);
LAUNCHABLE(normalize_padded_kernel<bf16>);
LAUNCHABLE(normalize_padded_kernel<f16>);

template <class T> static Status normalize_run(Backend *be, const OpDesc *op, void *const *buf)
{
    const uint8_t *image = (const uint8_t *)buf[0];
    const int64_t  count = tensor_count(&op->in[0]), channels = op->in[0].dim[3];
    Normal         s;
    for (int c = 0; c < MAX_CHANNELS; c++) {
        s.mean[c] = op->attr.mean[c];
        s.deviation[c] = op->attr.deviation[c];
    }
    if (op->out[0].layout != LAYOUT_PADDED)
        return cuda_launch(be, normalize_kernel<T>, cuda_blocks(count, (int64_t)THREADS * Wide<T>::N), THREADS, 0, image, (T *)buf[1],
                           count, channels, s);
    const int64_t pixels = count / channels;
    return cuda_launch(be, normalize_padded_kernel<T>, cuda_blocks(pixels * CUDA_PAD, (int64_t)THREADS * Wide<T>::N), THREADS, 0, image,
                       (T *)buf[1], pixels, channels, s);
}

static Status normalize_run_any(Backend *be, const OpDesc *op, void *, void *const *buf, void *)
{
    return CUDA_BY_TYPE(op->out[0].dtype, normalize_run, be, op, buf);
}

CUDA_KERNEL(normalize_u8, nullptr, nullptr, normalize_run_any, nullptr, nullptr)
