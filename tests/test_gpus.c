/* test_gpus.c - the table of GPU models holds together, is found by name, and describes a device as cuDNN wants it. */
#include "../kernels/gpus.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect_between(const char *name, const char *what, double value, double low, double high)
{
    if (!(value >= low && value <= high))
        fail_msg("%s: %s is %g, not %g to %g", name, what, value, low, high);
}

/* The number before "g" at the end of the name is the capacity on the box in GB. */
static double nominal_bytes(const GpuModel *m)
{
    const char *dash = strrchr(m->name, '-');
    int         gigabytes = 0;
    assert_non_null(dash);
    assert_int_equal(sscanf(dash, "-%dg", &gigabytes), 1);
    return 1073741824.0 * gigabytes;
}

static void every_model_is_plausible(void **state)
{
    (void)state;
    int count = 0;
    for (const GpuModel *m = gpu_models; m->name; m++, count++) {
        expect_between(m->name, "memory", m->memory_bytes, 0.9 * nominal_bytes(m), nominal_bytes(m));
        expect_between(m->name, "bandwidth", m->copy_bytes, 200e9, 10e12);
        expect_between(m->name, "fp32 rate", m->f32_flops, 5e12, 200e12);
        /* An SM makes 64 or 128 multiply-adds a clock in f32: Pascal GP100, Volta, Turing and GA100 64, the rest 128. */
        const bool narrow = m->capability == 60 || m->capability == 70 || m->capability == 75 || m->capability == 80;
        expect_between(m->name, "fp32 rate by SMs and clock", m->f32_flops, 0.85 * 2e3 * (narrow ? 64 : 128) * m->sms * m->sm_clock_khz,
                       1.05 * 2e3 * (narrow ? 64 : 128) * m->sms * m->sm_clock_khz);
        expect_between(m->name, "shared memory of a block", m->shared_bytes_block, 48 * 1024, m->shared_bytes_sm);
        expect_between(m->name, "L2", m->l2_bytes, 2 << 20, 256 << 20);
        assert_true(m->tf32_flops == 0 || m->capability >= 80);
        assert_true((m->bf16_flops > 0) == (m->capability >= 80)); /* Ampere brought bf16 */
        assert_true(m->bf16_flops == 0 || m->bf16_flops == m->f16_flops);
        assert_true(strlen(m->title) < 48 && strlen(m->source) > 30);
        for (const GpuModel *other = gpu_models; other < m; other++)
            assert_string_not_equal(m->name, other->name);
    }
    assert_true(count >= 13);
}

static void a_model_is_found_by_its_whole_name(void **state)
{
    (void)state;
    for (const GpuModel *m = gpu_models; m->name; m++)
        assert_ptr_equal(gpu_find(m->name), m);
    assert_int_equal(gpu_find("h100-80g")->capability, 90);
    assert_int_equal(gpu_find("v100-16g")->capability, 70);
    assert_null(gpu_find("h100"));
    assert_null(gpu_find("H100-80g"));
    assert_null(gpu_find(""));
}

static void the_names_are_listed_and_cut_to_fit(void **state)
{
    (void)state;
    char text[400], small[12];
    gpu_names(text, sizeof text);
    for (const GpuModel *m = gpu_models; m->name; m++)
        assert_non_null(strstr(text, m->name));
    assert_int_equal(text[strlen(text) - 1], 'g'); /* complete: there was room */
    memset(small, 'x', sizeof small);
    gpu_names(small, sizeof small);
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_memory_equal(small, text, sizeof small - 1);
}

/* The members that cuDNN 9 asks for: it refuses a description in which one is missing. */
static void the_description_has_every_member(void **state)
{
    (void)state;
    static const char *const members[] = {
        "deviceVer", "multiProcessorCount", "warpSize", "maxSharedMemoryPerBlock", "maxSharedMemoryPerBlockOptin",
        "reservedSharedMemoryPerBlock", "maxRegistersPerSM", "maxCtasPerSM", "maxThreadsPerBlock", "maxThreadsPerSM", "regsPerBlock",
        "totalGlobalMem", "smClockRateKHz", "memClockRateKHz", "l2CacheSize", "maxBlockSize", "maxGridSize", "supportCoopLaunch",
        "pciDeviceId", "isTccDriver", "cudaDeviceId", "driverVer", "deviceName",
    };
    for (const GpuModel *m = gpu_models; m->name; m++) {
        char    text[1024];
        json_t *root = json_loads(gpu_describe_json(m, text, sizeof text), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(root);
        assert_int_equal(json_object_size(root), COUNT_OF(members));
        for (size_t i = 0; i < COUNT_OF(members); i++)
            assert_non_null(json_object_get(root, members[i]));
        assert_int_equal(json_integer_value(json_object_get(root, "deviceVer")), 10 * m->capability);
        assert_int_equal(json_integer_value(json_object_get(root, "multiProcessorCount")), m->sms);
        assert_true((double)json_integer_value(json_object_get(root, "totalGlobalMem")) <= m->memory_bytes + 1);
        assert_int_equal(json_integer_value(json_object_get(root, "maxSharedMemoryPerBlockOptin")), m->shared_bytes_block);
        assert_string_equal(json_string_value(json_object_get(root, "deviceName")), m->title);
        json_decref(root);
    }
}

static void the_description_of_an_h100_is_that_of_the_device(void **state)
{
    (void)state;
    char    text[1024];
    json_t *root = json_loads(gpu_describe_json(gpu_find("h100-80g"), text, sizeof text), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(root, "deviceVer")), 900);
    assert_int_equal(json_integer_value(json_object_get(root, "maxSharedMemoryPerBlockOptin")), 232448);
    assert_int_equal(json_integer_value(json_object_get(root, "reservedSharedMemoryPerBlock")), 1024);
    assert_int_equal(json_integer_value(json_object_get(root, "maxThreadsPerSM")), 2048);
    assert_int_equal(json_integer_value(json_object_get(root, "maxCtasPerSM")), 32);
    assert_int_equal(json_integer_value(json_object_get(root, "l2CacheSize")), 52428800);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_is_plausible),
        cmocka_unit_test(a_model_is_found_by_its_whole_name),
        cmocka_unit_test(the_names_are_listed_and_cut_to_fit),
        cmocka_unit_test(the_description_has_every_member),
        cmocka_unit_test(the_description_of_an_h100_is_that_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
