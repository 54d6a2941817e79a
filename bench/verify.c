/* verify.c - nothing is timed that this build has not compared with the float64 reference.
 *
 * A small net of the same kind makes one training step on the device, node by node. The reference runs each node too, on
 * the device's own inputs, so the error of one op is not amplified by the fifty after it and the bounds can be tight.
 * Masks and pooling indices are the backend's own and stay so; the gradients that use them are compared. */
#include "cell.h"
#include "interrupt.h"
#include "random_batch.h"
#include "record.h"

#include "../tests/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* On |y - y_ref| / |y_ref| over one output: in fp32 rounding grows with the square root of the longest sum, about 4,600
 * terms; in bf16 a result next to a rounding boundary may fall to either side. Seen: 1.4e-6 and 9e-5. In tf32 each factor of a product is
 * rounded to 11 bits, so a term is off by up to 2^-10 and the sum by 3e-4 of its length, more where terms cancel. */
static const double bounds[AMP_COUNT] = { [AMP_OFF] = 2e-5, [AMP_BF16] = 2e-3, [AMP_FP16] = 3e-4, [AMP_TF32] = 2e-3 };

/* Attention in 16 bits also rounds what it multiplies in between, the probabilities and the gradients of the scores, as every kernel does
 * that works with tiles of that type: half a unit in each term of its sums. Seen: bf16 2.5e-3, fp16 3.7e-4. In tf32 it takes the
 * exponential of sums of rounded factors. */
static const double attention_bounds[AMP_COUNT] = { [AMP_OFF] = 2e-5, [AMP_BF16] = 8e-3, [AMP_FP16] = 1e-3, [AMP_TF32] = 8e-3 };

enum { VERIFY_BATCH = 4 };
static const float VERIFY_LOSS_SCALE = 1024;

typedef struct Verify {
    Net      net;
    Session  device, reference;
    void    *host[2];         /* one value each: the device's, the reference's */
    double   worst;
    double   spread;          /* square length that the next output is also measured against; 0 for most */
    double   bound;           /* of the node at hand */
    int      compared;
} Verify;

static int64_t at_most(int64_t value, int64_t most) { return value < most ? value : most; }

/* The same kind of net, small: every sort of node is there. */
NetConfig verify_reduced(const NetConfig *like)
{
    NetConfig c = *like;
    c.batch = VERIFY_BATCH;
    c.zero_init_gamma = false; /* so that every gradient is alive */
    c.train = c.eval = true;
    c.classes = at_most(like->classes, 10);
    if (net_is_text(like)) {
        c.layers = at_most(like->layers, 2);
        c.heads = at_most(like->heads, 4);
        c.hidden = c.heads * at_most(like->hidden / like->heads, 16);
        c.vocab = at_most(like->vocab, 96);
        c.size = at_most(like->size, 24);
        c.positions = at_most(like->positions, 32);
        c.rows = 0;
        return c;
    }
    c.width = like->width < 0.25 ? like->width : 0.25;
    c.depth = at_most(like->depth, 2);
    c.size = like->stem == STEM_SMALL ? 16 : net_loss(like) == LOSS_CLASSES ? 64 : 32;
    return c;
}

bool verify_same_kind(const NetConfig *a, const NetConfig *b)
{
    NetConfig x = verify_reduced(a), y = verify_reduced(b);
    char      names[2][CELL_NAME_BYTES];
    cell_name(&(CellConfig){ x, 1 }, names[0], sizeof names[0]);
    cell_name(&(CellConfig){ y, 1 }, names[1], sizeof names[1]);
    return !strcmp(names[0], names[1]) && x.accumulate == y.accumulate && x.classes == y.classes && x.vocab == y.vocab;
}

static bool is_movable(const Tensor *t) { return dtype_is_float(t->dtype) || t->dtype == DTYPE_I32; }

/* The reference gets what the device has. */
static Status hand_over(Verify *v, int value)
{
    const GraphValue *g = &v->net.graph->values[value];
    if (!is_movable(&g->tensor) || g->span_group || g->table_group) /* a table is of the backend's own layouts */
        return status_ok();
    TRY(exec_read(v->device.exec, (Value){ value }, v->host[0]));
    return exec_write(v->reference.exec, (Value){ value }, v->host[0]);
}

