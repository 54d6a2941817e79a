/* fake_libs.c - libs.c of tests: NVIDIA's libraries are tables that a test gives. */
#include "fake.h"

#include "../../kernels/cuda/libs.h"

static struct { const void *functions; const char *reason; } libraries[FAKE_LIBRARY_COUNT];

void fake_set_library(FakeLibrary library, const void *functions, const char *reason)
{
    libraries[library].functions = functions;
    libraries[library].reason = reason;
}

static const void *load(FakeLibrary library, const char **reason)
{
    if (!libraries[library].functions)
        *reason = libraries[library].reason ? libraries[library].reason : "this test has none";
    return libraries[library].functions;
}

const CudnnApi    *cuda_load_cudnn(const char **reason) { return load(FAKE_CUDNN, reason); }
const CublasLtApi *cuda_load_cublaslt(const char **reason) { return load(FAKE_CUBLASLT, reason); }
const CuptiApi    *cuda_load_cupti(const char **reason) { return load(FAKE_CUPTI, reason); }
const NvmlApi     *cuda_load_nvml(const char **reason) { return load(FAKE_NVML, reason); }
