/* bench.c - a run from plan to report: opens the record, measures cell by cell through Google Benchmark, trains, runs the
 * claims, writes the report. Everything that touches a device runs in a child process (isolate.h). */
#include "bench.h"

#include "claims/claims.h"
#include "env.h"
#include "gbench.h"
#include "interrupt.h"
#include "isolate.h"
#include "presets.h"
#include "progress.h"
#include "record.h"
#include "report.h"
#include "resume.h"
#include "train.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, VERIFIED_MAX = 16 };

/* What verification found for one kind of net, so that it runs once for all its cells. */
typedef struct Verified { NetConfig like; Status status; json_t *result; } Verified;

typedef struct Runner {
    const Options *options;
    MeasureOptions measure;
    Record  *record;
    json_t  *machine;     /* "environment" of the record, until the record has it */
    bool     gpu;         /* the device is one */
    Work     work;
    Verified verified[VERIFIED_MAX];
    int      verified_count;
    bool     partial;
    Status   status;      /* the first error that ends the run */
    char     dir[PATH_BYTES];
} Runner;

typedef struct CellRun { Runner *runner; int index; } CellRun;

MeasureOptions measure_from_options(const Options *o)
{
    return (MeasureOptions){
        .device = o->device, .backend = { .threads = (int)o->threads, .layout = o->layout, .gpu = o->gpu, .no_tune = !o->autotune },
        .exec = { .separate = o->no_planner, .poison = o->poison, .check_nan = o->check_nan, .eager = !o->graphs },
        .precision = o->precision, .mem_limit = o->mem_limit, .profile = !o->no_profile, .primitives = o->primitives, .timed = true,
        .seed = (uint64_t)o->seed,
    };
}

/* ---- the record of a run ---- */

static void default_dir(char *dir, size_t size, char *id, size_t id_size)
{
    char host[64] = "host", stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H-%M-%S", &utc);
    if (gethostname(host, sizeof host - 1))
        snprintf(host, sizeof host, "host");
    snprintf(id, id_size, "%s-%s", stamp, host);
    if (size)
        snprintf(dir, size, "results/%s", id);
}

/* In a child: the environment with the device. */
static Status probe_machine(void *context, json_t **result)
{
    const MeasureOptions *measure = context;
    Backend *be = NULL;
    BackendInfo info;
    TRY(backend_open(measure->device, &measure->backend, &be));
    backend_describe(be, &info);
    backend_close(be);
    return env_capture(&info, result);
}

/* In a child: the measured peaks. */
static Status probe_peaks(void *context, json_t **result)
{
    Peaks peaks;
    TRY(peaks_measure(context, &peaks));
    *result = peaks_json(&peaks);
    return *result ? status_ok() : status_error(STATUS_OOM, "out of memory for the environment");
}

static json_t *command_line(int argc, char **argv)
{
    json_t *list = json_array();
    for (int i = 0; list && i < argc; i++)
        json_array_append_new(list, json_string(i ? argv[i] : "batchmark"));
    return list;
}

/* What the device is decides what a preset runs, and it goes into the record. */
static Status learn_machine(Runner *r)
{
    TRY(isolate_run(probe_machine, &r->measure, &r->machine));
    const char *backend = json_string_value(json_object_get(json_object_get(r->machine, "device"), "backend"));
    r->gpu = backend && !strcmp(backend, "cuda");
    return status_ok();
}

static Status begin_record(Runner *r, const char *id, int argc, char **argv)
{
    char stamp[32];
    json_t *echo = NULL, *environment = r->machine;
    TRY(options_echo(r->options, &echo));
    r->machine = NULL; /* the record's */
    json_t *run = json_pack("{s:s,s:s,s:n,s:o,s:o,s:o}", "id", id, "started", env_timestamp(stamp, sizeof stamp), "finished",
                            "command", command_line(argc, argv), "preset", r->work.preset ? json_string(r->work.preset) : json_null(),
                            "options", echo);
    return record_create(r->dir, run, environment, &r->record);
}

/* A record that nothing was measured for goes. */
static void discard_record(Runner *r)
{
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/record.json", r->dir);
    record_close(r->record);
    r->record = NULL;
    unlink(path);
    rmdir(r->dir);
}

