/* image.cu - whether this build has kernels for the device that is current: device code is compiled for chosen architectures. */
#include "launch.cuh"

static __global__ void image_kernel() {}
LAUNCHABLE(image_kernel);

extern "C" cudaError_t cuda_find_image()
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)image_kernel);
}
