/* libs.h - NVIDIA's libraries, loaded when a CUDA device is opened: cuDNN, cuBLASLt, CUPTI and NVML as tables of functions.
 *
 * Loading them at run time keeps them out of a run on the CPU (cuBLASLt alone is half a gigabyte), lets one binary run where
 * they are missing, and is the seam that tests put their own functions into. Types come from the libraries' headers.
 * The functions are libs.c's on a machine, tests/cuda_host/fake_libs.c's in tests of the host. */
#ifndef BATCHMARK_KERNELS_CUDA_LIBS_H
#define BATCHMARK_KERNELS_CUDA_LIBS_H

#include "../base.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cupti.h>

#define CUDNN_FUNCTIONS(F) \
    F(cudnnGetVersion) F(cudnnGetErrorString) F(cudnnGetLastErrorString) F(cudnnCreate) F(cudnnDestroy) F(cudnnSetStream) \
    F(cudnnBackendCreateDescriptor) F(cudnnBackendDestroyDescriptor) F(cudnnBackendSetAttribute) F(cudnnBackendGetAttribute) \
    F(cudnnBackendFinalize) F(cudnnBackendExecute)

#define CUBLASLT_FUNCTIONS(F) \
    F(cublasLtCreate) F(cublasLtDestroy) F(cublasLtGetVersion) F(cublasLtGetStatusString) F(cublasLtMatmul) \
    F(cublasLtMatmulDescCreate) F(cublasLtMatmulDescDestroy) F(cublasLtMatmulDescSetAttribute) \
    F(cublasLtMatmulDescGetAttribute) F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutDestroy) \
    F(cublasLtMatrixLayoutSetAttribute) F(cublasLtMatrixLayoutGetAttribute) F(cublasLtMatmulPreferenceCreate) \
    F(cublasLtMatmulPreferenceDestroy) F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatmulAlgoGetHeuristic) \
    F(cublasLtMatmulAlgoConfigGetAttribute)

#define CUPTI_FUNCTIONS(F) \
    F(cuptiGetTimestamp) F(cuptiGetResultString) F(cuptiActivityEnable) F(cuptiActivityDisable) \
    F(cuptiActivityRegisterCallbacks) F(cuptiActivityGetNextRecord) F(cuptiActivityGetNumDroppedRecords) F(cuptiActivityFlushAll) \
    F(cuptiActivityPushExternalCorrelationId) F(cuptiActivityPopExternalCorrelationId) F(cuptiSubscribe) F(cuptiUnsubscribe) \
    F(cuptiEnableCallback) F(cuptiGetGraphNodeId)

#define LIBS_POINTER(name) __typeof__(&name) name;
typedef struct CudnnApi { CUDNN_FUNCTIONS(LIBS_POINTER) } CudnnApi;
typedef struct CublasLtApi { CUBLASLT_FUNCTIONS(LIBS_POINTER) } CublasLtApi;
typedef struct CuptiApi { CUPTI_FUNCTIONS(LIBS_POINTER) } CuptiApi;

/* nvml.h is not part of the toolkit everywhere; its ABI is stable and documented ("NVML API Reference Guide"). */
typedef struct NvmlApi {
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    const char *(*nvmlErrorString)(int result);
    int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **device); /* "GPU-8-4-4-4-12" */
    int (*nvmlDeviceGetComputeRunningProcesses_v3)(void *device, unsigned *count, void *infos);
    int (*nvmlDeviceGetClockInfo)(void *device, unsigned type, unsigned *mhz);
    int (*nvmlDeviceGetCurrentClocksEventReasons)(void *device, unsigned long long *reasons); /* may be NULL: older drivers */
    int (*nvmlDeviceGetTemperature)(void *device, unsigned sensor, unsigned *celsius);
    int (*nvmlSystemGetDriverVersion)(char *version, unsigned length);
} NvmlApi;

/* Each loads its library once for the process and gives its table; NULL with a reason if the library is missing or too old.
 * The tables stay valid to the end of the process. */
const CudnnApi    *cuda_load_cudnn(const char **reason);
const CublasLtApi *cuda_load_cublaslt(const char **reason);
const CuptiApi    *cuda_load_cupti(const char **reason);
const NvmlApi     *cuda_load_nvml(const char **reason);

#endif
