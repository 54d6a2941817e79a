/* pointwise.c - ops that go element by element: input normalisation, add, ReLU's gradient, casts, repacking of weights, zero.
 *
 * They run over the physical elements of a tensor, padding included, so they do not care for its layout as long as all
 * operands share it. */
#include "cpu.h"
#include "vec.h"

#include <omp.h>

/* y = (image / 255 - mean[c]) / deviation[c] by a table of the 256 values of each channel. */
static Status normalize_u8_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    const int     channels = (int)op->in[0].dim[3];
    const int64_t pixels = tensor_count(&op->in[0]) / channels;
    const uint8_t *restrict image = buf[0];
    float table[4][256];
    for (int c = 0; c < channels; c++)
        for (int u = 0; u < 256; u++)
            table[c][u] = ((float)u / 255.0f - op->attr.mean[c]) / op->attr.deviation[c];
#pragma omp parallel for num_threads(be->threads) schedule(static)
    for (int64_t p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c++) {
            float f = table[c][image[p * channels + c]];
            if (op->out[0].dtype == DTYPE_F32)
                ((float *)buf[1])[p * channels + c] = f;
            else
                ((uint16_t *)buf[1])[p * channels + c] = bf16_from_f32(f);
        }
    return status_ok();
}

ALWAYS_INLINE VecF combine_add(VecF a, VecF b) { return a + b; }
ALWAYS_INLINE VecF combine_relu_grad(VecF dy, VecF y) { return (VecF)((VecI)dy & (y > 0.0f)); }

ALWAYS_INLINE void combine_range(Dtype t, bool add, void *const *buf, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i += LANES) {
        int  lanes = last - i < LANES ? (int)(last - i) : LANES;
        VecF a = vec_load_some(t, buf[0], i, lanes), b = vec_load_some(t, buf[1], i, lanes);
        vec_store_some(t, buf[2], i, add ? combine_add(a, b) : combine_relu_grad(a, b), lanes);
    }
}

static Status combine_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    const int64_t count = cpu_physical_count(be, &op->out[0]);
    const bool    add = op->kind == OP_add, f32 = op->out[0].dtype == DTYPE_F32;
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, LANES, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        if (f32 && add)
            combine_range(DTYPE_F32, true, buf, first, last);
        else if (f32)
            combine_range(DTYPE_F32, false, buf, first, last);
        else if (add)
            combine_range(DTYPE_BF16, true, buf, first, last);
        else
            combine_range(DTYPE_BF16, false, buf, first, last);
    }
    return status_ok();
}

static Status combine_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    Dtype t = op->out[0].dtype;
    return t == DTYPE_F32 || t == DTYPE_BF16 ? status_ok() : cpu_unsupported("add", t);
}

/* Casts and repacks whose two sides lie alike. */
static void convert(const CpuBackend *be, Dtype from, Dtype to, int64_t count, const void *x, void *y)
{
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, LANES, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        size_t size = (size_t)dtype_bits(from) / 8;
        if (from == to)
            memcpy((char *)y + (size_t)first * size, (const char *)x + (size_t)first * size, (size_t)(last - first) * size);
        else
            for (int64_t i = first; i < last; i += LANES) {
                int lanes = last - i < LANES ? (int)(last - i) : LANES;
                if (from == DTYPE_F32)
                    vec_store_some(DTYPE_BF16, y, i, vec_load_some(DTYPE_F32, x, i, lanes), lanes);
                else
                    vec_store_some(DTYPE_F32, y, i, vec_load_some(DTYPE_BF16, x, i, lanes), lanes);
            }
    }
}

static bool lie_alike(const CpuBackend *be, const Tensor *a, const Tensor *b)
{
    return a->layout == b->layout && (a->layout == LAYOUT_ACT ? cpu_is_blocked(be, a) == cpu_is_blocked(be, b)
                                                              : a->layout == LAYOUT_PLAIN || a->dtype == b->dtype);
}

static Status convert_prepare(Backend *base, const OpDesc *op, void **state)
{
    *state = NULL;
    if (lie_alike(cpu_of(base), &op->in[0], &op->out[0]))
        return status_ok();
    return relayout_create(cpu_of(base), &op->in[0], &op->out[0], (Relayout **)state);
}

static Status convert_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)scratch;
    if (state)
        relayout_run(state, buf[0], buf[1]);
    else
        convert(cpu_of(base), op->in[0].dtype, op->out[0].dtype, cpu_physical_count(cpu_of(base), &op->in[0]), buf[0], buf[1]);
    return status_ok();
}

static void convert_release(void *state) { relayout_destroy(state); }

static Status zero_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    const int64_t bytes = (int64_t)cpu_tensor_bytes(be, &op->out[0]);
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(bytes, 64, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        memset((char *)buf[0] + first, 0, (size_t)(last - first));
    }
    return status_ok();
}

const Kernel cpu_normalize_u8 = { .run = normalize_u8_run };
const Kernel cpu_add = { .query = combine_query, .run = combine_run };
const Kernel cpu_relu_grad = { .query = combine_query, .run = combine_run };
const Kernel cpu_cast = { .prepare = convert_prepare, .run = convert_run, .release = convert_release };
const Kernel cpu_repack = { .prepare = convert_prepare, .run = convert_run, .release = convert_release };
const Kernel cpu_zero = { .run = zero_run };
