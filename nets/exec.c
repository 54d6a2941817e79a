/* exec.c - the executor: two blocks of device memory, a prepared kernel and its addresses for every node, the loop. */
#include "exec.h"

#include "layout.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 18, POISON_BYTE = 0xff /* f32 and bf16 NaN, bits and labels nobody would have */ };

typedef struct NodeRun {
    void *state;                        /* the kernel's, from prepare */
    bool  prepared;
    void *buf[OP_MAX_IN + OP_MAX_OUT];  /* inputs, then outputs */
    void *scratch;
} NodeRun;

typedef struct SegmentRun {
    bool  warm;      /* it has run node by node: libraries load and allocate in a first run, which cannot be recorded */
    bool  refused;   /* the backend cannot record it */
    void *recording; /* NULL before it is made */
} SegmentRun;

struct Exec {
    const Graph *graph;
    Backend     *be;
    ExecOptions  options;
    Layout       layout;
    Memory       memory;
    uint8_t     *persistent, *arena;    /* device memory */
    size_t       allocated;             /* bytes asked of backend_alloc */
    NodeRun     *nodes;                 /* [node_count] */
    SegmentRun   segments[SEG_COUNT];
    uint8_t     *chunk;                 /* host memory: CHUNK_BYTES, to fill device memory from */
    void        *host;                  /* host memory for check_nan: the largest value; NULL without */
    ExecClock   *clock;
    void        *clock_context;
    bool         tags;
};

static const Kernel *kernel_of(const Exec *ex, int node)
{
    return ex->be->vtable->kernels[ex->layout.op[node].kind];
}

static void *address_of(const Exec *ex, int value)
{
    int home = ex->memory.home[value];
    uint8_t *block = graph_is_persistent(&ex->graph->values[home]) ? ex->persistent : ex->arena;
    return block + ex->memory.offset[home];
}

/* "conv3.0.conv2: conv2d_wgrad: ..." */
static Status at_node(const Exec *ex, int node, Status s)
{
    const GraphNode *n = &ex->graph->nodes[node];
    return status_context(s, "%s: %s", n->scope[0] ? n->scope : segment_names[n->segment], op_names[n->op.kind]);
}

/* ---- planning, creating, destroying ---- */

Status exec_plan_memory(const Graph *g, Backend *be, const ExecOptions *options, MemPlan *out)
{
    Layout layout = { 0 };
    Memory memory = { 0 };
    Status status;
    TRY_GOTO(status, graph_status(g), out);
    TRY_GOTO(status, layout_settle(g, be, &layout), out);
    TRY_GOTO(status, memory_place(g, &layout, options && options->separate, &memory), out);
    *out = memory.plan;
out:
    memory_free(&memory);
    layout_free(&layout);
    return status;
}

/* One block of device memory; none for 0 bytes. */
static Status take_block(Exec *ex, const char *what, size_t bytes, uint8_t **block)
{
    void *address = NULL;
    if (bytes == 0)
        return status_ok();
    TRY(status_context(backend_alloc(ex->be, bytes, &address), "%.1f MiB of %s, %.1f MiB in all",
                       (double)bytes / 0x1p20, what, (double)ex->memory.plan.total / 0x1p20));
    *block = address;
    ex->allocated += bytes;
    return status_ok();
}

/* Sets bytes of device memory. Only for the start and for debugging: it goes through host memory. */
static Status fill(Exec *ex, void *address, size_t bytes, int byte)
{
    memset(ex->chunk, byte, CHUNK_BYTES);
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        Tensor t = tensor_1d(DTYPE_U8, (int64_t)n);
        TRY(backend_upload(ex->be, &t, (uint8_t *)address + at, ex->chunk));
    }
    return status_ok();
}

/* Room for the largest value, to look for NaN in. */
static Status take_check_memory(Exec *ex)
{
    size_t largest = 1;
    for (int i = 0; i < ex->graph->value_count; i++)
        if (tensor_bytes(&ex->layout.tensor[i]) > largest)
            largest = tensor_bytes(&ex->layout.tensor[i]);
    if (!ex->host)
        ex->host = malloc(largest);
    return ex->host ? status_ok() : status_error(STATUS_OOM, "no host memory to look for NaN in %zu bytes", largest);
}

