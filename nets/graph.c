/* graph.c - the builder: growing arrays of values and nodes, unique names, the sticky error; and the printer. */
#include "graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const segment_names[SEG_COUNT] = { "begin", "micro", "update", "eval" };

const char *const mem_kind_names[MEM_KIND_COUNT] = {
    "weights", "copies", "gradients", "optimizer", "activations", "workspace", "input",
};

Status graph_create(Graph **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return status_error(STATUS_OOM, "no memory for a graph");
    (*out)->segment = SEG_MICRO;
    (*out)->status = status_ok();
    return status_ok();
}

void graph_destroy(Graph *g)
{
    if (!g)
        return;
    free(g->values);
    free(g->nodes);
    free(g);
}

void graph_fail_status(Graph *g, Status s)
{
    if (g->status.code == STATUS_OK)
        g->status = g->scope[0] ? status_context(s, "%s", g->scope) : s;
}

void graph_fail(Graph *g, const char *format, ...)
{
    char text[STATUS_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    graph_fail_status(g, status_error(STATUS_USAGE, "%s", text));
}

Status graph_status(const Graph *g)
{
    return g->status;
}

static bool failed(const Graph *g)
{
    return g->status.code != STATUS_OK;
}

void graph_scope(Graph *g, const char *format, ...)
{
    char    scope[GRAPH_NAME_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(scope, sizeof scope, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof scope)
        graph_fail(g, "the scope '%s...' is longer than %d characters", scope, GRAPH_NAME_BYTES - 1);
    memcpy(g->scope, scope, sizeof scope);
}

/* The array with twice the room, or NULL with array and capacity as they were. */
static void *grown(void *array, int *capacity, size_t item_bytes)
{
    int   wanted = *capacity ? 2 * *capacity : 64;
    void *larger = realloc(array, (size_t)wanted * item_bytes);
    if (larger)
        *capacity = wanted;
    return larger;
}

Value graph_find(const Graph *g, const char *name)
{
    for (int i = 0; i < g->value_count; i++)
        if (!strcmp(g->values[i].name, name))
            return (Value){ i };
    return NO_VALUE;
}

/* A new value under its full name, which must not be taken. */
static Value push_value(Graph *g, const char *name, Tensor tensor, MemKind kind)
{
    if (failed(g))
        return NO_VALUE;
    if (graph_find(g, name).id >= 0) {
        graph_fail(g, "there is already a value named '%s'", name);
        return NO_VALUE;
    }
    if (g->value_count == g->value_capacity) {
        GraphValue *larger = grown(g->values, &g->value_capacity, sizeof *larger);
        if (!larger) {
            graph_fail_status(g, status_error(STATUS_OOM, "no memory for the graph's values"));
            return NO_VALUE;
        }
        g->values = larger;
    }
    GraphValue *v = &g->values[g->value_count];
    memset(v, 0, sizeof *v);
    snprintf(v->name, sizeof v->name, "%s", name);
    v->tensor = tensor;
    v->kind = kind;
    v->layout_of = v->producer = -1;
    return (Value){ g->value_count++ };
}

/* "<scope>.<leaf>" or leaf alone; an error if it does not fit. */
static bool full_name(Graph *g, const char *leaf, char name[GRAPH_NAME_BYTES])
{
    int n = snprintf(name, GRAPH_NAME_BYTES, "%s%s%s", g->scope, g->scope[0] ? "." : "", leaf);
    if (n >= 0 && n < GRAPH_NAME_BYTES)
        return true;
    graph_fail(g, "the name '%s' is too long", leaf);
    return false;
}

Value graph_value(Graph *g, const char *leaf, Tensor tensor, MemKind kind)
{
    char name[GRAPH_NAME_BYTES];
    return full_name(g, leaf, name) ? push_value(g, name, tensor, kind) : NO_VALUE;
}

Value graph_param(Graph *g, const char *leaf, Tensor tensor, Init init, bool decay)
{
    tensor.dtype = DTYPE_F32;
    Value v = graph_value(g, leaf, tensor, MEM_WEIGHT);
    if (v.id >= 0) {
        g->values[v.id].is_param = true;
        g->values[v.id].init = init;
        g->values[v.id].decay = decay;
    }
    return v;
}

Value graph_span(Graph *g, const char *name, int group)
{
    int64_t count = 0;
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].group == group) {
            if (g->values[i].tensor.dtype != DTYPE_F32)
                graph_fail(g, "%s: '%s' is not f32", name, g->values[i].name);
            count += tensor_count(&g->values[i].tensor);
        }
    if (group <= GROUP_NONE || count == 0)
        graph_fail(g, "%s: group %d has no values", name, group);
    Value v = push_value(g, name, tensor_1d(DTYPE_F32, count), MEM_INPUT);
    if (v.id >= 0)
        g->values[v.id].span_group = group;
    return v;
}

