/* op_case.c - makes the inputs of a case and takes it through a backend; see op_case.h. */
#include "op_case.h"

#include "ref/ref.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xA5, POISON_BYTE = 0xFF }; /* 0xFFFF and 0xFFFFFFFF are NaN in bf16 and f32 */

/* ---- inputs ---- */

typedef enum Role {
    ROLE_VALUE,
    ROLE_OFFSET,   /* values with a mean that is not zero: what batch norm has to remove */
    ROLE_POSITIVE, /* variances, inverse deviations: 0.5 .. 1.5 */
    ROLE_COUNT,    /* sums that were begun: 0 .. 7 */
    ROLE_IMAGE,    /* 0 .. 255 */
    ROLE_LABEL,    /* -1 .. classes - 1 */
    ROLE_ID,       /* -1 .. rows of the table - 1 */
    ROLE_RNG,      /* three words of dropout's generator, and 0 */
    ROLE_PIXEL,    /* 0 .. classes - 1, and 255 */
    ROLE_HYPER,    /* a learning rate, clipping at 1, a loss scale that grows after 3 updates */
    ROLE_CONTROL,  /* scale 2, clipping to the half, two finite updates in a row */
    ROLE_SKIP,     /* the same with the order to skip */
    ROLE_TABLE     /* tensors of nearly equal length over the elements of slot 0 */
} Role;

static Role input_role(const OpDesc *op, int slot)
{
    switch (op->kind) {
    case OP_batchnorm:       return slot == 4 ? ROLE_POSITIVE : slot == 0 ? ROLE_OFFSET : ROLE_VALUE;
    case OP_batchnorm_infer: return slot == 4 ? ROLE_POSITIVE : ROLE_VALUE;
    case OP_batchnorm_grad:  return slot == 4 ? ROLE_POSITIVE : ROLE_VALUE;
    case OP_normalize_u8:    return ROLE_IMAGE;
    case OP_softmax_xent:    return slot == 1 ? ROLE_LABEL : slot == 2 ? ROLE_POSITIVE : ROLE_VALUE;
    case OP_pixel_xent: case OP_bce_dice: return slot == 1 ? ROLE_PIXEL : slot == 2 ? ROLE_POSITIVE : ROLE_VALUE;
    case OP_embedding:       return slot % 2 ? ROLE_ID : ROLE_VALUE;
    case OP_embedding_grad: case OP_gather_rows: case OP_gather_rows_grad:
        return slot == 1 ? ROLE_ID : ROLE_VALUE;
    case OP_layernorm:       return slot == 0 ? ROLE_OFFSET : slot == 4 ? ROLE_RNG : ROLE_VALUE;
    case OP_layernorm_grad:  return slot == 4 ? ROLE_POSITIVE : slot == 5 ? ROLE_RNG : ROLE_VALUE;
    case OP_dropout:         return slot == 1 ? ROLE_RNG : ROLE_VALUE;
    case OP_sqnorm:          return slot == 1 ? ROLE_CONTROL : ROLE_VALUE;
    case OP_window_scale:    return slot == 1 ? ROLE_CONTROL : ROLE_POSITIVE;
    case OP_step_control:    return slot == 0 ? ROLE_HYPER : ROLE_POSITIVE;
    case OP_restore:         return slot == 1 ? ROLE_SKIP : ROLE_VALUE;
    case OP_sgd: case OP_adamw: case OP_lamb: case OP_lars:
        return slot == 1 ? ROLE_HYPER : slot == 2 ? ROLE_CONTROL : slot == 3 ? ROLE_TABLE : ROLE_VALUE;
    default:                 return ROLE_VALUE;
    }
}

static Role output_role(const OpDesc *op, int slot)
{
    switch (op->kind) {
    case OP_softmax_xent: case OP_pixel_xent: case OP_bce_dice: case OP_sqnorm: return ROLE_COUNT;
    case OP_step_control:                 return ROLE_CONTROL;
    case OP_adamw: case OP_lamb:          return slot == 2 ? ROLE_POSITIVE : ROLE_VALUE;
    default:                              return ROLE_VALUE;
    }
}

/* A class, or, as often as each of them, 255. */
static double draw_pixel(const OpCase *c, uint64_t stream, uint64_t at)
{
    const int64_t classes = c->op.kind == OP_bce_dice ? 2 : c->op.in[0].dim[3];
    const int64_t label = rng_below(c->seed, stream, at, classes + 1);
    return label == classes ? 255 : (double)label;
}