static Status take_host_memory(Exec *ex)
{
    ex->chunk = malloc(CHUNK_BYTES);
    ex->nodes = calloc((size_t)ex->graph->node_count + 1, sizeof *ex->nodes);
    if (!ex->chunk || !ex->nodes)
        return status_error(STATUS_OOM, "no host memory for the executor of %d nodes", ex->graph->node_count);
    return ex->options.check_nan ? take_check_memory(ex) : status_ok();
}

static Status prepare_node(Exec *ex, int node)
{
    const GraphNode *n = &ex->graph->nodes[node];
    NodeRun         *run = &ex->nodes[node];
    if (ex->layout.idle[node])
        return status_ok();
    for (int i = 0; i < n->op.n_in; i++)
        run->buf[i] = address_of(ex, n->in[i]);
    for (int i = 0; i < n->op.n_out; i++)
        run->buf[n->op.n_in + i] = address_of(ex, n->out[i]);
    if (ex->layout.needs[node].scratch)
        run->scratch = ex->arena + ex->memory.scratch_offset[node];
    const Kernel *kernel = kernel_of(ex, node);
    if (!kernel->prepare)
        return status_ok();
    TRY(at_node(ex, node, kernel->prepare(ex->be, &ex->layout.op[node], &run->state)));
    run->prepared = true;
    return status_ok();
}

/* Kernels that can choose between ways to do their op time them on their own buffers, which they overwrite. */
static Status tune_nodes(Exec *ex)
{
    bool tuned = false;
    for (int i = 0; i < ex->graph->node_count; i++) {
        const NodeRun *run = &ex->nodes[i];
        if (ex->layout.idle[i] || !kernel_of(ex, i)->tune)
            continue;
        TRY(at_node(ex, i, kernel_of(ex, i)->tune(ex->be, &ex->layout.op[i], run->state, run->buf, run->scratch)));
        tuned = true;
    }
    return tuned ? fill(ex, ex->persistent, ex->memory.persistent_bytes, 0) : status_ok();
}

static Status bring_up(Exec *ex)
{
    TRY(layout_settle(ex->graph, ex->be, &ex->layout));
    TRY(memory_place(ex->graph, &ex->layout, ex->options.separate, &ex->memory));
    TRY(take_host_memory(ex));
    TRY(take_block(ex, "weights, gradients and optimiser state", ex->memory.persistent_bytes, &ex->persistent));
    TRY(take_block(ex, "activations", ex->memory.arena_bytes, &ex->arena));
    TRY(fill(ex, ex->persistent, ex->memory.persistent_bytes, 0));
    for (int i = 0; i < ex->graph->node_count; i++)
        TRY(prepare_node(ex, i));
    return tune_nodes(ex);
}

Status exec_create(const Graph *g, Backend *be, const ExecOptions *options, Exec **out)
{
    *out = NULL;
    TRY(graph_status(g));
    Exec *ex = calloc(1, sizeof *ex);
    if (!ex)
        return status_error(STATUS_OOM, "no memory for an executor");
    ex->graph = g;
    ex->be = be;
    if (options)
        ex->options = *options;
    Status status = bring_up(ex);
    if (status.code == STATUS_OK)
        *out = ex;
    else
        exec_destroy(ex);
    return status;
}

/* What was recorded goes before the kernels' states that it refers to. */
static void forget_recordings(Exec *ex)
{
    for (int s = 0; s < SEG_COUNT; s++)
        if (ex->segments[s].recording) {
            ex->be->vtable->recording_free(ex->be, ex->segments[s].recording);
            ex->segments[s].recording = NULL;
        }
}

