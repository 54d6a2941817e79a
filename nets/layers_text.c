/* layers_text.c - nodes and parameters of each layer; see layers_text.h. */
#include "layers_text.h"

#include "layers_private.h"

static const float LAYERNORM_EPS = 1e-12f;
static const Init  MATRIX_INIT = { INIT_NORMAL, 0.02f }; /* Devlin et al. 2018, appendix A.2 */

/* Dropout with probability p in the op's attributes, from a stream of this place in the net alone; false where there is none. */
static bool set_dropout(const Graph *g, OpDesc *op, Dropout dropout)
{
    if (g->segment == SEG_EVAL || dropout.p == 0)
        return false;
    op->attr.dropout = dropout.p;
    op->attr.stream = (uint32_t)g->node_count;
    return true;
}

/* An op with one input that makes one value. */
static Value unary(Graph *g, const char *name, OpDesc op, Value x)
{
    Scope scope = scope_enter(g, name);
    Value y = graph_emit(g, op, 1, &x);
    scope_leave(g, &scope);
    return y;
}

Value layer_embedding(Graph *g, const char *name, int64_t vocab, int64_t longest, int64_t width, Value tokens,
                      Value positions, Value types)
{
    Scope scope = scope_enter(g, name);
    Value t = layer_parameter(g, "tokens", tensor_2d(DTYPE_F32, vocab, width), MATRIX_INIT, true);
    Value p = layer_parameter(g, "positions", tensor_2d(DTYPE_F32, longest, width), MATRIX_INIT, true);
    Value k = layer_parameter(g, "types", tensor_2d(DTYPE_F32, 2, width), MATRIX_INIT, true);
    Value y = graph_emit(g, (OpDesc){ .kind = OP_embedding }, 6, (Value[]){ t, tokens, p, positions, k, types });
    scope_leave(g, &scope);
    return y;
}

static Value dense(Graph *g, Value x, Value w)
{
    int64_t outputs = graph_tensor(g, w)->dim[0];
    Value   b = layer_parameter(g, "b", tensor_1d(DTYPE_F32, outputs), (Init){ INIT_ZERO, 0 }, false);
    return graph_emit(g, (OpDesc){ .kind = OP_linear }, 3, (Value[]){ x, w, b });
}

Value layer_dense(Graph *g, const char *name, Value x, int64_t outputs)
{
    Scope scope = scope_enter(g, name);
    Value y = dense(g, x, layer_parameter(g, "w", tensor_2d(DTYPE_F32, outputs, graph_tensor(g, x)->dim[1]), MATRIX_INIT, true));
    scope_leave(g, &scope);
    return y;
}

Value layer_tied_dense(Graph *g, const char *name, Value x, const char *table)
{
    Scope scope = scope_enter(g, name);
    Value w = graph_find(g, table);
    if (w.id < 0)
        graph_fail(g, "there is no table named '%s'", table);
    Value y = dense(g, x, w);
    scope_leave(g, &scope);
    return y;
}

static Value layernorm(Graph *g, const char *name, Value x, Value residual, Dropout dropout)
{
    Scope   scope = scope_enter(g, name);
    int64_t width = graph_tensor(g, x)->dim[1];
    Value   in[5] = { x };
    int     n = 1;
    OpDesc  op = { .kind = OP_layernorm, .attr = { .residual = residual.id >= 0, .eps = LAYERNORM_EPS } };
    in[n++] = layer_parameter(g, "gamma", tensor_1d(DTYPE_F32, width), (Init){ INIT_ONE, 0 }, false);
    in[n++] = layer_parameter(g, "beta", tensor_1d(DTYPE_F32, width), (Init){ INIT_ZERO, 0 }, false);
    if (op.attr.residual)
        in[n++] = residual;
    if (set_dropout(g, &op, dropout))
        in[n++] = dropout.rng;
    Value y = graph_emit(g, op, n, in);
    scope_leave(g, &scope);
    return y;
}

Value layer_layernorm(Graph *g, const char *name, Value x)
{
    return layernorm(g, name, x, NO_VALUE, (Dropout){ 0, NO_VALUE });
}

Value layer_add_layernorm(Graph *g, const char *name, Value x, Value residual, Dropout dropout)
{
    return layernorm(g, name, x, residual, dropout);
}

Value layer_gelu(Graph *g, const char *name, Value x)
{
    return unary(g, name, (OpDesc){ .kind = OP_gelu }, x);
}

Value layer_tanh(Graph *g, const char *name, Value x)
{
    return unary(g, name, (OpDesc){ .kind = OP_tanh }, x);
}

Value layer_dropout(Graph *g, const char *name, Value x, Dropout dropout)
{
    OpDesc op = { .kind = OP_dropout };
    if (!set_dropout(g, &op, dropout))
        return x;
    Scope scope = scope_enter(g, name);
    Value y = graph_emit(g, op, 2, (Value[]){ x, dropout.rng });
    scope_leave(g, &scope);
    return y;
}

Value layer_gather(Graph *g, const char *name, Value x, Value rows)
{
    Scope scope = scope_enter(g, name);
    Value y = graph_emit(g, (OpDesc){ .kind = OP_gather_rows }, 2, (Value[]){ x, rows });
    scope_leave(g, &scope);
    return y;
}

Value layer_attention(Graph *g, const char *name, Value qkv, Value spans, int heads, int64_t seq, Dropout dropout)
{
    Scope  scope = scope_enter(g, name);
    OpDesc op = { .kind = OP_attention, .attr = { .heads = heads, .seq = seq } };
    int    n = set_dropout(g, &op, dropout) ? 3 : 2;
    Value  y = graph_emit(g, op, n, (Value[]){ qkv, spans, dropout.rng });
    scope_leave(g, &scope);
    return y;
}
