/* raw_run.h - runs graphs of raw_graph.h on the stand-in for cuDNN: a device, a handle, a plan, a variant pack. Failures end the
 * running cmocka test. */
#ifndef BATCHMARK_TESTS_RAW_RUN_H
#define BATCHMARK_TESTS_RAW_RUN_H

#include "fake.h"
#include "fake_cudnn.h"
#include "raw_graph.h"

typedef struct RawDevice { const CudnnApi *api; cudnnHandle_t handle; cudaStream_t stream; void *workspace; } RawDevice;
enum { RAW_WORKSPACE = 8192 };

RawDevice raw_device_open(void); /* with all fakes reset */
void      raw_device_close(RawDevice *d); /* fails if descriptors, handles or device memory are left */

/* Device memory, filled with NaN bytes; freed by cudaFree. */
void  *raw_alloc(size_t bytes);
float *raw_floats(int64_t n, const float *values); /* values NULL: NaN */

typedef struct RawBind { int64_t uid; void *memory; } RawBind;

/* The plan of engine `index`, made and finalized; the graph owns its descriptors. */
Desc raw_plan(RawGraph *g, RawDevice *d, int64_t index);
Desc raw_pack(RawGraph *g, const RawBind *bind, int count, void *workspace);

/* Finishes the graph, runs it by engine 12 and waits. Ends the test with cuDNN's words if anything fails. */
void raw_run(RawGraph *g, RawDevice *d, const RawBind *bind, int count);
#define RAW_RUN(g, d, ...) \
    raw_run((g), (d), (const RawBind[]){ __VA_ARGS__ }, (int)(sizeof((const RawBind[]){ __VA_ARGS__ }) / sizeof(RawBind)))

#endif