void exec_destroy(Exec *ex)
{
    if (!ex)
        return;
    forget_recordings(ex);
    for (int i = 0; ex->nodes && i < ex->graph->node_count; i++)
        if (ex->nodes[i].prepared && kernel_of(ex, i)->release)
            kernel_of(ex, i)->release(ex->nodes[i].state);
    backend_free(ex->be, ex->arena);
    backend_free(ex->be, ex->persistent);
    memory_free(&ex->memory);
    layout_free(&ex->layout);
    free(ex->nodes);
    free(ex->chunk);
    free(ex->host);
    free(ex);
}

const MemPlan *exec_memory(const Exec *ex)
{
    return &ex->memory.plan;
}

size_t exec_allocated_peak(const Exec *ex)
{
    return ex->allocated; /* everything is taken at the start and kept to the end */
}

void exec_set_clock(Exec *ex, ExecClock *note, void *context)
{
    ex->clock = note;
    ex->clock_context = context;
}

void exec_set_tags(Exec *ex, bool on)
{
    ex->tags = on && ex->be->vtable->trace_tag;
    forget_recordings(ex);
}

/* ---- reading, writing, starting values ---- */

Status exec_write(Exec *ex, Value v, const void *host)
{
    CHECK(v.id >= 0 && v.id < ex->graph->value_count);
    CHECK(ex->graph->values[v.id].kind != MEM_COPY || ex->layout.tensor[v.id].dtype == ex->graph->values[v.id].tensor.dtype);
    return status_context(backend_upload(ex->be, &ex->layout.tensor[v.id], address_of(ex, v.id), host),
                          "writing '%s'", ex->graph->values[v.id].name);
}

/* A copy that is the f32 weight itself, in the type that the graph gives it. */
static Status read_rounded(Exec *ex, Value v, void *host)
{
    const Tensor *stored = &ex->layout.tensor[v.id];
    const Dtype   type = ex->graph->values[v.id].tensor.dtype;
    const int64_t count = tensor_count(stored);
    float        *wide = malloc((size_t)count * sizeof *wide);
    if (!wide)
        return status_error(STATUS_OOM, "no host memory to read '%s'", ex->graph->values[v.id].name);
    Status s = backend_download(ex->be, stored, address_of(ex, v.id), wide);
    for (int64_t i = 0; i < count && s.code == STATUS_OK; i++)
        ((uint16_t *)host)[i] = type == DTYPE_BF16 ? bf16_from_f32(wide[i]) : f16_from_f32(wide[i]);
    free(wide);
    return s;
}

Status exec_read(Exec *ex, Value v, void *host)
{
    CHECK(v.id >= 0 && v.id < ex->graph->value_count);
    const GraphValue *value = &ex->graph->values[v.id];
    Status s = value->kind == MEM_COPY && ex->layout.tensor[v.id].dtype != value->tensor.dtype
                   ? read_rounded(ex, v, host)
                   : backend_download(ex->be, &ex->layout.tensor[v.id], address_of(ex, v.id), host);
    return status_context(s, "reading '%s'", value->name);
}

static void draw(const GraphValue *v, uint64_t seed, uint64_t stream, float *out)
{
    const Init *init = &v->init;
    const int64_t count = tensor_count(&v->tensor);
    CHECK(init->kind != INIT_LIST || count <= GRAPH_START_COUNT);
#pragma omp parallel for schedule(static) if (count > 65536) /* BERT has 110 million */
    for (int64_t i = 0; i < count; i++)
        switch (init->kind) {
        case INIT_ZERO:    out[i] = 0; break;
        case INIT_ONE:     out[i] = 1; break;
        case INIT_NORMAL:  out[i] = init->scale * (float)rng_normal(seed, stream, (uint64_t)i); break;
        case INIT_UNIFORM: out[i] = init->scale * (2 * rng_uniform(rng_block(seed, stream, (uint64_t)i).word[0]) - 1); break;
        case INIT_LIST:    out[i] = v->start[i]; break;
        }
}

static bool starts_above_zero(const GraphValue *v)
{
    return graph_is_persistent(v) && v->init.kind != INIT_ZERO;
}

