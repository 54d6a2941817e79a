/* grad.c - reverse-mode differentiation: MICRO's nodes are visited from the last to the first; the rule of each op turns
 * the gradient of its output 0 into more nodes. Where a value was used more than once its gradients are added up. */
#include "grad.h"

#include <stdlib.h>
#include <string.h>

typedef struct Grad {
    Graph *g;
    bool   accumulate;
    Value *of;     /* [forward values] gradient found so far */
    bool  *needed; /* [forward values] depends on a parameter */
} Grad;

typedef void Rule(Grad *gr, const GraphNode *n, Value dy);

Value grad_of_param(const Graph *g, Value param)
{
    const GraphValue *p = &g->values[param.id];
    return p->is_param ? (Value){ p->layout_of } : NO_VALUE; /* a parameter has the layout of its gradient */
}

static int64_t dim(const GraphNode *n, int slot, int i)
{
    return n->op.in[slot].dim[i];
}

static Value input(const GraphNode *n, int slot)
{
    return (Value){ n->in[slot] };
}

static Value output(const GraphNode *n, int slot)
{
    return (Value){ n->out[slot] };
}

/* Op `kind` with the attributes of the forward op and the height and width of its input. */
static OpDesc derived(const GraphNode *n, OpKind kind)
{
    OpDesc op = { .kind = kind, .attr = n->op.attr };
    op.attr.in_h = dim(n, 0, 1);
    op.attr.in_w = dim(n, 0, 2);
    return op;
}

/* Gradient d arrives at a value. */
static void flow(Grad *gr, Value v, Value d)
{
    if (!gr->needed[v.id])
        return;
    Value sum = gr->of[v.id];
    gr->of[v.id] = sum.id < 0 ? d : graph_emit(gr->g, (OpDesc){ .kind = OP_add }, 2, (Value[]){ sum, d });
}

/* Whether a gradient node adds to what is there: an earlier micro-batch's gradient, or that of another use of the same
 * parameter (tied weights). `params` are the parameters that the node makes gradients of. */
static bool adds(Grad *gr, int count, const Value *params)
{
    int made = 0;
    for (int i = 0; i < count; i++) {
        Value d = grad_of_param(gr->g, params[i]);
        made += d.id >= 0 && gr->g->values[d.id].producer >= 0;
    }
    if (made != 0 && made != count)
        graph_fail(gr->g, "of the parameters from '%s' on some are used a second time and some are not, which is not supported",
                   gr->g->values[params[0].id].name);
    return gr->accumulate || made;
}

/* dw = sum over positions of x dy, dx = w^T dy; both conv2d and linear. The weights' gradient comes first: after it x is
 * free. */
static void grad_product(Grad *gr, const GraphNode *n, Value dy, OpKind wgrad_kind, OpKind dgrad_kind)
{
    const Value x = input(n, 0), params[2] = { input(n, 1), input(n, 2) };
    const int   count = n->op.n_in - 1; /* weights, and perhaps a bias */

    OpDesc wgrad = derived(n, wgrad_kind);
    wgrad.attr.accumulate = adds(gr, count, params);
    graph_append_to(gr->g, wgrad, 2, (Value[]){ x, dy }, count,
                    (Value[]){ grad_of_param(gr->g, params[0]), count == 2 ? grad_of_param(gr->g, params[1]) : NO_VALUE });
    if (gr->needed[x.id])
        flow(gr, x, graph_emit(gr->g, derived(n, dgrad_kind), 2, (Value[]){ dy, params[0] }));
}

static void grad_conv2d(Grad *gr, const GraphNode *n, Value dy)
{
    if (n->op.attr.relu)
        dy = graph_emit(gr->g, (OpDesc){ .kind = OP_relu_grad }, 2, (Value[]){ dy, output(n, 0) });
    grad_product(gr, n, dy, OP_conv2d_wgrad, OP_conv2d_dgrad);
}

/* Up-convolution, y = conv2d_dgrad(x, w): its gradients are those of the convolution with x and y in each other's place. */
static void grad_conv2d_dgrad(Grad *gr, const GraphNode *n, Value dy)
{
    Value  x = input(n, 0), w = input(n, 1);
    OpDesc wgrad = derived(n, OP_conv2d_wgrad);
    wgrad.attr.accumulate = adds(gr, 1, &w);
    graph_append_to(gr->g, wgrad, 2, (Value[]){ dy, x }, 1, (Value[]){ grad_of_param(gr->g, w) });
    if (gr->needed[x.id])
        flow(gr, x, graph_emit(gr->g, derived(n, OP_conv2d), 2, (Value[]){ dy, w }));
}

static void grad_linear(Grad *gr, const GraphNode *n, Value dy)
{
    grad_product(gr, n, dy, OP_linear_wgrad, OP_linear_dgrad);
}

