/* dnn_plan.c - a graph with an engine for it: workspace, tuning by time, execution. See dnn.h. */
#include "dnn_engines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TUNE_ROUNDS = 5, TUNE_MOST_CALLS = 16 };
static const double TUNE_LEAST_US = 100.0; /* of one sample: shorter calls are timed several at a time */

/* A tensor that lies in memory. */
typedef struct Binding { int64_t uid; DnnPlace place; bool by_value; union { float f32; int64_t i64; } value; } Binding;

struct DnnPlan {
    CudaBackend *be;
    DnnSet      *set;                        /* the backend's */
    char         op_text[DNN_NAME_BYTES];
    size_t       scratch;                    /* the caller's part; the workspace is behind it */
    Binding      binding[DNN_MOST_TENSORS];
    int64_t      uid[DNN_MOST_TENSORS];
    void        *address[DNN_MOST_TENSORS];  /* what `pack` was made with */
    void        *workspace;
    DnnDesc      pack;                       /* NULL until the first run */
    int          bindings;
};

static size_t round_up(size_t bytes) { return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN; }

/* The most that any candidate asks for. */
static size_t workspace_of(const DnnSet *s)
{
    size_t most = 0;
    for (int i = 0; i < s->count; i++)
        most = s->candidate[i].choice.bytes > most ? s->candidate[i].choice.bytes : most;
    return most;
}

/* For the reader of a plan's numbers. */
static void note_uncounted(CudaBackend *be)
{
    if (!be->note[0])
        snprintf(be->note, sizeof be->note, "workspaces of what cuDNN compiles at run time are not counted: no NVIDIA driver here");
}

Status dnn_query(CudaBackend *be, DnnGraph *g, size_t *scratch, bool *counted)
{
    DnnSet *s;
    *scratch = g->scratch;
    TRY(g->status);
    if (be->dnn)
        TRY(dnn_set_find(be, g, &s));
    if (!be->dnn || s->needs_driver) {
        note_uncounted(be); /* without cuDNN there is a note already */
        *counted = false;
        return status_ok();
    }
    const size_t bytes = workspace_of(s);
    if (bytes > 0)
        *scratch = round_up(g->scratch) + bytes;
    return status_ok();
}

/* What the plan binds: every tensor in memory that an operation uses. */
static void bind(DnnPlan *p, const DnnGraph *g)
{
    for (int i = 0; i < g->tensors; i++) {
        const DnnTensorRecord *t = &g->tensor[i];
        if (!t->used || (t->place.kind == DNN_VIRTUAL && !t->by_value))
            continue;
        Binding *b = &p->binding[p->bindings];
        *b = (Binding){ .uid = i + 1, .place = t->place, .by_value = t->by_value };
        memcpy(&b->value, &t->value, sizeof b->value);
        p->uid[p->bindings++] = b->uid;
    }
}

Status dnn_prepare(CudaBackend *be, DnnGraph *g, DnnPlan **out)
{
    DnnSet *s;
    Status  status;
    *out = NULL;
    DnnPlan *p = calloc(1, sizeof *p);
    if (!p) {
        dnn_graph_destroy(g);
        return status_error(STATUS_OOM, "no memory for a plan of cuDNN");
    }
    p->be = be;
    p->scratch = g->scratch;
    snprintf(p->op_text, sizeof p->op_text, "%s", g->name);
    TRY_GOTO(status, g->status, out);
    if (!be->dnn)
        TRY_GOTO(status, status_error(STATUS_UNSUPPORTED, "%s: there is no cuDNN here", g->name), out);
    TRY_GOTO(status, dnn_set_find(be, g, &s), out);
    TRY_GOTO(status, dnn_set_finalise(be, s), out);
    p->set = s;
    bind(p, g);
    if (s->tuned || !be->tune)
        status = choice_cache_use(be->choices, p->op_text, &s->candidate[0].choice);
out:
    dnn_graph_destroy(g);
    if (status.code == STATUS_OK)
        *out = p;
    else
        dnn_plan_destroy(p);
    return status;
}

void dnn_plan_destroy(DnnPlan *p)
{
    if (!p)
        return;
    dnn_desc_destroy(p->be, &p->pack);
    free(p);
}

/* ---- running */

static void *address_of(Binding *b, void *const *buf, void *scratch)
{
    if (b->by_value)
        return &b->value;
    return (char *)(b->place.kind == DNN_AT_SLOT ? buf[b->place.slot] : scratch) + b->place.offset;
}

static Status pack_create(DnnPlan *p)
{
    const CudaBackend *be = p->be;
    dnn_desc_destroy(be, &p->pack);
    TRY(dnn_desc_create(be, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack));
    TRY(dnn_desc_set(be, p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, p->bindings, p->uid));
    TRY(dnn_desc_set(be, p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, p->bindings, p->address));
    TRY(dnn_desc_set(be, p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &p->workspace));
    return dnn_desc_finish(be, p->pack, "variant pack");
}

/* The variant pack of these addresses: made at the first run and whenever they change, which the executor's do not. */
static Status bind_addresses(DnnPlan *p, void *const *buf, void *scratch)
{
    void *workspace = workspace_of(p->set) ? (char *)scratch + round_up(p->scratch) : NULL;
    bool  same = p->pack && workspace == p->workspace;
    for (int i = 0; i < p->bindings; i++) {
        void *address = address_of(&p->binding[i], buf, scratch);
        same = same && address == p->address[i];
        p->address[i] = address;
    }
    p->workspace = workspace;
    if (same)
        return status_ok();
    Status status = pack_create(p);
    if (status.code != STATUS_OK)
        dnn_desc_destroy(p->be, &p->pack);
    return status_context(status, "%s", p->op_text);
}

