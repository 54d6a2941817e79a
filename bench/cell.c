/* cell.c - names and record members of a cell, opening a net on a device, and the timing of its steps. */
#include "cell.h"

#include "cell_profile.h"
#include "env.h"
#include "interrupt.h"
#include "random_batch.h"
#include "record.h"
#include "stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARMUP_STEPS = 2, MIN_SAMPLES = 5, MIN_SAMPLES_LATE = 2, MAX_SAMPLES = 1000 };

/* Real updates, small enough that random labels do no harm; AdamW and LAMB move every weight by about this much. */
static float measure_rate(OptimKind optimizer)
{
    return optimizer == OPTIM_ADAMW || optimizer == OPTIM_LAMB ? 1e-6f : 1e-3f;
}

/* What differs from the standard form of this net, for names: "/width:0.25/stem:small". */
void cell_name_extra(const NetConfig *n, char *text, size_t size)
{
    const NetConfig standard = net_config_default(n->net);
    size_t at = 0;
    text[0] = '\0';
#define PUT(differs, ...) do { if ((differs) && at < size) at += (size_t)snprintf(text + at, size - at, __VA_ARGS__); } while (0)
    PUT(n->width != standard.width, "/width:%g", n->width);
    PUT(n->stem != standard.stem, "/stem:%s", stem_names[n->stem]);
    PUT(n->depth != standard.depth, "/depth:%" PRId64, n->depth);
    PUT(n->stem_stride != standard.stem_stride, "/stem_stride:%d", n->stem_stride);
    PUT(net_loss(n) != LOSS_CLASSES && n->classes != standard.classes, "/classes:%" PRId64, n->classes);
    PUT(n->layers != standard.layers, "/layers:%" PRId64, n->layers);
    PUT(n->hidden != standard.hidden, "/hidden:%" PRId64, n->hidden);
    PUT(n->heads != standard.heads, "/heads:%" PRId64, n->heads);
    PUT(n->vocab != standard.vocab, "/vocab:%" PRId64, n->vocab);
    PUT(n->rows != standard.rows, "/tokens:%" PRId64, n->rows);
    PUT(n->head != standard.head, "/head:%s", head_names[n->head]);
    PUT(n->dropout != standard.dropout, "/dropout:%g", (double)n->dropout);
    PUT(n->optim.kind != standard.optim.kind, "/optim:%s", optim_names[n->optim.kind]);
#undef PUT
}

const char *cell_name(const CellConfig *cell, char *text, size_t size)
{
    const NetConfig *n = &cell->net;
    char extra[CELL_EXTRA_BYTES];
    cell_name_extra(n, extra, sizeof extra);
    snprintf(text, size, "%s/%s:%" PRId64 "/batch:%" PRId64 "/amp:%s/accum:%" PRId64 "%s", n->net,
             net_is_text(n) ? "seq" : "size", n->size, n->batch, amp_names[n->amp], cell->accum, extra);
    return text;
}

json_t *cell_axes(const CellConfig *cell)
{
    const NetConfig *n = &cell->net;
    json_t *axes = json_pack("{s:s,s:I,s:I,s:s,s:I,s:I,s:f,s:I,s:s,s:s,s:f}", "net", n->net, "size", (json_int_t)n->size, "batch",
                             (json_int_t)n->batch, "amp", amp_names[n->amp], "accum", (json_int_t)cell->accum, "effective_batch",
                             (json_int_t)(cell->accum * n->batch), "width", n->width, "classes", (json_int_t)n->classes, "stem",
                             stem_names[n->stem], "optimizer", optim_names[n->optim.kind], "momentum", (double)n->optim.momentum);
    json_t *own = net_is_text(n)
        ? json_pack("{s:I,s:I,s:I,s:I,s:o,s:s,s:f}", "layers", (json_int_t)n->layers, "hidden", (json_int_t)n->hidden,
                    "heads", (json_int_t)n->heads, "vocab", (json_int_t)n->vocab, "tokens",
                    n->rows ? json_integer((json_int_t)n->rows) : json_null(), "head", head_names[n->head], "dropout", (double)n->dropout)
        : json_pack("{s:I,s:i}", "depth", (json_int_t)n->depth, "stem_stride", n->stem_stride);
    if (!axes || !own || json_object_update(axes, own)) {
        json_decref(axes);
        axes = NULL;
    }
    json_decref(own);
    return axes;
}

