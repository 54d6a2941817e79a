/* What tuning chose survives the process, whatever happens to the file: two writers, a cut, foreign bytes, no place to write. */
#include "kernels/cuda/choice_cache.h"

#include "../fault_alloc.h"
#include "../scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static ChoiceCache *open_cache(const char *folder)
{
    ChoiceCache *c;
    assert_int_equal(choice_cache_create(folder, &c).code, STATUS_OK);
    return c;
}

static void keep(ChoiceCache *c, const char *key, const char *name, size_t bytes, double us)
{
    Choice choice = { .bytes = bytes, .us = us };
    snprintf(choice.name, sizeof choice.name, "%s", name);
    assert_int_equal(choice_cache_keep(c, key, &choice).code, STATUS_OK);
}

static void expect(const ChoiceCache *c, const char *key, const char *name, size_t bytes, double us)
{
    Choice choice;
    assert_true(choice_cache_find(c, key, &choice));
    assert_string_equal(choice.name, name);
    assert_int_equal(choice.bytes, bytes);
    if (isnan(us))
        assert_true(isnan(choice.us));
    else
        assert_float_equal(choice.us, us, 1e-3);
}

static void choices_come_back_in_the_next_run(void **state)
{
    Choice       none;
    ChoiceCache *c = open_cache(*state);
    assert_false(choice_cache_find(c, "conv a", &none));
    keep(c, "conv a", "e62 k2=4", 131, 12.345);
    keep(c, "conv b", "algorithm 3", (size_t)1 << 33, (double)NAN);
    keep(c, "conv a", "e45", 0, 11.5);
    choice_cache_destroy(c);
    c = open_cache(*state);
    expect(c, "conv a", "e45", 0, 11.5);
    expect(c, "conv b", "algorithm 3", (size_t)1 << 33, (double)NAN);
    assert_false(choice_cache_find(c, "conv", &none));
    choice_cache_destroy(c);
}

static void two_at_once_keep_the_choices_of_both(void **state)
{
    ChoiceCache *a = open_cache(*state), *b = open_cache(*state);
    keep(a, "mine", "e1", 1, 1);
    keep(b, "yours", "e2", 2, 2);
    choice_cache_destroy(a);
    choice_cache_destroy(b);
    ChoiceCache *c = open_cache(*state);
    expect(c, "mine", "e1", 1, 1);
    expect(c, "yours", "e2", 2, 2);
    choice_cache_destroy(c);
}

static void eight_processes_lose_nothing(void **state)
{
    enum { PROCESSES = 8, EACH = 20 };
    char  key[32];
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        if ((child[p] = fork()) == 0) {
            ChoiceCache *c;
            bool good = choice_cache_create(*state, &c).code == STATUS_OK;
            for (int i = 0; good && i < EACH; i++) {
                Choice choice = { .name = "e1", .bytes = (size_t)i, .us = p };
                snprintf(key, sizeof key, "op %d of %d", i, p);
                good = choice_cache_keep(c, key, &choice).code == STATUS_OK;
            }
            if (good)
                choice_cache_destroy(c);
            _exit(good ? 0 : 1);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int how;
        assert_int_equal(waitpid(child[p], &how, 0), child[p]);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    ChoiceCache *c = open_cache(*state);
    for (int p = 0; p < PROCESSES; p++)
        for (int i = 0; i < EACH; i++) {
            snprintf(key, sizeof key, "op %d of %d", i, p);
            expect(c, key, "e1", (size_t)i, p);
        }
    choice_cache_destroy(c);
    assert_int_equal(scratch_entries(*state), 2); /* the file and its lock: no left-overs */
}

/* What is left of the file after a cut is used, what is not whole is not, and the file is whole again afterwards. */
static void a_cut_file_gives_no_wrong_choice(void **state)
{
    ChoiceCache *c = open_cache(*state);
    keep(c, "first", "e123", 456, 789);
    keep(c, "second", "e321", 654, 987);
    choice_cache_destroy(c);
    char  path[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "choices.txt"));
    char *whole = scratch_read(path);
    for (size_t length = 0; length < strlen(whole); length++) {
        Choice choice;
        scratch_write(path, whole, length);
        c = open_cache(*state);
        if (choice_cache_find(c, "first", &choice))
            expect(c, "first", "e123", 456, 789);
        assert_false(choice_cache_find(c, "second", &choice));
        keep(c, "second", "e321", 654, 987);
        choice_cache_destroy(c);
        c = open_cache(*state);
        expect(c, "second", "e321", 654, 987);
        choice_cache_destroy(c);
    }
    free(whole);
}

static void a_foreign_file_is_written_anew(void **state)
{
    static const struct { const char *text; size_t length; } foreign[] = {
        { "{\"choices\": []}\n", 16 }, { "", 0 }, { "\0\0\0\xff\xfe", 5 }, { "batchmark choices 99\nkey\tname\t1\t1\n", 34 },
        { "batchmark choices 1\nkey\tname\t1\n", 31 }, { "batchmark choices 1\nkey\tname\t-1\t1\n", 34 },
        { "batchmark choices 1\nkey\tname\t1\t1x\n", 34 }, { "batchmark choices 1\n\tname\t1\t1\n", 30 },
        { "batchmark choices 1\nkey\t\t1\t1\n", 29 }, { "batchmark choices 1\nkey\tname\t99999999999999999999\t1\n", 53 },
    };
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "choices.txt"));
    for (size_t i = 0; i < COUNT_OF(foreign); i++) {
        Choice choice;
        scratch_write(path, foreign[i].text, foreign[i].length);
        ChoiceCache *c = open_cache(*state);
        assert_false(choice_cache_find(c, "key", &choice));
        choice_cache_destroy(c);
        char *now = scratch_read(path);
        assert_string_equal(now, "batchmark choices 1\n");
        free(now);
    }
}

