/* gpu_code_main.c - the main of tests/gpu's tests on the host: the same code that will meet a GPU runs here on the fakes of NVIDIA's
 * libraries, which execute what they are handed. So a GPU shows what is wrong with the GPU's side, not with the tests. */
#include "fake.h"
#include "fake_cublaslt.h"
#include "fake_cudnn.h"
#include "fake_cupti.h"

#include <stdlib.h>

int test_main(void);

int main(void)
{
    fake_set_library(FAKE_CUDNN, fake_cudnn_api(), NULL);
    fake_set_library(FAKE_CUBLASLT, fake_cublaslt_api(), NULL);
    fake_set_library(FAKE_CUPTI, fake_cupti_api(), NULL);
    if (setenv("BATCHMARK_TEST_DEVICE", "cuda", 1))
        return EXIT_FAILURE;
    return test_main();
}
