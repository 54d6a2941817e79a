/* test_cuda_libs.c - NVIDIA's real libraries, as this machine has them: each is loaded, or the reason is told. No GPU is needed. */
#include "../kernels/cuda/libs.h"

#include "../kernels/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void skip_without(const void *table, const char *reason)
{
    if (table)
        return;
    assert_true(reason[0] && !strchr(reason, '\n'));
    print_message("skipped: %s\n", reason);
    skip();
}

static void cudnn_is_loaded(void **state)
{
    (void)state;
    const char     *reason = "";
    const CudnnApi *dnn = cuda_load_cudnn(&reason);
    skip_without(dnn, reason);
    assert_true(dnn->cudnnGetVersion() >= 90000);
    assert_string_equal(dnn->cudnnGetErrorString(CUDNN_STATUS_SUCCESS), "CUDNN_STATUS_SUCCESS");
    assert_ptr_equal(cuda_load_cudnn(&reason), dnn);
}

static void cublaslt_is_loaded(void **state)
{
    (void)state;
    const char              *reason = "";
    const CublasLtApi       *blas = cuda_load_cublaslt(&reason);
    cublasLtMatmulDesc_t     product;
    skip_without(blas, reason);
    assert_true(blas->cublasLtGetVersion() >= 120000);
    assert_int_equal(blas->cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(blas->cublasLtMatmulDescDestroy(product), CUBLAS_STATUS_SUCCESS);
}

static void cupti_is_loaded(void **state)
{
    (void)state;
    const char     *reason = "";
    uint64_t        now = 0;
    const CuptiApi *cupti = cuda_load_cupti(&reason);
    skip_without(cupti, reason);
    assert_int_equal(cupti->cuptiGetTimestamp(&now), CUPTI_SUCCESS);
    assert_true(now > 0);
}

static void nvml_is_loaded(void **state)
{
    (void)state;
    const char    *reason = "";
    const NvmlApi *nvml = cuda_load_nvml(&reason);
    skip_without(nvml, reason);
    assert_non_null(nvml->nvmlErrorString(0));
}

/* On a machine with a GPU it opens; without one the line says what is missing. */
static void a_device_opens_or_says_why_not(void **state)
{
    (void)state;
    Backend *be;
    Status   s = backend_open("cuda", NULL, &be);
    if (s.code == STATUS_OK) {
        backend_close(be);
        return;
    }
    assert_null(be);
    assert_true(s.code == STATUS_UNSUPPORTED || s.code == STATUS_BACKEND);
    assert_true(s.text[0] && !strchr(s.text, '\n'));
    print_message("%s\n", s.text);
}

static void a_model_is_planned_for_with_the_real_cudnn(void **state)
{
    (void)state;
    const char    *reason = "";
    BackendOptions options = { .gpu = "a100-40g" };
    BackendInfo    info;
    Backend       *be;
    assert_int_equal(backend_open("cuda", &options, &be).code, STATUS_OK);
    backend_describe(be, &info);
    assert_int_equal(info.gpu_capability, 80);
    assert_true((info.note[0] == '\0') == (cuda_load_cudnn(&reason) != NULL));
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cudnn_is_loaded),
        cmocka_unit_test(cublaslt_is_loaded),
        cmocka_unit_test(cupti_is_loaded),
        cmocka_unit_test(nvml_is_loaded),
        cmocka_unit_test(a_device_opens_or_says_why_not),
        cmocka_unit_test(a_model_is_planned_for_with_the_real_cudnn),
    };
    return cmocka_run_group_tests_name("cuda_libs", tests, NULL, NULL);
}