static void grad_batchnorm(Grad *gr, const GraphNode *n, Value dy)
{
    Value x = input(n, 0), gamma = input(n, 1), beta = input(n, 2);
    Value mean = output(n, 1), invstd = output(n, 2);
    Value mask = n->op.attr.relu ? output(n, 3) : NO_VALUE;

    OpDesc op = derived(n, OP_batchnorm_grad);
    op.attr.accumulate = adds(gr, 2, (Value[]){ gamma, beta });
    int node = graph_append_to(gr->g, op, 5 + op.attr.relu, (Value[]){ x, dy, gamma, mean, invstd, mask }, 3,
                               (Value[]){ NO_VALUE, grad_of_param(gr->g, gamma), grad_of_param(gr->g, beta) });
    flow(gr, x, graph_output(gr->g, node, 0));
    if (op.attr.residual)
        flow(gr, input(n, 5), graph_output(gr->g, node, 3));
}

static void grad_maxpool(Grad *gr, const GraphNode *n, Value dy)
{
    flow(gr, input(n, 0), graph_emit(gr->g, derived(n, OP_maxpool_grad), 2, (Value[]){ dy, output(n, 1) }));
}

static void grad_avgpool(Grad *gr, const GraphNode *n, Value dy)
{
    flow(gr, input(n, 0), graph_emit(gr->g, derived(n, OP_avgpool_grad), 1, &dy));
}

static void grad_concat(Grad *gr, const GraphNode *n, Value dy)
{
    OpDesc op = { .kind = OP_concat_grad, .attr = { .channels = dim(n, 0, 3) } };
    int    node = graph_append(gr->g, op, 1, &dy);
    flow(gr, input(n, 0), graph_output(gr->g, node, 0));
    flow(gr, input(n, 1), graph_output(gr->g, node, 1));
}

static void grad_add(Grad *gr, const GraphNode *n, Value dy)
{
    flow(gr, input(n, 0), dy);
    flow(gr, input(n, 1), dy);
}

static void grad_cast(Grad *gr, const GraphNode *n, Value dy)
{
    OpDesc back = { .kind = OP_cast };
    back.out[0].dtype = n->op.in[0].dtype;
    flow(gr, input(n, 0), graph_emit(gr->g, back, 1, &dy));
}

/* Each table's rows; the ids are given. */
static void grad_embedding(Grad *gr, const GraphNode *n, Value dy)
{
    for (int i = 0; i < n->op.n_in; i += 2) {
        Value  table = input(n, i);
        OpDesc op = { .kind = OP_embedding_grad, .attr = { .rows = dim(n, i, 0) } };
        op.attr.accumulate = adds(gr, 1, &table);
        graph_append_to(gr->g, op, 2, (Value[]){ dy, input(n, i + 1) }, 1, (Value[]){ grad_of_param(gr->g, table) });
    }
}

static void grad_gather_rows(Grad *gr, const GraphNode *n, Value dy)
{
    OpDesc op = { .kind = OP_gather_rows_grad, .attr = { .rows = dim(n, 0, 0) } };
    flow(gr, input(n, 0), graph_emit(gr->g, op, 2, (Value[]){ dy, input(n, 1) }));
}

/* With dropout the gradient splits in two, else one serves x and the residual. */
static void grad_layernorm(Grad *gr, const GraphNode *n, Value dy)
{
    const bool residual = n->op.attr.residual, drops = n->op.attr.dropout > 0;
    Value gamma = input(n, 1), beta = input(n, 2), sum = residual ? output(n, 3) : input(n, 0);

    OpDesc op = { .kind = OP_layernorm_grad, .attr = n->op.attr };
    op.attr.accumulate = adds(gr, 2, (Value[]){ gamma, beta });
    int node = graph_append_to(gr->g, op, 5 + drops,
                               (Value[]){ sum, dy, gamma, output(n, 1), output(n, 2), drops ? input(n, n->op.n_in - 1) : NO_VALUE },
                               3, (Value[]){ NO_VALUE, grad_of_param(gr->g, gamma), grad_of_param(gr->g, beta) });
    flow(gr, input(n, 0), graph_output(gr->g, node, 0));
    if (residual)
        flow(gr, input(n, 3), graph_output(gr->g, node, drops ? 3 : 0));
}

static void grad_gelu(Grad *gr, const GraphNode *n, Value dy)
{
    flow(gr, input(n, 0), graph_emit(gr->g, (OpDesc){ .kind = OP_gelu_grad }, 2, (Value[]){ dy, input(n, 0) }));
}

static void grad_tanh(Grad *gr, const GraphNode *n, Value dy)
{
    flow(gr, input(n, 0), graph_emit(gr->g, (OpDesc){ .kind = OP_tanh_grad }, 2, (Value[]){ dy, output(n, 0) }));
}

