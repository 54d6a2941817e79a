/* The Google Benchmark shim: every flag reaches the library, a skipped cell never looks like a result, and nothing the
 * user can type ends the process from within. The library keeps its state for the whole process, so each case runs this
 * program anew (--child) with its flags. */
#include "bench/gbench.h"

#include "kernels/base.h"
#include "scratch.h"

#include <jansson.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the child: five cells ---- */

typedef struct Cell { const char *name; double seconds; const char *skip_before, *skip_inside; } Cell;

static const Cell cells[] = {
    { "net/batch:1", 0.25, NULL, NULL },
    { "net/batch:2", 0.5, NULL, NULL },
    { "net/batch:4", 1, "does not fit: needs \"9\" GiB", NULL },
    { "other/verified", 2, NULL, "differs from the reference" },
    { "other/unmeasured", (double)NAN, NULL, NULL },
};

static void run_cell(GbenchRun *run, void *context)
{
    const Cell *cell = context;
    int iterations = 0;
    if (cell->skip_before)
        gbench_skip(run, cell->skip_before);
    int64_t granted = gbench_iterations(run);
    while (gbench_next(run)) {
        iterations++;
        if (cell->skip_inside)
            gbench_skip(run, cell->skip_inside);
        else
            gbench_seconds(run, cell->seconds);
    }
    gbench_counter(run, "samples_per_s", 1 / cell->seconds); /* NaN for the last */
    gbench_label(run, "stopped by precision");
    fprintf(stderr, "ran %s: %d\n", cell->name, iterations);
    if (iterations != granted) /* fewer only if it was skipped; then none are granted any more */
        fprintf(stderr, "granted %lld, afterwards %lld\n", (long long)granted, (long long)gbench_iterations(run));
}

/* Exit codes: 10 + selected cells, 1 = results not written, 2 = wrong flags. */
static int child_main(int argc, char **argv)
{
    bool quiet = strcmp(argv[1], "--child-quiet") == 0;
    if (!gbench_init(&argc, argv))
        return 2;
    fprintf(stderr, "rest:");
    for (int i = 2; i < argc; i++)
        fprintf(stderr, " %s", argv[i]);
    fprintf(stderr, "; list %d, min time %d, ends %d\n", gbench_list_only(), gbench_user_min_time(), argv[argc] == NULL);
    for (size_t i = 0; i < COUNT_OF(cells); i++)
        gbench_register(cells[i].name, run_cell, (void *)(uintptr_t)&cells[i]);
    int count = gbench_run(quiet);
    return count < 0 ? 1 : 10 + count;
}

/* ---- the parent ---- */

typedef struct Output { int code; char *out, *err; } Output;

/* Runs the child with up to four flags (NULL: none) in the folder. Free with drop. */
static Output run_child(const char *folder, const char *mode, const char *a, const char *b, const char *c, const char *d)
{
    char        self[4096];
    ssize_t     n = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *flags[] = { a, b, c, d };
    char       *argv[8] = { self, (char *)(uintptr_t)mode };
    assert_true(n > 0);
    self[n] = '\0';
    for (int i = 0, at = 2; i < 4; i++)
        if (flags[i])
            argv[at++] = (char *)(uintptr_t)flags[i];
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(folder) != 0 || dup2(open("stdout", O_WRONLY | O_CREAT | O_TRUNC, 0600), 1) != 1 ||
            dup2(open("stderr", O_WRONLY | O_CREAT | O_TRUNC, 0600), 2) != 2)
            _exit(100);
        execv(self, argv);
        _exit(101);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    Output o = { WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how), scratch_read(scratch_path(folder, "stdout")),
                 scratch_read(scratch_path(folder, "stderr")) };
    return o;
}

static void drop(Output *o)
{
    free(o->out);
    free(o->err);
}

static void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void expect_no_text(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("\"%s\" is in:\n%s", part, text);
}

static void expect_code(const Output *o, int code)
{
    if (o->code != code)
        fail_msg("exit code %d, expected %d\n%s%s", o->code, code, o->out, o->err);
}

static json_t *parse(const char *text)
{
    json_error_t at;
    json_t *root = json_loads(text, 0, &at);
    if (!root)
        fail_msg("%d:%d: %s in\n%s", at.line, at.column, at.text, text);
    return root;
}