static void take_integer(const json_t *axes, const char *name, int64_t *to)
{
    const json_t *value = json_object_get(axes, name);
    if (json_is_integer(value))
        *to = json_integer_value(value);
}

static void take_choice(const json_t *axes, const char *name, const char *const *names, int count, int *to)
{
    const char *text = json_string_value(json_object_get(axes, name));
    for (int i = 0; text && i < count; i++)
        if (!strcmp(text, names[i]))
            *to = i;
}

bool cell_from_record(const json_t *axes, CellConfig *out)
{
    const char *net = json_string_value(json_object_get(axes, "net"));
    const json_t *width = json_object_get(axes, "width"), *momentum = json_object_get(axes, "momentum");
    if (!net || !json_is_number(width))
        return false;
    *out = (CellConfig){ net_config_default(net), 1 };
    NetConfig *n = &out->net;
    int64_t stem_stride = n->stem_stride;
    int amp = AMP_OFF, stem = n->stem, head = n->head, optim = (int)n->optim.kind;
    n->width = json_number_value(width);
    take_integer(axes, "size", &n->size);
    take_integer(axes, "batch", &n->batch);
    take_integer(axes, "accum", &out->accum);
    take_integer(axes, "classes", &n->classes);
    take_integer(axes, "depth", &n->depth);
    take_integer(axes, "stem_stride", &stem_stride);
    take_integer(axes, "layers", &n->layers);
    take_integer(axes, "hidden", &n->hidden);
    take_integer(axes, "heads", &n->heads);
    take_integer(axes, "vocab", &n->vocab);
    take_integer(axes, "tokens", &n->rows);
    take_choice(axes, "amp", amp_names, AMP_COUNT, &amp);
    take_choice(axes, "stem", stem_names, STEM_COUNT, &stem);
    take_choice(axes, "head", head_names, HEAD_COUNT, &head);
    take_choice(axes, "optimizer", optim_names, OPTIM_COUNT, &optim);
    if (json_is_number(momentum))
        n->optim.momentum = (float)json_number_value(momentum);
    if (json_is_number(json_object_get(axes, "dropout")))
        n->dropout = (float)json_number_value(json_object_get(axes, "dropout"));
    n->amp = (Amp)amp;
    n->stem = (Stem)stem;
    n->head = (Head)head;
    n->optim.kind = (OptimKind)optim;
    n->stem_stride = (int)stem_stride;
    n->accumulate = out->accum > 1;
    return net_check(n).code == STATUS_OK;
}

static json_t *bytes_or_null(size_t bytes) { return bytes ? json_integer((json_int_t)bytes) : json_null(); }

json_t *memory_json(const MemPlan *plan, size_t measured_peak, size_t process_peak, const BackendMemory *device)
{
    const BackendMemory of_device = device ? *device : (BackendMemory){ 0 };
    json_t *planned = json_object();
    int failed = !planned;
    for (int k = 0; k < MEM_KIND_COUNT && !failed; k++)
        failed = json_object_set_new(planned, mem_kind_names[k], json_integer((json_int_t)plan->kind[k]));
    failed = failed || json_object_set_new(planned, "total", json_integer((json_int_t)plan->total))
        || json_object_set_new(planned, "activation_lower_bound", json_integer((json_int_t)plan->arena_lower_bound))
        || json_object_set_new(planned, "activation_naive", json_integer((json_int_t)plan->arena_naive));
    if (failed) {
        json_decref(planned);
        return NULL;
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "planned", planned, "measured_peak", bytes_or_null(measured_peak), "process_peak",
                     bytes_or_null(process_peak), "allocated", bytes_or_null(of_device.allocated), "device_used",
                     bytes_or_null(of_device.device_used), "process_used", bytes_or_null(of_device.process_used));
}