/* Where the values of a group begin, in elements from the first of them, and where the last ends; see graph_span_table. */
static Status write_table(Exec *ex, int table)
{
    const Graph *g = ex->graph;
    const size_t entries = (size_t)tensor_count(&g->values[table].tensor);
    int32_t     *host = malloc(entries * sizeof *host);
    size_t       n = 0, start = 0;
    if (!host)
        return status_error(STATUS_OOM, "no host memory for the table '%s'", g->values[table].name);
    for (int i = 0; i < g->value_count; i++) {
        if (g->values[i].group != g->values[table].table_group)
            continue;
        if (n == 0)
            start = ex->memory.offset[i];
        CHECK(n + 1 < entries && ex->memory.home[i] == i);
        host[n++] = (int32_t)((ex->memory.offset[i] - start) / sizeof(float));
        host[n] = host[n - 1] + (int32_t)(layout_padded(ex->layout.bytes[i]) / sizeof(float));
    }
    Status status = exec_write(ex, (Value){ table }, host);
    free(host);
    return status;
}

Status exec_init(Exec *ex, uint64_t seed)
{
    const Graph *g = ex->graph;
    int64_t      most = 1;
    uint64_t     stream = 0;
    for (int i = 0; i < g->value_count; i++)
        if (starts_above_zero(&g->values[i]) && tensor_count(&g->values[i].tensor) > most)
            most = tensor_count(&g->values[i].tensor);
    float *host = malloc((size_t)most * sizeof *host);
    if (!host)
        return status_error(STATUS_OOM, "no host memory to initialise parameters");
    Status status;
    TRY_GOTO(status, fill(ex, ex->persistent, ex->memory.persistent_bytes, 0), out);
    for (int i = 0; i < g->value_count; i++)
        if (starts_above_zero(&g->values[i])) {
            stream += g->values[i].init.kind == INIT_NORMAL || g->values[i].init.kind == INIT_UNIFORM;
            draw(&g->values[i], seed, stream, host);
            TRY_GOTO(status, exec_write(ex, (Value){ i }, host), out);
        }
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].table_group != GROUP_NONE)
            TRY_GOTO(status, write_table(ex, i), out);
    status = exec_refresh_copies(ex);
out:
    free(host);
    return status;
}

/* ---- running ---- */

static bool is_bad(const Tensor *t, const void *host, int64_t i)
{
    switch (t->dtype) {
    case DTYPE_F32:  return !isfinite(((const float *)host)[i]);
    case DTYPE_BF16: return !isfinite(bf16_to_f32(((const uint16_t *)host)[i]));
    default:         return !isfinite(f16_to_f32(((const uint16_t *)host)[i]));
    }
}

/* The first NaN or infinity in a value; -1 where there is none. */
static Status find_bad(Exec *ex, int value, int64_t *element)
{
    const Tensor *t = &ex->layout.tensor[value];
    *element = -1;
    if (!dtype_is_float(t->dtype))
        return status_ok();
    TRY(exec_read(ex, (Value){ value }, ex->host));
    for (int64_t i = 0; i < tensor_count(t) && *element < 0; i++)
        if (is_bad(t, ex->host, i))
            *element = i;
    return status_ok();
}

static Status bad_value(const Exec *ex, int value, int64_t element)
{
    return status_error(STATUS_NUMERIC, "the first value that is not finite is element %" PRId64 " of '%s'", element,
                        ex->graph->values[value].name);
}

/* STATUS_NUMERIC with the first NaN or infinity in the outputs of a node, or where it comes from a weight, in that. */
static Status check_outputs(Exec *ex, int node)
{
    const GraphNode *n = &ex->graph->nodes[node];
    int64_t          element, before;
    for (int k = 0; k < n->op.n_out; k++) {
        TRY(find_bad(ex, n->out[k], &element));
        for (int i = 0; element >= 0 && i < n->op.n_in; i++) {
            if (!graph_is_persistent(&ex->graph->values[n->in[i]]))
                continue;
            TRY(find_bad(ex, n->in[i], &before));
            if (before >= 0)
                return at_node(ex, node, bad_value(ex, n->in[i], before));
        }
        if (element >= 0)
            return at_node(ex, node, bad_value(ex, n->out[k], element));
    }
    return status_ok();
}

