/* layout.c - one round of questions to the kernels, then the answers applied everywhere.
 *
 * A kernel may wish a layout of any of its slots (kernels/backend.h). A wish becomes the layout of the value, or of the
 * value that it follows (GraphValue.layout_of: weights and momenta follow the gradient that wgrad writes). A value that
 * nobody has a wish for keeps the layout the graph gave it. `repack` nodes stand where two layouts meet; where it turns
 * out that they do not differ, the copy is the weight itself, and two equal copies of one weight are one. A kernel that rounds
 * weights as it reads them needs no copy in its type at all (OpNeeds.in_master). */
#include "layout.h"

#include "plan.h"

#include <stdlib.h>
#include <string.h>

size_t layout_padded(size_t bytes)
{
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static Status allocate(const Graph *g, Layout *l)
{
    const size_t values = (size_t)g->value_count + 1, nodes = (size_t)g->node_count + 1; /* never 0 */
    l->tensor = calloc(values, sizeof *l->tensor);
    l->bytes = calloc(values, sizeof *l->bytes);
    l->same_as = calloc(values, sizeof *l->same_as);
    l->op = calloc(nodes, sizeof *l->op);
    l->needs = calloc(nodes, sizeof *l->needs);
    l->idle = calloc(nodes, sizeof *l->idle);
    return l->tensor && l->bytes && l->same_as && l->op && l->needs && l->idle
               ? status_ok() : status_error(STATUS_OOM, "no memory for the layouts of %d values", g->value_count);
}

void layout_free(Layout *l)
{
    free(l->tensor);
    free(l->bytes);
    free(l->same_as);
    free(l->op);
    free(l->needs);
    free(l->idle);
    *l = (Layout){ 0 };
}

/* The value whose layout this one has. */
static int leader(const Graph *g, int value)
{
    while (g->values[value].layout_of >= 0)
        value = g->values[value].layout_of;
    return value;
}

/* Node `node` wishes a layout of a value; wisher[] remembers who did before. */
static Status grant(const Graph *g, Layout *l, int *wisher, int node, int value, int layout)
{
    if (layout == LAYOUT_ANY)
        return status_ok();
    int v = leader(g, value);
    if (wisher[v] >= 0 && l->tensor[v].layout != layout) {
        const GraphNode *a = &g->nodes[wisher[v]], *b = &g->nodes[node];
        return status_error(STATUS_BACKEND, "'%s' cannot have two layouts: %s (%s) wishes %d, %s (%s) wishes %d",
                            g->values[value].name, a->scope, op_names[a->op.kind], l->tensor[v].layout,
                            b->scope, op_names[b->op.kind], layout);
    }
    l->tensor[v].layout = layout;
    wisher[v] = node;
    return status_ok();
}

/* The node's op with the tensors that its values have now; a slot's type is the node's own (graph_weight_slot). */
static OpDesc current_op(const Graph *g, const Layout *l, int node)
{
    const GraphNode *n = &g->nodes[node];
    OpDesc op = n->op;
    for (int i = 0; i < op.n_in; i++) {
        op.in[i] = l->tensor[n->in[i]];
        if (g->values[n->in[i]].kind != MEM_COPY)
            op.in[i].dtype = n->op.in[i].dtype;
    }
    for (int i = 0; i < op.n_out; i++)
        op.out[i] = l->tensor[n->out[i]];
    return op;
}

static Status ask(const Graph *g, Backend *be, Layout *l, int node)
{
    l->op[node] = current_op(g, l, node);
    return status_context(backend_query(be, &l->op[node], &l->needs[node]), "%s", g->nodes[node].scope);
}

static Status ask_all(const Graph *g, Backend *be, Layout *l, int *wisher)
{
    for (int i = 0; i < g->node_count; i++) {
        const GraphNode *n = &g->nodes[i];
        TRY(ask(g, be, l, i));
        for (int k = 0; k < n->op.n_in; k++)
            TRY(grant(g, l, wisher, i, n->in[k], l->needs[i].in_layout[k]));
        for (int k = 0; k < n->op.n_out; k++)
            TRY(grant(g, l, wisher, i, n->out[k], l->needs[i].out_layout[k]));
    }
    return status_ok();
}

/* A copy of weights that every op using it can do without becomes f32: where its layout is the weight's own too, it is the
 * weight (drop_idle_repacks). */
static void take_masters(const Graph *g, Layout *l)
{
    for (int v = 0; v < g->value_count; v++) {
        int uses = 0, free_of_it = 0;
        if (g->values[v].kind != MEM_COPY)
            continue;
        for (int i = 0; i < g->node_count; i++)
            for (int k = 0; k < g->nodes[i].op.n_in; k++)
                if (g->nodes[i].in[k] == v) {
                    uses++;
                    free_of_it += l->needs[i].in_master[k];
                }
        if (uses > 0 && uses == free_of_it)
            l->tensor[v].dtype = DTYPE_F32;
    }
}

/* Physical sizes; then the length of each span, which is that of its group's blocks in f32. */
static void measure(const Graph *g, Backend *be, Layout *l)
{
    for (int i = 0; i < g->value_count; i++) {
        l->tensor[i].layout = l->tensor[leader(g, i)].layout;
        l->bytes[i] = backend_bytes(be, &l->tensor[i]);
    }
    for (int i = 0; i < g->value_count; i++) {
        if (g->values[i].span_group == GROUP_NONE)
            continue;
        l->bytes[i] = 0;
        for (int k = 0; k < g->value_count; k++)
            if (g->values[k].group == g->values[i].span_group)
                l->bytes[i] += layout_padded(l->bytes[k]);
        l->tensor[i].dim[0] = (int64_t)(l->bytes[i] / sizeof(float));
    }
}

static bool fits(const Tensor *asked, int wish, const Tensor *now)
{
    return asked->dim[0] == now->dim[0] && asked->dtype == now->dtype && (asked->layout == now->layout || wish == now->layout);
}

/* Whether what the kernel answered holds for the final tensors: they are those it was asked about, or as it wished. */
static bool answer_holds(const OpDesc *asked, const OpNeeds *needs, const OpDesc *now)
{
    for (int i = 0; i < now->n_in; i++)
        if (!fits(&asked->in[i], needs->in_layout[i], &now->in[i]))
            return false;
    for (int i = 0; i < now->n_out; i++)
        if (!fits(&asked->out[i], needs->out_layout[i], &now->out[i]))
            return false;
    return true;
}

/* Final op descriptions, asked about again where they are not what was answered before. */
static Status finish_ops(const Graph *g, Backend *be, Layout *l)
{
    for (int i = 0; i < g->node_count; i++) {
        OpDesc now = current_op(g, l, i);
        if (answer_holds(&l->op[i], &l->needs[i], &now)) {
            l->op[i] = now;
            continue;
        }
        TRY(ask(g, be, l, i));
        for (int k = 0; k < now.n_in; k++)
            if (l->needs[i].in_layout[k] != LAYOUT_ANY && l->needs[i].in_layout[k] != now.in[k].layout)
                return status_error(STATUS_BACKEND, "%s: %s changes its mind about the layout of '%s'", g->nodes[i].scope,
                                    op_names[now.kind], g->values[g->nodes[i].in[k]].name);
    }
    return status_ok();
}

static bool same_form(const Tensor *a, const Tensor *b)
{
    return a->dtype == b->dtype && a->layout == b->layout;
}

/* What copy i would only repeat: the weight itself or an earlier copy of it; -1 if there is no such value. */
static int equal_source(const Graph *g, const Layout *l, int i)
{
    const GraphNode *n = &g->nodes[i];
    if (same_form(&l->op[i].in[0], &l->op[i].out[0]))
        return n->in[0];
    for (int k = 0; k < i; k++)
        if (g->nodes[k].op.kind == OP_repack && g->nodes[k].segment == n->segment && g->nodes[k].in[0] == n->in[0]
            && same_form(&l->op[k].out[0], &l->op[i].out[0]))
            return l->same_as[g->nodes[k].out[0]];
    return -1;
}

static void drop_idle_repacks(const Graph *g, Layout *l)
{
    for (int i = 0; i < g->node_count; i++) {
        int to = g->nodes[i].out[0];
        if (g->nodes[i].op.kind != OP_repack || g->values[to].kind != MEM_COPY)
            continue;
        int from = equal_source(g, l, i);
        if (from < 0)
            continue;
        l->same_as[to] = from;
        l->idle[i] = true;
        l->needs[i].scratch = 0;
    }
}

Status layout_settle(const Graph *g, Backend *be, Layout *out)
{
    *out = (Layout){ 0 };
    int *wisher = malloc(((size_t)g->value_count + 1) * sizeof *wisher);
    Status status = wisher ? allocate(g, out) : status_error(STATUS_OOM, "no memory to settle layouts");
    if (status.code != STATUS_OK)
        goto out;
    for (int i = 0; i < g->value_count; i++) {
        out->tensor[i] = g->values[i].tensor;
        out->same_as[i] = i;
        wisher[i] = -1;
    }
    TRY_GOTO(status, ask_all(g, be, out, wisher), out);
    take_masters(g, out);
    measure(g, be, out);
    TRY_GOTO(status, finish_ops(g, be, out), out);
    drop_idle_repacks(g, out);
out:
    free(wisher);
    return status;
}
