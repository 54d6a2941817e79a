/* test_suite.c - the suite on a GPU that fakes stand for: a small BERT in every precision, verified op by op against the float64
 * reference, and measured: what its entry in the record says of the device. */
#include "../../bench/cell.h"
#include "../../bench/env.h"
#include "../../bench/random_batch.h"
#include "../../kernels/cuda/cuda.h"
#include "fake.h"
#include "fake_cublaslt.h"
#include "idle_libs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static FakeCounts before;

static void use_gpu(int capability, size_t memory)
{
    FakeDevice gpu = fake_default_device();
    gpu.capability = capability;
    gpu.memory = memory;
    fake_reset();
    fake_set_devices(1, &gpu, 13000);
    fake_cublaslt_reset();
    idle_libs_use();
    fake_set_library(FAKE_CUBLASLT, fake_cublaslt_api(), NULL);
    before = fake_counts();
}

static int set_up(void **state)
{
    (void)state;
    use_gpu(80, (size_t)1 << 30);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_true(fake_nothing_leaked(&before));
    assert_int_equal(fake_cublaslt()->live, 0);
    return 0;
}

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s: %s", status_code_name(s.code), s.text);
}

static CellConfig small_bert(Amp amp)
{
    CellConfig cell = { net_config_default("bert"), 1 };
    cell.net.layers = 1;
    cell.net.heads = 2;
    cell.net.hidden = 32;
    cell.net.vocab = 50;
    cell.net.size = 8;
    cell.net.batch = 2;
    cell.net.amp = amp;
    return cell;
}

static MeasureOptions on_the_gpu(void)
{
    return (MeasureOptions){ .device = "cuda", .precision = 0.5, .seconds = 0.05, .steps = 2, .seed = 1, .timed = true };
}

static void every_op_of_bert_is_the_references(void **state)
{
    (void)state;
    for (int amp = 0; amp < AMP_COUNT; amp++) {
        const CellConfig     cell = small_bert((Amp)amp);
        const MeasureOptions options = on_the_gpu();
        json_t *result = NULL;
        expect_ok(verify_net(&cell.net, &options, &result));
        assert_true(json_integer_value(json_object_get(result, "outputs")) > 100);
        const double error = json_real_value(json_object_get(result, "max_error"));
        assert_true(error > (amp == AMP_TF32 ? 1e-5 : 0)); /* TF32 is really there */
        json_decref(result);
    }
}

static void an_entry_tells_of_the_device(void **state)
{
    (void)state;
    const CellConfig     cell = small_bert(AMP_BF16);
    const MeasureOptions options = on_the_gpu();
    json_t *entry = NULL;
    expect_ok(cell_measure(&cell, &options, &entry));
    const json_t *memory = json_object_get(entry, "memory"), *choices = json_object_get(entry, "choices");
    const json_int_t planned = json_integer_value(json_object_get(json_object_get(memory, "planned"), "total"));
    const json_int_t allocated = json_integer_value(json_object_get(memory, "allocated"));
    const json_int_t used = json_integer_value(json_object_get(memory, "device_used"));
    assert_int_equal(json_integer_value(json_object_get(memory, "measured_peak")), planned);
    assert_true(planned <= allocated && allocated < planned + (1 << 20) && allocated < used); /* the context is in the last */
    assert_true(json_array_size(choices) > 10);
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *c = json_array_get(choices, i);
        assert_non_null(json_string_value(json_object_get(c, "op")));
        if (strstr(json_string_value(json_object_get(c, "op")), "linear"))
            assert_non_null(strstr(json_string_value(json_object_get(c, "choice")), "proposal 0, algorithm 0"));
    }
    json_decref(entry);
}

/* Another process has nearly all of it: what is left is the limit, before anything is taken. */
static void memory_that_others_have_is_not_ours(void **state)
{
    (void)state;
    const CellConfig     cell = small_bert(AMP_OFF);
    const MeasureOptions options = on_the_gpu();
    json_t *entry = NULL;
    FakeDevice gpu = fake_default_device();
    use_gpu(80, gpu.context + (4 << 20));
    const Status s = cell_measure(&cell, &options, &entry);
    assert_int_equal(s.code, STATUS_OOM);
    assert_null(entry);
}

/* A T4 multiplies fp16 fast, and neither bf16 nor TF32. */
static void what_a_gpu_lacks_is_skipped(void **state)
{
    (void)state;
    use_gpu(75, (size_t)1 << 30);
    for (int amp = 0; amp < AMP_COUNT; amp++) {
        const CellConfig     cell = small_bert((Amp)amp);
        const MeasureOptions options = on_the_gpu();
        json_t *entry = NULL;
        const Status s = cell_measure(&cell, &options, &entry);
        const bool   lacks = amp == AMP_BF16 || amp == AMP_TF32;
        if (s.code != (lacks ? STATUS_UNSUPPORTED : STATUS_OK) || (lacks && !strstr(s.text, "compute capability 7.5")))
            fail_msg("%s: %s", amp_names[amp], s.text);
        json_decref(entry);
    }
}

static void the_environment_names_the_gpu(void **state)
{
    (void)state;
    Backend    *be;
    BackendInfo info;
    json_t     *env;
    expect_ok(backend_open("cuda", NULL, &be));
    backend_describe(be, &info);
    expect_ok(env_capture(&info, &env));
    const json_t *gpu = json_array_get(json_object_get(env, "gpus"), 0);
    assert_string_equal(json_string_value(json_object_get(gpu, "name")), fake_default_device().name);
    assert_string_equal(json_string_value(json_object_get(gpu, "capability")), "8.0");
    assert_string_equal(json_string_value(json_object_get(gpu, "driver")), "13.0");
    assert_non_null(json_string_value(json_object_get(gpu, "uuid")));
    assert_string_equal(json_string_value(json_object_get(json_object_get(env, "libraries"), "cudnn")), "9.19.0");
    assert_non_null(json_string_value(json_object_get(json_object_get(env, "libraries"), "cublaslt")));
    json_decref(env);
    backend_close(be);
}

static void nap(void *context)
{
    (void)context;
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

/* tests/CASES.md D14: the launch of a step returns at once, what it launched takes 50 ms more: the step's time holds them. */
static void a_step_lasts_until_the_device_is_done(void **state)
{
    (void)state;
    const CellConfig     cell = small_bert(AMP_OFF);
    const MeasureOptions options = on_the_gpu();
    Bench      b;
    MicroBatch data = { 0 };
    expect_ok(bench_open(&cell.net, &options, &b));
    expect_ok(random_batch_create(&cell.net, 1, &data));
    assert_int_equal(fake_enqueue(cuda_of(b.backend)->stream, "nap", 50000, nap, NULL, NULL), cudaSuccess);
    const double start = clock_seconds();
    expect_ok(cell_run_step(&b, &data, 1));
    assert_true(clock_seconds() - start >= 0.05);
    random_batch_free(&data);
    bench_close(&b);
}

int main(void)
{
    unsetenv("HOME"); /* no choices of earlier runs */
    unsetenv("XDG_CACHE_HOME");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_op_of_bert_is_the_references, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_lasts_until_the_device_is_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_entry_tells_of_the_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_that_others_have_is_not_ours, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_gpu_lacks_is_skipped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_environment_names_the_gpu, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