json_t *cell_failed(const CellConfig *cell, const Status *why)
{
    static const char *const members[] = { "effective_batch", "verified", "warmup", "samples", "stop", "throughput",
                                           "step_seconds", "memory", "work", "floor_seconds", "profile", "primitives", "choices", "flags" };
    char name[CELL_NAME_BYTES];
    const char *status = why->code == STATUS_OOM ? "oom" : why->code == STATUS_UNSUPPORTED ? "skipped" : "failed";
    json_t *entry = json_pack("{s:s,s:s,s:s,s:o}", "name", cell_name(cell, name, sizeof name), "status", status, "reason",
                              why->text, "axes", cell_axes(cell));
    for (size_t i = 0; entry && i < COUNT_OF(members); i++)
        if (json_object_set_new(entry, members[i], json_null())) {
            json_decref(entry);
            return NULL;
        }
    return entry;
}

/* What the kernel could hand out now without swapping, from /proc/meminfo; 0 if unknown. */
static size_t memory_available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = 0;
    while (f && !kib && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
            kib = 0;
    if (f)
        fclose(f);
    return (size_t)kib * 1024;
}

/* What others leave of a GPU; 0 if unknown. */
static size_t device_available(Backend *be)
{
    BackendMemory m;
    if (!be->vtable->memory || be->vtable->memory(be, &m).code != STATUS_OK || m.device_used > m.device_total)
        return 0;
    return m.device_total - m.device_used + m.allocated;
}

size_t memory_limit(Backend *be, const BackendInfo *info, int64_t option)
{
    if (option)
        return (size_t)option;
    size_t available = info->is_gpu ? device_available(be) : memory_available();
    return available && available < info->memory_bytes ? available : info->memory_bytes;
}

json_t *bench_memory_json(const Bench *b)
{
    BackendMemory m = { 0 };
    if (b->backend->vtable->memory && b->backend->vtable->memory(b->backend, &m).code != STATUS_OK)
        m = (BackendMemory){ 0 };
    return memory_json(&b->plan, exec_allocated_peak(b->session.exec), env_process_peak_bytes(), &m);
}

/* Without TF32 the net would be that of fp32 under another name. What the hardware only emulates is not timed. */
static Status check_precision(Amp amp, const BackendInfo *info, bool timed)
{
    if (amp == AMP_TF32 && !info->fast_tf32)
        return status_error(STATUS_UNSUPPORTED, "%s", info->tf32_reason);
    if (!timed)
        return status_ok();
    if (amp == AMP_BF16 && !info->fast_bf16)
        return status_error(STATUS_UNSUPPORTED, "bf16 is not timed here: %s", info->bf16_reason);
    if (amp == AMP_FP16 && !info->fast_fp16)
        return status_error(STATUS_UNSUPPORTED, "fp16 is not timed here: %s", info->fp16_reason);
    return status_ok();
}

BackendOptions backend_options_for(const MeasureOptions *options, Amp amp)
{
    BackendOptions o = options->backend;
    o.tf32 = amp == AMP_TF32;
    return o;
}

Status bench_open(const NetConfig *net, const MeasureOptions *options, Bench *out)
{
    const BackendOptions backend = backend_options_for(options, net->amp);
    memset(out, 0, sizeof *out);
    TRY(backend_open(options->device, &backend, &out->backend));
    backend_describe(out->backend, &out->info);
    TRY(check_precision(net->amp, &out->info, options->timed));
    TRY(net_build(net, &out->net));
    TRY(exec_plan_memory(out->net.graph, out->backend, &options->exec, &out->plan));
    size_t limit = memory_limit(out->backend, &out->info, options->mem_limit);
    if (out->plan.total > limit) {
        char need[32], have[32];
        return status_error(STATUS_OOM, "needs %s, the limit is %s", format_bytes((double)out->plan.total, need, sizeof need),
                            format_bytes((double)limit, have, sizeof have));
    }
    out->session = (Session){ .net = &out->net, .rules = session_rules(), .seed = options->seed };
    TRY(exec_create(out->net.graph, out->backend, &options->exec, &out->session.exec));
    return exec_init(out->session.exec, options->seed);
}