/* Rows of the table that the numbers in input `slot` pick from. */
static int64_t picked_rows(const OpDesc *op, int64_t slot)
{
    switch (op->kind) {
    case OP_embedding:   return op->in[slot - 1].dim[0];
    case OP_gather_rows: return op->in[0].dim[0];
    default:             return op->out[0].dim[0];
    }
}

static double draw(const OpCase *c, Role role, uint64_t stream, int64_t i)
{
    static const double hyper[8] = { 0, 1, 3, 2, 0.5, 1, 65536, 0 }, control[8] = { 0.5, 0.5, 0, 2, 2, 0, 3, 0 };
    const uint64_t at = (uint64_t)i;
    const bool integer = c->fill == FILL_INTEGER;
    switch (role) {
    case ROLE_VALUE:    return integer ? (double)rng_below(c->seed, stream, at, 5) - 2 : rng_normal(c->seed, stream, at);
    case ROLE_OFFSET:   return integer ? (double)rng_below(c->seed, stream, at, 5) - 1 : 0.5 + 1.5 * rng_normal(c->seed, stream, at);
    case ROLE_POSITIVE: return 0.5 + (double)rng_uniform(rng_block(c->seed, stream, at).word[0]);
    case ROLE_COUNT:    return (double)rng_below(c->seed, stream, at, 8);
    case ROLE_IMAGE:    return (double)rng_below(c->seed, stream, at, 256);
    case ROLE_LABEL:    return (double)rng_below(c->seed, stream, at, c->op.in[0].dim[1] + 1) - 1;
    case ROLE_ID:       return (double)rng_below(c->seed, stream, at, picked_rows(&c->op, (int64_t)stream) + 1) - 1;
    case ROLE_RNG:      return i == 3 ? 0 : (double)(int32_t)rng_block(c->seed, stream, at).word[0];
    case ROLE_PIXEL:    return draw_pixel(c, stream, at);
    case ROLE_HYPER:    return i ? hyper[i] : integer ? 0.5 : 0.1;
    case ROLE_CONTROL:  return control[i];
    case ROLE_SKIP:     return i == 2 ? 1 : control[i];
    case ROLE_TABLE:    return (double)(tensor_count(&c->op.in[0]) * i / (c->op.in[3].dim[0] - 1));
    }
    return 0;
}

