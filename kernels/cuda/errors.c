/* errors.c - errors of CUDA's runtime, cuDNN and cuBLASLt as a Status, in their own words.
 *
 * The runtime keeps an error that a call returned as its "last error" too, where the next one who asks for it after a launch takes
 * it for its own. So an error that is handled is also read away here; tests/CASES.md D5. Errors that end the context stay:
 * nothing can run on the device in this process any more ("CUDA Runtime API", cudaError). */
#include "cuda.h"
#include "libs.h"

#include <stdio.h>
#include <string.h>

static bool ends_context(cudaError_t e)
{
    switch (e) {
    case cudaErrorECCUncorrectable: case cudaErrorNvlinkUncorrectable: case cudaErrorIllegalAddress: case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed: case cudaErrorAssert: case cudaErrorHardwareStackError: case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress: case cudaErrorInvalidAddressSpace: case cudaErrorInvalidPc: case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

/* The function's name out of the text of a call. */
static int name_length(const char *what)
{
    return (int)strcspn(what, "(");
}

/* Waiting errors of the runtime, read away unless the context has ended. */
static cudaError_t take_last_error(void)
{
    cudaError_t e = cudaPeekAtLastError();
    if (e != cudaSuccess && !ends_context(e))
        (void)cudaGetLastError();
    return e;
}

Status cuda_status(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return status_ok();
    (void)take_last_error();
    if (ends_context(e))
        return status_error(STATUS_BACKEND, "%.*s: %s (%s): the GPU cannot be used any more by this process", name_length(what), what,
                            cudaGetErrorString(e), cudaGetErrorName(e));
    return status_error(e == cudaErrorMemoryAllocation ? STATUS_OOM : STATUS_BACKEND, "%.*s: %s (%s)", name_length(what), what,
                        cudaGetErrorString(e), cudaGetErrorName(e));
}

/* What a library met in the runtime underneath says more than its own code: that the device is lost, or its memory full. */
static bool explained_by_runtime(const char *what, const char *words, Status *out)
{
    cudaError_t e = take_last_error();
    if (e != cudaErrorMemoryAllocation && !ends_context(e))
        return false;
    *out = status_context(cuda_status(e, words), "%.*s", name_length(what), what);
    return true;
}

/* cuDNN's codes are in thousands by kind ("cudnnStatus_t"): 3000 not supported, 4000 internal, 5000 execution. */
Status cuda_dnn_status(const CudaBackend *be, int cudnn_status, const char *what)
{
    char   words[256] = "";
    Status explained;
    if (cudnn_status == CUDNN_STATUS_SUCCESS)
        return status_ok();
    const char *name = be->dnn->cudnnGetErrorString((cudnnStatus_t)cudnn_status);
    be->dnn->cudnnGetLastErrorString(words, sizeof words);
    words[strcspn(words, "\n")] = '\0';
    if (explained_by_runtime(what, name, &explained))
        return explained;
    StatusCode code = STATUS_BACKEND;
    if (cudnn_status == CUDNN_STATUS_ALLOC_FAILED || cudnn_status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
        cudnn_status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
        code = STATUS_OOM;
    else if (cudnn_status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
        code = STATUS_UNSUPPORTED;
    return status_error(code, "%.*s: %s%s%s", name_length(what), what, name, words[0] ? ": " : "", words);
}

Status cuda_blas_status(const CudaBackend *be, int cublas_status, const char *what)
{
    Status explained;
    if (cublas_status == CUBLAS_STATUS_SUCCESS)
        return status_ok();
    const char *name = be->blas->cublasLtGetStatusString((cublasStatus_t)cublas_status);
    if (explained_by_runtime(what, name, &explained))
        return explained;
    StatusCode code = cublas_status == CUBLAS_STATUS_ALLOC_FAILED ? STATUS_OOM :
                      cublas_status == CUBLAS_STATUS_NOT_SUPPORTED ? STATUS_UNSUPPORTED : STATUS_BACKEND;
    return status_error(code, "%.*s: %s", name_length(what), what, name);
}

Status cuda_unsupported(const char *what, Dtype dtype)
{
    return status_error(STATUS_UNSUPPORTED, "the CUDA backend does not %s for %s", what, dtype_name(dtype));
}

Status cuda_need_device(const CudaBackend *be)
{
    if (!cuda_is_planning(be))
        return status_ok();
    return status_error(STATUS_UNSUPPORTED, "%s is only planned for: nothing can run on it", be->model->title);
}

Status cuda_query_rows(const OpDesc *op)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].layout >= LAYOUT_PADDED)
            return status_error(STATUS_UNSUPPORTED, "the CUDA backend does not read padded rows in input %d of %s", i, op_names[op->kind]);
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].layout >= LAYOUT_PADDED)
            return status_error(STATUS_UNSUPPORTED, "the CUDA backend does not write padded rows in output %d of %s", i, op_names[op->kind]);
    return status_ok();
}

size_t cuda_tensor_bytes(const Tensor *t)
{
    if (t->layout != LAYOUT_PADDED)
        return tensor_bytes(t);
    Tensor padded = *t;
    padded.dim[t->rank - 1] = cuda_pitch(t);
    return tensor_bytes(&padded);
}