/* The n-th result with this name (with what the library adds to names). */
static json_t *result(json_t *root, const char *name, int n)
{
    char full[80];
    json_t *entry;
    size_t  i;
    snprintf(full, sizeof full, "%s/manual_time", name);
    json_array_foreach(json_object_get(root, "benchmarks"), i, entry)
        if (strcmp(json_string_value(json_object_get(entry, "run_name")), full) == 0 && n-- == 0)
            return entry;
    return NULL;
}

static void a_cell_is_run_once_and_its_time_reported(void **state)
{
    Output o = run_child(*state, "--child", "--benchmark_format=json", "--benchmark_filter=net/batch:[12]", NULL, NULL);
    expect_code(&o, 12);
    expect_text(o.err, "ran net/batch:1: 1\n");
    expect_text(o.err, "ran net/batch:2: 1\n");
    expect_no_text(o.err, "ran other");
    json_t *root = parse(o.out), *two = result(root, "net/batch:2", 0);
    assert_int_equal(json_array_size(json_object_get(root, "benchmarks")), 2);
    assert_non_null(two);
    assert_string_equal(json_string_value(json_object_get(two, "name")), "net/batch:2/manual_time");
    assert_string_equal(json_string_value(json_object_get(two, "time_unit")), "ms");
    assert_true(fabs(json_number_value(json_object_get(two, "real_time")) - 500) < 1e-9);
    assert_true(json_number_value(json_object_get(two, "samples_per_s")) == 2);
    assert_string_equal(json_string_value(json_object_get(two, "label")), "stopped by precision");
    json_decref(root);
    drop(&o);
}

/* tests/CASES.md D19: no number of a skipped cell may be taken for a measurement. */
static void a_skipped_cell_is_no_result(void **state)
{
    static const struct { const char *name, *reason; } skips[] = {
        { "net/batch:4", "does not fit: needs \"9\" GiB" },
        { "other/verified", "differs from the reference" },
        { "other/unmeasured", "no time was measured" },
    };
    Output o = run_child(*state, "--child", "--benchmark_format=json", NULL, NULL, NULL);
    expect_code(&o, 15);
    json_t *root = parse(o.out); /* NaN or infinity would not pass */
    for (size_t i = 0; i < COUNT_OF(skips); i++) {
        json_t *entry = result(root, skips[i].name, 0);
        assert_non_null(entry);
        json_t *reason = json_object_get(entry, "error_message"), *mark = json_object_get(entry, "error_occurred");
        if (!reason) { /* 1.8 and later */
            reason = json_object_get(entry, "skip_message");
            mark = json_object_get(entry, "skipped");
        }
        assert_string_equal(json_string_value(reason), skips[i].reason);
        assert_true(json_is_true(mark));
        assert_null(json_object_get(entry, "real_time") && json_number_value(json_object_get(entry, "real_time")) > 0 ? entry : NULL);
    }
    assert_null(json_object_get(result(root, "net/batch:1", 0), "error_occurred"));
    expect_text(o.err, "ran net/batch:4: 0\n"); /* skipped before: no iteration */
    expect_text(o.err, "ran other/verified: 1\n");
    expect_text(o.err, "ran other/unmeasured: 1\n");
    json_decref(root);
    drop(&o);
    o = run_child(*state, "--child", NULL, NULL, NULL, NULL); /* and on the console */
    expect_code(&o, 15);
    expect_text(o.out, "does not fit");
    expect_text(o.out, "differs from the reference");
    drop(&o);
}

static void repetitions_and_aggregates_work(void **state)
{
    Output o = run_child(*state, "--child", "--benchmark_format=json", "--benchmark_repetitions=3", "--benchmark_filter=batch:1", NULL);
    expect_code(&o, 11);
    json_t *root = parse(o.out);
    for (int i = 0; i < 3; i++)
        assert_int_equal(json_integer_value(json_object_get(result(root, "net/batch:1", i), "repetition_index")), i);
    json_t *mean = result(root, "net/batch:1", 3);
    assert_string_equal(json_string_value(json_object_get(mean, "aggregate_name")), "mean");
    json_decref(root);
    drop(&o);
}

