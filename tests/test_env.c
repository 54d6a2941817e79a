/* The description of the machine: complete, stable, safe with strange names; the load and memory counters. */
#include "bench/env.h"

#include "fault_alloc.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void *counted_malloc(size_t bytes) { return malloc(bytes); }
static void  counted_free(void *block) { free(block); }

/* jansson lives in a shared library: this brings its allocations before fault_alloc. */
static int use_counted_allocator(void **state)
{
    (void)state;
    json_set_alloc_funcs(counted_malloc, counted_free);
    return 0;
}

static const BackendInfo device = {
    .name = "A CPU", .library = "oneDNN 2.6.3", .isa = "avx2 avx512f  amx_bf16", .threads = 2, .memory_bytes = 1 << 30,
};

static json_t *capture(const BackendInfo *info)
{
    json_t *env = NULL;
    Status  s = env_capture(info, &env);
    assert_string_equal(s.text, "");
    assert_non_null(env);
    return env;
}

static const char *text_at(json_t *object, const char *name) { return json_string_value(json_object_get(object, name)); }

static void every_member_of_the_schema_is_there(void **state)
{
    (void)state;
    json_t *env = capture(&device), *cpu = json_object_get(env, "cpu");
    static const char *const members[] = { "os", "kernel", "hostname", "cpu", "memory_bytes", "gpus", "compiler", "flags",
                                           "libraries", "device", "peaks" };
    static const char *const cpu_members[] = { "model", "cores", "threads_used", "isa", "governor", "caches" };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        assert_non_null(json_object_get(env, members[i]));
    for (size_t i = 0; i < COUNT_OF(cpu_members); i++)
        assert_non_null(json_object_get(cpu, cpu_members[i]));
    long long cores = json_integer_value(json_object_get(cpu, "cores"));
    assert_in_range(cores, 1, sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(json_integer_value(json_object_get(cpu, "threads_used")), 2);
    assert_true(json_integer_value(json_object_get(env, "memory_bytes")) > 1 << 24);
    json_t *isa = json_object_get(cpu, "isa");
    assert_int_equal(json_array_size(isa), 3);
    assert_string_equal(json_string_value(json_array_get(isa, 2)), "amx_bf16");
    assert_non_null(strstr(text_at(env, "compiler"), "."));
    assert_int_equal(json_array_size(json_object_get(env, "gpus")), 0);
    json_decref(env);
}

static void libraries_and_device_come_from_who_knows_them(void **state)
{
    (void)state;
    json_t *env = capture(&device), *libraries = json_object_get(env, "libraries"), *d = json_object_get(env, "device");
    assert_string_equal(text_at(libraries, "onednn"), "2.6.3");
    assert_string_equal(text_at(libraries, "jansson"), jansson_version_str());
    assert_non_null(text_at(libraries, "zlib"));
    assert_string_equal(text_at(d, "name"), "A CPU");
    assert_string_equal(text_at(d, "backend"), "cpu");
    assert_int_equal(json_integer_value(json_object_get(d, "memory_bytes")), 1 << 30);
    json_decref(env);
}

static void unknown_is_null_and_never_zero(void **state)
{
    (void)state;
    static const BackendInfo nothing = { .threads = 0 };
    json_t *env = capture(&nothing), *d = json_object_get(env, "device");
    assert_true(json_is_null(json_object_get(d, "name")) && json_is_null(json_object_get(d, "memory_bytes")));
    assert_true(json_is_null(json_object_get(json_object_get(env, "cpu"), "threads_used")));
    assert_int_equal(json_array_size(json_object_get(json_object_get(env, "cpu"), "isa")), 0);
    const char *name;
    json_t     *value;
    json_object_foreach(json_object_get(env, "peaks"), name, value) assert_true(json_is_null(value));
    json_object_foreach(json_object_get(json_object_get(env, "cpu"), "caches"), name, value)
        assert_true(json_is_null(value) || json_integer_value(value) > 0);
    json_decref(env);
}

static void names_that_are_no_utf8_do_not_spoil_the_record(void **state)
{
    (void)state;
    BackendInfo odd = device;
    strcpy(odd.name, "caf\xe9 \"1\"");
    json_t *env = capture(&odd);
    assert_string_equal(text_at(json_object_get(env, "device"), "name"), "caf? \"1\"");
    json_decref(env);
}

/* tests/CASES.md D15: two captures of one machine must be the same text, or every run would look like another machine. */
static void nothing_changes_between_two_captures(void **state)
{
    (void)state;
    json_t *first = capture(&device);
    struct timespec pause = { .tv_nsec = 30000000 };
    nanosleep(&pause, NULL);
    json_t *second = capture(&device);
    assert_true(json_equal(first, second));
    json_decref(first);
    json_decref(second);
}

static void tool_says_what_was_built(void **state)
{
    (void)state;
    json_t *tool;
    assert_int_equal(env_tool(&tool).code, STATUS_OK);
    assert_string_equal(text_at(tool, "name"), "batchmark");
    assert_non_null(text_at(tool, "version"));
    json_t *git = json_object_get(tool, "git"), *dirty = json_object_get(tool, "dirty");
    assert_true(json_is_string(git) ? json_is_boolean(dirty) : json_is_null(git) && json_is_null(dirty));
    json_decref(tool);
}

static const BackendInfo gpu = {
    .name = "NVIDIA H100 80GB HBM3", .library = "cuDNN 9.19.0, cuBLASLt 13.1.0", .memory_bytes = 1 << 30, .is_gpu = true,
    .gpu_uuid = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10", .gpu_capability = 90, .driver_version = 13010, .runtime_version = 12080,
};

static void a_gpu_is_told_with_its_driver_and_libraries(void **state)
{
    (void)state;
    json_t *env = capture(&gpu), *libraries = json_object_get(env, "libraries"), *list = json_object_get(env, "gpus");
    json_t *g = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(text_at(json_object_get(env, "device"), "backend"), "cuda");
    assert_string_equal(text_at(libraries, "cudnn"), "9.19.0");
    assert_string_equal(text_at(libraries, "cublaslt"), "13.1.0");
    assert_string_equal(text_at(g, "name"), gpu.name);
    assert_string_equal(text_at(g, "uuid"), gpu.gpu_uuid);
    assert_string_equal(text_at(g, "capability"), "9.0");
    assert_string_equal(text_at(g, "driver"), "13.1");
    assert_string_equal(text_at(g, "runtime"), "12.8");
    assert_int_equal(json_integer_value(json_object_get(g, "memory_bytes")), 1 << 30);
    assert_true(json_is_null(json_object_get(g, "note")));
    assert_true(json_is_null(json_object_get(json_object_get(env, "cpu"), "threads_used")));
    json_decref(env);
    env = capture(&device);
    assert_int_equal(json_array_size(json_object_get(env, "gpus")), 0);
    json_decref(env);
}

static Status capture_and_drop(void *context)
{
    json_t *env, *tool = NULL;
    Status  s = env_capture(context, &env);
    if (s.code == STATUS_OK)
        s = env_tool(&tool);
    json_decref(env);
    json_decref(tool);
    return s;
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    assert_true(fault_alloc_sweep(capture_and_drop, (void *)(uintptr_t)&device) > 20);
    assert_true(fault_alloc_sweep(capture_and_drop, (void *)(uintptr_t)&gpu) > 20);
}

/* ---- load ---- */

static void burn(double seconds)
{
    volatile double x = 1;
    for (double end = clock_seconds() + seconds; clock_seconds() < end;)
        for (int i = 0; i < 10000; i++)
            x = x * 1.0000001;
}

static void own_work_is_not_load_but_a_childs_is(void **state)
{
    (void)state;
    EnvLoad load;
    env_load_start(&load);
    if (isnan(load.busy))
        skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        burn(0.6);
        _exit(0);
    }
    env_load_start(&load);
    burn(0.4); /* both work */
    double with_child = env_load_others(&load);
    waitpid(child, NULL, 0);
    assert_true(with_child >= 0);
    /* The child got a core or, on a busy machine, shared one with others: either way others were busy. */
    if (with_child < 0.25)
        fail_msg("a busy child shows as %g cores", with_child);
    assert_true(with_child <= (double)sysconf(_SC_NPROCESSORS_CONF) + 0.5);
}

