/* concat.cu - channels of two activations side by side (UNet's skips), and the gradient, which cuts them apart again.
 *
 * Both copy between a whole (rows, A + B) and its parts (rows, A) and (rows, B), only in the other direction; a row is a pixel.
 * Bytes: 2 rows (A + B) times the type's size, each element read and written once. */
#include "launch.cuh"

enum { THREADS = 256 };

/* Values are moved as words of 16 bytes where both parts are a whole number of those, else as elements. Neighbouring threads take
 * neighbouring words of a row: `across` threads, a power of two, stand in it, so that nothing has to be divided. */
template <class Word, bool JOIN>
static __global__ void __launch_bounds__(THREADS) concat_kernel(Word *whole, Word *a, Word *b, int64_t rows, int64_t a_words,
                                                                int64_t b_words, int across)
{
    const int64_t words = a_words + b_words, at_once = THREADS / across, step = gridDim.x * at_once;
    for (int64_t row = blockIdx.x * at_once + threadIdx.x / across; row < rows; row += step)
        for (int64_t w = threadIdx.x % across; w < words; w += across) {
            Word *part = w < a_words ? &a[row * a_words + w] : &b[row * b_words + w - a_words];
            if (JOIN)
                whole[row * words + w] = *part;
            else
                *part = whole[row * words + w];
        }
}
typedef Pack<uint32_t, 4> Word16;
LAUNCHABLE(concat_kernel<Word16, true>);
LAUNCHABLE(concat_kernel<Word16, false>);
LAUNCHABLE(concat_kernel<uint32_t, true>);
LAUNCHABLE(concat_kernel<uint32_t, false>);
LAUNCHABLE(concat_kernel<uint16_t, true>);
LAUNCHABLE(concat_kernel<uint16_t, false>);

template <class Word>
static Status launch(Backend *be, bool join, const Tensor *whole, int64_t a_channels, void *whole_data, void *a, void *b)
{
    const int64_t rows = whole->dim[0] * whole->dim[1] * whole->dim[2], size = dtype_bits(whole->dtype) / 8;
    const int64_t words = whole->dim[3] * size / (int64_t)sizeof(Word), a_words = a_channels * size / (int64_t)sizeof(Word);
    int across = 1;
    while (across < THREADS && across < words)
        across *= 2;
    return cuda_launch(be, join ? concat_kernel<Word, true> : concat_kernel<Word, false>, cuda_blocks(rows, THREADS / across), THREADS, 0,
                       (Word *)whole_data, (Word *)a, (Word *)b, rows, a_words, words - a_words, across);
}

static Status copy_parts(Backend *be, bool join, const Tensor *whole, int64_t a_channels, void *whole_data, void *a, void *b)
{
    const int64_t size = dtype_bits(whole->dtype) / 8;
    if (a_channels * size % 16 == 0 && whole->dim[3] * size % 16 == 0)
        return launch<Word16>(be, join, whole, a_channels, whole_data, a, b);
    if (size == 4)
        return launch<uint32_t>(be, join, whole, a_channels, whole_data, a, b);
    return launch<uint16_t>(be, join, whole, a_channels, whole_data, a, b);
}

static Status concat_query(Backend *, const OpDesc *op, OpNeeds *) { return cuda_query_rows(op); }

static Status concat_run(Backend *be, const OpDesc *op, void *, void *const *buf, void *)
{
    return copy_parts(be, true, &op->out[0], op->in[0].dim[3], buf[2], buf[0], buf[1]);
}

static Status concat_grad_run(Backend *be, const OpDesc *op, void *, void *const *buf, void *)
{
    return copy_parts(be, false, &op->in[0], op->out[0].dim[3], buf[0], buf[1], buf[2]);
}

CUDA_KERNEL(concat, concat_query, nullptr, concat_run, nullptr, nullptr)
CUDA_KERNEL(concat_grad, concat_query, nullptr, concat_grad_run, nullptr, nullptr)
