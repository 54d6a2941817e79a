/* workload.c - see workload.h. */
#include "workload.h"

#include "../tiny_text.h"
#include "fake.h"
#include "fake_cudnn.h"
#include "fake_cublaslt.h"

#include <stdlib.h>

void workload_set_up(void)
{
    fake_reset();
    fake_cudnn_reset();
    fake_cublaslt_reset();
    fake_set_library(FAKE_CUDNN, fake_cudnn_api(), NULL);
    fake_set_library(FAKE_CUBLASLT, fake_cublaslt_api(), NULL);
}

static void build(const Workload *w, Net *net)
{
    NetConfig config = tiny_bert(2);
    if (w->kind == WORKLOAD_PLAIN) {
        PlainConfig plain = plain_config(2, true);
        plain.type = w->type;
        plain.optim.loss_scale = w->type == DTYPE_F16;
        plain_net_build_as(&plain, net);
        return;
    }
    config.amp = w->type == DTYPE_F16 ? AMP_FP16 : w->type == DTYPE_BF16 ? AMP_BF16 : AMP_OFF;
    config.accumulate = true;
    config.layers = 1;
    expect_ok(net_build(&config, net));
}

/* Two micro-batches. */
typedef struct Feed { TinyData images; TinyText text[2]; MicroBatch batch[2]; } Feed;

static Feed feed_create(const Workload *w, const NetConfig *c)
{
    Feed f = { .images = { NULL, NULL } };
    const TinySequence sequences[2][2] = { { { 1, 9, 2 }, { 2, 14, 3 } }, { { 3, 20, 1 }, { 4, 5, 2 } } };
    for (int k = 0; k < 2 && w->kind == WORKLOAD_BERT; k++) {
        f.text[k] = tiny_text(c, sequences[k], 2, c->size);
        f.batch[k] = f.text[k].batch;
    }
    if (w->kind == WORKLOAD_BERT)
        return f;
    f.images = tiny_data(c, 1);
    for (int k = 0; k < 2; k++)
        f.batch[k] = tiny_batch(&f.images, c, k * c->batch);
    return f;
}

static void feed_destroy(const Workload *w, Feed *f)
{
    for (int k = 0; k < 2 && w->kind == WORKLOAD_BERT; k++)
        tiny_text_free(&f->text[k]);
    if (w->kind != WORKLOAD_BERT)
        tiny_data_free(&f->images);
}

static Status train(Session *s, const Feed *f, int steps, WorkloadResult *out)
{
    StepResult result = { 0 };
    s->rules = session_rules();
    s->rules.max_norm = 1;
    for (int i = 0; i < steps; i++) {
        TRY(step_begin(s, f->batch[0].counted + f->batch[1].counted));
        for (int k = 0; k < 2; k++)
            TRY(step_micro(s, &f->batch[k]));
        TRY(step_update(s, 0.01f));
        TRY(step_result(s, &result));
    }
    out->loss = result.loss;
    return status_ok();
}

/* FNV-1a over the bytes of what training has changed. */
static Status hash_values(Session *s, WorkloadResult *out)
{
    const Graph *g = s->net->graph;
    uint64_t     hash = 14695981039346656037u;
    Status       status = status_ok();
    for (int v = 0; v < g->value_count && status.code == STATUS_OK; v++) {
        const GraphValue *value = &g->values[v];
        if ((value->kind != MEM_WEIGHT && value->kind != MEM_OPTIM) || value->span_group > 0)
            continue;
        uint8_t *bytes = malloc(tensor_bytes(&value->tensor));
        status = exec_read(s->exec, (Value){ v }, bytes);
        for (size_t i = 0; i < tensor_bytes(&value->tensor) && status.code == STATUS_OK; i++)
            hash = (hash ^ bytes[i]) * 1099511628211u;
        free(bytes);
    }
    out->hash = hash;
    return status;
}

Status workload_run(const Workload *w, WorkloadResult *out)
{
    Net      net;
    Backend *be = NULL;
    Session  s = { .net = &net };
    Status   status;
    *out = (WorkloadResult){ 0 };
    build(w, &net);
    Feed feed = feed_create(w, &net.config);
    TRY_GOTO(status, backend_open("cuda", NULL, &be), out);
    TRY_GOTO(status, exec_create(net.graph, be, &w->options, &s.exec), out);
    if (w->created)
        w->created();
    TRY_GOTO(status, exec_init(s.exec, 1), out);
    TRY_GOTO(status, train(&s, &feed, w->steps, out), out);
    status = hash_values(&s, out);
out:
    exec_destroy(s.exec);
    backend_close(be);
    feed_destroy(w, &feed);
    net_destroy(&net);
    return status;
}
