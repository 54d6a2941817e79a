/* layers.c - see layers.h. */
#include "layers.h"

#include "kernels/cuda/conv_narrow.h"

#include <stdlib.h>
#include <string.h>

static bool is_dnn(const OpDesc *op)
{
    return (op->kind == OP_conv2d || op->kind == OP_conv2d_dgrad || op->kind == OP_conv2d_wgrad) && !conv_narrow_fits(op);
}

static bool is_known(const Layers *l, const OpDesc *op)
{
    char a[256], b[256];
    op_format(op, a, sizeof a);
    for (int i = 0; i < l->count; i++)
        if (strcmp(a, op_format(&l->op[i], b, sizeof b)) == 0)
            return true;
    return false;
}

static Status add(Layers *l, const OpDesc *op)
{
    if (l->count == l->room) {
        const int room = l->room ? 2 * l->room : 256;
        OpDesc   *more = realloc(l->op, (size_t)room * sizeof *more);
        if (!more)
            return status_error(STATUS_OOM, "no memory for layers");
        l->op = more;
        l->room = room;
    }
    l->op[l->count++] = *op;
    return status_ok();
}

Status layers_add(Layers *l, const char *name, int64_t batch, Amp amp)
{
    NetConfig config = net_config_default(name);
    Net       net;
    Status    status = status_ok();
    config.batch = batch;
    config.amp = amp;
    TRY(net_build(&config, &net));
    for (int i = 0; i < net.graph->node_count; i++) {
        const OpDesc *op = &net.graph->nodes[i].op;
        if (is_dnn(op) && !is_known(l, op))
            TRY_GOTO(status, add(l, op), out);
    }
out:
    net_destroy(&net);
    return status;
}

void layers_free(Layers *l)
{
    free(l->op);
    *l = (Layers){ 0 };
}