/* Takes the peaks from the record, or measures them where it has none yet. */
static Status learn_peaks(Runner *r)
{
    const json_t *environment = json_object_get(record_root(r->record), "environment");
    r->measure.peaks = peaks_from_json(json_object_get(environment, "peaks"));
    if (r->measure.peaks.f32_flops == 0 && !r->options->no_peaks) {
        json_t *peaks = NULL;
        TRY(isolate_run(probe_peaks, &r->measure, &peaks));
        r->measure.peaks = peaks_from_json(peaks);
        return record_set_peaks(r->record, peaks);
    }
    return status_ok();
}

/* Opens or resumes the record; only then come the seconds that measuring the peaks takes. */
static Status open_record(Runner *r, int argc, char **argv, bool peaks)
{
    const Options *o = r->options;
    char id[128];
    default_dir(r->dir, o->out ? 0 : sizeof r->dir, id, sizeof id);
    if (o->out)
        snprintf(r->dir, sizeof r->dir, "%s", o->out);
    TRY(o->resume ? record_open(r->dir, &r->record) : begin_record(r, id, argc, argv));
    Status status = peaks ? learn_peaks(r) : status_ok();
    if (status.code != STATUS_OK && !o->resume)
        discard_record(r);
    return status;
}

static Status write_report(const Runner *r)
{
    if (r->options->no_report)
        return status_ok();
    ReportOptions options = { .no_png = r->options->no_png, .quiet = true };
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/record.json", r->dir);
    TRY(report_write(path, r->dir, &options));
    if (!r->options->json)
        fprintf(gbench_prints_table() ? stdout : stderr, "report: %s/report.html\n", r->dir);
    return status_ok();
}

static Status finish(Runner *r)
{
    TRY(record_finish(r->record));
    TRY(write_report(r));
    return r->options->json ? record_dump(record_root(r->record), stdout) : status_ok();
}

/* ---- cells ---- */

typedef struct CellTask { const CellConfig *cell; const MeasureOptions *options; } CellTask;

static Status cell_task(void *context, json_t **result)
{
    CellTask *task = context;
    return cell_measure(task->cell, task->options, result);
}

static Status verify_task(void *context, json_t **result)
{
    CellTask *task = context;
    return verify_net(&task->cell->net, task->options, result);
}

static const Verified *verified_for(Runner *r, const CellConfig *cell)
{
    for (int i = 0; i < r->verified_count; i++)
        if (verify_same_kind(&r->verified[i].like, &cell->net))
            return &r->verified[i];
    int slot = r->verified_count < VERIFIED_MAX ? r->verified_count++ : VERIFIED_MAX - 1;
    Verified *v = &r->verified[slot];
    json_decref(v->result);
    CellTask task = { cell, &r->measure };
    v->like = cell->net;
    v->status = isolate_run(verify_task, &task, &v->result);
    return v;
}

/* Verifies the kind of net, measures the cell, or says why not. */
static Status measure_one(Runner *r, const CellConfig *cell, int64_t steps, json_t **entry)
{
    const Verified *v = verified_for(r, cell);
    if (v->status.code != STATUS_OK)
        return v->status;
    char trace[PATH_BYTES + CELL_NAME_BYTES + 16], name[CELL_NAME_BYTES];
    MeasureOptions options = r->measure;
    options.seconds = r->work.cell_seconds;
    options.steps = steps;
    options.verified = v->result;
    if (r->options->trace) {
        cell_name(cell, name, sizeof name);
        for (char *c = name; *c; c++)
            if (*c == '/' || *c == ':')
                *c = '_';
        snprintf(trace, sizeof trace, "%s/trace-%s.json", r->dir, name);
        options.trace_path = trace;
    }
    CellTask task = { cell, &options };
    return isolate_run(cell_task, &task, entry);
}

/* A finished entry of an earlier run counts; a failed one is tried again. */
static bool already_done(const Runner *r, const char *name)
{
    const json_t *entry = record_find(r->record, RECORD_CELLS, name);
    const char *status = json_string_value(json_object_get(entry, "status"));
    return r->options->resume && status && strcmp(status, "failed");
}

static void report_iteration(GbenchRun *run, const json_t *entry)
{
    double median = json_number_value(json_object_get(json_object_get(entry, "step_seconds"), "median"));
    while (gbench_next(run))
        gbench_seconds(run, median);
    gbench_counter(run, "samples/s", json_number_value(json_object_get(entry, "throughput")));
    gbench_counter(run, "peak_MiB", json_number_value(json_object_get(json_object_get(entry, "memory"), "measured_peak")) / 1048576.0);
}