/* Poisons what no node after this one reads. */
static Status poison_dead(Exec *ex, int node)
{
    for (int i = 0; i < ex->graph->value_count; i++)
        if (!graph_is_persistent(&ex->graph->values[i]) && ex->memory.home[i] == i && ex->memory.last[i] == node)
            TRY(fill(ex, address_of(ex, i), ex->layout.bytes[i], POISON_BYTE));
    if (ex->nodes[node].scratch)
        TRY(fill(ex, ex->nodes[node].scratch, ex->layout.needs[node].scratch, POISON_BYTE));
    return status_ok();
}

static Status run_node(Exec *ex, int node)
{
    NodeRun *run = &ex->nodes[node];
    if (ex->layout.idle[node])
        return status_ok();
    double start = ex->clock ? clock_seconds() : 0;
    if (ex->tags)
        ex->be->vtable->trace_tag(ex->be, node);
    TRY(at_node(ex, node, kernel_of(ex, node)->run(ex->be, &ex->layout.op[node], run->state, run->buf, run->scratch)));
    if (ex->clock) {
        TRY(backend_sync(ex->be));
        ex->clock(ex->clock_context, node, start, clock_seconds());
    }
    if (ex->options.check_nan)
        TRY(check_outputs(ex, node));
    return ex->options.poison ? poison_dead(ex, node) : status_ok();
}

static Status run_nodes(Exec *ex, Segment segment)
{
    if (ex->options.poison)
        TRY(fill(ex, ex->arena, ex->memory.arena_bytes, POISON_BYTE));
    for (int i = 0; i < ex->graph->node_count; i++)
        if (ex->graph->nodes[i].segment == segment)
            TRY(run_node(ex, i));
    if (ex->tags)
        ex->be->vtable->trace_tag(ex->be, -1);
    return status_ok();
}

typedef struct Recorded { Exec *ex; Segment segment; } Recorded;

static Status run_recorded(void *context)
{
    const Recorded *r = context;
    return run_nodes(r->ex, r->segment);
}

static bool can_replay(const Exec *ex)
{
    return ex->be->vtable->record && !ex->options.eager && !ex->options.poison && !ex->options.check_nan && !ex->clock;
}

/* Makes the recording of a segment; one that cannot be recorded runs node by node for good. */
static Status record_segment(Exec *ex, Segment segment)
{
    SegmentRun *run = &ex->segments[segment];
    Recorded    context = { ex, segment };
    Status      status = ex->be->vtable->record(ex->be, run_recorded, &context, &run->recording);
    if (status.code != STATUS_UNSUPPORTED)
        return status;
    run->refused = true;
    log_warn("segment %s is not replayed, every run enqueues each op: %s", segment_names[segment], status.text);
    return status_ok();
}

Status exec_run(Exec *ex, Segment segment)
{
    SegmentRun *run = &ex->segments[segment];
    if (can_replay(ex) && run->warm && !run->recording && !run->refused)
        TRY(record_segment(ex, segment));
    if (can_replay(ex) && run->recording)
        return status_context(ex->be->vtable->replay(ex->be, run->recording), "%s", segment_names[segment]);
    run->warm = true;
    return run_nodes(ex, segment);
}

Status exec_run_checked(Exec *ex, Segment segment)
{
    const bool before = ex->options.check_nan;
    ex->options.check_nan = true;
    Status s = take_check_memory(ex);
    if (s.code == STATUS_OK)
        s = exec_run(ex, segment);
    ex->options.check_nan = before;
    return s;
}

const OpDesc *exec_op(const Exec *ex, int node)
{
    return ex->layout.idle[node] ? NULL : &ex->layout.op[node];
}

Status exec_run_node(Exec *ex, int node)
{
    return run_node(ex, node);
}

Status exec_refresh_copies(Exec *ex)
{
    for (int i = 0; i < ex->graph->node_count; i++)
        if (ex->graph->nodes[i].op.kind == OP_repack && ex->graph->values[ex->graph->nodes[i].out[0]].kind == MEM_COPY)
            TRY(run_node(ex, i));
    return status_ok();
}
