/* amp.c - re-types a forward graph. The types of all activations follow from those of the first: input normalisation and
 * embedding are asked for the type, and each op's shape rule, applied again in order, carries it on. */
#include "amp.h"

#include <stdlib.h>
#include <string.h>

/* Appends the node again with the types that its inputs have now; its activations keep their ids. */
static void append_retyped(Graph *g, const GraphNode *node, Dtype type)
{
    OpDesc op = node->op;
    Value  in[OP_MAX_IN], out[OP_MAX_OUT];
    g->segment = node->segment;
    memcpy(g->scope, node->scope, sizeof g->scope);

    for (int i = 0; i < op.n_in; i++)
        in[i] = (Value){ node->in[i] };
    if (op.kind == OP_normalize_u8 || op.kind == OP_embedding)
        op.out[0].dtype = type;

    for (int i = 0; i < op.n_in; i++) {
        op.in[i] = *graph_tensor(g, in[i]);
        if (i == graph_weight_slot(op.kind))
            op.in[i].dtype = op.in[0].dtype;
    }
    Status s = op_infer(&op);
    if (s.code != STATUS_OK) {
        graph_fail(g, "%s", s.text);
        return;
    }
    for (int i = 0; i < op.n_out; i++) {
        out[i] = (Value){ node->out[i] };
        if (g->values[out[i].id].kind == MEM_ACT)
            g->values[out[i].id].tensor = op.out[i];
    }
    graph_append_to(g, op, op.n_in, in, op.n_out, out);
}

void amp_apply(Graph *g, int first, Dtype type)
{
    if (graph_status(g).code != STATUS_OK || first >= g->node_count)
        return;
    int        count = g->node_count - first;
    GraphNode *old = malloc((size_t)count * sizeof *old);
    if (!old) {
        graph_fail_status(g, status_error(STATUS_OOM, "no memory to re-type the graph"));
        return;
    }
    memcpy(old, &g->nodes[first], (size_t)count * sizeof *old);
    const Segment segment = g->segment;
    char          scope[GRAPH_NAME_BYTES];
    memcpy(scope, g->scope, sizeof scope);

    g->node_count = first;
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].producer >= first)
            g->values[i].producer = -1;
    for (int i = 0; i < count && graph_status(g).code == STATUS_OK; i++)
        append_retyped(g, &old[i], type);

    g->segment = segment;
    memcpy(g->scope, scope, sizeof scope);
    free(old);
}
