/* train.c - the training loop; see train.h. */
#include "train.h"

#include "env.h"
#include "interrupt.h"
#include "progress.h"
#include "record.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { CURVE_POINTS = 500 };

static const char *data_name(const TrainConfig *t)
{
    return t->feed.data ? t->feed.data : feed_default_data(&t->net);
}

const char *train_name(const TrainConfig *t, char *text, size_t size)
{
    const NetConfig *n = &t->net;
    char extra[CELL_EXTRA_BYTES];
    cell_name_extra(n, extra, sizeof extra);
    snprintf(text, size, "%s/data:%s/%s:%" PRId64 "/batch:%" PRId64 "/accum:%" PRId64 "/amp:%s/seed:%" PRIu64 "%s%s%s", n->net,
             data_name(t), net_is_text(n) ? "seq" : "size", n->size, n->batch, t->accum, amp_names[n->amp], t->seed, extra,
             net_is_text(n) && t->feed.policy != TEXT_FIXED ? "/padding:" : "",
             net_is_text(n) && t->feed.policy != TEXT_FIXED ? text_policy_name(t->feed.policy) : "");
    return text;
}

int64_t train_default_batch(const NetConfig *net)
{
    return net_is_text(net) ? 16 : net_loss(net) == LOSS_CLASSES ? 64 : 8;
}

int64_t train_default_size(const NetConfig *net)
{
    return net_is_text(net) ? net->size : net_loss(net) != LOSS_CLASSES ? 96 : net->stem == STEM_SMALL ? 32 : 64;
}

double train_peak_rate(const TrainConfig *t)
{
    const double effective = (double)(t->accum * t->net.batch);
    if (t->lr > 0)
        return scaled_rate(t->lr, t->accum * t->net.batch, t->base_batch, t->scaling);
    switch (t->net.optim.kind) {
    case OPTIM_ADAMW: return 3e-4;
    case OPTIM_LAMB:  return 2e-3;
    case OPTIM_LARS:  return effective / 256.0;
    default:          return 0.1 * effective / 256.0;
    }
}

static json_t *train_axes(const TrainConfig *t)
{
    CellConfig cell = { t->net, t->accum };
    json_t *axes = cell_axes(&cell);
    json_t *own = json_pack("{s:s,s:I,s:o,s:s,s:f,s:I,s:s,s:f,s:f,s:s}", "data", data_name(t), "epochs", (json_int_t)t->epochs, "lr",
                            record_real(train_peak_rate(t)), "schedule", schedule_names[t->schedule], "warmup", t->warmup, "seed",
                            (json_int_t)t->seed, "lr_scaling", rate_rule_names[t->scaling], "weight_decay",
                            (double)t->net.optim.weight_decay, "clip", (double)t->rules.max_norm, "padding",
                            net_is_text(&t->net) ? text_policy_name(t->feed.policy) : "none");
    if (!axes || !own || json_object_update(axes, own)) {
        json_decref(axes);
        axes = NULL;
    }
    json_decref(own);
    return axes;
}

json_t *train_failed(const TrainConfig *t, const Status *why)
{
    static const char *const members[] = { "effective_batch", "epochs", "curve", "throughput", "target_accuracy",
                                           "samples_to_target", "seconds_to_target", "memory", "loss_scale", "padding" };
    char name[CELL_NAME_BYTES];
    const char *status = why->code == STATUS_OOM ? "oom" : why->code == STATUS_UNSUPPORTED ? "skipped" : "failed";
    json_t *entry = json_pack("{s:s,s:s,s:s,s:o}", "name", train_name(t, name, sizeof name), "status", status, "reason",
                              why->text, "axes", train_axes(t));
    for (size_t i = 0; entry && i < COUNT_OF(members); i++)
        if (json_object_set_new(entry, members[i], json_null())) {
            json_decref(entry);
            return NULL;
        }
    return entry;
}

Status train_settle(TrainConfig *t)
{
    Feed *feed = NULL;
    TRY(net_check(&t->net));
    TRY(feed_open(&t->feed, t->accum, &t->net, &feed));
    feed_close(feed);
    return net_check(&t->net);
}

/* Everything one run holds. */
typedef struct Run {
    const TrainConfig *t;
    TrainConfig copy;
    Bench       bench;
    Feed       *feed;
    MicroBatch *window;                    /* [accum] */
    Progress    progress;
    double      lr, seconds;               /* seconds: of training only, evaluation left out */
    int64_t     update, updates, warmup_updates, samples;
    int64_t     curve_step;
    double      last_score;                /* percent: accuracy, or Dice */
    double      epoch_loss, epoch_correct; /* sums over this epoch */
    int64_t     epoch_counted;
    StepResult  last;
    json_t     *epochs, *curve;
    int64_t     target_samples;            /* -1 = not reached */
    double      target_seconds;
    bool        stop;
} Run;

