/* train.c - the training loop; see train.h. */
#include "train.h"

#include "env.h"
#include "interrupt.h"
#include "progress.h"
#include "record.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CURVE_POINTS = 500, QUEUE = 4 };

const char *train_name(const TrainConfig *t, char *text, size_t size)
{
    char extra[64] = "";
    if (t->net.width != 1.0)
        snprintf(extra, sizeof extra, "/width:%g", t->net.width);
    if (t->net.stem != STEM_STANDARD)
        snprintf(extra + strlen(extra), sizeof extra - strlen(extra), "/stem:%s", stem_names[t->net.stem]);
    snprintf(text, size, "%s/data:%s/size:%" PRId64 "/batch:%" PRId64 "/accum:%" PRId64 "/amp:%s/seed:%" PRIu64 "%s", t->net.net,
             t->data.name, t->net.size, t->net.batch, t->accum, amp_names[t->net.amp], t->seed, extra);
    return text;
}

double schedule_rate(Schedule schedule, double peak, int64_t update, int64_t updates, int64_t warmup)
{
    if (update < warmup)
        return peak * (double)(update + 1) / (double)warmup;
    double done = updates > warmup ? (double)(update - warmup) / (double)(updates - warmup) : 0;
    done = done < 1 ? done : 1;
    switch (schedule) {
    case SCHEDULE_LINEAR: return peak * (1 - done);
    case SCHEDULE_COSINE: return peak * 0.5 * (1 + cos(3.14159265358979323846 * done));
    default:              return peak;
    }
}

static json_t *train_axes(const TrainConfig *t, double lr)
{
    const NetConfig *n = &t->net;
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:f,s:s,s:I,s:I,s:o,s:s,s:f,s:I}", "net", n->net, "data", t->data.name, "size",
                     (json_int_t)n->size, "batch", (json_int_t)n->batch, "accum", (json_int_t)t->accum, "amp", amp_names[n->amp],
                     "width", n->width, "stem", stem_names[n->stem], "classes", (json_int_t)n->classes, "epochs",
                     (json_int_t)t->epochs, "lr", record_real(lr), "schedule", schedule_names[t->schedule], "warmup", t->warmup,
                     "seed", (json_int_t)t->seed);
}

static double peak_rate(const TrainConfig *t)
{
    return t->lr > 0 ? t->lr : 0.1 * (double)(t->accum * t->net.batch) / 256.0;
}

json_t *train_failed(const TrainConfig *t, const Status *why)
{
    static const char *const members[] = { "effective_batch", "epochs", "curve", "throughput", "target_accuracy",
                                           "samples_to_target", "seconds_to_target", "memory" };
    char name[CELL_NAME_BYTES];
    const char *status = why->code == STATUS_OOM ? "oom" : why->code == STATUS_UNSUPPORTED ? "skipped" : "failed";
    json_t *entry = json_pack("{s:s,s:s,s:s,s:o}", "name", train_name(t, name, sizeof name), "status", status, "reason",
                              why->text, "axes", train_axes(t, peak_rate(t)));
    for (size_t i = 0; entry && i < COUNT_OF(members); i++)
        if (json_object_set_new(entry, members[i], json_null())) {
            json_decref(entry);
            return NULL;
        }
    return entry;
}

Status train_check_data(const TrainConfig *t)
{
    DatasetConfig config = t->data;
    Dataset *data = NULL;
    config.size = t->net.size;
    TRY(dataset_open(&config, &data));
    int64_t count = dataset_count(data, SPLIT_TRAIN);
    bool labels = dataset_task(data) == TASK_CLASSIFY;
    dataset_close(data);
    if (!labels)
        return status_error(STATUS_USAGE, "--data %s has masks, but resnet50 learns labels", t->data.name);
    if (t->net.batch > count)
        return status_error(STATUS_USAGE, "--batch %" PRId64 " is more than the %" PRId64 " training samples of %s", t->net.batch, count, t->data.name);
    return status_ok();
}

/* Everything one run holds. */
typedef struct Run {
    const TrainConfig *t;
    TrainConfig copy;
    Bench       bench;
    Dataset    *data;
    Loader     *loader;
    Progress    progress;
    double      lr, seconds, wait_before; /* seconds: of training only, evaluation left out */
    int64_t     update, updates, warmup_updates, samples;
    int64_t     curve_step;
    double      last_loss, last_accuracy;
    double      epoch_loss, epoch_correct; /* sums over this epoch */
    int64_t     epoch_samples;
    json_t     *epochs, *curve;
    int64_t     target_samples;            /* -1 = not reached */
    double      target_seconds;
    bool        stop;
} Run;