void bench_close(Bench *bench)
{
    exec_destroy(bench->session.exec);
    net_destroy(&bench->net);
    backend_close(bench->backend);
    memset(bench, 0, sizeof *bench);
}

Status cell_run_step(Bench *b, const MicroBatch *data, int64_t accum)
{
    TRY(interrupt_check());
    TRY(step_begin(&b->session, accum * data->counted));
    for (int64_t k = 0; k < accum; k++)
        TRY(step_micro(&b->session, data));
    TRY(step_update(&b->session, measure_rate(b->net.config.optim.kind)));
    return backend_sync(b->backend);
}

typedef struct Samples { double seconds[MAX_SAMPLES], load[MAX_SAMPLES]; size_t count; double first; int warmup; const char *stop;
                         BackendSensors before, after; /* of a device that has any */ } Samples;

static void read_sensors(Backend *be, BackendSensors *out)
{
    *out = (BackendSensors){ .clock_mhz = -1, .temperature = -1 };
    if (be->vtable->sensors)
        be->vtable->sensors(be, out);
}

/* Warm up, then sample until the mean is known well enough or the time is up. */
static Status sample_steps(Bench *b, const MicroBatch *data, int64_t accum, const MeasureOptions *o, Samples *s)
{
    for (s->warmup = 0; s->warmup < WARMUP_STEPS; s->warmup++) {
        double start = clock_seconds();
        TRY(cell_run_step(b, data, accum));
        if (s->warmup == 0)
            s->first = clock_seconds() - start;
        StepResult check;
        TRY(step_result(&b->session, &check));
    }
    read_sensors(b->backend, &s->before);
    double begin = clock_seconds();
    EnvLoad load;
    env_load_start(&load);
    size_t fixed = o->steps > 0 ? (size_t)(o->steps < MAX_SAMPLES ? o->steps : MAX_SAMPLES) : 0;
    for (s->count = 0; s->count < MAX_SAMPLES && !s->stop;) {
        double start = clock_seconds();
        TRY(cell_run_step(b, data, accum));
        s->seconds[s->count] = clock_seconds() - start;
        s->load[s->count] = env_load_others(&load);
        s->count++;
        if (fixed) {
            s->stop = s->count == fixed ? "count" : NULL;
            continue;
        }
        double error = stats_sem(s->seconds, s->count) / stats_mean(s->seconds, s->count);
        if (s->count >= MIN_SAMPLES && error < o->precision)
            s->stop = "precision";
        else if (s->count >= MIN_SAMPLES_LATE && clock_seconds() - begin > o->seconds)
            s->stop = "time";
    }
    if (!s->stop)
        s->stop = "count";
    read_sensors(b->backend, &s->after);
    StepResult check;
    return step_result(&b->session, &check);
}

double peak_of_op(const Peaks *peaks, Amp amp, Dtype dtype)
{
    const double own = dtype == DTYPE_BF16 ? peaks->bf16_flops : dtype == DTYPE_F16 ? peaks->f16_flops
                       : amp == AMP_TF32   ? peaks->tf32_flops : 0;
    return own > 0 ? own : peaks->f32_flops;
}

double peak_of_net(const Peaks *peaks, Amp amp)
{
    return peak_of_op(peaks, amp, amp == AMP_BF16 ? DTYPE_BF16 : amp == AMP_FP16 ? DTYPE_F16 : DTYPE_F32);
}

