/* cell.h - one configuration of a sweep: its name, its parts in the record, and how it is measured.
 *
 * Shared by the sweep (bench.c), training (train.c), plan and the claims. */
#ifndef BATCHMARK_BENCH_CELL_H
#define BATCHMARK_BENCH_CELL_H

#include "../nets/nets.h"
#include "options.h"

#include <jansson.h>

enum { CELL_NAME_BYTES = 256, CELL_EXTRA_BYTES = 144 };

typedef struct CellConfig { NetConfig net; int64_t accum; } CellConfig;

/* Measured ceilings of this machine; 0 = not measured. */
typedef struct Peaks { double f32_flops, bf16_flops, f16_flops, tf32_flops, copy_bytes; } Peaks;

/* Arithmetic per second that a net of this precision, or an op whose first input is of this type in such a net, can reach; f32's
 * where the type's own was not measured. */
double peak_of_net(const Peaks *peaks, Amp amp);
double peak_of_op(const Peaks *peaks, Amp amp, Dtype dtype);

/* The "peaks" member of the record, and back. NULL if out of memory. */
json_t *peaks_json(const Peaks *peaks);
Peaks   peaks_from_json(const json_t *object);

typedef struct MeasureOptions {
    const char    *device;
    BackendOptions backend;
    ExecOptions    exec;
    double         seconds, precision; /* stop rule: standard error / mean under precision, or this long */
    int64_t        steps;              /* > 0: exactly so many timed steps instead */
    int64_t        mem_limit;          /* bytes; 0 = the device's capacity */
    bool           profile, primitives;
    const char    *trace_path;         /* NULL = none */
    bool           timed;              /* times will be reported: formats that this hardware only emulates are refused */
    uint64_t       seed;
    Peaks          peaks;
    const json_t  *verified;           /* what verify_net found for this kind of net, or NULL */
} MeasureOptions;

/* "resnet50/size:224/batch:32/amp:bf16/accum:4", "bert/seq:128/...", and what is not the net's standard: "/width:0.5". */
const char *cell_name(const CellConfig *cell, char *text, size_t size);
void        cell_name_extra(const NetConfig *net, char *text, size_t size); /* that last part alone */

/* The "axes" member. NULL if out of memory. */
json_t *cell_axes(const CellConfig *cell);

/* The cell that has these axes in a record (the net's name stays owned by the record); false if they are of no net here. */
bool cell_from_record(const json_t *axes, CellConfig *out);

/* The "memory" member; 0 = not measured. device: what the device and its driver say, NULL where there is no such device. NULL
 * if out of memory. */
json_t *memory_json(const MemPlan *plan, size_t measured_peak, size_t process_peak, const BackendMemory *device);

/* The options of a backend for nets of this precision. */
BackendOptions backend_options_for(const MeasureOptions *options, Amp amp);

/* A net on a device, ready to step; what every command that runs something opens. */
typedef struct Bench { Backend *backend; BackendInfo info; Net net; MemPlan plan; Session session; } Bench;

/* Opens the device, builds the net, plans its memory and compares that with the limit (STATUS_OOM with both numbers if
 * it cannot fit; nothing is allocated then), prepares and initialises. TF32 on hardware without it is STATUS_UNSUPPORTED with the
 * reason, and so are bf16 and fp16 on hardware that only emulates them if times are wanted. bench_close may be called in any state after bench_open was tried. */
Status bench_open(const NetConfig *net, const MeasureOptions *options, Bench *out);
void   bench_close(Bench *bench);

/* Memory of a cell that ran, for its entry: plan, tensors, process, device. NULL if out of memory. */
json_t *bench_memory_json(const Bench *bench);

/* Bytes a run may use: the option's limit, or the device's capacity, or what the system or the GPU has free if that is less. */
size_t memory_limit(Backend *be, const BackendInfo *info, int64_t option);

/* One update as it is timed: accum times the same micro-batch, then the optimiser with a small learning rate; waits for
 * the device. STATUS_INTERRUPTED once a signal has come. */
Status cell_run_step(Bench *b, const MicroBatch *data, int64_t accum);

/* Times training steps of one cell on generated data and writes its entry for the record. Runs in this process; a cell
 * that cannot run is an error status (the caller turns it into an entry with cell_failed). */
Status cell_measure(const CellConfig *cell, const MeasureOptions *options, json_t **entry);

/* The entry of a cell that did not run: status oom, skipped or failed by the code of why. NULL if out of memory. */
json_t *cell_failed(const CellConfig *cell, const Status *why);

/* Compares loss and every gradient of a small net of this kind (same ops, types and flags; width, size and batch reduced)
 * with the float64 reference: {"against", "max_error", "bound", ...}. STATUS_NUMERIC if it is too far off. */
NetConfig verify_reduced(const NetConfig *like); /* that small net: two cells whose small nets are equal share a verification */
bool      verify_same_kind(const NetConfig *a, const NetConfig *b); /* whether they are */
Status verify_net(const NetConfig *like, const MeasureOptions *options, json_t **result);

/* Measures the peaks with large matrix products, convolutions and sums, in each type that this hardware multiplies; a few seconds. */
Status peaks_measure(const MeasureOptions *options, Peaks *out);

/* Times every op of a step alone, with cold caches, in turns with whole steps: {"step_seconds", "sum_seconds", "ratio",
 * "ratio_q1", "ratio_q3", "ops": [{"op", "calls", "seconds"}]}; the ratio is that of each turn, its median and quartiles. */
Status primitives_time(Bench *bench, const MicroBatch *data, int64_t accum, json_t **out);

/* Shortest time the machine's peaks allow for one run of these nodes: sum over nodes of max(flops / peak of the node's
 * type, bytes / copy bandwidth). NaN without peaks. */
double floor_seconds(const Graph *g, Segment segment, const Peaks *peaks, Amp amp);

#endif
