/* optim.c - BEGIN and UPDATE; see optim.h. */
#include "optim.h"

#include "grad.h"

#include <string.h>

enum { STATES_MAX = 2 };

/* Groups of values that lie side by side (graph.h). Those of the parameters that do not decay have the next number. */
enum {
    GROUP_WEIGHT = 1, GROUP_GRAD = 3, GROUP_STATE = 5, GROUP_STATISTICS = GROUP_STATE + 2 * STATES_MAX, GROUP_SAVED
};

static const float START_SCALE = 65536; /* torch.amp.GradScaler's */

const char *const optim_names[OPTIM_COUNT] = { "sgd", "adamw", "lamb", "lars" };

typedef struct Kind {
    OpKind      op;
    const char *states[STATES_MAX]; /* what is kept for each parameter; NULL: no more */
    bool        layerwise;          /* takes the table of tensors */
} Kind;

static const Kind kinds[OPTIM_COUNT] = {
    [OPTIM_SGD] = { OP_sgd, { "momentum", NULL }, false },
    [OPTIM_ADAMW] = { OP_adamw, { "average", "square" }, false },
    [OPTIM_LAMB] = { OP_lamb, { "average", "square" }, true },
    [OPTIM_LARS] = { OP_lars, { "momentum", NULL }, true },
};

/* The parameters that decay, or those that do not, as vectors. */
typedef struct Spans { Value weight, grad, state[STATES_MAX], table; } Spans;

static int state_count(const Kind *kind)
{
    return kind->states[1] ? 2 : 1;
}

void optim_append_zero(Graph *g, Value v)
{
    g->segment = SEG_BEGIN;
    graph_scope(g, "%s", "");
    graph_append_to(g, (OpDesc){ .kind = OP_zero }, 0, NULL, 1, &v);
}

Value optim_window_scale(Graph *g, Value scale, Value control)
{
    return graph_emit(g, (OpDesc){ .kind = OP_window_scale }, 2, (Value[]){ scale, control });
}

/* New optimiser state of a parameter, in its group and laid out like the gradient. */
static void make_state(Graph *g, int param, int grad, const char *leaf, int group)
{
    char name[GRAPH_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s.%s", g->values[param].name, leaf);
    Value state = graph_value(g, name, g->values[param].tensor, MEM_OPTIM);
    if (state.id < 0)
        return;
    g->values[state.id].layout_of = grad;
    g->values[state.id].group = group;
}

/* Puts the parameters with this `decay`, their gradients and new state into their groups; the number of parameters. */
static int group_params(Graph *g, const Kind *kind, bool decay)
{
    int params = 0;
    for (int i = 0; i < g->value_count && graph_status(g).code == STATUS_OK; i++) {
        Value grad = grad_of_param(g, (Value){ i });
        if (!g->values[i].is_param || g->values[i].decay != decay)
            continue;
        if (grad.id < 0) {
            graph_fail(g, "parameter '%s' has no gradient", g->values[i].name);
            break;
        }
        for (int k = 0; k < state_count(kind); k++)
            make_state(g, i, grad.id, kind->states[k], GROUP_STATE + 2 * k + !decay);
        g->values[grad.id].group = GROUP_GRAD + !decay;
        g->values[i].group = GROUP_WEIGHT + !decay;
        params++;
    }
    return params;
}

static Value make_span(Graph *g, bool decay, const char *what, int group)
{
    char name[GRAPH_NAME_BYTES];
    snprintf(name, sizeof name, "all.%s.%s", decay ? "decaying" : "not_decaying", what);
    return graph_span(g, name, group + !decay);
}

static Spans make_spans(Graph *g, const Kind *kind, bool decay)
{
    Spans spans = { .weight = make_span(g, decay, "weights", GROUP_WEIGHT), .grad = make_span(g, decay, "gradients", GROUP_GRAD),
                    .state = { NO_VALUE, NO_VALUE }, .table = NO_VALUE };
    for (int k = 0; k < state_count(kind); k++)
        spans.state[k] = make_span(g, decay, kind->states[k], GROUP_STATE + 2 * k);
    if (kind->layerwise)
        spans.table = graph_span_table(g, decay ? "all.decaying.table" : "all.not_decaying.table", GROUP_WEIGHT + !decay);
    return spans;
}

/* The running statistics of the batch norms of MICRO and room for a copy of them, each as one vector; false if there are none. */
static bool make_statistics(Graph *g, Value *statistics, Value *saved)
{
    bool found = false;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].op.n_in; k++) {
            const int value = g->nodes[i].in[k];
            if (!op_in_is_inout(&g->nodes[i].op, k) || g->values[value].group == GROUP_STATISTICS)
                continue;
            char name[GRAPH_NAME_BYTES + 16];
            snprintf(name, sizeof name, "%s.saved", g->values[value].name);
            Value copy = graph_value(g, name, g->values[value].tensor, MEM_OPTIM);
            if (copy.id < 0)
                return false;
            g->values[copy.id].group = GROUP_SAVED;
            g->values[value].group = GROUP_STATISTICS;
            found = true;
        }
    if (found) {
        *statistics = graph_span(g, "all.statistics", GROUP_STATISTICS);
        *saved = graph_span(g, "all.statistics.saved", GROUP_SAVED);
    }
    return found;
}

