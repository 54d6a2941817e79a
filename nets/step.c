/* step.c - one update of a training session in its parts, and evaluation; see nets.h. */
#include "nets.h"

#include <math.h>

/* Host data of one micro-batch to the device; its time is the "copy" of the profile. */
static Status copy_in(Session *s, const MicroBatch *batch)
{
    double start = clock_seconds();
    TRY(exec_write(s->exec, s->net->image, batch->pixels));
    TRY(exec_write(s->exec, s->net->labels, batch->labels));
    s->copy_seconds += clock_seconds() - start;
    return status_ok();
}

/* {loss sum, correct, counted, 0} as means; of nothing, zeros. */
static StepResult from_metrics(const float metrics[4])
{
    double counted = (double)metrics[2];
    if (counted == 0)
        return (StepResult){ 0, 0, 0, 0 };
    return (StepResult){ (double)metrics[0] / counted, (double)metrics[1] / counted, 0, (int64_t)counted };
}

Status step_begin(Session *s, int64_t window)
{
    if (window < 0)
        return status_error(STATUS_USAGE, "a window cannot have %lld samples", (long long)window);
    float scale = window ? (float)(1.0 / (double)window) : 0; /* nothing labelled: no gradient, and no 0/0 */
    TRY(exec_write(s->exec, s->net->scale, &scale));
    return exec_run(s->exec, SEG_BEGIN);
}

Status step_micro(Session *s, const MicroBatch *batch)
{
    TRY(copy_in(s, batch));
    return exec_run(s->exec, SEG_MICRO);
}

Status step_update(Session *s, float learning_rate)
{
    float hyper[8] = { learning_rate };
    TRY(exec_write(s->exec, s->net->hyper, hyper));
    return exec_run(s->exec, SEG_UPDATE);
}

Status step_result(Session *s, StepResult *out)
{
    float metrics[4], norm2;
    TRY(exec_read(s->exec, s->net->metrics, metrics));
    TRY(exec_read(s->exec, s->net->norm2, &norm2));
    *out = from_metrics(metrics);
    out->grad_norm = sqrt((double)norm2);
    if (!isfinite(out->loss))
        return status_error(STATUS_NUMERIC, "the loss is %f: the learning rate may be too high for this batch", out->loss);
    return status_ok();
}

Status eval_begin(Session *s)
{
    const float zero[4] = { 0 };
    return exec_write(s->exec, s->net->eval_metrics, zero);
}

Status eval_batch(Session *s, const MicroBatch *batch)
{
    TRY(copy_in(s, batch));
    return exec_run(s->exec, SEG_EVAL);
}

Status eval_result(Session *s, StepResult *out)
{
    float metrics[4];
    TRY(exec_read(s->exec, s->net->eval_metrics, metrics));
    *out = from_metrics(metrics);
    return isfinite(out->loss) ? status_ok() : status_error(STATUS_NUMERIC, "the evaluation loss is %f", out->loss);
}