Value graph_span_table(Graph *g, const char *name, int group)
{
    int64_t count = 0;
    for (int i = 0; i < g->value_count; i++)
        count += g->values[i].group == group;
    if (group <= GROUP_NONE || count == 0)
        graph_fail(g, "%s: group %d has no values", name, group);
    Value v = push_value(g, name, tensor_1d(DTYPE_I32, count + 1), MEM_INPUT);
    if (v.id >= 0)
        g->values[v.id].table_group = group;
    return v;
}

int graph_weight_slot(OpKind kind)
{
    switch (kind) {
    case OP_conv2d: case OP_conv2d_dgrad: case OP_linear: case OP_linear_dgrad: return 1;
    default: return -1;
    }
}

/* Input ids and tensors of a node from the values; false after recording what is wrong. */
static bool fill_inputs(Graph *g, GraphNode *node, int n_in, const Value *in)
{
    OpDesc *op = &node->op;
    if (n_in < 0 || n_in > OP_MAX_IN) {
        graph_fail(g, "%s: %d inputs, at most %d are possible", op_names[op->kind], n_in, OP_MAX_IN);
        return false;
    }
    op->n_in = n_in;
    for (int i = 0; i < n_in; i++) {
        if (in[i].id < 0 || in[i].id >= g->value_count) {
            graph_fail(g, "%s: input %d is no value of this graph", op_names[op->kind], i);
            return false;
        }
        const GraphValue *v = &g->values[in[i].id];
        if (!graph_is_persistent(v) && v->producer < 0) {
            graph_fail(g, "%s: input %d, '%s', is read before any node makes it", op_names[op->kind], i, v->name);
            return false;
        }
        node->in[i] = in[i].id;
        op->in[i] = v->tensor;
        if (i == graph_weight_slot(op->kind) && v->is_param)
            op->in[i].dtype = op->in[0].dtype;
    }
    return true;
}

/* The output value of a slot that was given none: "<scope>.<op>.<slot>", in EVAL "eval:..."; a second one of the same
 * op in the same scope gets "~2" and so on. */
static Value make_output(Graph *g, const GraphNode *node, int slot)
{
    char base[2 * GRAPH_NAME_BYTES], name[2 * GRAPH_NAME_BYTES + 16];
    snprintf(base, sizeof base, "%s%s%s%s.%d", node->segment == SEG_EVAL ? "eval:" : "", g->scope, g->scope[0] ? "." : "",
             op_names[node->op.kind], slot);
    snprintf(name, sizeof name, "%s", base);
    for (int copy = 2; graph_find(g, name).id >= 0; copy++)
        snprintf(name, sizeof name, "%s~%d", base, copy);
    if (strlen(name) >= GRAPH_NAME_BYTES) {
        graph_fail(g, "the name '%s' is too long", name);
        return NO_VALUE;
    }
    return push_value(g, name, node->op.out[slot], MEM_ACT);
}