double floor_seconds(const Graph *g, Segment segment, const Peaks *peaks, Amp amp)
{
    if (!peaks->copy_bytes || !peaks->f32_flops)
        return NAN;
    double sum = 0;
    for (int i = 0; i < g->node_count; i++) {
        const GraphNode *node = &g->nodes[i];
        if (node->segment != segment)
            continue;
        OpCost cost = op_cost(&node->op);
        double peak = peak_of_op(peaks, amp, node->op.n_in ? node->op.in[0].dtype : DTYPE_F32);
        sum += fmax(cost.flops / peak, cost.bytes / peaks->copy_bytes);
    }
    return sum;
}

static json_t *samples_json(const Samples *s)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < s->count; i++)
        if (json_array_append_new(list, json_pack("{s:o,s:o}", "seconds", record_real(s->seconds[i]), "load", record_real(s->load[i])))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *known_or_null(int value) { return value < 0 ? json_null() : json_integer(value); }

static json_t *one_reading(const BackendSensors *s)
{
    return json_pack("{s:o,s:o,s:o}", "clock_mhz", known_or_null(s->clock_mhz), "temperature", known_or_null(s->temperature), "throttled",
                     s->throttle_known ? json_string(s->throttled) : json_null());
}

/* Just before and just after the timed steps; null where nothing is known. */
static json_t *sensors_json(const Samples *s)
{
    if (s->before.clock_mhz < 0 && s->after.clock_mhz < 0 && s->before.temperature < 0 && s->after.temperature < 0)
        return json_null();
    return json_pack("{s:o,s:o}", "before", one_reading(&s->before), "after", one_reading(&s->after));
}

static json_t *step_seconds_json(const Samples *s)
{
    const double *x = s->seconds;
    size_t n = s->count;
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "median", record_real(stats_median(x, n)), "q1",
                     record_real(stats_quantile(x, n, 0.25)), "q3", record_real(stats_quantile(x, n, 0.75)), "min",
                     record_real(stats_quantile(x, n, 0)), "max", record_real(stats_quantile(x, n, 1)), "sem",
                     record_real(stats_sem(x, n)));
}

/* Results that cannot be, or that deserve doubt, in words. */
static json_t *flags_json(const Samples *s, double flops, double floor, const Peaks *peaks, Amp amp)
{
    json_t *flags = json_array();
    double median = stats_median(s->seconds, s->count);
    double peak = peak_of_net(peaks, amp);
    char text[160];
    if (flags && peak && flops / median > peak) {
        snprintf(text, sizeof text, "impossible: %.0f GFLOP/s is more than the measured peak of %.0f", flops / median / 1e9, peak / 1e9);
        json_array_append_new(flags, json_string(text));
    }
    if (flags && isfinite(floor) && median < floor) {
        snprintf(text, sizeof text, "doubtful: faster than the floor of %.4g s, so a measured peak is too low", floor);
        json_array_append_new(flags, json_string(text));
    }
    double spread = (stats_quantile(s->seconds, s->count, 0.75) - stats_quantile(s->seconds, s->count, 0.25)) / median;
    if (flags && spread > 0.2) {
        snprintf(text, sizeof text, "unsteady: the middle half of the steps spans %.0f %% of the median", 100 * spread);
        json_array_append_new(flags, json_string(text));
    }
    double load = stats_median(s->load, s->count);
    if (flags && load > 0.2) {
        snprintf(text, sizeof text, "disturbed: other processes kept %.1f cores busy", load);
        json_array_append_new(flags, json_string(text));
    }
    return flags;
}

/* One choice of tuning; a list that is not whole becomes NULL. */
static void note_choice(void *context, const char *op, const char *choice, size_t bytes, double us)
{
    json_t **list = context;
    if (*list && json_array_append_new(*list, json_pack("{s:s,s:s,s:I,s:o}", "op", op, "choice", choice, "workspace_bytes",
                                                        (json_int_t)bytes, "seconds", record_real(1e-6 * us)))) {
        json_decref(*list);
        *list = NULL;
    }
}

