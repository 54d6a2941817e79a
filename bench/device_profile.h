/* device_profile.h - where the time of a step goes on a GPU, from what the device itself recorded (backend.h, DeviceTrace): pure
 * analysis, no device here. Rules: NVIDIA's DLProf viewer guide for the two shares. */
#ifndef BATCHMARK_BENCH_DEVICE_PROFILE_H
#define BATCHMARK_BENCH_DEVICE_PROFILE_H

#include "../kernels/backend.h"
#include "../nets/graph.h"

#include <jansson.h>

/* One whole step on the host's clock: from before its first call until the device was waited for. */
typedef struct StepWindow { double start, end; } StepWindow;

typedef struct DeviceProfile {
    const Graph       *graph;         /* whose node indices are the trace's tags */
    const DeviceTrace *trace;
    const StepWindow  *steps;         /* in order; what began outside all of them (warm-up, other work) does not count */
    int                step_count;
    int64_t            accum;         /* runs of a MICRO node in a step */
    double             plain_seconds; /* a step's time without the profiler; NaN = not measured */
} DeviceProfile;

/* Sums over all steps, in seconds. Intervals that overlap count once in busy, moving and active. */
typedef struct DeviceTotals {
    double  window;                     /* of the steps */
    double  kind[TRACE_KIND_COUNT];     /* durations of kernels, copies by direction, sets */
    double  bytes[TRACE_KIND_COUNT];
    double  busy;                       /* at least one kernel runs */
    double  moving;                     /* at least one copy or set */
    double  active;                     /* anything */
    double  overlap;                    /* copies or sets while a kernel runs */
    double  idle;                       /* window less active */
    double  tensor, untagged;           /* durations of kernels on tensor cores; of events that no node is known of */
    int64_t launches;                   /* kernels */
} DeviceTotals;
DeviceTotals device_profile_totals(const DeviceProfile *p);

/* The "profile" member of a cell, source "cupti". STATUS_OOM. */
Status device_profile_json(const DeviceProfile *p, json_t **out);

/* Chrome trace event format, a lane for each stream, atomically. Everything from the first step's start on. */
Status device_profile_write_trace(const DeviceProfile *p, const char *path);

#endif