static void run_cell(GbenchRun *run, void *context)
{
    CellRun *c = context;
    Runner *r = c->runner;
    const CellConfig *cell = &r->work.cells[c->index];
    char name[CELL_NAME_BYTES];
    cell_name(cell, name, sizeof name);
    if (r->status.code == STATUS_OK)
        r->status = interrupt_check();
    if (r->status.code != STATUS_OK) {
        gbench_skip(run, r->status.text);
        return;
    }
    if (already_done(r, name)) {
        gbench_skip(run, "already in the record");
        return;
    }
    if (!r->options->quiet)
        log_info("cell %d/%d %s", c->index + 1, r->work.cell_count, name);
    json_t *entry = NULL;
    int64_t steps = gbench_user_min_time() ? gbench_iterations(run) : 0;
    Status status = measure_one(r, cell, steps, &entry);
    if (status.code == STATUS_INTERRUPTED) {
        r->status = status;
        gbench_skip(run, status.text);
        return;
    }
    if (status.code == STATUS_OK) {
        report_iteration(run, entry);
    } else {
        r->partial = true;
        entry = cell_failed(cell, &status);
        log_warn("%s: %s", name, status.text);
        gbench_skip(run, status.text);
    }
    r->status = record_put(r->record, RECORD_CELLS, entry);
}

static Status run_cells(Runner *r)
{
    CellRun *runs = calloc((size_t)r->work.cell_count + 1, sizeof *runs);
    if (!runs)
        return status_error(STATUS_OOM, "out of memory for the list of cells");
    for (int i = 0; i < r->work.cell_count; i++) {
        char name[CELL_NAME_BYTES];
        runs[i] = (CellRun){ r, i };
        gbench_register(cell_name(&r->work.cells[i], name, sizeof name), run_cell, &runs[i]);
    }
    int count = gbench_run(r->options->json);
    free(runs);
    if (r->status.code == STATUS_OK && count < 0)
        return status_error(STATUS_IO, "Google Benchmark could not write its results: see the line above");
    if (count == 0)
        return status_error(STATUS_USAGE, "no cell matches --benchmark_filter: --benchmark_list_tests prints the names");
    return r->status;
}

/* ---- trainings and claims ---- */

typedef struct TrainTask { const TrainConfig *train; const MeasureOptions *options; bool progress; } TrainTask;

static Status train_task(void *context, json_t **result)
{
    TrainTask *task = context;
    return train_run(task->train, task->options, task->progress, result);
}

static Status run_training(Runner *r, const TrainConfig *t)
{
    char name[CELL_NAME_BYTES];
    json_t *entry = NULL;
    train_name(t, name, sizeof name);
    const char *before = json_string_value(json_object_get(record_find(r->record, RECORD_TRAININGS, name), "status"));
    if (r->options->resume && before && !strcmp(before, "ok"))
        return status_ok();
    if (!r->options->quiet)
        log_info("training %s", name);
    CellConfig like = { t->net, t->accum };
    like.net.accumulate = t->accum > 1;
    const Verified *v = verified_for(r, &like);
    TrainTask task = { t, &r->measure, !r->options->quiet };
    Status status = v->status.code == STATUS_OK ? isolate_run(train_task, &task, &entry) : v->status;
    if (status.code == STATUS_INTERRUPTED)
        return status;
    if (status.code != STATUS_OK) {
        log_warn("%s: %s", name, status.text);
        r->partial = true;
        entry = train_failed(t, &status);
    } else if (strcmp(json_string_value(json_object_get(entry, "status")), "ok")) {
        r->partial = true;
    }
    return record_put(r->record, RECORD_TRAININGS, entry);
}

static Status run_claim(Runner *r, const Claim *claim, const char *preset)
{
    ClaimContext context = { &r->measure, r->record, preset, !r->options->quiet };
    json_t *entry = NULL;
    if (!r->options->quiet && claim->run)
        log_info("claim %s: %s", claim->id, claim->title);
    TRY(interrupt_check());
    TRY(claim_entry(claim, &context, &entry));
    return record_put(r->record, RECORD_CLAIMS, entry);
}