static void grad_dropout(Grad *gr, const GraphNode *n, Value dy)
{
    OpDesc op = { .kind = OP_dropout, .attr = n->op.attr };
    flow(gr, input(n, 0), graph_emit(gr->g, op, 2, (Value[]){ dy, input(n, 1) }));
}

static void grad_attention(Grad *gr, const GraphNode *n, Value dy)
{
    OpDesc op = { .kind = OP_attention_grad, .attr = n->op.attr };
    flow(gr, input(n, 0), graph_emit(gr->g, op, n->op.n_in + 3,
                                     (Value[]){ input(n, 0), output(n, 0), dy, output(n, 1), input(n, 1), input(n, 2) }));
}

/* Where gradients begin: the op has made the gradient of its logits itself, in output 1. */
static void grad_loss(Grad *gr, const GraphNode *n, Value dy)
{
    (void)dy;
    if (n->op.n_out == 2)
        flow(gr, input(n, 0), output(n, 1));
}

static Rule *const rules[OP_COUNT] = {
    [OP_conv2d] = grad_conv2d,
    [OP_batchnorm] = grad_batchnorm,
    [OP_maxpool] = grad_maxpool,
    [OP_avgpool] = grad_avgpool,
    [OP_linear] = grad_linear,
    [OP_softmax_xent] = grad_loss,
    [OP_pixel_xent] = grad_loss,
    [OP_bce_dice] = grad_loss,
    [OP_conv2d_dgrad] = grad_conv2d_dgrad,
    [OP_concat] = grad_concat,
    [OP_add] = grad_add,
    [OP_cast] = grad_cast,
    [OP_embedding] = grad_embedding,
    [OP_gather_rows] = grad_gather_rows,
    [OP_layernorm] = grad_layernorm,
    [OP_gelu] = grad_gelu,
    [OP_tanh] = grad_tanh,
    [OP_dropout] = grad_dropout,
    [OP_attention] = grad_attention,
};

/* Gradients are made in the order of the parameters, so that both lie in memory in the same order (graph_span). */
static void make_param_gradients(Graph *g, int value_count)
{
    graph_scope(g, "%s", "");
    for (int i = 0; i < value_count; i++) {
        if (!g->values[i].is_param)
            continue;
        char name[GRAPH_NAME_BYTES + 8];
        snprintf(name, sizeof name, "%s.grad", g->values[i].name);
        Value d = graph_value(g, name, g->values[i].tensor, MEM_GRAD);
        g->values[i].layout_of = d.id;
    }
}

static void mark_needed(Grad *gr, int value_count, int node_count)
{
    for (int i = 0; i < value_count; i++) {
        gr->needed[i] = gr->g->values[i].is_param;
        gr->of[i] = NO_VALUE;
    }
    for (int i = 0; i < node_count; i++) {
        const GraphNode *n = &gr->g->nodes[i];
        bool depends = false;
        for (int k = 0; k < n->op.n_in; k++)
            depends = depends || gr->needed[n->in[k]];
        for (int k = 0; k < n->op.n_out && depends; k++)
            gr->needed[n->out[k]] = true;
    }
}

static void visit(Grad *gr, const GraphNode *n)
{
    Value dy = gr->of[n->out[0]];
    if (dy.id < 0 && rules[n->op.kind] != grad_loss)
        return;
    memcpy(gr->g->scope, n->scope, sizeof n->scope);
    if (rules[n->op.kind])
        rules[n->op.kind](gr, n, dy);
    else
        graph_fail(gr->g, "%s has no gradient rule", op_names[n->op.kind]);
}

static void check_every_param_reached(Graph *g)
{
    for (int i = 0; i < g->value_count; i++) {
        Value d = grad_of_param(g, (Value){ i });
        if (d.id >= 0 && g->values[d.id].producer < 0)
            graph_fail(g, "parameter '%s' does not reach the loss", g->values[i].name);
    }
}

void grad_append(Graph *g, bool accumulate)
{
    const int values = g->value_count, nodes = g->node_count;
    if (graph_status(g).code != STATUS_OK || values == 0)
        return;
    Grad gr = { g, accumulate, malloc((size_t)values * sizeof *gr.of), malloc((size_t)values * sizeof *gr.needed) };
    if (!gr.of || !gr.needed) {
        graph_fail_status(g, status_error(STATUS_OOM, "no memory for the backward pass"));
        goto out;
    }
    mark_needed(&gr, values, nodes);
    make_param_gradients(g, values);
    g->segment = SEG_MICRO;
    for (int i = nodes - 1; i >= 0 && graph_status(g).code == STATUS_OK; i--)
        if (g->nodes[i].segment == SEG_MICRO) {
            GraphNode node = g->nodes[i]; /* a copy: appending moves the array */
            visit(&gr, &node);
        }
    graph_scope(g, "%s", "");
    if (graph_status(g).code == STATUS_OK)
        check_every_param_reached(g);
out:
    free(gr.of);
    free(gr.needed);
}