static Status execute(DnnPlan *p, const DnnCandidate *c)
{
    cudnnStatus_t s = p->be->dnn->cudnnBackendExecute(p->be->dnn_handle, c->plan, p->pack);
    return s == CUDNN_STATUS_SUCCESS ? status_ok()
                                     : status_context(cuda_dnn_status(p->be, s, "cudnnBackendExecute"), "%s, %s", p->op_text, c->choice.name);
}

Status dnn_run(CudaBackend *be, DnnPlan *p, void *const *buf, void *scratch)
{
    TRY(cuda_need_device(be));
    TRY(bind_addresses(p, buf, scratch));
    return execute(p, &p->set->candidate[0]);
}

/* ---- tuning */

/* Microseconds a call over `calls` in a row. */
static Status time_calls(DnnPlan *p, const DnnCandidate *c, int calls, cudaEvent_t start, cudaEvent_t end, double *us)
{
    float ms = 0.0f;
    CUDA_TRY(cudaEventRecord(start, p->be->stream));
    for (int i = 0; i < calls; i++)
        TRY(execute(p, c));
    CUDA_TRY(cudaEventRecord(end, p->be->stream));
    CUDA_TRY(cudaEventSynchronize(end));
    CUDA_TRY(cudaEventElapsedTime(&ms, start, end));
    *us = (double)ms * 1e3 / calls;
    return status_ok();
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a few samples of each candidate, taken in turns so that a change of clocks meets all of them. One that cannot
 * be executed is left out; its error is in *last. */
static Status time_candidates(DnnPlan *p, cudaEvent_t start, cudaEvent_t end, Status *last)
{
    DnnSet *s = p->set;
    double  sample[DNN_MOST_CANDIDATES][TUNE_ROUNDS], us;
    int     calls[DNN_MOST_CANDIDATES];
    for (int i = 0; i < s->count; i++) {
        Status status = time_calls(p, &s->candidate[i], 1, start, end, &us); /* the first loads its code */
        if (status.code == STATUS_OK)
            status = time_calls(p, &s->candidate[i], 1, start, end, &us);
        if (status.code == STATUS_OOM)
            return status;
        calls[i] = 0;
        if (status.code == STATUS_OK)
            calls[i] = us * TUNE_MOST_CALLS < TUNE_LEAST_US ? TUNE_MOST_CALLS : 1 + (int)(TUNE_LEAST_US / us);
        else
            *last = status;
    }
    for (int round = 0; round < TUNE_ROUNDS; round++)
        for (int i = 0; i < s->count; i++)
            if (calls[i] > 0)
                TRY(time_calls(p, &s->candidate[i], calls[i], start, end, &sample[i][round]));
    for (int i = 0; i < s->count; i++) {
        if (calls[i] > 0)
            qsort(sample[i], TUNE_ROUNDS, sizeof sample[i][0], by_size);
        s->candidate[i].choice.us = calls[i] > 0 ? sample[i][TUNE_ROUNDS / 2] : (double)INFINITY;
    }
    return status_ok();
}

static int fastest(const DnnSet *s)
{
    int best = 0;
    for (int i = 1; i < s->count; i++)
        if (s->candidate[i].choice.us < s->candidate[best].choice.us)
            best = i;
    return best;
}

Status dnn_tune(CudaBackend *be, DnnPlan *p, void *const *buf, void *scratch)
{
    DnnSet     *s = p->set;
    cudaEvent_t start = NULL, end = NULL;
    Status      status, last = status_ok();
    TRY(cuda_need_device(be));
    if (!be->tune)
        return status_ok();
    if (s->tuned)
        return choice_cache_use(be->choices, p->op_text, &s->candidate[0].choice);
    TRY(bind_addresses(p, buf, scratch));
    CUDA_TRY_GOTO(status, cudaEventCreate(&start), out);
    CUDA_TRY_GOTO(status, cudaEventCreate(&end), out);
    TRY_GOTO(status, time_candidates(p, start, end, &last), out);
    const int best = fastest(s);
    if (isinf(s->candidate[best].choice.us))
        TRY_GOTO(status, last, out);
    dnn_set_choose(be, s, best);
    TRY_GOTO(status, choice_cache_keep(be->choices, s->key, &s->candidate[0].choice), out);
    status = choice_cache_use(be->choices, p->op_text, &s->candidate[0].choice);
out:
    if (start)
        (void)cuda_status(cudaEventDestroy(start), "cudaEventDestroy");
    if (end)
        (void)cuda_status(cudaEventDestroy(end), "cudaEventDestroy");
    return status;
}

void dnn_plan_facts(const DnnPlan *p, DnnFacts *out)
{
    const DnnCandidate *c = &p->set->candidate[0];
    *out = (DnnFacts){ .engine = c->engine, .workspace = c->choice.bytes, .tensor_cores = c->tensor_cores, .rounds_inputs = c->rounds_inputs,
                       .runtime_compiled = c->runtime_compiled, .fallback = c->fallback, .candidates = p->set->count };
}
