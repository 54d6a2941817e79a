/* optim.c - BEGIN and UPDATE; see optim.h. */
#include "optim.h"

#include "grad.h"

#include <string.h>

/* Weights, gradients and momenta of the parameters that decay; those that do not decay have the next number. */
enum { GROUP_WEIGHT = 1, GROUP_GRAD = 3, GROUP_MOMENTUM = 5 };

typedef struct Spans { Value weight, grad, momentum; } Spans;

void optim_append_zero(Graph *g, Value v)
{
    g->segment = SEG_BEGIN;
    graph_scope(g, "%s", "");
    graph_append_to(g, (OpDesc){ .kind = OP_zero }, 0, NULL, 1, &v);
}

/* Puts the parameters with this `decay`, their gradients and new momenta into their groups; the number of parameters. */
static int group_params(Graph *g, bool decay)
{
    int params = 0;
    for (int i = 0; i < g->value_count && graph_status(g).code == STATUS_OK; i++) {
        Value grad = grad_of_param(g, (Value){ i });
        if (!g->values[i].is_param || g->values[i].decay != decay)
            continue;
        char name[GRAPH_NAME_BYTES + 16];
        snprintf(name, sizeof name, "%s.momentum", g->values[i].name);
        Value momentum = graph_value(g, name, g->values[i].tensor, MEM_OPTIM);
        if (momentum.id < 0)
            break;
        if (grad.id < 0) {
            graph_fail(g, "parameter '%s' has no gradient", g->values[i].name);
            break;
        }
        g->values[momentum.id].layout_of = grad.id;
        g->values[momentum.id].group = GROUP_MOMENTUM + !decay;
        g->values[grad.id].group = GROUP_GRAD + !decay;
        g->values[i].group = GROUP_WEIGHT + !decay;
        params++;
    }
    return params;
}

static Spans make_spans(Graph *g, bool decay)
{
    char weight[GRAPH_NAME_BYTES], grad[GRAPH_NAME_BYTES], momentum[GRAPH_NAME_BYTES];
    const char *which = decay ? "decaying" : "not_decaying";
    snprintf(weight, sizeof weight, "all.%s.weights", which);
    snprintf(grad, sizeof grad, "all.%s.gradients", which);
    snprintf(momentum, sizeof momentum, "all.%s.momenta", which);
    return (Spans){ graph_span(g, weight, GROUP_WEIGHT + !decay), graph_span(g, grad, GROUP_GRAD + !decay),
                    graph_span(g, momentum, GROUP_MOMENTUM + !decay) };
}

void optim_append_sgd(Graph *g, const SgdConfig *config, Value hyper, Value norm2)
{
    Spans spans[2];
    bool  present[2], decays[2] = { true, false };

    graph_scope(g, "%s", "");
    optim_append_zero(g, norm2);
    for (int i = 0; i < 2; i++) {
        present[i] = group_params(g, decays[i]) > 0;
        if (!present[i])
            continue;
        spans[i] = make_spans(g, decays[i]);
        if (config->accumulate)
            optim_append_zero(g, spans[i].grad);
    }

    g->segment = SEG_UPDATE;
    graph_scope(g, "grad_norm");
    for (int i = 0; i < 2; i++)
        if (present[i])
            graph_append_to(g, (OpDesc){ .kind = OP_sqnorm }, 1, &spans[i].grad, 1, &norm2);
    graph_scope(g, "sgd");
    for (int i = 0; i < 2; i++) {
        OpDesc op = { .kind = OP_sgd, .attr = { .momentum = config->momentum,
                                                .weight_decay = decays[i] ? config->weight_decay : 0 } };
        if (present[i])
            graph_append_to(g, op, 2, (Value[]){ spans[i].grad, hyper },
                            2, (Value[]){ spans[i].weight, spans[i].momentum });
    }
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
