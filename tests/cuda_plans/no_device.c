/* no_device.c - a libcuda.so.1 that has the driver's functions and no device, for tests on machines without a driver: cuDNN looks
 * for these functions before it compiles an engine, though compiling needs no GPU. Never installed. Every function but the
 * first few answers CUDA_ERROR_NO_DEVICE. */
enum { NO_DEVICE = 100 };

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDriverGetVersion(int *version);

int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

#define NONE(name)  \
    int name(void); \
    int name(void) { return NO_DEVICE; }
NONE(cuCtxGetCurrent) NONE(cuCtxGetDevice) NONE(cuCtxGetLimit) NONE(cuCtxPopCurrent) NONE(cuCtxPushCurrent)
NONE(cuDeviceGet) NONE(cuDeviceGetAttribute) NONE(cuDevicePrimaryCtxRelease) NONE(cuDevicePrimaryCtxReset)
NONE(cuDevicePrimaryCtxRetain) NONE(cuFuncGetAttribute) NONE(cuFuncSetAttribute) NONE(cuGetErrorName) NONE(cuGetErrorString)
NONE(cuKernelGetAttribute) NONE(cuKernelSetAttribute) NONE(cuLaunchCooperativeKernel) NONE(cuLaunchKernel) NONE(cuLaunchKernelEx)
NONE(cuLibraryGetKernel) NONE(cuLibraryLoadData) NONE(cuLibraryLoadFromFile) NONE(cuLibraryUnload) NONE(cuLinkAddData)
NONE(cuLinkAddData_v2) NONE(cuLinkAddFile_v2) NONE(cuLinkComplete) NONE(cuLinkCreate) NONE(cuLinkCreate_v2) NONE(cuLinkDestroy)
NONE(cuMemcpyDtoH_v2) NONE(cuModuleGetFunction) NONE(cuModuleGetGlobal_v2) NONE(cuModuleLoadData) NONE(cuModuleLoadDataEx)
NONE(cuModuleLoadFatBinary) NONE(cuModuleUnload) NONE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NONE(cuOccupancyMaxPotentialClusterSize) NONE(cuStreamGetCtx) NONE(cuStreamSynchronize) NONE(cuTensorMapEncodeTiled)
