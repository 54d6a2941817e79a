/* half.c - an op on f16 tensors, run as the same op on f32 copies of them.
 *
 * oneDNN has no fp16 training on CPUs, and few CPUs have the arithmetic. So fp16 is here to study its range and rounding, not
 * its speed: what lies in memory is f16, what is computed is f32 and rounded once per op, sums are f32. Copies lie in scratch.
 * A tensor has the physical order of its f32 twin (cpu_is_blocked, cpu_tensor_bytes), so copies go element by element. */
#include "half.h"

#include "cpu.h"

#include <omp.h>
#ifdef __F16C__
#include <immintrin.h>
enum { TO_NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
#endif

void half_to_floats(const uint16_t *from, float *to, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = f16_to_f32(from[i]);
}

void half_from_floats(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), TO_NEAREST));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), TO_NEAREST));
#endif
    for (; i < n; i++)
        to[i] = f16_from_f32(from[i]);
}

/* One tensor's physical elements, padding too, by all threads. */
static void convert(const CpuBackend *be, const Tensor *twin, bool to_half, void *half, float *floats)
{
    const int64_t count = cpu_physical_count(be, twin);
    uint16_t     *h = half;
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, 64, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        if (to_half)
            half_from_floats(floats + first, h + first, last - first);
        else
            half_to_floats(h + first, floats + first, last - first);
    }
}

static const Tensor *slot_tensor(const OpDesc *op, int slot)
{
    return slot < op->n_in ? &op->in[slot] : &op->out[slot - op->n_in];
}

static bool is_half(const OpDesc *op, int slot) { return slot_tensor(op, slot)->dtype == DTYPE_F16; }

static bool has_half(const OpDesc *op)
{
    for (int s = 0; s < op->n_in + op->n_out; s++)
        if (is_half(op, s))
            return true;
    return false;
}

static OpDesc twin_of(const OpDesc *op)
{
    OpDesc twin = *op;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].dtype == DTYPE_F16)
            twin.in[i].dtype = DTYPE_F32;
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].dtype == DTYPE_F16)
            twin.out[i].dtype = DTYPE_F32;
    return twin;
}

/* Whether the op reads what the slot holds, and whether it writes to it. */
static bool is_read(const OpDesc *op, int slot) { return slot < op->n_in || op_out_is_inout(op, slot - op->n_in); }
static bool is_written(const OpDesc *op, int slot) { return slot >= op->n_in || op_in_is_inout(op, slot); }

/* Where in scratch the copy of a slot begins; slot n_in + n_out: where the op's own scratch does. */
static size_t copy_offset(const CpuBackend *be, const OpDesc *op, const OpDesc *twin, int slot)
{
    size_t at = 0;
    for (int s = 0; s < slot; s++)
        if (is_half(op, s))
            at += (cpu_tensor_bytes(be, slot_tensor(twin, s)) + 63) / 64 * 64;
    return at;
}

static Status half_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    const Kernel *kernel = cpu_float_kernels[op->kind];
    if (!has_half(op))
        return kernel->query ? kernel->query(be, op, needs) : status_ok();
    OpDesc twin = twin_of(op);
    if (kernel->query)
        TRY(kernel->query(be, &twin, needs));
    for (int i = 0; i < op->n_in; i++) /* copies have the layout that is wished for, and its padding */
        if (needs->in_layout[i] != LAYOUT_ANY)
            twin.in[i].layout = needs->in_layout[i];
    for (int i = 0; i < op->n_out; i++)
        if (needs->out_layout[i] != LAYOUT_ANY)
            twin.out[i].layout = needs->out_layout[i];
    needs->scratch += copy_offset(cpu_of(be), op, &twin, op->n_in + op->n_out);
    return status_ok();
}

/* What is kept for a node whose own kernel keeps something. */
typedef struct HalfState {
    const Kernel *kernel;
    void         *state;
} HalfState;

static Status half_prepare(Backend *be, const OpDesc *op, void **state)
{
    const Kernel *kernel = cpu_float_kernels[op->kind];
    const OpDesc  twin = twin_of(op);
    *state = NULL;
    if (!kernel->prepare)
        return status_ok();
    HalfState *s = malloc(sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for a kernel's state");
    *s = (HalfState){ kernel, NULL };
    Status status = kernel->prepare(be, &twin, &s->state);
    if (status.code == STATUS_OK)
        *state = s;
    else
        free(s);
    return status;
}

static void half_release(void *state)
{
    HalfState *s = state;
    if (s && s->kernel->release)
        s->kernel->release(s->state);
    free(s);
}

/* Layer norm normalises the sum as it is stored: once more, of the rounded one. */
static Status normalise_rounded(CpuBackend *be, const OpDesc *twin, void *half_sum, void *const *buf)
{
    const int n = twin->n_in;
    OpDesc    plain = *twin;
    plain.n_in = plain.n_out = 3;
    plain.attr.residual = false;
    plain.attr.dropout = 0;
    convert(be, &twin->out[3], true, half_sum, buf[n + 3]);
    convert(be, &twin->out[3], false, half_sum, buf[n + 3]);
    void *const slots[] = { buf[n + 3], buf[1], buf[2], buf[n], buf[n + 1], buf[n + 2] };
    return cpu_float_kernels[OP_layernorm]->run(&be->base, &plain, NULL, slots, NULL);
}

static Status run_twin(CpuBackend *be, const OpDesc *op, void *state, void *const *buf, char *scratch)
{
    const OpDesc twin = twin_of(op);
    const int    slots = op->n_in + op->n_out;
    void        *copies[OP_MAX_IN + OP_MAX_OUT];
    for (int s = 0; s < slots; s++) {
        copies[s] = is_half(op, s) ? scratch + copy_offset(be, op, &twin, s) : buf[s];
        if (is_half(op, s) && is_read(op, s))
            convert(be, slot_tensor(&twin, s), false, buf[s], copies[s]);
    }
    TRY(cpu_float_kernels[op->kind]->run(&be->base, &twin, state, copies, scratch + copy_offset(be, op, &twin, slots)));
    if (op->kind == OP_layernorm && op->attr.residual)
        TRY(normalise_rounded(be, &twin, buf[op->n_in + 3], copies));
    for (int s = 0; s < slots; s++)
        if (is_half(op, s) && is_written(op, s))
            convert(be, slot_tensor(&twin, s), true, buf[s], copies[s]);
    return status_ok();
}

static Status half_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    void *own = state ? ((HalfState *)state)->state : NULL;
    return has_half(op) ? run_twin(cpu_of(be), op, own, buf, scratch)
                        : cpu_float_kernels[op->kind]->run(be, op, own, buf, scratch);
}

const Kernel half_kernel = { half_query, half_prepare, half_run, half_release, NULL };