static Status open_data(Run *r)
{
    r->copy.data.size = r->t->net.size;
    TRY(dataset_open(&r->copy.data, &r->data));
    NetConfig *n = &r->copy.net;
    n->classes = dataset_classes(r->data);
    dataset_channel_stats(r->data, n->mean, n->deviation);
    n->accumulate = r->t->accum > 1;
    n->train = n->eval = true;
    LoaderConfig loader = { .split = SPLIT_TRAIN, .batch = n->batch, .threads = r->t->loaders, .queue = QUEUE, .seed = r->t->seed,
                            .shuffle = true, .augment = r->t->augment, .drop_last = true, .repeat = true };
    TRY(loader_create(r->data, &loader, &r->loader));
    int64_t per_epoch = (loader_batches(r->loader) + r->t->accum - 1) / r->t->accum; /* the last window may be shorter */
    r->updates = per_epoch * r->t->epochs;
    r->warmup_updates = (int64_t)(r->t->warmup * (double)per_epoch);
    r->curve_step = (r->updates + CURVE_POINTS - 1) / CURVE_POINTS;
    return status_ok();
}

/* One update: up to accum micro-batches, fewer at the end of an epoch; gradients are means over the samples it has. */
static Status train_update(Run *r, int64_t micro_batches, StepResult *result)
{
    Session *s = &r->bench.session;
    double start = clock_seconds();
    TRY(step_begin(s, micro_batches * r->copy.net.batch));
    for (int64_t k = 0; k < micro_batches; k++) {
        const Batch *batch;
        TRY(loader_next(r->loader, &batch));
        CHECK(batch); /* a repeating loader never ends */
        MicroBatch micro = { batch->pixels, batch->labels };
        TRY(step_micro(s, &micro));
    }
    double rate = schedule_rate(r->t->schedule, r->lr, r->update, r->updates, r->warmup_updates);
    TRY(step_update(s, (float)rate));
    TRY(step_result(s, result));
    r->seconds += clock_seconds() - start;
    if (r->update % r->curve_step == 0 || r->update + 1 == r->updates)
        if (json_array_append_new(r->curve, json_pack("{s:I,s:I,s:o,s:o,s:o,s:o}", "update", (json_int_t)(r->update + 1), "samples",
                                                      (json_int_t)(r->samples + result->samples), "loss", record_real(result->loss),
                                                      "accuracy", record_real(100 * result->accuracy), "grad_norm",
                                                      record_real(result->grad_norm), "lr", record_real(rate))))
            return status_error(STATUS_OOM, "out of memory for the curve");
    return status_ok();
}

static void show(Run *r, int64_t epoch)
{
    progress_update(&r->progress, (double)r->update / (double)r->updates,
                    "epoch %" PRId64 "/%" PRId64 "  loss %.3f  accuracy %.1f %%  %.0f samples/s", epoch, r->t->epochs,
                    r->epoch_loss / (double)(r->epoch_samples ? r->epoch_samples : 1),
                    100 * r->epoch_correct / (double)(r->epoch_samples ? r->epoch_samples : 1), (double)r->samples / r->seconds);
}

static Status evaluate(Run *r, StepResult *result)
{
    LoaderConfig config = { .split = SPLIT_TEST, .batch = r->copy.net.batch, .threads = r->t->loaders, .queue = QUEUE };
    Loader *loader = NULL;
    const Batch *batch = NULL;
    Session *s = &r->bench.session;
    Status status;
    TRY_GOTO(status, loader_create(r->data, &config, &loader), out);
    TRY_GOTO(status, eval_begin(s), out);
    for (;;) {
        TRY_GOTO(status, interrupt_check(), out);
        TRY_GOTO(status, loader_next(loader, &batch), out);
        if (!batch)
            break;
        MicroBatch micro = { batch->pixels, batch->labels };
        TRY_GOTO(status, eval_batch(s, &micro), out);
    }
    status = eval_result(s, result);
out:
    loader_destroy(loader);
    return status;
}

static Status train_epoch(Run *r, int64_t epoch)
{
    int64_t batches = loader_batches(r->loader);
    r->epoch_loss = r->epoch_correct = 0;
    r->epoch_samples = 0;
    for (int64_t done = 0; done < batches && !r->stop; r->update++) {
        TRY(interrupt_check());
        int64_t k = batches - done < r->t->accum ? batches - done : r->t->accum;
        StepResult step;
        TRY(train_update(r, k, &step));
        done += k;
        r->samples += step.samples;
        r->epoch_samples += step.samples;
        r->epoch_loss += step.loss * (double)step.samples;
        r->epoch_correct += step.accuracy * (double)step.samples;
        r->stop = r->t->max_seconds > 0 && r->seconds > r->t->max_seconds;
        show(r, epoch);
    }
    return status_ok();
}

