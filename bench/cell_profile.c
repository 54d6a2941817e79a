/* cell_profile.c - the body of cell_profile.h. */
#include "cell_profile.h"

#include "device_profile.h"
#include "profile.h"

#include <string.h>

/* On a device the first step under the profiler makes recordings anew and loads what the profiler needs: it is run and left out. */
enum { PROFILE_STEPS = 2, PROFILE_WARMUP = 1 };

/* ---- by the executor's clock ---- */

static Status clock_profile(Bench *b, const MicroBatch *data, int64_t accum, const MeasureOptions *o, json_t **out)
{
    Profile *profile = NULL;
    TRY(profile_create(b->net.graph, o->trace_path != NULL, &profile));
    exec_set_clock(b->session.exec, profile_note_node, profile);
    Status status = status_ok();
    for (int i = 0; i < PROFILE_STEPS && status.code == STATUS_OK; i++) {
        double copied = b->session.copy_seconds, start = clock_seconds();
        status = cell_run_step(b, data, accum);
        double end = clock_seconds();
        profile_note_span(profile, PROFILE_COPY, start, start + (b->session.copy_seconds - copied));
        profile_note_step(profile, start, end);
    }
    exec_set_clock(b->session.exec, NULL, NULL);
    if (status.code == STATUS_OK)
        status = profile_json(profile, out);
    if (status.code == STATUS_OK && o->trace_path)
        status = profile_write_trace(profile, o->trace_path);
    profile_destroy(profile);
    return status;
}

/* ---- by the device ---- */

static Status run_traced_steps(Bench *b, const MicroBatch *data, int64_t accum, StepWindow steps[PROFILE_STEPS])
{
    for (int i = -PROFILE_WARMUP; i < PROFILE_STEPS; i++) {
        StepWindow step = { .start = clock_seconds() };
        TRY(cell_run_step(b, data, accum));
        step.end = clock_seconds();
        if (i >= 0)
            steps[i] = step;
    }
    return status_ok();
}

/* What is no profile, but no failure of the cell either. */
static bool only_no_profile(const Status *s)
{
    return s->code == STATUS_UNSUPPORTED || s->code == STATUS_OOM;
}

static Status device_profile(Bench *b, const MicroBatch *data, int64_t accum, const MeasureOptions *o, double plain_seconds,
                             CellProfile *out)
{
    const BackendVtable *device = b->backend->vtable;
    DeviceTrace trace = { 0 };
    StepWindow  steps[PROFILE_STEPS];
    Status status = device->trace_start ? device->trace_start(b->backend)
                                        : status_error(STATUS_UNSUPPORTED, "the backend %s has no profiler", device->name);
    if (status.code != STATUS_OK)
        goto out;
    exec_set_tags(b->session.exec, true);
    status = run_traced_steps(b, data, accum, steps);
    exec_set_tags(b->session.exec, false);
    Status stopped = device->trace_stop(b->backend, &trace);
    if (status.code != STATUS_OK) {
        device_trace_free(&trace);
        return status; /* of the step: the cell has failed */
    }
    TRY_GOTO(status, stopped, out);
    DeviceProfile profile = { b->net.graph, &trace, steps, PROFILE_STEPS, accum, plain_seconds };
    TRY_GOTO(status, device_profile_json(&profile, &out->json), out);
    if (o->trace_path)
        status = device_profile_write_trace(&profile, o->trace_path);
out:
    device_trace_free(&trace);
    if (!out->json && only_no_profile(&status)) {
        snprintf(out->reason, sizeof out->reason, "%s", status.text);
        log_warn("no profile: %s", status.text);
        return status_ok();
    }
    return status;
}

Status cell_profile(Bench *b, const MicroBatch *data, int64_t accum, const MeasureOptions *o, double plain_seconds, CellProfile *out)
{
    memset(out, 0, sizeof *out);
    return b->info.is_gpu ? device_profile(b, data, accum, o, plain_seconds, out) : clock_profile(b, data, accum, o, &out->json);
}
