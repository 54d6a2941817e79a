/* test_nvml.c - what the driver says of a device, and what becomes of it where the driver refuses: the right device by its UUID, numbers
 * that are not known instead of zeros, every call failing once. */
#include "fake.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/libs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
typedef struct ProcessInfo { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;

static struct { int open; unsigned long long bits, used; unsigned pid; } driver;

#define ENTER(name) do { int e_ = fake_enter(FAKE_NVML, name); if (e_) return e_; } while (0)

static int init(void)
{
    ENTER("nvmlInit_v2");
    driver.open++;
    return 0;
}

static int shut(void)
{
    driver.open--;
    ENTER("nvmlShutdown");
    return 0;
}

static int by_uuid(const char *wanted, void **device)
{
    ENTER("nvmlDeviceGetHandleByUUID");
    if (strcmp(wanted, uuid))
        return 6; /* NVML_ERROR_NOT_FOUND */
    *device = &driver;
    return 0;
}

static int processes(void *device, unsigned *count, void *infos)
{
    ProcessInfo *list = infos;
    assert_ptr_equal(device, &driver);
    ENTER("nvmlDeviceGetComputeRunningProcesses_v3");
    assert_true(*count >= 2);
    list[0] = (ProcessInfo){ .pid = 1, .used = 5 };
    list[1] = (ProcessInfo){ .pid = driver.pid, .used = driver.used };
    *count = 2;
    return 0;
}

static int clock_info(void *device, unsigned type, unsigned *mhz)
{
    (void)device;
    ENTER("nvmlDeviceGetClockInfo");
    assert_int_equal(type, 1); /* NVML_CLOCK_SM */
    *mhz = 1980;
    return 0;
}

static int event_reasons(void *device, unsigned long long *bits)
{
    (void)device;
    ENTER("nvmlDeviceGetCurrentClocksEventReasons");
    *bits = driver.bits;
    return 0;
}

static int temperature(void *device, unsigned sensor, unsigned *celsius)
{
    (void)device;
    ENTER("nvmlDeviceGetTemperature");
    assert_int_equal(sensor, 0);
    *celsius = 61;
    return 0;
}

static const NvmlApi api = { .nvmlInit_v2 = init, .nvmlShutdown = shut, .nvmlDeviceGetHandleByUUID = by_uuid,
                             .nvmlDeviceGetComputeRunningProcesses_v3 = processes, .nvmlDeviceGetClockInfo = clock_info,
                             .nvmlDeviceGetCurrentClocksEventReasons = event_reasons, .nvmlDeviceGetTemperature = temperature };

static CudaBackend cuda;

static int set_up(void **state)
{
    (void)state;
    fake_reset();
    fake_set_library(FAKE_NVML, &api, NULL);
    memset(&cuda, 0, sizeof cuda);
    memset(&driver, 0, sizeof driver);
    strcpy(cuda.uuid, uuid);
    driver.pid = (unsigned)getpid();
    driver.used = 777;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_set_library(FAKE_NVML, NULL, NULL);
    assert_int_equal(driver.open, 0);
    return 0;
}

static BackendSensors sensors(void)
{
    BackendSensors s;
    cuda_sensors(&cuda.base, &s);
    return s;
}

static void the_driver_is_asked(void **state)
{
    (void)state;
    driver.bits = 0x1; /* idle: nothing holds it back */
    BackendSensors s = sensors();
    assert_int_equal(s.clock_mhz, 1980);
    assert_int_equal(s.temperature, 61);
    assert_true(s.throttle_known);
    assert_string_equal(s.throttled, "");
    assert_int_equal(cuda_process_bytes(uuid), 777);
}

static void what_holds_the_clock_back_has_a_name(void **state)
{
    (void)state;
    driver.bits = 0x4 | 0x40;
    assert_string_equal(sensors().throttled, "power cap, thermal (hardware)");
    driver.bits = ~0ull;
    assert_non_null(strstr(sensors().throttled, "power brake, application clocks"));
}

static void another_device_is_not_asked(void **state)
{
    (void)state;
    strcpy(cuda.uuid, "GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f");
    assert_int_equal(sensors().clock_mhz, -1);
    assert_int_equal(cuda_process_bytes(cuda.uuid), 0);
}

static void an_unknown_process_is_not_known(void **state)
{
    (void)state;
    driver.pid++;
    assert_int_equal(cuda_process_bytes(uuid), 0);
    driver.pid--;
    driver.used = ~0ull; /* NVML_VALUE_NOT_AVAILABLE */
    assert_int_equal(cuda_process_bytes(uuid), 0);
}

static void an_old_driver_knows_no_reasons(void **state)
{
    (void)state;
    NvmlApi old = api;
    old.nvmlDeviceGetCurrentClocksEventReasons = NULL;
    fake_set_library(FAKE_NVML, &old, NULL);
    BackendSensors s = sensors();
    assert_int_equal(s.clock_mhz, 1980);
    assert_false(s.throttle_known);
}

static void refusals_are_not_zeros(void **state)
{
    (void)state;
    int64_t at = 1;
    for (;; at++) {
        FakeFault fault = { .at = at, .error = { [FAKE_NVML] = 4 /* NVML_ERROR_NO_PERMISSION */ } };
        fake_set_fault(&fault);
        BackendSensors s = sensors();
        const size_t   bytes = cuda_process_bytes(uuid);
        const bool     met = fake_fault_met();
        assert_true(s.clock_mhz == 1980 || s.clock_mhz == -1);
        assert_true(s.temperature == 61 || s.temperature == -1);
        assert_true(bytes == 777 || bytes == 0);
        assert_int_equal(driver.open, 0);
        if (!met)
            break;
    }
    fake_set_fault(NULL);
    assert_true(at > 8);
}

#define WITH_DRIVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DRIVER(the_driver_is_asked),
        WITH_DRIVER(what_holds_the_clock_back_has_a_name),
        WITH_DRIVER(another_device_is_not_asked),
        WITH_DRIVER(an_unknown_process_is_not_known),
        WITH_DRIVER(an_old_driver_knows_no_reasons),
        WITH_DRIVER(refusals_are_not_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