/* The wanted claims are run; all others stand in the record as "not run". */
static Status run_all_claims(Runner *r, const char *const *wanted, const char *preset)
{
    for (int i = 0; i < CLAIM_COUNT; i++) {
        Claim claim = claims[i];
        bool run = false;
        for (int w = 0; wanted[w]; w++)
            run = run || !strcmp(wanted[w], claim.id);
        if (!run && claim.run) {
            claim.run = NULL;
            claim.waits_for = "not part of this run: batchmark claims runs it by name";
        }
        TRY(run_claim(r, &claim, preset));
    }
    return status_ok();
}

/* ---- sub-commands ---- */

static void close_runner(Runner *r)
{
    for (int i = 0; i < r->verified_count; i++)
        json_decref(r->verified[i].result);
    json_decref(r->machine);
    record_close(r->record);
    work_free(&r->work);
}

/* An interrupt is not a failure: what was measured is kept, and the user is told how to go on. */
static Status end_run(Runner *r, Status status, const char *command, bool *partial)
{
    if (status.code == STATUS_INTERRUPTED && r->record) {
        log_warn("interrupted; what was finished is in %s", r->dir);
        if (command)
            log_warn("to go on: batchmark %s --resume --out %s", command, r->dir);
        r->partial = true;
        status = status_ok();
    }
    *partial = r->partial;
    close_runner(r);
    return status;
}

static Status run_sweep(const Options *o, int argc, char **argv, bool *partial)
{
    Runner r = { .options = o, .measure = measure_from_options(o) };
    Status status;
    TRY_GOTO(status, learn_machine(&r), out);
    TRY_GOTO(status, work_plan(o, r.gpu, &r.work), out);
    for (int i = 0; i < r.work.cell_count; i++)
        TRY_GOTO(status, net_check(&r.work.cells[i].net), out);
    if (gbench_list_only()) {
        status = run_cells(&r);
        goto out;
    }
    TRY_GOTO(status, open_record(&r, argc, argv, true), out);
    status = run_cells(&r);
    if (status.code == STATUS_USAGE && !o->resume)
        discard_record(&r); /* wrong usage leaves nothing behind */
    TRY_GOTO(status, status, out);
    for (int i = 0; i < r.work.training_count; i++)
        TRY_GOTO(status, run_training(&r, &r.work.trainings[i]), out);
    if (r.work.preset)
        TRY_GOTO(status, run_all_claims(&r, r.work.claims, r.work.preset), out);
    status = finish(&r);
out:
    return end_run(&r, status, "bench", partial);
}

Status run_bench(const Options *o, int argc, char **argv, bool *partial)
{
    if (!o->resume)
        return run_sweep(o, argc, argv, partial);
    json_t *root = NULL;
    Options begun;
    Status status = resume_options(o, &root, &begun);
    if (status.code == STATUS_OK)
        status = run_sweep(&begun, argc, argv, partial);
    json_decref(root);
    return status;
}

static Status train_from_options(const Options *o, TrainConfig *t)
{
    CellConfig cell;
    TRY(cell_from_axes(o, &cell));
    if (!o->batch.count)
        cell.net.batch = train_default_batch(&cell.net);
    if (!o->size.count)
        cell.net.size = train_default_size(&cell.net);
    *t = (TrainConfig){
        .net = cell.net, .accum = cell.accum, .epochs = o->epochs, .lr = o->lr, .scaling = (RateRule)o->lr_scaling,
        .base_batch = o->base_batch, .schedule = (Schedule)o->schedule, .warmup = o->warmup,
        .feed = { .data = o->data, .dir = o->data_dir, .vocab = o->vocab_file, .limit = o->limit, .label_noise = o->label_noise,
                  .policy = (TextPolicy)o->padding, .loaders = (int)o->loaders, .augment = !o->no_augment, .seed = (uint64_t)o->seed },
        .rules = session_rules(), .target_acc = o->target_acc, .max_seconds = o->max_seconds, .seed = (uint64_t)o->seed,
    };
    t->rules.max_norm = (float)o->clip;
    return status_ok();
}

static void print_training(const json_t *entry)
{
    const json_t *epochs = json_object_get(entry, "epochs"), *last = json_array_get(epochs, json_array_size(epochs) - 1);
    const json_t *samples = json_object_get(entry, "samples_to_target");
    const json_t *dice = json_object_get(last, "test_dice");
    if (json_is_number(dice))
        printf("test Dice %.2f %%, ", json_number_value(dice));
    if (last)
        printf("test accuracy %.2f %% after %" JSON_INTEGER_FORMAT " samples in %.1f s of training, %.0f samples/s\n",
               json_number_value(json_object_get(last, "test_accuracy")), json_integer_value(json_object_get(last, "samples")),
               json_number_value(json_object_get(last, "seconds")), json_number_value(json_object_get(entry, "throughput")));
    if (json_is_integer(samples))
        printf("target of %g %% reached after %" JSON_INTEGER_FORMAT " samples, %.1f s\n",
               json_number_value(json_object_get(entry, "target_accuracy")), json_integer_value(samples),
               json_number_value(json_object_get(entry, "seconds_to_target")));
}