/* Output ids of a node: given values must have the type and shape that the op's rule says. */
static bool fill_outputs(Graph *g, GraphNode *node, int n_out, const Value *out)
{
    OpDesc *op = &node->op;
    for (int i = 0; i < op->n_out; i++) {
        Value v = i < n_out ? out[i] : NO_VALUE;
        if (v.id < 0)
            v = make_output(g, node, i);
        if (v.id < 0)
            return false;
        const Tensor *given = &g->values[v.id].tensor;
        if (given->dtype != op->out[i].dtype || !tensor_same_shape(given, &op->out[i])) {
            char a[64], b[64];
            graph_fail(g, "%s: output %d, '%s', is %s but must be %s", op_names[op->kind], i, g->values[v.id].name,
                       tensor_format(given, a, sizeof a), tensor_format(&op->out[i], b, sizeof b));
            return false;
        }
        op->out[i] = *given;
        node->out[i] = v.id;
    }
    return true;
}

int graph_append_to(Graph *g, OpDesc op, int n_in, const Value *in, int n_out, const Value *out)
{
    if (failed(g))
        return -1;
    GraphNode node = { .op = op, .segment = g->segment };
    memcpy(node.scope, g->scope, sizeof node.scope);
    if (!fill_inputs(g, &node, n_in, in))
        return -1;
    for (int i = 0; i < n_out; i++)
        if (out[i].id >= 0 && out[i].id < g->value_count)
            node.op.out[i] = g->values[out[i].id].tensor;
    if (n_out)
        node.op.n_out = n_out;
    Status s = op_infer(&node.op);
    if (s.code != STATUS_OK) {
        graph_fail_status(g, s);
        return -1;
    }
    if (n_out > node.op.n_out) {
        graph_fail(g, "%s: %d outputs given, it has %d", op_names[op.kind], n_out, node.op.n_out);
        return -1;
    }
    if (!fill_outputs(g, &node, n_out, out))
        return -1;
    if (g->node_count == g->node_capacity) {
        GraphNode *larger = grown(g->nodes, &g->node_capacity, sizeof *larger);
        if (!larger) {
            graph_fail_status(g, status_error(STATUS_OOM, "no memory for the graph's nodes"));
            return -1;
        }
        g->nodes = larger;
    }
    for (int i = 0; i < node.op.n_out; i++)
        if (g->values[node.out[i]].producer < 0)
            g->values[node.out[i]].producer = g->node_count;
    g->nodes[g->node_count] = node;
    return g->node_count++;
}

int graph_append(Graph *g, OpDesc op, int n_in, const Value *in)
{
    return graph_append_to(g, op, n_in, in, 0, NULL);
}

Value graph_emit(Graph *g, OpDesc op, int n_in, const Value *in)
{
    return graph_output(g, graph_append(g, op, n_in, in), 0);
}

Value graph_output(const Graph *g, int node, int slot)
{
    return node < 0 ? NO_VALUE : (Value){ g->nodes[node].out[slot] };
}

const Tensor *graph_tensor(const Graph *g, Value v)
{
    static const Tensor none;
    return v.id < 0 ? &none : &g->values[v.id].tensor;
}

bool graph_is_persistent(const GraphValue *v)
{
    return v->kind != MEM_ACT && v->kind != MEM_WORKSPACE;
}

int64_t graph_param_count(const Graph *g)
{
    int64_t count = 0;
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].is_param)
            count += tensor_count(&g->values[i].tensor);
    return count;
}

OpCost graph_cost(const Graph *g, Segment segment)
{
    OpCost sum = { 0, 0 };
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].segment == segment) {
            OpCost one = op_cost(&g->nodes[i].op);
            sum.flops += one.flops;
            sum.bytes += one.bytes;
        }
    return sum;
}

void graph_print(const Graph *g, FILE *to)
{
    char text[512];
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].is_param)
            fprintf(to, "param  %-28s %s%s\n", g->values[i].name,
                    tensor_format(&g->values[i].tensor, text, sizeof text), g->values[i].decay ? " decay" : "");
    fprintf(to, "%" PRId64 " parameters\n", graph_param_count(g));
    for (int i = 0; i < g->node_count; i++) {
        const GraphNode *n = &g->nodes[i];
        fprintf(to, "%4d %-6s %-20s %s\n", i, segment_names[n->segment], n->scope[0] ? n->scope : "-",
                op_format(&n->op, text, sizeof text));
    }
}