static void names_can_be_listed_without_running(void **state)
{
    Output o = run_child(*state, "--child", "--benchmark_list_tests", "--benchmark_filter=^net", NULL, NULL);
    expect_code(&o, 13);
    assert_string_equal(o.out, "net/batch:1/manual_time\nnet/batch:2/manual_time\nnet/batch:4/manual_time\n");
    expect_text(o.err, "list 1");
    expect_no_text(o.err, "ran ");
    drop(&o);
    o = run_child(*state, "--child", "--benchmark_list_tests=false", "--benchmark_filter=^net/batch:1", NULL, NULL);
    expect_text(o.err, "list 0");
    expect_text(o.err, "ran ");
    drop(&o);
}

static void results_go_to_a_file_too(void **state)
{
    Output o = run_child(*state, "--child", "--benchmark_out=results.json", "--benchmark_filter=batch:1", NULL, NULL);
    expect_code(&o, 11);
    expect_text(o.out, "net/batch:1"); /* the console as before */
    char   *text = scratch_read(scratch_path(*state, "results.json"));
    json_t *root = parse(text);
    assert_non_null(result(root, "net/batch:1", 0));
    json_decref(root);
    free(text);
    drop(&o);
    o = run_child(*state, "--child", "--benchmark_out=results.csv", "--benchmark_out_format=csv", "--benchmark_filter=batch:[12]", NULL);
    expect_code(&o, 12);
    text = scratch_read(scratch_path(*state, "results.csv"));
    expect_text(text, "name,iterations,real_time");
    expect_text(text, "\"net/batch:2/manual_time\",1,500");
    free(text);
    drop(&o);
    o = run_child(*state, "--child", "--benchmark_out=results.txt", "--benchmark_out_format=console", "--benchmark_filter=batch:1", NULL);
    text = scratch_read(scratch_path(*state, "results.txt"));
    expect_text(text, "net/batch:1/manual_time");
    free(text);
    drop(&o);
}

static void a_file_that_cannot_be_written_is_an_error(void **state)
{
    scratch_write(scratch_path(*state, "file"), "", 0);
    Output o = run_child(*state, "--child", "--benchmark_out=file/below", NULL, NULL, NULL);
    expect_code(&o, 2);
    expect_text(o.err, "--benchmark_out=file/below: cannot be written: Not a directory\n");
    expect_no_text(o.err, "ran ");
    drop(&o);
    static const char *const formats[] = { "json", "csv", "console" };
    for (size_t i = 0; i < COUNT_OF(formats); i++) { /* a full disk is found out only at the end */
        char flag[64];
        snprintf(flag, sizeof flag, "--benchmark_out_format=%s", formats[i]);
        o = run_child(*state, "--child", "--benchmark_out=/dev/full", flag, "--benchmark_filter=batch:1", NULL);
        expect_code(&o, 1);
        expect_text(o.err, "--benchmark_out=/dev/full: could not be written whole");
        drop(&o);
    }
    o = run_child(*state, "--child", "--benchmark_out=never.json", "--benchmark_format=xml", NULL, NULL);
    expect_code(&o, 2);
    assert_int_equal(access(scratch_path(*state, "never.json"), F_OK), -1); /* nothing is left behind */
    drop(&o);
}

static void quiet_leaves_stdout_free(void **state)
{
    static const char *const formats[] = { "--benchmark_format=console", "--benchmark_format=json", "--benchmark_format=csv" };
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        Output o = run_child(*state, "--child-quiet", formats[i], "--benchmark_filter=batch:1", NULL, NULL);
        expect_code(&o, 11);
        assert_string_equal(o.out, "");
        expect_text(o.err, "net/batch:1/manual_time");
        drop(&o);
    }
}

static void with_min_time_the_library_counts_iterations(void **state)
{
    Output o = run_child(*state, "--child", "--benchmark_min_time=2", "--benchmark_format=json", "--benchmark_filter=batch:[12]", NULL);
    expect_code(&o, 12);
    expect_text(o.err, "min time 1");
    expect_no_text(o.err, "granted");
    json_t *root = parse(o.out), *one = result(root, "net/batch:1", 0);
    assert_true(json_integer_value(json_object_get(one, "iterations")) >= 8); /* 8 x 0.25 s */
    assert_true(fabs(json_number_value(json_object_get(one, "real_time")) - 250) < 1e-6);
    json_decref(root);
    drop(&o);
}

