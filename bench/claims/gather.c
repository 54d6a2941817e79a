/* gather.c - looking cells up and measuring what is missing; see gather.h. */
#include "gather.h"

#include "../interrupt.h"
#include "../isolate.h"

#include <string.h>

bool gather_is(const ClaimContext *context, const char *preset) { return !strcmp(context->preset, preset); }

const char *const gather_nets[GATHER_NETS] = { "resnet50", "unet", "bert" };

NetConfig gather_small_net(const char *name)
{
    NetConfig net = net_config_default(name);
    net.batch = 1;
    net.size = 64;
    if (net_is_text(&net)) {
        net.layers = 2;
        net.hidden = 128;
        net.heads = 2;
        net.vocab = 1000;
        return net;
    }
    net.width = 0.25;
    if (net_loss(&net) == LOSS_CLASSES)
        net.classes = 100;
    return net;
}

NetConfig gather_net(const ClaimContext *context, const char *name)
{
    if (gather_is(context, "smoke"))
        return gather_small_net(name);
    NetConfig net = net_config_default(name);
    net.batch = 1;
    return net;
}

bool gather_uses(const Gather *g, Amp amp)
{
    bool used = amp == AMP_OFF || amp == AMP_BF16;
    for (size_t i = 0; i < g->points.count && !used; i++)
        used = !strcmp(g->points.list[i].amp, amp_names[amp]);
    return used;
}

/* Cells of a preset run at the net's default; a sweep over axes given by hand has the option's. */
static double record_momentum(const json_t *root)
{
    const json_t *run = json_object_get(root, "run");
    const json_t *option = json_object_get(json_object_get(run, "options"), "momentum");
    bool by_hand = !json_is_string(json_object_get(run, "preset")) && json_is_number(option);
    return (double)(float)(by_hand ? json_number_value(option) : (double)net_config_default(NULL).optim.momentum);
}

Status gather_begin(Gather *g, const ClaimContext *context)
{
    memset(g, 0, sizeof *g);
    g->context = context;
    if (!context->record)
        return status_ok();
    const json_t *root = record_root(context->record);
    TRY(points_add_record(&g->points, root, record_momentum(root)));
    for (size_t i = 0; i < g->points.count; i++)
        g->from_record += g->points.list[i].ok;
    return status_ok();
}

void gather_end(Gather *g)
{
    points_free(&g->points);
    for (int i = 0; i < g->verified_count; i++)
        json_decref(g->verified[i].result);
}

/* ---- measuring ---- */

typedef struct GatherTask { const CellConfig *cell; const MeasureOptions *options; } GatherTask;

static Status measure_task(void *context, json_t **result)
{
    const GatherTask *task = context;
    return cell_measure(task->cell, task->options, result);
}

static Status verify_task(void *context, json_t **result)
{
    const GatherTask *task = context;
    return verify_net(&task->cell->net, task->options, result);
}

/* What a cell of this kind in the record was verified with, or NULL. */
static json_t *verified_in_record(const Gather *g, const CellConfig *cell)
{
    const json_t *root = g->context->record ? record_root(g->context->record) : NULL, *cells = json_object_get(root, "cells");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *other = json_array_get(cells, i);
        CellConfig    config;
        if (json_is_object(json_object_get(other, "verified")) && cell_from_record(json_object_get(other, "axes"), &config)
            && verify_same_kind(&config.net, &cell->net))
            return json_object_get(other, "verified");
    }
    return NULL;
}

static Status verify(Gather *g, const CellConfig *cell, MeasureOptions *options)
{
    for (int i = 0; i < g->verified_count; i++)
        if (verify_same_kind(&g->verified[i].like, &cell->net)) {
            options->verified = g->verified[i].result;
            return status_ok();
        }
    json_t *known = json_incref(verified_in_record(g, cell));
    if (!known) {
        GatherTask task = { cell, options };
        TRY(isolate_run(verify_task, &task, &known));
    }
    int slot = g->verified_count < GATHER_VERIFIED_MAX ? g->verified_count++ : GATHER_VERIFIED_MAX - 1;
    json_decref(g->verified[slot].result);
    g->verified[slot] = (GatherVerified){ cell->net, known };
    options->verified = known;
    return status_ok();
}

static Status measure(Gather *g, const CellConfig *cell, Purpose purpose, json_t **entry)
{
    MeasureOptions options = *g->context->measure;
    options.seconds = gather_is(g->context, "smoke") ? 0.2 : gather_is(g->context, "full") ? 10 : 3;
    options.steps = purpose == FOR_MEMORY ? 1 : 0;
    options.profile = false;
    options.trace_path = NULL;
    options.verified = NULL;
    if (purpose == FOR_TIME)
        TRY(verify(g, cell, &options));
    GatherTask task = { cell, &options };
    return isolate_run(measure_task, &task, entry);
}

Status gather_cell(Gather *g, const NetConfig *net, int64_t accum, Purpose purpose, CellPoint *out)
{
    CellConfig cell = { *net, accum };
    cell.net.accumulate = accum > 1;
    CellPoint axes = point_of_net(&cell.net, accum);
    const CellPoint *point = points_find(&g->points, &axes);
    if (!point) {
        char name[CELL_NAME_BYTES];
        TRY(interrupt_check());
        if (g->context->progress)
            log_info("  %s", cell_name(&cell, name, sizeof name));
        json_t *entry = NULL;
        Status status = measure(g, &cell, purpose, &entry);
        if (status.code == STATUS_INTERRUPTED)
            return status;
        if (status.code != STATUS_OK)
            entry = cell_failed(&cell, &status);
        if (!entry)
            return status_error(STATUS_OOM, "out of memory for a cell of a claim");
        g->measured += status.code == STATUS_OK;
        status = points_add(&g->points, entry, (double)net->optim.momentum);
        json_decref(entry);
        TRY(status);
        point = points_find(&g->points, &axes);
        CHECK(point);
    }
    if (out)
        *out = *point;
    return status_ok();
}

const char *gather_sources(const Gather *g, Purpose purpose, char *text, size_t size)
{
    int disturbed = 0;
    for (size_t i = 0; i < g->points.count && purpose == FOR_TIME; i++)
        disturbed += g->points.list[i].ok && g->points.list[i].disturbed;
    int used = snprintf(text, size, "%d cell%s of this run and %d measured for this claim", g->from_record,
                        g->from_record == 1 ? "" : "s", g->measured);
    if (disturbed && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", %d of them disturbed by other processes", disturbed);
    return text;
}