static void no_place_to_write_is_no_error(void **state)
{
    char folder[512];
    scratch_write(scratch_path(*state, "file"), "x", 1);
    snprintf(folder, sizeof folder, "%s", scratch_path(*state, "file/below"));
    ChoiceCache *c = open_cache(folder);
    keep(c, "conv a", "e62", 131, 12);
    expect(c, "conv a", "e62", 131, 12);
    choice_cache_destroy(c);
}

static void the_folder_follows_the_environment(void **state)
{
    assert_int_equal(setenv("XDG_CACHE_HOME", *state, 1), 0);
    ChoiceCache *c = open_cache(NULL);
    keep(c, "conv a", "e62", 131, 12);
    choice_cache_destroy(c);
    char *text = scratch_read(scratch_path(*state, "batchmark/choices.txt"));
    assert_non_null(strstr(text, "conv a\te62\t131\t12000\n"));
    free(text);

    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(setenv("HOME", *state, 1), 0);
    c = open_cache(NULL);
    keep(c, "conv b", "e1", 0, 1);
    choice_cache_destroy(c);
    text = scratch_read(scratch_path(*state, ".cache/batchmark/choices.txt"));
    assert_non_null(strstr(text, "conv b\te1\t0\t1000\n"));
    free(text);

    assert_int_equal(unsetenv("HOME"), 0);
    c = open_cache(NULL);
    keep(c, "conv a", "e62", 131, 12);
    choice_cache_destroy(c);
}

static void a_key_names_library_device_and_op_on_one_line(void **state)
{
    (void)state;
    CudaBackend be = { .title = "NVIDIA\tH100", .capability = 90 };
    char        key[CHOICE_KEY_BYTES];
    assert_string_equal(choice_key(&be, "cuDNN 9.19.0", "conv2d\nk3", key, sizeof key), "cuDNN 9.19.0 | NVIDIA H100 sm_90 | conv2d k3");
}

typedef struct Noted { int count; char op[2][32], choice[2][32]; } Noted;
static void note(void *context, const char *op, const char *choice, size_t bytes, double us)
{
    Noted *n = context;
    assert_true(n->count < 2 && bytes == 7 && isnan(us));
    snprintf(n->op[n->count], sizeof n->op[0], "%s", op);
    snprintf(n->choice[n->count++], sizeof n->choice[0], "%s", choice);
}

static void the_record_gets_what_is_in_use(void **state)
{
    CudaBackend be = { 0 };
    Noted       noted = { 0 };
    cuda_choices(&be.base, note, &noted); /* without a cache: nothing */
    assert_int_equal(choice_cache_use(NULL, "conv a", &(Choice){ .name = "e1" }).code, STATUS_OK);
    be.choices = open_cache(*state);
    keep(be.choices, "some other run's", "e9", 7, 1);
    assert_int_equal(choice_cache_use(be.choices, "conv a", &(Choice){ .name = "e1", .bytes = 7, .us = (double)NAN }).code, STATUS_OK);
    assert_int_equal(choice_cache_use(be.choices, "conv b", &(Choice){ .name = "e2", .bytes = 7, .us = (double)NAN }).code, STATUS_OK);
    assert_int_equal(choice_cache_use(be.choices, "conv a", &(Choice){ .name = "e3", .bytes = 7, .us = (double)NAN }).code, STATUS_OK);
    cuda_choices(&be.base, note, &noted);
    assert_int_equal(noted.count, 2);
    assert_string_equal(noted.op[0], "conv a");
    assert_string_equal(noted.choice[0], "e3");
    assert_string_equal(noted.op[1], "conv b");
    choice_cache_destroy(be.choices);
}

static Status fill(void *folder)
{
    ChoiceCache *c;
    Status       status;
    TRY(choice_cache_create(folder, &c));
    for (int i = 0; i < 100; i++) {
        char key[32];
        snprintf(key, sizeof key, "op %d", i);
        TRY_GOTO(status, choice_cache_keep(c, key, &(Choice){ .name = "e1" }), out);
        TRY_GOTO(status, choice_cache_use(c, key, &(Choice){ .name = "e1" }), out);
    }
out:
    choice_cache_destroy(c);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_int_equal(fill(*state).code, STATUS_OK); /* so that there is a file to read */
    assert_true(fault_alloc_sweep(fill, *state) > 100);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(choices_come_back_in_the_next_run),
        IN_FOLDER(two_at_once_keep_the_choices_of_both),
        IN_FOLDER(eight_processes_lose_nothing),
        IN_FOLDER(a_cut_file_gives_no_wrong_choice),
        IN_FOLDER(a_foreign_file_is_written_anew),
        IN_FOLDER(no_place_to_write_is_no_error),
        IN_FOLDER(the_folder_follows_the_environment),
        cmocka_unit_test(a_key_names_library_device_and_op_on_one_line),
        IN_FOLDER(the_record_gets_what_is_in_use),
        IN_FOLDER(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