/* What tuning chose for the ops of this net; null where nothing is chosen. NULL if out of memory. */
static json_t *choices_json(Backend *be)
{
    if (!be->vtable->choices)
        return json_null();
    json_t *list = json_array();
    be->vtable->choices(be, note_choice, &list);
    return list;
}

/* primitives and the profile are taken over. */
static Status cell_entry(const CellConfig *cell, Bench *b, const MeasureOptions *o, const Samples *s, const CellProfile *profile,
                         json_t *primitives, json_t **entry)
{
    char name[CELL_NAME_BYTES];
    const double k = (double)cell->accum;
    OpCost begin = graph_cost(b->net.graph, SEG_BEGIN), micro = graph_cost(b->net.graph, SEG_MICRO), update = graph_cost(b->net.graph, SEG_UPDATE);
    double flops = begin.flops + k * micro.flops + update.flops, bytes = begin.bytes + k * micro.bytes + update.bytes;
    double floor = floor_seconds(b->net.graph, SEG_BEGIN, &o->peaks, cell->net.amp)
        + k * floor_seconds(b->net.graph, SEG_MICRO, &o->peaks, cell->net.amp)
        + floor_seconds(b->net.graph, SEG_UPDATE, &o->peaks, cell->net.amp);
    double median = stats_median(s->seconds, s->count);
    int64_t effective = cell->accum * cell->net.batch;
    json_t *verified = o->verified ? json_deep_copy(o->verified) : json_null();
    *entry = json_pack("{s:s,s:s,s:n,s:o,s:I,s:o,s:o,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
        "name", cell_name(cell, name, sizeof name), "status", "ok", "reason", "axes", cell_axes(cell),
        "effective_batch", (json_int_t)effective, "verified", verified,
        "warmup", json_pack("{s:i,s:o}", "steps", s->warmup, "first_seconds", record_real(s->first)),
        "samples", samples_json(s), "stop", s->stop, "throughput", record_real((double)effective / median),
        "step_seconds", step_seconds_json(s),
        "memory", bench_memory_json(b),
        "work", json_pack("{s:o,s:o}", "flops", record_real(flops), "bytes", record_real(bytes)),
        "floor_seconds", record_real(floor), "profile", profile->json ? profile->json : json_null(),
        "primitives", primitives ? primitives : json_null(), "sensors", sensors_json(s), "choices",
        choices_json(b->backend), "flags", flags_json(s, flops, floor, &o->peaks, cell->net.amp));
    bool whole = *entry && (profile->json || !json_object_set_new(*entry, "profile_reason", json_string(profile->reason)));
    return whole ? status_ok() : status_error(STATUS_OOM, "out of memory for the record of a cell");
}

Status cell_measure(const CellConfig *cell, const MeasureOptions *options, json_t **entry)
{
    Bench bench;
    MicroBatch data = { 0 };
    Samples *samples = NULL;
    CellProfile profile = { NULL, "--no-profile was given" };
    json_t *primitives = NULL;
    Status status;
    *entry = NULL;
    env_process_peak_reset();
    TRY_GOTO(status, bench_open(&cell->net, options, &bench), out);
    TRY_GOTO(status, random_batch_create(&cell->net, options->seed, &data), out);
    samples = calloc(1, sizeof *samples);
    if (!samples)
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for the samples of a cell"), out);
    TRY_GOTO(status, sample_steps(&bench, &data, cell->accum, options, samples), out);
    if (options->profile)
        TRY_GOTO(status, cell_profile(&bench, &data, cell->accum, options, stats_median(samples->seconds, samples->count), &profile), out);
    if (options->primitives)
        TRY_GOTO(status, primitives_time(&bench, &data, cell->accum, &primitives), out);
    status = cell_entry(cell, &bench, options, samples, &profile, primitives, entry);
    profile.json = primitives = NULL;
out:
    if (status.code != STATUS_OK) {
        json_decref(*entry);
        *entry = NULL;
    }
    json_decref(profile.json);
    json_decref(primitives);
    free(samples);
    random_batch_free(&data);
    bench_close(&bench);
    return status;
}
