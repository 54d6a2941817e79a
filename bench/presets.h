/* presets.h - what `batchmark bench` runs: smoke, quick and full are the same code with other sizes. */
#ifndef BATCHMARK_BENCH_PRESETS_H
#define BATCHMARK_BENCH_PRESETS_H

#include "cell.h"
#include "train.h"

/* A plan of work: cells in order, then trainings, then claims. */
typedef struct Work {
    CellConfig  *cells;
    int          cell_count;
    TrainConfig *trainings;
    int          training_count;
    const char *const *claims;  /* NULL-terminated ids */
    double       cell_seconds;  /* longest sampling of one cell */
    const char  *preset;        /* NULL if the axes were given by hand */
} Work;

/* The preset's work, or, if the options name any axis (size, batch, amp, accum), the sweep over those axes alone. gpu: the device
 * is one, for which presets have larger batches and more precisions. The caller frees it with work_free. STATUS_OOM. */
Status work_plan(const Options *o, bool gpu, Work *out);
void   work_free(Work *w);

/* The name of the preset that fits the device: full on a GPU, quick on a CPU. */
const char *preset_default(bool gpu);

/* A cell's net from the options that are not axes, and from all of them for a command that takes one value of each axis. */
NetConfig net_from_options(const Options *o);
Status    cell_from_axes(const Options *o, CellConfig *cell);

#endif
