/* idle_libs.c - handles, versions and words of errors; see idle_libs.h. */
#include "idle_libs.h"

#include "../../kernels/cuda/libs.h"
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>

static int handles;

static size_t dnn_version(void) { return 91900; }
static const char *dnn_words(cudnnStatus_t s) { return s == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_OF_A_TEST"; }
static void dnn_last_words(char *text, size_t size) { snprintf(text, size, "the test wanted it\nso"); }

static cudnnStatus_t dnn_create(cudnnHandle_t *out)
{
    int e = fake_enter(FAKE_CUDNN, "cudnnCreate");
    if (e)
        return (cudnnStatus_t)e;
    *out = malloc(1);
    handles++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t dnn_destroy(cudnnHandle_t handle)
{
    free(handle);
    handles--;
    return (cudnnStatus_t)fake_enter(FAKE_CUDNN, "cudnnDestroy");
}

static cudnnStatus_t dnn_set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return (cudnnStatus_t)fake_enter(FAKE_CUDNN, "cudnnSetStream");
}

static size_t blas_version(void) { return 130000; }
static const char *blas_words(cublasStatus_t s) { return s == CUBLAS_STATUS_ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED" : "CUBLAS_STATUS_OF_A_TEST"; }

static cublasStatus_t blas_create(cublasLtHandle_t *out)
{
    int e = fake_enter(FAKE_CUBLASLT, "cublasLtCreate");
    if (e)
        return (cublasStatus_t)e;
    *out = malloc(1);
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t blas_destroy(cublasLtHandle_t handle)
{
    free(handle);
    handles--;
    return (cublasStatus_t)fake_enter(FAKE_CUBLASLT, "cublasLtDestroy");
}

void idle_libs_use(void)
{
    static const CudnnApi dnn = {
        .cudnnGetVersion = dnn_version, .cudnnGetErrorString = dnn_words, .cudnnGetLastErrorString = dnn_last_words,
        .cudnnCreate = dnn_create, .cudnnDestroy = dnn_destroy, .cudnnSetStream = dnn_set_stream,
    };
    static const CublasLtApi blas = {
        .cublasLtGetVersion = blas_version, .cublasLtGetStatusString = blas_words, .cublasLtCreate = blas_create,
        .cublasLtDestroy = blas_destroy,
    };
    fake_set_library(FAKE_CUDNN, &dnn, NULL);
    fake_set_library(FAKE_CUBLASLT, &blas, NULL);
}

int idle_libs_handles(void)
{
    return handles;
}
