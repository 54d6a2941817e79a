/* fake_cudnn.h - a stand-in for cuDNN at the level of its own interface: what the CUDA backend really hands to cuDNN is checked,
 * and executed on the host (interp.h).
 *
 * Descriptors are accepted and refused as cuDNN 9 does (test_cudnn_agrees.c asks both the same questions), in some places more
 * strictly: grouped convolutions are refused, since only a wrong channel count leads to them here; so are an output that lies over
 * what the graph reads, but for pointwise ops in place and running statistics, and a variant pack that does not name exactly
 * the graph's tensors, in device memory. A workspace is filled with NaN bytes when a plan runs. Plans run as tasks of the stream
 * that the handle was given. Faults: fake_set_fault (fake.h) with FAKE_CUDNN.
 *
 * The library has no context of its own, like the real one, so its state is global; fake_cudnn_reset puts it back. */
#ifndef BATCHMARK_TESTS_FAKE_CUDNN_H
#define BATCHMARK_TESTS_FAKE_CUDNN_H

#include "../../kernels/cuda/libs.h"

/* One engine, that is one configuration in the answer of the heuristics. */
typedef struct FakeCudnnEngine {
    int64_t  index;     /* CUDNN_ATTR_ENGINE_GLOBAL_INDEX */
    int64_t  workspace; /* bytes of its plans */
    unsigned notes;     /* one bit a cudnnBackendNumericalNote_t. DOWN_CONVERT_INPUTS is given out, and f32 inputs of products are
                         * rounded to TF32, for graphs with products of f32 tensors only */
    int64_t  knob;      /* what its configuration says of CUDNN_KNOB_TYPE_TILE_SIZE; 0: it has no knobs */
    unsigned behaviour; /* one bit a cudnnBackendBehaviorNote_t */
    double   microseconds; /* that its plans take on the clock of events */
    bool     fallback;  /* listed by CUDNN_HEUR_MODE_FALLBACK instead of the other modes */
    bool     refuses;   /* no plan of it can be finalised */
    bool     fails;     /* its plans cannot be executed: CUDNN_STATUS_EXECUTION_FAILED */
} FakeCudnnEngine;

enum { FAKE_CUDNN_ENGINES = 16 };

/* Default engines and version; the count of executions at 0. Live descriptors and handles stay counted. */
void fake_cudnn_reset(void);

/* What the heuristics answer from now on, in this order; at most FAKE_CUDNN_ENGINES. The default: engine 7, which rounds f32 inputs;
 * 12, which does not; 15, which refuses; and as fallback 0. */
void fake_cudnn_set_engines(const FakeCudnnEngine *engine, int count);

void fake_cudnn_set_version(size_t version); /* CUDNN_VERSION by default */

typedef struct FakeCudnnCounts {
    int64_t executed;             /* plans enqueued */
    int64_t descriptors, handles; /* live: made and not destroyed */
} FakeCudnnCounts;
FakeCudnnCounts fake_cudnn_counts(void);

/* Engine of the last plan that was executed; -1: none. */
int64_t fake_cudnn_last_engine(void);

/* The functions, for fake_set_library(FAKE_CUDNN, ...). */
const CudnnApi *fake_cudnn_api(void);

#endif