static Status open_data(Run *r)
{
    NetConfig *n = &r->copy.net;
    n->accumulate = r->t->accum > 1;
    n->train = n->eval = true;
    TRY(feed_open(&r->t->feed, r->t->accum, n, &r->feed));
    r->window = malloc((size_t)r->t->accum * sizeof *r->window);
    if (!r->window)
        return status_error(STATUS_OOM, "out of memory for a window of %" PRId64 " micro-batches", r->t->accum);
    int64_t per_epoch = (feed_batches(r->feed) + r->t->accum - 1) / r->t->accum; /* the last window may be shorter */
    r->updates = per_epoch * r->t->epochs;
    r->warmup_updates = (int64_t)(r->t->warmup * (double)per_epoch);
    r->curve_step = (r->updates + CURVE_POINTS - 1) / CURVE_POINTS;
    return status_ok();
}

static Status note_update(Run *r, const StepResult *step, double rate)
{
    if (r->update % r->curve_step != 0 && r->update + 1 != r->updates)
        return status_ok();
    json_t *point = json_pack("{s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:b}", "update", (json_int_t)(r->update + 1), "samples", (json_int_t)r->samples,
                              "loss", record_real(step->loss), "accuracy", record_real(100 * step->accuracy), "grad_norm",
                              record_real(step->grad_norm), "lr", record_real(rate), "loss_scale", record_real(step->loss_scale),
                              "skipped", step->skipped);
    return json_array_append_new(r->curve, point) ? status_error(STATUS_OOM, "out of memory for the curve") : status_ok();
}

/* One update: up to accum micro-batches, fewer at the end of an epoch; gradients are means over what they have labelled. */
static Status train_update(Run *r, int64_t micro_batches, StepResult *result)
{
    Session *s = &r->bench.session;
    double start = clock_seconds();
    int64_t counted = 0;
    for (int64_t k = 0; k < micro_batches; k++) {
        int64_t samples;
        TRY(feed_next(r->feed, &r->window[k], &samples));
        counted += r->window[k].counted;
        r->samples += samples;
    }
    TRY(step_begin(s, counted));
    for (int64_t k = 0; k < micro_batches; k++)
        TRY(step_micro(s, &r->window[k]));
    double rate = schedule_rate(r->t->schedule, r->lr, r->update, r->updates, r->warmup_updates);
    TRY(step_update(s, (float)rate));
    TRY(step_result(s, result));
    r->seconds += clock_seconds() - start;
    return note_update(r, result, rate);
}

static void show(Run *r, int64_t epoch)
{
    const double n = (double)(r->epoch_counted ? r->epoch_counted : 1);
    progress_update(&r->progress, (double)r->update / (double)r->updates,
                    "epoch %" PRId64 "/%" PRId64 "  loss %.3f  accuracy %.1f %%  %.0f samples/s", epoch, r->t->epochs,
                    r->epoch_loss / n, 100 * r->epoch_correct / n, (double)r->samples / r->seconds);
}

static Status evaluate(Run *r, StepResult *result)
{
    Session   *s = &r->bench.session;
    MicroBatch batch;
    bool       more;
    TRY(feed_eval_begin(r->feed));
    TRY(eval_begin(s));
    for (;;) {
        TRY(interrupt_check());
        TRY(feed_eval_next(r->feed, &batch, &more));
        if (!more)
            return eval_result(s, result);
        TRY(eval_batch(s, &batch));
    }
}

static Status train_epoch(Run *r, int64_t epoch)
{
    int64_t batches = feed_batches(r->feed);
    r->epoch_loss = r->epoch_correct = 0;
    r->epoch_counted = 0;
    for (int64_t done = 0; done < batches && !r->stop; r->update++) {
        TRY(interrupt_check());
        int64_t k = batches - done < r->t->accum ? batches - done : r->t->accum;
        StepResult *step = &r->last;
        TRY(train_update(r, k, step));
        done += k;
        if (isfinite(step->loss)) { /* under fp16 a skipped update may have none */
            r->epoch_counted += step->counted;
            r->epoch_loss += step->loss * (double)step->counted;
            r->epoch_correct += step->accuracy * (double)step->counted;
        }
        r->stop = r->t->max_seconds > 0 && r->seconds > r->t->max_seconds;
        show(r, epoch);
    }
    return status_ok();
}

/* What a test result is judged by, in percent. */
static double score(const StepResult *test)
{
    return 100 * (isnan(test->dice) ? test->accuracy : test->dice);
}

