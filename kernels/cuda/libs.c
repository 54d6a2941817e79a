/* libs.c - loads NVIDIA's libraries at run time; see libs.h. */
#include "libs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifndef CUDA_LIBRARY_DIR
#define CUDA_LIBRARY_DIR "/usr/local/cuda/lib64"
#endif

enum { LEAST_CUDNN = 90000 };

/* A function of a library and the place of its pointer in the table. */
typedef struct Symbol { const char *name; size_t offset; bool optional; } Symbol;

/* The first of these files that can be loaded: by the system's own search, then in the toolkit's folder. */
static void *open_library(const char *const *files, char *reason, size_t size)
{
    static const char *const folders[] = { "", CUDA_LIBRARY_DIR "/", CUDA_LIBRARY_DIR "/../extras/CUPTI/lib64/" };
    char path[512];
    for (size_t k = 0; k < COUNT_OF(folders); k++)
        for (int i = 0; files[i]; i++) {
            snprintf(path, sizeof path, "%s%s", folders[k], files[i]);
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (library)
                return library;
            if (k == 0 && i == 0) {
                const char *words = dlerror();
                snprintf(reason, size, "%s", words ? words : "it cannot be loaded");
            }
        }
    return NULL;
}

/* Fills a table; false with a reason if the library or one of its functions is missing. A library that was loaded stays. */
static bool fill_table(const char *const *files, const Symbol *symbols, size_t count, void *table, char *reason, size_t size)
{
    void *library = open_library(files, reason, size);
    if (!library)
        return false;
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function && !symbols[i].optional) {
            snprintf(reason, size, "%s has no function %s: it is too old", files[0], symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &function, sizeof function);
    }
    return true;
}

/* ---- one library each: its table lives for the whole process, which is what libs.h promises */

enum { REASON_BYTES = 256 };

#define SYMBOL(name) { #name, offsetof(TABLE, name), false },
#define LOAD_ONCE(load, out)                                    \
    do {                                                        \
        static pthread_once_t once_ = PTHREAD_ONCE_INIT;        \
        pthread_once(&once_, load);                             \
        *reason = out.reason;                                   \
        return out.loaded ? &out.table : NULL;                  \
    } while (0)

static struct { CudnnApi table; bool loaded; char reason[REASON_BYTES]; } cudnn;
static struct { CublasLtApi table; bool loaded; char reason[REASON_BYTES]; } cublaslt;
static struct { CuptiApi table; bool loaded; char reason[REASON_BYTES]; } cupti;
static struct { NvmlApi table; bool loaded; char reason[REASON_BYTES]; } nvml;

#define TABLE CudnnApi
static const Symbol cudnn_symbols[] = { CUDNN_FUNCTIONS(SYMBOL) };
#undef TABLE
#define TABLE CublasLtApi
static const Symbol cublaslt_symbols[] = { CUBLASLT_FUNCTIONS(SYMBOL) };
#undef TABLE
#define TABLE CuptiApi
static const Symbol cupti_symbols[] = { CUPTI_FUNCTIONS(SYMBOL) };
#undef TABLE
#define TABLE NvmlApi
static const Symbol nvml_symbols[] = {
    SYMBOL(nvmlInit_v2) SYMBOL(nvmlShutdown) SYMBOL(nvmlErrorString) SYMBOL(nvmlDeviceGetHandleByUUID)
    SYMBOL(nvmlDeviceGetComputeRunningProcesses_v3) SYMBOL(nvmlDeviceGetClockInfo) SYMBOL(nvmlDeviceGetTemperature)
    SYMBOL(nvmlSystemGetDriverVersion)
    { "nvmlDeviceGetCurrentClocksEventReasons", offsetof(TABLE, nvmlDeviceGetCurrentClocksEventReasons), true },
};
#undef TABLE

static void load_cudnn(void)
{
    static const char *const files[] = { "libcudnn.so.9", NULL };
    cudnn.loaded = fill_table(files, cudnn_symbols, COUNT_OF(cudnn_symbols), &cudnn.table, cudnn.reason, sizeof cudnn.reason);
    if (cudnn.loaded && cudnn.table.cudnnGetVersion() < LEAST_CUDNN) {
        snprintf(cudnn.reason, sizeof cudnn.reason, "cuDNN %zu is too old: 9 is needed", cudnn.table.cudnnGetVersion());
        cudnn.loaded = false;
    }
}

static void load_cublaslt(void)
{
#if CUDART_VERSION >= 13000
    static const char *const files[] = { "libcublasLt.so.13", NULL };
#else
    static const char *const files[] = { "libcublasLt.so.12", NULL };
#endif
    cublaslt.loaded = fill_table(files, cublaslt_symbols, COUNT_OF(cublaslt_symbols), &cublaslt.table, cublaslt.reason,
                                 sizeof cublaslt.reason);
}

static void load_cupti(void)
{
#if CUDART_VERSION >= 13000
    static const char *const files[] = { "libcupti.so.13", "libcupti.so", NULL };
#else
    static const char *const files[] = { "libcupti.so.12", "libcupti.so", NULL };
#endif
    cupti.loaded = fill_table(files, cupti_symbols, COUNT_OF(cupti_symbols), &cupti.table, cupti.reason, sizeof cupti.reason);
}

static void load_nvml(void)
{
    static const char *const files[] = { "libnvidia-ml.so.1", NULL };
    nvml.loaded = fill_table(files, nvml_symbols, COUNT_OF(nvml_symbols), &nvml.table, nvml.reason, sizeof nvml.reason);
}

const CudnnApi    *cuda_load_cudnn(const char **reason) { LOAD_ONCE(load_cudnn, cudnn); }
const CublasLtApi *cuda_load_cublaslt(const char **reason) { LOAD_ONCE(load_cublaslt, cublaslt); }
const CuptiApi    *cuda_load_cupti(const char **reason) { LOAD_ONCE(load_cupti, cupti); }
const NvmlApi     *cuda_load_nvml(const char **reason) { LOAD_ONCE(load_nvml, nvml); }