static void too_short_a_time_is_unknown(void **state)
{
    (void)state;
    EnvLoad load;
    env_load_start(&load);
    assert_true(isnan(env_load_others(&load)));
}

static void peak_of_the_process_follows_its_memory(void **state)
{
    (void)state;
    size_t before = env_process_peak_bytes();
    if (before == 0)
        skip();
    enum { BYTES = 64 << 20 };
    /* not malloc: what a sanitizer does with freed memory is not the question here */
    int   zero = open("/dev/zero", O_RDONLY);
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    assert_true(block != MAP_FAILED);
    close(zero);
    memset(block, 1, BYTES);
    size_t with = env_process_peak_bytes();
    munmap(block, BYTES);
    assert_in_range(with, before + BYTES / 2, before + 2 * (size_t)BYTES);
    size_t after = env_process_peak_bytes();
    if (after + (1 << 20) < with) /* a high-water mark; the kernel counts pages in batches */
        fail_msg("the peak fell from %zu to %zu", with, after);
    env_process_peak_reset();
    assert_true(env_process_peak_bytes() <= with + (4 << 20)); /* it may have grown a little meanwhile */
}

static void timestamps_are_utc_in_iso_form(void **state)
{
    (void)state;
    char text[24];
    int  y, mo, d, h, mi, s, end = 0;
    assert_ptr_equal(env_timestamp(text, sizeof text), text);
    assert_int_equal(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &y, &mo, &d, &h, &mi, &s, &end), 6);
    assert_int_equal(end, 20);
    assert_int_equal(strlen(text), 20);
    assert_true(y >= 2024 && mo >= 1 && mo <= 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_of_the_schema_is_there),
        cmocka_unit_test(a_gpu_is_told_with_its_driver_and_libraries),
        cmocka_unit_test(libraries_and_device_come_from_who_knows_them),
        cmocka_unit_test(unknown_is_null_and_never_zero),
        cmocka_unit_test(names_that_are_no_utf8_do_not_spoil_the_record),
        cmocka_unit_test(nothing_changes_between_two_captures),
        cmocka_unit_test(tool_says_what_was_built),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(own_work_is_not_load_but_a_childs_is),
        cmocka_unit_test(too_short_a_time_is_unknown),
        cmocka_unit_test(peak_of_the_process_follows_its_memory),
        cmocka_unit_test(timestamps_are_utc_in_iso_form),
    };
    return cmocka_run_group_tests(tests, use_counted_allocator, NULL);
}