static Status note_epoch(Run *r, int64_t epoch, const StepResult *test)
{
    double n = (double)r->epoch_samples, wait = loader_wait_seconds(r->loader);
    r->last_accuracy = 100 * test->accuracy;
    if (r->t->target_acc > 0 && r->last_accuracy >= r->t->target_acc && r->target_samples < 0) {
        r->target_samples = r->samples;
        r->target_seconds = r->seconds;
        r->stop = true;
    }
    json_t *entry = json_pack("{s:I,s:o,s:o,s:o,s:o,s:I,s:o,s:o}", "epoch", (json_int_t)epoch, "train_loss", record_real(r->epoch_loss / n),
                              "train_accuracy", record_real(100 * r->epoch_correct / n), "test_loss", record_real(test->loss),
                              "test_accuracy", record_real(r->last_accuracy), "samples", (json_int_t)r->samples, "seconds",
                              record_real(r->seconds), "wait_seconds", record_real(wait));
    return json_array_append_new(r->epochs, entry) ? status_error(STATUS_OOM, "out of memory for the epochs") : status_ok();
}

static Status train_loop(Run *r)
{
    for (int64_t epoch = 1; epoch <= r->t->epochs && !r->stop; epoch++) {
        StepResult test;
        TRY(train_epoch(r, epoch));
        TRY(evaluate(r, &test));
        TRY(note_epoch(r, epoch, &test));
        if (r->progress.enabled) {
            progress_end(&r->progress);
            log_info("epoch %" PRId64 "/%" PRId64 ": train loss %.4f, train accuracy %.2f %%, test loss %.4f, test accuracy %.2f %%, %.0f samples/s",
                     epoch, r->t->epochs, r->epoch_loss / (double)r->epoch_samples, 100 * r->epoch_correct / (double)r->epoch_samples,
                     test.loss, 100 * test.accuracy, (double)r->samples / r->seconds);
        }
    }
    return status_ok();
}

static Status train_entry(Run *r, const Status *ended, json_t **entry)
{
    char name[CELL_NAME_BYTES];
    bool ok = ended->code == STATUS_OK, reached = r->target_samples >= 0;
    *entry = json_pack("{s:s,s:s,s:o,s:o,s:I,s:O,s:O,s:o,s:o,s:o,s:o,s:o}", "name", train_name(&r->copy, name, sizeof name), "status",
                       ok ? "ok" : "failed", "reason", ok ? json_null() : json_string(ended->text), "axes", train_axes(&r->copy, r->lr),
                       "effective_batch", (json_int_t)(r->t->accum * r->t->net.batch), "epochs", r->epochs, "curve", r->curve,
                       "throughput", record_real((double)r->samples / r->seconds), "target_accuracy",
                       r->t->target_acc > 0 ? record_real(r->t->target_acc) : json_null(), "samples_to_target",
                       reached ? json_integer((json_int_t)r->target_samples) : json_null(), "seconds_to_target",
                       reached ? record_real(r->target_seconds) : json_null(), "memory",
                       memory_json(&r->bench.plan, exec_allocated_peak(r->bench.session.exec), env_process_peak_bytes()));
    return *entry ? status_ok() : status_error(STATUS_OOM, "out of memory for the record of a training");
}

Status train_run(const TrainConfig *t, const MeasureOptions *options, bool progress, json_t **entry)
{
    Run r = { .t = t, .copy = *t, .lr = peak_rate(t), .target_samples = -1 };
    Status status;
    *entry = NULL;
    r.epochs = json_array();
    r.curve = json_array();
    if (!r.epochs || !r.curve)
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for the record of a training"), out);
    env_process_peak_reset();
    TRY_GOTO(status, open_data(&r), out);
    MeasureOptions open = *options;
    open.seed = t->seed;
    TRY_GOTO(status, bench_open(&r.copy.net, &open, &r.bench), out);
    progress_start(&r.progress, progress);
    if (progress)
        log_info("%s", dataset_describe(r.data));
    status = train_loop(&r);
    progress_end(&r.progress);
    if (status.code == STATUS_OK || status.code == STATUS_INTERRUPTED || status.code == STATUS_NUMERIC)
        status = train_entry(&r, &status, entry);
out:
    loader_destroy(r.loader);
    dataset_close(r.data);
    bench_close(&r.bench);
    json_decref(r.epochs);
    json_decref(r.curve);
    return status;
}
