/* test_isolate.c - results and errors come back from the child; a child that crashes, is killed, says nothing or is told to
 * stop becomes a status, and the parent goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../bench/interrupt.h"
#include "../bench/isolate.h"

static Status give_large(void *context, json_t **result)
{
    json_t *list = json_array();
    for (int i = 0; i < 200000; i++) /* far beyond what a pipe holds */
        json_array_append_new(list, json_integer(i + *(int *)context));
    *result = list;
    return status_ok();
}

static Status give_error(void *context, json_t **result)
{
    (void)context;
    *result = json_string("must be dropped");
    return status_error(STATUS_OOM, "needs 7 GiB, \"quoted\"");
}

static Status crash(void *context, json_t **result)
{
    (void)result;
    signal(*(int *)context, SIG_DFL); /* a sanitizer would report it as its own failure */
    raise(*(int *)context);
    return status_ok();
}

static Status leave(void *context, json_t **result)
{
    (void)context;
    (void)result;
    _exit(5);
}

static Status wait_for_interrupt(void *context, json_t **result)
{
    (void)result;
    kill(getppid(), SIGTERM); /* as `kill PID` would: the parent alone is told */
    for (int i = 0; i < 1000; i++) {
        TRY(interrupt_check());
        nanosleep((struct timespec *)context, NULL);
    }
    return status_error(STATUS_BACKEND, "nobody passed the interrupt on");
}

static void test_result_comes_back_whole(void **state)
{
    (void)state;
    int first = 5;
    json_t *result;
    assert_int_equal(isolate_run(give_large, &first, &result).code, STATUS_OK);
    assert_int_equal(json_array_size(result), 200000);
    assert_int_equal(json_integer_value(json_array_get(result, 199999)), 200004);
    json_decref(result);
}

static void test_error_comes_back_with_its_text(void **state)
{
    (void)state;
    json_t *result;
    Status s = isolate_run(give_error, NULL, &result);
    assert_int_equal(s.code, STATUS_OOM);
    assert_string_equal(s.text, "needs 7 GiB, \"quoted\"");
    assert_null(result);
}

static void test_crash_is_named(void **state)
{
    (void)state;
    json_t *result;
    int number = SIGSEGV;
    Status s = isolate_run(crash, &number, &result);
    assert_int_equal(s.code, STATUS_BACKEND);
    assert_non_null(strstr(s.text, "crashed: Segmentation fault (signal 11)"));
    number = SIGKILL;
    s = isolate_run(crash, &number, &result);
    assert_int_equal(s.code, STATUS_OOM);
    assert_non_null(strstr(s.text, "lack of memory"));
    s = isolate_run(leave, NULL, &result);
    assert_int_equal(s.code, STATUS_BACKEND);
    assert_non_null(strstr(s.text, "exit code 5"));
}

static void test_interrupt_is_passed_on(void **state)
{
    (void)state;
    json_t *result;
    struct timespec nap = { 0, 10000000 };
    interrupt_install();
    Status s = isolate_run(wait_for_interrupt, &nap, &result);
    assert_int_equal(s.code, STATUS_INTERRUPTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result_comes_back_whole),
        cmocka_unit_test(test_error_comes_back_with_its_text),
        cmocka_unit_test(test_crash_is_named),
        cmocka_unit_test(test_interrupt_is_passed_on), /* last: the flag stays set */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