static void append_step(Graph *g, const OptimConfig *c, const OptimInputs *in, const Spans *s, bool decay)
{
    const Kind *kind = &kinds[c->kind];
    OpDesc op = { .kind = kind->op, .attr = { .momentum = c->momentum, .beta1 = c->beta1, .beta2 = c->beta2, .eps = c->eps,
                                              .trust = c->trust, .weight_decay = decay ? c->weight_decay : 0, .adapt = decay } };
    graph_append_to(g, op, 3 + kind->layerwise, (Value[]){ s->grad, in->hyper, in->control, s->table },
                    1 + state_count(kind), (Value[]){ s->weight, s->state[0], s->state[1] });
}

static void start_control(Graph *g, Value control, float scale)
{
    GraphValue *v = &g->values[control.id];
    const float start[] = { 1 / scale, 1, 0, scale };
    v->init.kind = INIT_LIST;
    memcpy(v->start, start, sizeof start);
}

/* What cannot be divided by: padding between tensors is zero, and 0 / (sqrt(0) + eps) has to stay so. */
static bool check_config(Graph *g, const OptimConfig *c)
{
    const bool adam = kinds[c->kind].op == OP_adamw || kinds[c->kind].op == OP_lamb;
    if (adam && !(c->eps > 0))
        graph_fail(g, "%s: eps is %g, it must be above 0", optim_names[c->kind], (double)c->eps);
    else if (adam && !(c->beta1 >= 0 && c->beta1 < 1 && c->beta2 >= 0 && c->beta2 < 1))
        graph_fail(g, "%s: beta is %g and %g, both must be at least 0 and below 1", optim_names[c->kind], (double)c->beta1,
                   (double)c->beta2);
    return graph_status(g).code == STATUS_OK;
}

void optim_append(Graph *g, const OptimConfig *config, const OptimInputs *in)
{
    Spans spans[2];
    Value statistics = NO_VALUE, saved = NO_VALUE;
    bool  present[2], decays[2] = { true, false };

    if (!check_config(g, config))
        return;
    start_control(g, in->control, config->loss_scale ? START_SCALE : 1);
    optim_append_zero(g, in->norm2);
    for (int i = 0; i < 2; i++) {
        present[i] = group_params(g, &kinds[config->kind], decays[i]) > 0;
        if (!present[i])
            continue;
        spans[i] = make_spans(g, &kinds[config->kind], decays[i]);
        if (config->accumulate)
            optim_append_zero(g, spans[i].grad);
    }
    const bool keep = config->loss_scale && make_statistics(g, &statistics, &saved);
    graph_scope(g, "statistics");
    if (keep)
        graph_append_to(g, (OpDesc){ .kind = OP_cast }, 1, &statistics, 1, &saved);

    g->segment = SEG_UPDATE;
    graph_scope(g, "grad_norm");
    for (int i = 0; i < 2; i++)
        if (present[i])
            graph_append_to(g, (OpDesc){ .kind = OP_sqnorm }, 2, (Value[]){ spans[i].grad, in->control }, 1, &in->norm2);
    graph_append_to(g, (OpDesc){ .kind = OP_step_control }, 2, (Value[]){ in->hyper, in->norm2 }, 1, &in->control);
    graph_scope(g, "%s", optim_names[config->kind]);
    for (int i = 0; i < 2; i++)
        if (present[i])
            append_step(g, config, in, &spans[i], decays[i]);
    graph_scope(g, "statistics");
    if (keep)
        graph_append_to(g, (OpDesc){ .kind = OP_restore }, 2, (Value[]){ saved, in->control }, 1, &statistics);
    graph_scope(g, "%s", "");
}

/* The copy of a parameter for one kind of op: made at its first use, with the repack that fills it. */
static Value copy_for(Graph *g, Value param, const GraphNode *user, int slot)
{
    char name[GRAPH_NAME_BYTES + 32];
    snprintf(name, sizeof name, "%s.%s", g->values[param.id].name, op_names[user->op.kind]);
    Value copy = graph_find(g, name);
    if (copy.id >= 0)
        return copy;
    graph_scope(g, "%s", "");
    copy = graph_value(g, name, user->op.in[slot], MEM_COPY);
    if (copy.id < 0)
        return NO_VALUE;
    memcpy(g->scope, user->scope, sizeof user->scope);
    graph_append_to(g, (OpDesc){ .kind = OP_repack }, 1, &param, 1, &copy);
    return copy;
}

void copies_append(Graph *g)
{
    const int nodes = g->node_count;
    g->segment = SEG_UPDATE;
    for (int i = 0; i < nodes && graph_status(g).code == STATUS_OK; i++) {
        GraphNode user = g->nodes[i]; /* a copy: appending moves the array */
        int slot = graph_weight_slot(user.op.kind);
        if (slot < 0 || !g->values[user.in[slot]].is_param)
            continue;
        Value copy = copy_for(g, (Value){ user.in[slot] }, &user, slot);
        if (copy.id >= 0)
            g->nodes[i].in[slot] = copy.id;
    }
    graph_scope(g, "%s", "");
}