/* A span stands for all values of its group. */
static Status for_each_member(Verify *v, int value, Status (*action)(Verify *, int))
{
    const Graph *g = v->net.graph;
    if (!g->values[value].span_group)
        return action(v, value);
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].group == g->values[value].span_group)
            TRY(action(v, i));
    return status_ok();
}

static double element(const void *host, Dtype dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:  return (double)((const float *)host)[i];
    case DTYPE_BF16: return (double)bf16_to_f32(((const uint16_t *)host)[i]);
    default:         return (double)f16_to_f32(((const uint16_t *)host)[i]);
    }
}

/* Compares one output; NaN never passes. */
static Status compare(Verify *v, int value)
{
    const GraphValue *g = &v->net.graph->values[value];
    if (!dtype_is_float(g->tensor.dtype))
        return status_ok();
    TRY(exec_read(v->device.exec, (Value){ value }, v->host[0]));
    TRY(exec_read(v->reference.exec, (Value){ value }, v->host[1]));
    double difference = 0, length = v->spread;
    for (int64_t i = 0; i < tensor_count(&g->tensor); i++) {
        double y = element(v->host[0], g->tensor.dtype, i), ref = element(v->host[1], g->tensor.dtype, i);
        difference += (y - ref) * (y - ref);
        length += ref * ref;
    }
    double error = length > 0 ? sqrt(difference / length) : sqrt(difference), bound = v->bound;
    if (!(error <= bound))
        return status_error(STATUS_NUMERIC, "'%s' is off by %.3g of its length from the float64 reference, allowed is %.3g", g->name, error, bound);
    v->compared++;
    v->worst = error > v->worst ? error : v->worst;
    return status_ok();
}

static double bound_of(const Verify *v, const GraphNode *n)
{
    bool attention = n->op.kind == OP_attention || n->op.kind == OP_attention_grad;
    const Amp amp = v->net.config.amp;
    return attention ? attention_bounds[amp] : bounds[amp];
}

/* The mean of a row is a number close to 0 among many that are not: an error in it counts against their deviation. */
static Status take_spread(Verify *v, const GraphNode *n, int slot)
{
    v->spread = 0;
    if (n->op.kind != OP_layernorm || slot != 1)
        return status_ok();
    const float *invstd = v->host[1];
    TRY(exec_read(v->reference.exec, (Value){ n->out[2] }, v->host[1]));
    for (int64_t i = 0; i < tensor_count(&n->op.out[2]); i++)
        v->spread += 1 / ((double)invstd[i] * (double)invstd[i]);
    return status_ok();
}

static Status verify_node(Verify *v, int node)
{
    const GraphNode *n = &v->net.graph->nodes[node];
    v->bound = bound_of(v, n);
    v->spread = 0;
    TRY(interrupt_check());
    for (int i = 0; i < n->op.n_in; i++)
        TRY(for_each_member(v, n->in[i], hand_over));
    for (int i = 0; i < n->op.n_out; i++)
        if (op_out_is_inout(&n->op, i))
            TRY(for_each_member(v, n->out[i], hand_over));
    TRY(exec_run_node(v->device.exec, node));
    TRY(exec_run_node(v->reference.exec, node));
    for (int i = 0; i < n->op.n_in; i++)
        if (op_in_is_inout(&n->op, i))
            TRY(compare(v, n->in[i]));
    for (int i = 0; i < n->op.n_out; i++) {
        TRY(take_spread(v, n, i));
        TRY(for_each_member(v, n->out[i], compare));
    }
    return status_ok();
}

/* A step that shows, after which the net still has numbers that fit: AdamW moves every weight by its whole rate. */
static float verify_rate(const NetConfig *c)
{
    return c->optim.kind == OPTIM_ADAMW ? 1e-3f : 0.1f;
}