/* What of the options only the data can refuse. */
static Status check_classes(const Options *o, const TrainConfig *t)
{
    if (!o->classes || o->classes == t->net.classes || (net_is_text(&t->net) && t->net.head != HEAD_CLASSIFY))
        return status_ok();
    return status_error(STATUS_USAGE, "--classes %" PRId64 ": the data have %" PRId64 " classes; leave it out", o->classes, t->net.classes);
}

/* A training that failed is an error of the command; one that does not fit or was interrupted is not. */
static Status judge_training(const json_t *entry)
{
    const char *status = json_string_value(json_object_get(entry, "status"));
    if (!status || strcmp(status, "failed") || interrupt_check().code != STATUS_OK)
        return status_ok();
    return status_error(STATUS_NUMERIC, "the training failed: %s", json_string_value(json_object_get(entry, "reason")));
}

Status run_train(const Options *o, int argc, char **argv, bool *partial)
{
    Runner r = { .options = o, .measure = measure_from_options(o) };
    TrainConfig t;
    char name[CELL_NAME_BYTES];
    Status status;
    TRY_GOTO(status, train_from_options(o, &t), out);
    TRY_GOTO(status, train_settle(&t), out);
    TRY_GOTO(status, check_classes(o, &t), out);
    TRY_GOTO(status, learn_machine(&r), out);
    TRY_GOTO(status, open_record(&r, argc, argv, false), out);
    TRY_GOTO(status, run_training(&r, &t), out);
    const json_t *entry = record_find(r.record, RECORD_TRAININGS, train_name(&t, name, sizeof name));
    if (!o->json)
        print_training(entry);
    TRY_GOTO(status, finish(&r), out);
    status = judge_training(entry);
out:
    return end_run(&r, status, NULL, partial);
}

static Status list_claims(const Options *o)
{
    json_t *list = json_array();
    for (int i = 0; list && i < CLAIM_COUNT; i++) {
        const Claim *c = &claims[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:b,s:s?}", "id", c->id, "title", c->title, "statement", c->statement,
                                              "can_run", c->run != NULL, "waits_for", c->waits_for));
        if (!o->json)
            printf("%-4s %-14s %s\n", c->id, c->run ? "can run" : "not yet", c->title);
    }
    if (!list)
        return status_error(STATUS_OOM, "out of memory for the list of claims");
    Status status = o->json ? record_dump(list, stdout) : status_ok();
    json_decref(list);
    return status;
}

Status run_claims(const Options *o, int argc, char **argv, bool *partial)
{
    if (o->word_count == 0)
        return list_claims(o);
    Runner r = { .options = o, .measure = measure_from_options(o) };
    Status status;
    for (int i = 0; i < o->word_count; i++)
        if (!claim_find(o->words[i]))
            TRY_GOTO(status, status_error(STATUS_USAGE, "unknown claim '%s': 'batchmark claims' lists them", o->words[i]), out);
    r.work.cell_seconds = o->cell_seconds > 0 ? o->cell_seconds : 5;
    TRY_GOTO(status, learn_machine(&r), out);
    TRY_GOTO(status, open_record(&r, argc, argv, true), out);
    for (int i = 0; i < o->word_count; i++) {
        const Claim *claim = claim_find(o->words[i]);
        TRY_GOTO(status, run_claim(&r, claim, o->preset ? o->preset : preset_default(r.gpu)), out);
        const json_t *entry = record_find(r.record, RECORD_CLAIMS, claim->id);
        const char *verdict = json_string_value(json_object_get(entry, "verdict"));
        const char *summary = json_string_value(json_object_get(entry, "summary"));
        r.partial = r.partial || !strcmp(verdict, "not run");
        if (!o->json)
            printf("%s: %s. %s\n", claim->id, verdict, summary ? summary : "");
    }
    status = finish(&r);
out:
    return end_run(&r, status, "claims", partial);
}
