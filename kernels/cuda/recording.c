/* recording.c - what is enqueued once as a CUDA graph, to be enqueued again in one call: "CUDA Graphs" in the CUDA C++
 * Programming Guide. Addresses are those of the recording, so what is replayed works on the same memory. */
#include "cuda.h"

#include <stdlib.h>

/* The graph of what enqueue(context) puts on the stream. An error in it ends the capture all the same: a stream that is left
 * capturing is of no use for anything. */
static Status capture(CudaBackend *be, Status (*enqueue)(void *), void *context, cudaGraph_t *graph)
{
    *graph = NULL;
    CUDA_TRY(cudaStreamBeginCapture(be->stream, cudaStreamCaptureModeThreadLocal));
    Status      inside = enqueue(context);
    cudaError_t end = cudaStreamEndCapture(be->stream, graph);
    if (end == cudaErrorStreamCaptureInvalidated) { /* something was enqueued, or asked, that a graph cannot hold */
        (void)cuda_status(end, "cudaStreamEndCapture");
        return status_error(STATUS_UNSUPPORTED, "this cannot be recorded as a CUDA graph: %s",
                            inside.code == STATUS_OK ? cudaGetErrorString(end) : inside.text);
    }
    if (inside.code != STATUS_OK) {
        (void)cuda_status(end, "cudaStreamEndCapture"); /* says no more than `inside`, but must be read away */
        return status_context(inside, "recording");
    }
    return cuda_status(end, "cudaStreamEndCapture");
}

Status cuda_record(Backend *base, Status (*enqueue)(void *), void *context, void **recording)
{
    CudaBackend    *be = cuda_of(base);
    cudaGraph_t     graph;
    cudaGraphExec_t exec = NULL;
    *recording = NULL;
    TRY(cuda_need_device(be));
    Status status = capture(be, enqueue, context, &graph);
    if (status.code == STATUS_OK)
        status = cuda_status(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    if (graph)
        (void)cuda_status(cudaGraphDestroy(graph), "cudaGraphDestroy");
    *recording = exec;
    return status;
}

Status cuda_replay(Backend *base, void *recording)
{
    CUDA_TRY(cudaGraphLaunch(recording, cuda_of(base)->stream));
    return status_ok();
}

void cuda_recording_free(Backend *be, void *recording)
{
    (void)be;
    if (recording)
        (void)cuda_status(cudaGraphExecDestroy(recording), "cudaGraphExecDestroy");
}