/* What the host writes before a step. */
static Status write_step(Session *s, const MicroBatch *batch)
{
    const Net *n = s->net;
    float scale = (float)(1.0 / (double)batch->counted);
    float hyper[8] = { verify_rate(&n->config), 1, n->config.amp == AMP_FP16 ? 2000 : 0, 2, 0.5f, 1, 65536, 0 };
    float control[8] = { 1 / VERIFY_LOSS_SCALE, 1, 0, VERIFY_LOSS_SCALE, 0, 0, 0, 0 };
    TRY(exec_write(s->exec, n->scale, &scale));
    TRY(exec_write(s->exec, n->hyper, hyper));
    if (n->config.amp == AMP_FP16)
        TRY(exec_write(s->exec, n->control, control));
    return step_write(s, batch);
}

/* The same on both. */
static Status write_inputs(Verify *v, uint64_t seed)
{
    MicroBatch batch;
    TRY(random_batch_create(&v->net.config, seed, &batch));
    Status status = write_step(&v->device, &batch);
    if (status.code == STATUS_OK)
        status = write_step(&v->reference, &batch);
    random_batch_free(&batch);
    return status;
}

static Status set_up(Verify *v, const NetConfig *config, Backend *device, Backend *reference, uint64_t seed)
{
    const ExecOptions separate = { .separate = true }; /* every value can be read after its node */
    TRY(net_build(config, &v->net));
    v->device.net = v->reference.net = &v->net;
    TRY(exec_create(v->net.graph, device, &separate, &v->device.exec));
    TRY(exec_create(v->net.graph, reference, &separate, &v->reference.exec));
    TRY(exec_init(v->device.exec, seed));
    TRY(exec_init(v->reference.exec, seed));
    size_t largest = 1;
    for (int i = 0; i < v->net.graph->value_count; i++)
        if (tensor_bytes(&v->net.graph->values[i].tensor) > largest)
            largest = tensor_bytes(&v->net.graph->values[i].tensor);
    v->host[0] = malloc(largest);
    v->host[1] = malloc(largest);
    if (!v->host[0] || !v->host[1])
        return status_error(STATUS_OOM, "out of memory for the verification");
    return write_inputs(v, seed);
}

static Status verify_all(Verify *v)
{
    for (int segment = 0; segment < SEG_COUNT; segment++)
        for (int i = 0; i < v->net.graph->node_count; i++)
            if ((int)v->net.graph->nodes[i].segment == segment)
                TRY(status_context(verify_node(v, i), "%s amp %s: %s %s", v->net.config.net, amp_names[v->net.config.amp],
                                   v->net.graph->nodes[i].scope, op_names[v->net.graph->nodes[i].op.kind]));
    return status_ok();
}

Status verify_net(const NetConfig *like, const MeasureOptions *options, json_t **result)
{
    const BackendOptions opened = backend_options_for(options, like->amp);
    NetConfig config = verify_reduced(like);
    BackendInfo info;
    Backend *device = NULL, *reference = NULL;
    Verify v;
    Status status;
    memset(&v, 0, sizeof v);
    TRY_GOTO(status, backend_open(options->device, &opened, &device), out);
    backend_describe(device, &info);
    if (like->amp == AMP_TF32 && !info.fast_tf32)
        TRY_GOTO(status, status_error(STATUS_UNSUPPORTED, "%s", info.tf32_reason), out);
    TRY_GOTO(status, ref_backend.open(&options->backend, &reference), out);
    TRY_GOTO(status, set_up(&v, &config, device, reference, options->seed), out);
    TRY_GOTO(status, verify_all(&v), out);
    *result = json_pack("{s:s,s:o,s:o,s:i}", "against", "float64 reference, every op of a step of a small net of this kind", "max_error",
                        record_real(v.worst), "bound", record_real(bounds[config.amp]), "outputs", v.compared);
    if (!*result)
        status = status_error(STATUS_OOM, "out of memory for the verification");
out:
    exec_destroy(v.device.exec);
    exec_destroy(v.reference.exec);
    net_destroy(&v.net);
    free(v.host[0]);
    free(v.host[1]);
    backend_close(device);
    backend_close(reference);
    return status;
}