static void the_library_takes_only_its_own_flags(void **state)
{
    Output o = run_child(*state, "--child", "--batch", "--benchmark_filter=batch:1", "--help", "--v=3");
    expect_code(&o, 11);
    expect_text(o.err, "rest: --batch --help --v=3; list 0, min time 0, ends 1\n");
    drop(&o);
}

static void time_unit_and_context_reach_the_library(void **state)
{
    Output o = run_child(*state, "--child", "--benchmark_time_unit=s", "--benchmark_context=machine=mine", "--benchmark_format=json",
                         "--benchmark_filter=batch:2");
    expect_code(&o, 11);
    json_t *root = parse(o.out), *two = result(root, "net/batch:2", 0);
    assert_string_equal(json_string_value(json_object_get(two, "time_unit")), "s");
    assert_true(fabs(json_number_value(json_object_get(two, "real_time")) - 0.5) < 1e-12);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "context"), "machine")), "mine");
    json_decref(root);
    drop(&o);
}

static void a_wrong_flag_is_named_and_nothing_runs(void **state)
{
    static const char *const wrong[] = {
        "--benchmark_format=xml",    "--benchmark_out_format=xml",  "--benchmark_time_unit=h",       "--benchmark_color=",
        "--benchmark_repetitions=0", "--benchmark_repetitions=-2",  "--benchmark_repetitions=three", "--benchmark_min_time=soon",
        "--benchmark_min_time=",     "--benchmark_min_time=-1",     "--benchmark_filters=x",         "--benchmark_min_warmup_time=x",
        "--benchmark_",              "--benchmark_out=",            "--benchmark_filter",            "--benchmark_repetitions",
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        Output o = run_child(*state, "--child", wrong[i], NULL, NULL, NULL);
        expect_code(&o, 2);
        expect_text(o.err, wrong[i]);
        expect_text(o.err, "batchmark: ");
        expect_no_text(o.err, "ran ");
        drop(&o);
    }
}

static void a_filter_that_selects_nothing_runs_nothing(void **state)
{
    static const char *const filters[] = { "--benchmark_filter=unet", "--benchmark_filter=batch:(" };
    for (size_t i = 0; i < COUNT_OF(filters); i++) {
        Output o = run_child(*state, "--child", filters[i], NULL, NULL, NULL);
        expect_code(&o, 10);
        expect_no_text(o.err, "ran ");
        assert_true(strlen(o.err) > strlen("rest:; list 0, min time 0, ends 1\n")); /* the library says why */
        drop(&o);
    }
}

static void the_environment_counts_as_flags(void **state)
{
    setenv("BENCHMARK_FORMAT", "xml", 1);
    Output o = run_child(*state, "--child", NULL, NULL, NULL, NULL);
    unsetenv("BENCHMARK_FORMAT");
    expect_code(&o, 2);
    drop(&o);
    setenv("BENCHMARK_MIN_TIME", "1", 1);
    o = run_child(*state, "--child", "--benchmark_filter=batch:1", NULL, NULL, NULL);
    unsetenv("BENCHMARK_MIN_TIME");
    expect_code(&o, 11);
    expect_text(o.err, "min time 1");
    drop(&o);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "--child", 7) == 0)
        return child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_cell_is_run_once_and_its_time_reported),
        IN_SCRATCH(a_skipped_cell_is_no_result),
        IN_SCRATCH(repetitions_and_aggregates_work),
        IN_SCRATCH(names_can_be_listed_without_running),
        IN_SCRATCH(results_go_to_a_file_too),
        IN_SCRATCH(a_file_that_cannot_be_written_is_an_error),
        IN_SCRATCH(quiet_leaves_stdout_free),
        IN_SCRATCH(with_min_time_the_library_counts_iterations),
        IN_SCRATCH(the_library_takes_only_its_own_flags),
        IN_SCRATCH(time_unit_and_context_reach_the_library),
        IN_SCRATCH(a_wrong_flag_is_named_and_nothing_runs),
        IN_SCRATCH(a_filter_that_selects_nothing_runs_nothing),
        IN_SCRATCH(the_environment_counts_as_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
