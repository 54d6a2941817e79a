/* step.c - one update of a training session in its parts, and evaluation; see nets.h. */
#include "nets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The loss scale of torch.amp.GradScaler; it stays within what f32 can divide by and multiply with. */
static const float SCALE_GROWTH = 2, SCALE_BACKOFF = 0.5f, SCALE_LEAST = 1, SCALE_LARGEST = 0x1p24f;
enum { GROWTH_INTERVAL = 2000, MAX_SKIPS_AT_LEAST = 20, MAX_METRICS = 5 + 3 * 64 };

UpdateRules session_rules(void)
{
    return (UpdateRules){ 0, GROWTH_INTERVAL };
}

static Status write_if(Session *s, Value v, const void *host, const char *what)
{
    if (v.id < 0)
        return status_ok();
    if (!host)
        return status_error(STATUS_USAGE, "%s needs %s in each micro-batch", s->net->config.net, what);
    return exec_write(s->exec, v, host);
}

/* Host data of one micro-batch to the device; its time is the "copy" of the profile. */
static Status copy_in(Session *s, const MicroBatch *b)
{
    const Net *n = s->net;
    double start = clock_seconds();
    TRY(write_if(s, n->image, b->pixels, "pixels"));
    TRY(write_if(s, n->mask, b->mask, "a mask"));
    TRY(write_if(s, n->tokens, b->tokens, "tokens"));
    TRY(write_if(s, n->positions, b->positions, "positions"));
    TRY(write_if(s, n->types, b->types, "types"));
    TRY(write_if(s, n->spans, b->spans, "spans"));
    TRY(write_if(s, n->rows, b->rows, "rows"));
    TRY(write_if(s, n->labels, b->labels, "labels"));
    s->copy_seconds += clock_seconds() - start;
    return status_ok();
}

/* {both, predicted, true} of classes from `first` on: their mean Dice, 1 for a class that is nowhere. */
static double pooled_dice(const float *triples, int64_t first, int64_t classes)
{
    double sum = 0;
    for (int64_t c = first; c < classes; c++) {
        double both = (double)triples[3 * c], all = (double)triples[3 * c + 1] + (double)triples[3 * c + 2];
        sum += all > 0 ? 2 * both / all : 1;
    }
    return sum / (double)(classes - first);
}

/* Sums as means; of nothing, zeros. */
static StepResult from_metrics(const NetConfig *config, const float *m)
{
    const double counted = (double)m[2];
    StepResult   r = { .dice = NAN, .image_dice = NAN, .loss_scale = 1, .counted = (int64_t)counted };
    if (counted > 0 || isnan(counted)) {
        r.loss = (double)m[0] / counted;
        r.accuracy = (double)m[1] / counted;
    }
    if (net_loss(config) == LOSS_CLASSES)
        return r;
    r.dice = net_loss(config) == LOSS_DICE ? pooled_dice(m + 5, 0, 1) : pooled_dice(m + 5, 1, config->classes);
    r.image_dice = m[4] > 0 ? (double)m[3] / (double)m[4] : 0;
    return r;
}

static Status read_metrics(Session *s, Value v, StepResult *out)
{
    float metrics[MAX_METRICS];
    TRY(exec_read(s->exec, v, metrics));
    *out = from_metrics(&s->net->config, metrics);
    return status_ok();
}

Status step_begin(Session *s, int64_t window)
{
    if (window < 0)
        return status_error(STATUS_USAGE, "a window cannot have %lld samples", (long long)window);
    float scale = window ? (float)(1.0 / (double)window) : 0; /* nothing labelled: no gradient, and no 0/0 */
    TRY(exec_write(s->exec, s->net->scale, &scale));
    return exec_run(s->exec, SEG_BEGIN);
}

Status step_write(Session *s, const MicroBatch *batch)
{
    TRY(copy_in(s, batch));
    if (s->net->rng.id < 0)
        return status_ok();
    int32_t rng[4] = { (int32_t)(uint32_t)s->seed, (int32_t)(uint32_t)(s->seed >> 32), (int32_t)s->draws++, 0 };
    return exec_write(s->exec, s->net->rng, rng);
}

Status step_micro(Session *s, const MicroBatch *batch)
{
    TRY(step_write(s, batch));
    return exec_run(s->exec, SEG_MICRO);
}

Status step_update(Session *s, float learning_rate)
{
    const bool scaled = s->net->config.amp == AMP_FP16;
    float hyper[8] = { learning_rate, s->rules.max_norm, scaled ? (float)s->rules.growth_interval : 0, SCALE_GROWTH,
                       SCALE_BACKOFF, SCALE_LEAST, SCALE_LARGEST, 0 };
    TRY(exec_write(s->exec, s->net->hyper, hyper));
    return exec_run(s->exec, SEG_UPDATE);
}

/* Runs the last batch of a segment again, whose inputs are still there, to say where the first number is that is not finite. */
static const char *find_source(const Session *s, Segment segment, char *text, size_t size)
{
    Status named = exec_run_checked(s->exec, segment);
    snprintf(text, size, "%s", named.code == STATUS_OK ? "the last batch is finite by itself" : named.text);
    return text;
}

/* Under fp16 a loss or gradient that is not finite is met by a smaller scale, until there is no smaller one. Otherwise the
 * update has been made, so the weights may be what is found. */
static Status judge(const Session *s, const StepResult *r)
{
    char source[STATUS_TEXT_BYTES];
    if (s->net->config.amp == AMP_FP16) {
        if (r->skips_in_row < MAX_SKIPS_AT_LEAST || r->loss_scale > (double)SCALE_LEAST)
            return status_ok();
        return status_error(STATUS_NUMERIC, "%lld updates in a row were skipped, the last at the least loss scale, %g: %s",
                            (long long)r->skips_in_row, (double)SCALE_LEAST, find_source(s, SEG_MICRO, source, sizeof source));
    }
    if (!isfinite(r->loss))
        return status_error(STATUS_NUMERIC, "the loss is not finite: the learning rate may be too high for this batch; after the "
                            "update, %s (--check-nan looks before it)", find_source(s, SEG_MICRO, source, sizeof source));
    return status_ok();
}

Status step_result(Session *s, StepResult *out)
{
    float norm2, control[8];
    TRY(read_metrics(s, s->net->metrics, out));
    TRY(exec_read(s->exec, s->net->norm2, &norm2));
    TRY(exec_read(s->exec, s->net->control, control));
    out->grad_norm = sqrt((double)norm2);
    out->skipped = control[2] != 0;
    out->loss_scale = (double)control[3];
    out->skips = (int64_t)control[5];
    out->skips_in_row = (int64_t)control[7];
    return judge(s, out);
}

Status eval_begin(Session *s)
{
    const float zero[MAX_METRICS] = { 0 };
    return exec_write(s->exec, s->net->eval_metrics, zero);
}

Status eval_batch(Session *s, const MicroBatch *batch)
{
    TRY(copy_in(s, batch));
    return exec_run(s->exec, SEG_EVAL);
}

Status eval_result(Session *s, StepResult *out)
{
    char source[STATUS_TEXT_BYTES];
    TRY(read_metrics(s, s->net->eval_metrics, out));
    if (isfinite(out->loss))
        return status_ok();
    return status_error(STATUS_NUMERIC, "the evaluation loss is not finite: %s", find_source(s, SEG_EVAL, source, sizeof source));
}