static Status note_epoch(Run *r, int64_t epoch, const StepResult *test)
{
    double n = (double)r->epoch_counted;
    r->last_score = score(test);
    if (r->t->target_acc > 0 && r->last_score >= r->t->target_acc && r->target_samples < 0) {
        r->target_samples = r->samples;
        r->target_seconds = r->seconds;
        r->stop = true;
    }
    json_t *entry = json_pack("{s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:o,s:o}", "epoch", (json_int_t)epoch, "train_loss",
                              record_real(r->epoch_loss / n), "train_accuracy", record_real(100 * r->epoch_correct / n), "test_loss",
                              record_real(test->loss), "test_accuracy", record_real(100 * test->accuracy), "test_dice",
                              record_real(100 * test->dice), "test_image_dice", record_real(100 * test->image_dice), "samples",
                              (json_int_t)r->samples, "seconds", record_real(r->seconds), "wait_seconds",
                              record_real(feed_wait_seconds(r->feed)));
    return json_array_append_new(r->epochs, entry) ? status_error(STATUS_OOM, "out of memory for the epochs") : status_ok();
}

static void tell_epoch(const Run *r, int64_t epoch, const StepResult *test)
{
    char dice[48] = "";
    if (!isnan(test->dice))
        snprintf(dice, sizeof dice, ", test Dice %.2f %%", 100 * test->dice);
    log_info("epoch %" PRId64 "/%" PRId64 ": train loss %.4f, train accuracy %.2f %%, test loss %.4f, test accuracy %.2f %%%s, %.0f samples/s",
             epoch, r->t->epochs, r->epoch_loss / (double)r->epoch_counted, 100 * r->epoch_correct / (double)r->epoch_counted,
             test->loss, 100 * test->accuracy, dice, (double)r->samples / r->seconds);
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
            tell_epoch(r, epoch, &test);
        }
    }
    return status_ok();
}

/* How the loss scale went; null without one. */
static json_t *loss_scale_json(const Run *r)
{
    if (r->t->net.amp != AMP_FP16)
        return json_null();
    return json_pack("{s:o,s:I}", "last", record_real(r->last.loss_scale), "skipped_updates", (json_int_t)r->last.skips);
}

/* Rows of text that were computed and how many were real tokens; null for images. */
static json_t *padding_json(const Run *r)
{
    int64_t rows, tokens;
    feed_rows(r->feed, &rows, &tokens);
    if (!rows)
        return json_null();
    return json_pack("{s:s,s:I,s:I,s:o,s:o}", "policy", text_policy_name(r->t->feed.policy), "rows", (json_int_t)rows, "tokens",
                     (json_int_t)tokens, "share", record_real(1 - (double)tokens / (double)rows), "tokens_per_second",
                     record_real((double)tokens / r->seconds));
}

static Status train_entry(Run *r, const Status *ended, json_t **entry)
{
    char name[CELL_NAME_BYTES];
    bool ok = ended->code == STATUS_OK, reached = r->target_samples >= 0;
    *entry = json_pack("{s:s,s:s,s:o,s:o,s:I,s:O,s:O,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", train_name(&r->copy, name, sizeof name), "status",
                       ok ? "ok" : "failed", "reason", ok ? json_null() : json_string(ended->text), "axes", train_axes(&r->copy),
                       "effective_batch", (json_int_t)(r->t->accum * r->t->net.batch), "epochs", r->epochs, "curve", r->curve,
                       "throughput", record_real((double)r->samples / r->seconds), "target_accuracy",
                       r->t->target_acc > 0 ? record_real(r->t->target_acc) : json_null(), "samples_to_target",
                       reached ? json_integer((json_int_t)r->target_samples) : json_null(), "seconds_to_target",
                       reached ? record_real(r->target_seconds) : json_null(), "memory",
                       bench_memory_json(&r->bench),
                       "loss_scale", loss_scale_json(r), "padding", padding_json(r));
    return *entry ? status_ok() : status_error(STATUS_OOM, "out of memory for the record of a training");
}

Status train_run(const TrainConfig *t, const MeasureOptions *options, bool progress, json_t **entry)
{
    Run r = { .t = t, .copy = *t, .lr = train_peak_rate(t), .target_samples = -1 };
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
    open.timed = t->net.amp != AMP_FP16; /* numerics are worth having where fp16 has no speed */
    TRY_GOTO(status, bench_open(&r.copy.net, &open, &r.bench), out);
    r.bench.session.rules = t->rules;
    progress_start(&r.progress, progress);
    if (progress)
        log_info("%s", feed_describe(r.feed));
    status = train_loop(&r);
    progress_end(&r.progress);
    if (status.code == STATUS_OK || status.code == STATUS_INTERRUPTED || status.code == STATUS_NUMERIC)
        status = train_entry(&r, &status, entry);
out:
    feed_close(r.feed);
    free(r.window);
    bench_close(&r.bench);
    json_decref(r.epochs);
    json_decref(r.curve);
    return status;
}