static Status fill_slot(const OpCase *c, const Tensor *t, Role role, uint64_t stream, void **out)
{
    const int64_t n = tensor_count(t);
    double *values = malloc((size_t)n * sizeof *values);
    *out = malloc(tensor_bytes(t));
    if (!values || !*out) {
        free(values);
        return status_error(STATUS_OOM, "no memory for test inputs");
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = draw(c, role, stream, i);
    ref_store(t, values, *out);
    free(values);
    return status_ok();
}

/* The forward batch norm whose mask feeds a gradient: x = +-1, gamma = 1, beta = 0.3, so that no output lies near zero
 * and every backend must find the same mask. */
static void shape_mask_inputs(OpCase *maker)
{
    for (int slot = 0; slot < maker->op.n_in; slot++) {
        const Tensor *t = &maker->op.in[slot];
        const Tensor one = tensor_1d(t->dtype, 1);
        const size_t size = (size_t)dtype_bits(t->dtype) / 8;
        for (int64_t i = 0; i < tensor_count(t); i++) {
            double v = slot == 0 ? (rng_below(maker->seed, 1000, (uint64_t)i, 2) ? 1 : -1)
                     : slot == 1 || slot == 4 ? 1 : slot == 2 ? 0.3 : 0;
            ref_store(&one, &v, (char *)maker->in[slot] + (size_t)i * size);
        }
    }
}

static Status make_maker(OpCase *c)
{
    OpDesc forward = { .attr = c->op.attr };
    const Tensor *x = &c->op.in[0];
    if (c->op.kind == OP_maxpool_grad) {
        forward.kind = OP_maxpool;
        forward.n_in = 1;
        forward.in[0] = c->op.out[0];
        c->maker_out = 1;
        c->made_in = 1;
        return op_case_create(&forward, c->fill, c->seed + 1, &c->maker);
    }
    forward.kind = OP_batchnorm;
    forward.n_in = 5 + c->op.attr.residual;
    forward.attr.momentum = 0.1f;
    forward.in[0] = forward.in[5] = *x;
    for (int i = 1; i < 5; i++)
        forward.in[i] = tensor_1d(DTYPE_F32, x->dim[3]);
    c->maker_out = 3;
    c->made_in = 5;
    TRY(op_case_create(&forward, c->fill, c->seed + 1, &c->maker));
    shape_mask_inputs(c->maker);
    return status_ok();
}

static Status fill_case(OpCase *c)
{
    TRY(op_infer(&c->op));
    c->made_in = -1;
    if (c->op.kind == OP_maxpool_grad || (c->op.kind == OP_batchnorm_grad && c->op.attr.relu))
        TRY(make_maker(c));
    for (int i = 0; i < c->op.n_in; i++)
        if (i != c->made_in)
            TRY(fill_slot(c, &c->op.in[i], input_role(&c->op, i), (uint64_t)i, &c->in[i]));
    for (int i = 0; i < c->op.n_out; i++)
        if (op_out_is_inout(&c->op, i))
            TRY(fill_slot(c, &c->op.out[i], output_role(&c->op, i), 100 + (uint64_t)i, &c->out[i]));
    return status_ok();
}

Status op_case_create(const OpDesc *op, FillKind fill, uint64_t seed, OpCase **out)
{
    *out = NULL;
    OpCase *c = calloc(1, sizeof *c);
    if (!c)
        return status_error(STATUS_OOM, "no memory for a test case");
    c->op = *op;
    c->fill = fill;
    c->seed = seed;
    Status s = fill_case(c);
    if (s.code != STATUS_OK)
        op_case_destroy(c);
    else
        *out = c;
    return s;
}

void op_case_destroy(OpCase *c)
{
    if (!c)
        return;
    for (int i = 0; i < OP_MAX_IN; i++)
        free(c->in[i]);
    for (int i = 0; i < OP_MAX_OUT; i++)
        free(c->out[i]);
    op_case_destroy(c->maker);
    free(c);
}

/* ---- device memory between guards ---- */

typedef struct Buffer {
    void  *base, *address; /* address = base + GUARD */
    size_t bytes;
} Buffer;

/* Guards to GUARD_BYTE, everything between to POISON_BYTE; through upload, so that it works on any device. */
static Status buffer_poison(Backend *be, const Buffer *b)
{
    const size_t whole = b->bytes + 2 * GUARD;
    unsigned char *host = malloc(whole);
    if (!host)
        return status_error(STATUS_OOM, "no memory for a guard pattern");
    memset(host, GUARD_BYTE, whole);
    memset(host + GUARD, POISON_BYTE, b->bytes);
    Tensor bytes = tensor_1d(DTYPE_U8, (int64_t)whole);
    Status s = backend_upload(be, &bytes, b->base, host);
    free(host);
    return s;
}

static Status buffer_create(Backend *be, size_t bytes, Buffer *b)
{
    b->bytes = bytes;
    TRY(backend_alloc(be, bytes + 2 * GUARD, &b->base));
    b->address = (char *)b->base + GUARD;
    return buffer_poison(be, b);
}

static Status buffer_check(Backend *be, const Buffer *b, const char *what, int slot)
{
    if (!b->base)
        return status_ok();
    const size_t whole = b->bytes + 2 * GUARD;
    unsigned char *host = malloc(whole);
    if (!host)
        return status_error(STATUS_OOM, "no memory for a guard pattern");
    Tensor bytes = tensor_1d(DTYPE_U8, (int64_t)whole);
    Status s = backend_download(be, &bytes, b->base, host);
    for (size_t i = 0; i < GUARD && s.code == STATUS_OK; i++)
        if (host[i] != GUARD_BYTE)
            s = status_error(STATUS_NUMERIC, "%s %d: wrote %zu bytes before its buffer", what, slot, GUARD - i);
        else if (host[GUARD + b->bytes + i] != GUARD_BYTE)
            s = status_error(STATUS_NUMERIC, "%s %d: wrote %zu bytes past the end of its %zu", what, slot, i + 1, b->bytes);
    free(host);
    return s;
}

/* ---- one kernel's life ---- */

typedef struct Session {
    Backend *be;
    OpDesc   op; /* layouts settled */
    void    *state;
    Buffer   in[OP_MAX_IN], out[OP_MAX_OUT], scratch;
} Session;

static void settle(int wish, int need, int *layout)
{
    if (wish != LAYOUT_ANY)
        *layout = wish;
    else if (need != LAYOUT_ANY)
        *layout = need;
}

static Status session_open(Session *s, const OpDesc *op, const OpNeeds *layouts)
{
    OpNeeds needs;
    s->op = *op;
    if (layouts) { /* before query: repack and the optimiser must know what they are asked for */
        for (int i = 0; i < op->n_in; i++)
            settle(layouts->in_layout[i], LAYOUT_ANY, &s->op.in[i].layout);
        for (int i = 0; i < op->n_out; i++)
            settle(layouts->out_layout[i], LAYOUT_ANY, &s->op.out[i].layout);
    }
    TRY(backend_query(s->be, &s->op, &needs));
    for (int i = 0; i < op->n_in; i++) {
        settle(layouts ? layouts->in_layout[i] : LAYOUT_ANY, needs.in_layout[i], &s->op.in[i].layout);
        TRY(buffer_create(s->be, s->be->vtable->bytes(s->be, &s->op.in[i]), &s->in[i]));
    }
    for (int i = 0; i < op->n_out; i++) {
        settle(layouts ? layouts->out_layout[i] : LAYOUT_ANY, needs.out_layout[i], &s->op.out[i].layout);
        TRY(buffer_create(s->be, s->be->vtable->bytes(s->be, &s->op.out[i]), &s->out[i]));
    }
    if (needs.scratch)
        TRY(buffer_create(s->be, needs.scratch, &s->scratch));
    const Kernel *kernel = s->be->vtable->kernels[op->kind];
    return kernel->prepare ? kernel->prepare(s->be, &s->op, &s->state) : status_ok();
}

static void session_close(Session *s)
{
    const Kernel *kernel = s->be->vtable->kernels[s->op.kind];
    if (s->state && kernel->release)
        kernel->release(s->state);
    for (int i = 0; i < OP_MAX_IN; i++)
        backend_free(s->be, s->in[i].base);
    for (int i = 0; i < OP_MAX_OUT; i++)
        backend_free(s->be, s->out[i].base);
    backend_free(s->be, s->scratch.base);
}

/* Inputs and begun outputs from the host, everything else NaN. */
static Status session_load(Session *s, const OpCase *c)
{
    for (int i = 0; i < s->op.n_in; i++)
        if (c->in[i])
            TRY(backend_upload(s->be, &s->op.in[i], s->in[i].address, c->in[i]));
    for (int i = 0; i < s->op.n_out; i++) {
        TRY(buffer_poison(s->be, &s->out[i]));
        if (c->out[i])
            TRY(backend_upload(s->be, &s->op.out[i], s->out[i].address, c->out[i]));
    }
    return s->scratch.base ? buffer_poison(s->be, &s->scratch) : status_ok();
}

static Status session_run(Session *s)
{
    void *buf[OP_MAX_IN + OP_MAX_OUT];
    for (int i = 0; i < s->op.n_in; i++)
        buf[i] = s->in[i].address;
    for (int i = 0; i < s->op.n_out; i++)
        buf[s->op.n_in + i] = s->out[i].address;
    TRY(s->be->vtable->kernels[s->op.kind]->run(s->be, &s->op, s->state, buf, s->scratch.address));
    TRY(backend_sync(s->be));
    for (int i = 0; i < s->op.n_in; i++)
        TRY(buffer_check(s->be, &s->in[i], "input", i));
    for (int i = 0; i < s->op.n_out; i++)
        TRY(buffer_check(s->be, &s->out[i], "output", i));
    return buffer_check(s->be, &s->scratch, "scratch", 0);
}

static Status fetch(Session *s, const Tensor *t, const Buffer *b, void **host)
{
    *host = malloc(tensor_bytes(t));
    if (!*host)
        return status_error(STATUS_OOM, "no memory for a result");
    return backend_download(s->be, t, b->address, *host);
}

static bool is_comparable(const OpDesc *op, int slot)
{
    return op->out[slot].dtype != DTYPE_BIT && !(op->kind == OP_maxpool && slot == 1);
}

static Status session_fetch(Session *s, const OpCase *c, OpResult *result)
{
    for (int i = 0; i < s->op.n_out; i++)
        if (is_comparable(&s->op, i))
            TRY(fetch(s, &s->op.out[i], &s->out[i], &result->out[i]));
    for (int i = 0; i < s->op.n_in; i++) {
        if (!c->in[i])
            continue;
        TRY(fetch(s, &s->op.in[i], &s->in[i], &result->in[i]));
        if (op_in_is_inout(&s->op, i))
            continue;
        if (memcmp(result->in[i], c->in[i], tensor_bytes(&s->op.in[i])))
            return status_error(STATUS_NUMERIC, "input %d was written to", i);
        free(result->in[i]);
        result->in[i] = NULL;
    }
    return status_ok();
}

static Status same_bits(const OpDesc *op, const OpResult *a, const OpResult *b)
{
    for (int i = 0; i < op->n_in; i++)
        if (a->in[i] && memcmp(a->in[i], b->in[i], tensor_bytes(&op->in[i])))
            return status_error(STATUS_NUMERIC, "a second run gave other bits in input %d", i);
    for (int i = 0; i < op->n_out; i++)
        if (a->out[i] && memcmp(a->out[i], b->out[i], tensor_bytes(&op->out[i])))
            return status_error(STATUS_NUMERIC, "a second run gave other bits in output %d", i);
    return status_ok();
}

/* Runs the forward op that makes a mask or an index, and hands its buffer to the main op. */
static Status run_maker(const OpCase *c, Session *main_session)
{
    Session m = { .be = main_session->be };
    Status s;
    TRY_GOTO(s, session_open(&m, &c->maker->op, NULL), out);
    TRY_GOTO(s, session_load(&m, c->maker), out);
    TRY_GOTO(s, session_run(&m), out);
    Buffer made = m.out[c->maker_out];
    m.out[c->maker_out] = main_session->in[c->made_in];
    main_session->in[c->made_in] = made;
out:
    session_close(&m);
    return s;
}

Status op_case_run(const OpCase *c, Backend *be, const OpNeeds *layouts, OpResult *result)
{
    Session session = { .be = be };
    OpResult again;
    Status s;
    memset(result, 0, sizeof *result);
    memset(&again, 0, sizeof again);
    TRY_GOTO(s, session_open(&session, &c->op, layouts), out);
    if (c->maker)
        TRY_GOTO(s, run_maker(c, &session), out);
    TRY_GOTO(s, session_load(&session, c), out);
    TRY_GOTO(s, session_run(&session), out);
    TRY_GOTO(s, session_fetch(&session, c, result), out);
    TRY_GOTO(s, session_load(&session, c), out);
    TRY_GOTO(s, session_run(&session), out);
    TRY_GOTO(s, session_fetch(&session, c, &again), out);
    s = same_bits(&c->op, result, &again);
out:
    session_close(&session);
    op_result_release(&again);
    if (s.code == STATUS_OK)
        return s;
    op_result_release(result);
    char text[224];
    return status_context(s, "%s seed %" PRIu64 " on %s", op_format(&c->op, text, sizeof text), c->seed, be->vtable->name);
}

void op_result_release(OpResult *result)
{
    for (int i = 0; i < OP_MAX_IN; i++)
        free(result->in[i]);
    for (int i = 0; i < OP_MAX_OUT; i++)
        free(result->out[i]);
    memset(result, 0, sizeof *result);
}

static Status compare_one(const OpCase *c, CompareMode mode, bool input, int slot, const void *want, const void *got)
{
    const Tensor *t = input ? &c->op.in[slot] : &c->op.out[slot];
    double *values = malloc((size_t)tensor_count(t) * sizeof *values);
    if (!values)
        return status_error(STATUS_OOM, "no memory to compare");
    ref_load(t, want, values);
    CompareSlot what = { &c->op, input, slot, c->seed, c->trivial };
    Status s = compare_slot(&what, mode, values, got);
    free(values);
    return s;
}

Status op_case_compare(const OpCase *c, CompareMode mode, const OpResult *want, const OpResult *got)
{
    for (int i = 0; i < c->op.n_out; i++)
        if (is_comparable(&c->op, i))
            TRY(compare_one(c, mode, false, i, want->out[i], got->out[i]));
    for (int i = 0; i < c->op.n_in; i++)
        if (op_in_is_inout(&c->op, i))
            TRY(compare_one(c, mode, true, i, want->in[i], got->in[i]));
    return status_ok();
}
