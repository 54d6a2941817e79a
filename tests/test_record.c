/* The record: always whole on disk, refused when it is not ours, with the reason; numbers exact in any locale. */
#include "bench/record.h"

#include "bench/whole_file.h"
#include "fault_alloc.h"
#include "scratch.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void *counted_malloc(size_t bytes) { return malloc(bytes); }
static void  counted_free(void *block) { free(block); }

static int use_counted_allocator(void **state)
{
    (void)state;
    json_set_alloc_funcs(counted_malloc, counted_free); /* jansson's allocations pass fault_alloc too */
    return 0;
}

/* ---- helpers ---- */

static json_t *make_run(void)
{
    return json_pack("{s:s,s:s,s:n,s:[ss],s:n,s:{}}", "id", "a-run", "started", "2026-11-30T17:40:00Z", "finished", "command",
                     "batchmark", "bench", "preset", "options");
}

static json_t *make_cell(const char *name, const char *status, double seconds)
{
    return json_pack("{s:s,s:s,s:{},s:o}", "name", name, "status", status, "axes", "seconds", record_real(seconds));
}

static void assert_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s: %s", status_code_name(s.code), s.text);
}

/* One line with this code that holds these words. */
static void assert_refused(Status s, StatusCode code, const char *words, const char *more)
{
    if (s.code != code || !strstr(s.text, words) || !strstr(s.text, more) || strchr(s.text, '\n'))
        fail_msg("got %s: \"%s\", expected %s with \"%s\" and \"%s\"", status_code_name(s.code), s.text, status_code_name(code),
                 words, more);
}

static Record *make_record(const char *dir)
{
    Record *r = NULL;
    assert_ok(record_create(dir, make_run(), json_object(), &r));
    assert_non_null(r);
    return r;
}

static json_t *load(const char *path)
{
    json_t *root = NULL;
    assert_ok(record_load(path, &root));
    return root;
}

/* ---- the good way ---- */

static void a_new_record_is_on_disk_at_once(void **state)
{
    const char *dir = scratch_path(*state, "a/b//c");
    Record *r = make_record(dir);
    assert_string_equal(record_dir(r), dir);
    json_t *root = load(dir), *same = load(scratch_path(dir, "record.json"));
    assert_true(json_equal(root, record_root(r)) && json_equal(root, same));
    assert_int_equal(json_integer_value(json_object_get(root, "format")), 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "tool"), "name")), "batchmark");
    assert_int_equal(scratch_entries(dir), 1); /* no temporary file stays */
    json_decref(root);
    json_decref(same);
    record_close(r);
}

static void entries_are_added_replaced_and_found(void **state)
{
    Record *r = make_record(scratch_path(*state, "run"));
    assert_null(record_find(r, RECORD_CELLS, "one"));
    assert_ok(record_put(r, RECORD_CELLS, make_cell("one", "failed", NAN)));
    assert_ok(record_put(r, RECORD_CELLS, make_cell("two", "ok", 2)));
    assert_ok(record_put(r, RECORD_CELLS, make_cell("one", "ok", 0.1)));
    assert_ok(record_put(r, RECORD_TRAININGS, make_cell("one", "skipped", NAN)));
    assert_ok(record_put(r, RECORD_CLAIMS, json_pack("{s:s,s:s}", "id", "A1", "verdict", "not run")));
    json_t *root = load(record_dir(r)), *cells = json_object_get(root, "cells");
    assert_int_equal(json_array_size(cells), 2);
    json_t *one = record_find(r, RECORD_CELLS, "one");
    assert_ptr_equal(one, json_array_get(json_object_get(record_root(r), "cells"), 0)); /* in its old place */
    assert_true(json_equal(one, json_array_get(cells, 0)));
    assert_true(json_real_value(json_object_get(one, "seconds")) == 0.1);
    assert_non_null(record_find(r, RECORD_CLAIMS, "A1"));
    assert_non_null(record_find(r, RECORD_TRAININGS, "one"));
    assert_true(json_is_null(json_object_get(record_find(r, RECORD_TRAININGS, "one"), "seconds")));
    json_decref(root);
    record_close(r);
}

static void a_finished_run_can_be_gone_on_with(void **state)
{
    const char *dir = scratch_path(*state, "run");
    Record *r = make_record(dir);
    assert_ok(record_put(r, RECORD_CELLS, make_cell("one", "ok", 1)));
    assert_ok(record_finish(r));
    record_close(r);
    json_t *root = load(dir);
    assert_true(json_is_string(json_object_get(json_object_get(root, "run"), "finished")));
    json_decref(root);
    assert_ok(record_open(dir, &r));
    assert_non_null(record_find(r, RECORD_CELLS, "one"));
    record_close(r);
    root = load(dir);
    assert_true(json_is_null(json_object_get(json_object_get(root, "run"), "finished")));
    json_decref(root);
}

static void closing_nothing_is_fine(void **state)
{
    (void)state;
    record_close(NULL);
}

/* ---- numbers ---- */

static const double hard_numbers[] = { 0.1, 1234.5678901234567, 1e-300, 4.9406564584124654e-324, 1.7976931348623157e308,
                                       -0.0, 1.0 / 3, 123456789012345680.0, 2, 25557032 };

/* Writes and reads back; the bits must be the same. */
static void check_numbers(const char *folder)
{
    const char *path = scratch_path(folder, "numbers.json");
    json_t *list = json_array();
    for (size_t i = 0; i < COUNT_OF(hard_numbers); i++)
        assert_int_equal(json_array_append_new(list, record_real(hard_numbers[i])), 0);
    json_t *document = json_pack("{s:o}", "numbers", list);
    assert_ok(record_save(document, path));
    char *text = scratch_read(path);
    json_t *back = json_loads(text, 0, NULL);
    assert_non_null(back);
    for (size_t i = 0; i < COUNT_OF(hard_numbers); i++) {
        double got = json_real_value(json_array_get(json_object_get(back, "numbers"), i));
        assert_memory_equal(&got, &hard_numbers[i], sizeof got);
    }
    assert_non_null(strstr(text, "1234.5678901234567"));
    free(text);
    json_decref(back);
    json_decref(document);
}

static void numbers_come_back_bit_for_bit(void **state) { check_numbers(*state); }

static void what_is_no_number_becomes_null(void **state)
{
    (void)state;
    const double none[] = { (double)NAN, (double)INFINITY, -(double)INFINITY };
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        json_t *v = record_real(none[i]);
        assert_true(json_is_null(v));
        json_decref(v);
    }
}

/* A locale with a decimal comma: an installed one, else one made from the system's sources. */
static bool set_comma_locale(const char *folder)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "es_ES.UTF-8", "pt_BR.UTF-8", "ru_RU.UTF-8" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (setlocale(LC_ALL, names[i]))
            return *localeconv()->decimal_point == ',';
    char command[600];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    if (system(command) != 0 || setenv("LOCPATH", folder, 1) != 0 || !setlocale(LC_ALL, "de_DE.UTF-8"))
        return false;
    return *localeconv()->decimal_point == ',';
}

static void a_comma_locale_changes_no_number(void **state)
{
    if (!set_comma_locale(*state)) {
        print_message("skipped: no locale with a decimal comma is installed, and localedef cannot make one\n");
        skip();
    }
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* it really is in force */
    check_numbers(*state);
    setlocale(LC_ALL, "C");
}

/* ---- what is not a record ---- */

static const char whole[] =
    "{\"format\": 1, \"tool\": {\"name\": \"batchmark\"}, \"run\": {\"id\": \"r\", \"started\": \"s\", \"command\": [\"b\"], "
    "\"options\": {}}, \"environment\": {}, \"cells\": [{\"name\": \"c\", \"status\": \"ok\", \"axes\": {}}], \"trainings\": [], "
    "\"claims\": [{\"id\": \"A1\", \"verdict\": \"not run\"}]}";

static void refuse_text(const char *dir, const char *text, size_t length, const char *words)
{
    const char *path = scratch_path(dir, "record.json");
    json_t *root;
    Record *r;
    scratch_write(path, text, length);
    assert_refused(record_load(path, &root), STATUS_INPUT, path, words);
    assert_null(root);
    assert_refused(record_open(dir, &r), STATUS_INPUT, path, words);
    assert_null(r);
    char *after = scratch_read(path); /* left as it was */
    assert_memory_equal(after, text, length);
    free(after);
    assert_int_equal(scratch_entries(dir), 1);
}

static void every_wrong_member_is_named(void **state)
{
    static const struct { const char *from, *to, *words; } changes[] = {
        { "\"format\": 1", "\"format\": 2", "format 2, this build reads format 1" },
        { "\"format\": 1", "\"format\": \"1\"", "format must be the integer 1, but is a text" },
        { "\"format\": 1", "\"fmt\": 1", "format must be the integer 1, but is missing" },
        { "\"batchmark\"", "\"hyperfine\"", "written by \"hyperfine\"" },
        { "\"batchmark\"", "\"a\\nb\"", "written by \"a b\"" }, /* one line */
        { "\"tool\"", "\"tools\"", "not a batchmark record" },
        { "\"run\": {", "\"run\": [], \"x\": {", "run must be an object, but is an array" },
        { "\"id\": \"r\"", "\"id\": 7", "run.id must be a text, but is an integer" },
        { "\"started\": \"s\"", "\"started\": null", "run.started must be a text, but is null" },
        { "[\"b\"]", "[\"b\", 1]", "run.command[1] must be a text" },
        { "\"options\": {}", "\"options\": []", "run.options must be an object" },
        { "\"environment\": {}", "\"environment\": true", "environment must be an object, but is true" },
        { "\"cells\": [", "\"cells\": {}, \"x\": [", "cells must be an array" },
        { "[{\"name\": \"c\"", "[3, {\"name\": \"c\"", "cells[0] must be an object, but is an integer" },
        { "\"name\": \"c\"", "\"name\": 1.5", "cells[0].name must be a text, but is a real" },
        { "\"status\": \"ok\"", "\"status\": \"fine\"", "cells[0].status is \"fine\"" },
        { "\"status\": \"ok\"", "\"status\": 1", "cells[0].status must be a text" },
        { "\"axes\": {}", "\"axes\": 1", "cells[0].axes must be an object" },
        { "\"trainings\": []", "\"trainings\": [{}]", "trainings[0].name must be a text, but is missing" },
        { "\"id\": \"A1\"", "\"id\": {}", "claims[0].id must be a text" },
        { "\"verdict\"", "\"result\"", "claims[0].verdict must be a text, but is missing" },
        { "\"trainings\"", "\"cells\"", "duplicate" },
    };
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        char text[1024];
        const char *at = strstr(whole, changes[i].from);
        assert_non_null(at);
        int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, changes[i].to, at + strlen(changes[i].from));
        refuse_text(*state, text, (size_t)n, changes[i].words);
    }
    scratch_write(scratch_path(*state, "record.json"), whole, strlen(whole)); /* unchanged, it is right */
    json_decref(load(*state));
}

static void a_cut_record_is_refused_at_any_length(void **state)
{
    refuse_text(*state, whole, 0, "empty");
    for (size_t n = 1; n < strlen(whole); n++)
        refuse_text(*state, whole, n, "line 1, column");
    refuse_text(*state, whole, 100, "cut short");
}

static void other_files_are_refused(void **state)
{
    refuse_text(*state, "[1, 2]\n", 7, "not a batchmark record");
    refuse_text(*state, "batch,seconds\n1,2\n", 18, "not JSON, or cut short at line 1, column");
    refuse_text(*state, "{\n \"a\": 1,\n \"b\": nan}\n", 23, "not JSON, or cut short at line 3, column");
    refuse_text(*state, "\xff\xd8\xff\xe0", 4, "not JSON");
    refuse_text(*state, "{} {}", 5, "not JSON, or cut short at line 1");
    static const char zeros[64];
    refuse_text(*state, zeros, sizeof zeros, "cut short"); /* what a power cut may leave */
}

static void a_missing_record_is_named(void **state)
{
    json_t *root;
    Record *r;
    assert_refused(record_load(scratch_path(*state, "none.json"), &root), STATUS_INPUT, "none.json", "no such");
    assert_refused(record_load(*state, &root), STATUS_INPUT, "/record.json", "no such");
    assert_refused(record_open(*state, &r), STATUS_INPUT, "/record.json", "no such");
    assert_refused(record_open(scratch_path(*state, "nowhere"), &r), STATUS_INPUT, "nowhere/record.json", "no such");
    assert_int_equal(scratch_entries(*state), 0);
    assert_int_equal(mkdir(scratch_path(*state, "record.json"), 0777), 0);
    assert_refused(record_open(*state, &r), STATUS_IO, "/record.json", "Is a directory");
}

/* ---- where nothing can be written ---- */

static void refuse_create(const char *dir, StatusCode code, const char *words)
{
    Record *r;
    assert_refused(record_create(dir, make_run(), json_object(), &r), code, words, "");
    assert_null(r);
}

static void an_existing_record_is_not_overwritten(void **state)
{
    Record *r = make_record(*state);
    assert_ok(record_put(r, RECORD_CELLS, make_cell("one", "ok", 1)));
    record_close(r);
    refuse_create(*state, STATUS_USAGE, "--resume");
    json_t *root = load(*state);
    assert_int_equal(json_array_size(json_object_get(root, "cells")), 1);
    json_decref(root);
}

static void two_runs_do_not_write_one_record(void **state)
{
    Record *first = make_record(*state), *second;
    assert_refused(record_open(*state, &second), STATUS_USAGE, *state, "another run");
    record_close(first);
    assert_ok(record_open(*state, &second));
    record_close(second);
}

static void a_folder_that_cannot_be_is_named(void **state)
{
    scratch_write(scratch_path(*state, "file"), "x", 1);
    refuse_create(scratch_path(*state, "file"), STATUS_IO, "file: Not a directory");
    refuse_create(scratch_path(*state, "file/below/it"), STATUS_IO, "file: Not a directory");
    refuse_create("/proc/batchmark/run", STATUS_IO, "/proc/batchmark");
    refuse_create("/proc/self", STATUS_IO, "/proc/self/record.json.tmp");
    refuse_create("", STATUS_USAGE, "empty");
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    refuse_create(scratch_path(*state, name), STATUS_IO, "File name too long");
    assert_int_equal(scratch_entries(*state), 1);
}

static void without_permission_the_folder_is_named(void **state)
{
    if (geteuid() == 0) {
        print_message("skipped: root may write everywhere\n");
        skip();
    }
    const char *dir = scratch_path(*state, "closed");
    assert_int_equal(mkdir(dir, 0555), 0);
    refuse_create(dir, STATUS_IO, "Permission denied");
    refuse_create(scratch_path(dir, "run"), STATUS_IO, "Permission denied");
}

/* A file may grow to this many bytes, then write() fails as it does on a full disk (EFBIG instead of ENOSPC). */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_loses_only_what_did_not_fit(void **state)
{
    const char *path = scratch_path(*state, "run/record.json");
    Record *r = make_record(scratch_path(*state, "run"));
    assert_ok(record_put(r, RECORD_CELLS, make_cell("one", "ok", 1)));
    char *before = scratch_read(path);
    limit_files((rlim_t)strlen(before) + 20);
    Status put = record_put(r, RECORD_CELLS, make_cell("two", "ok", 2));
    limit_files(0);
    Record *other;
    Status create = record_create(scratch_path(*state, "other"), make_run(), json_object(), &other);
    limit_files(RLIM_INFINITY);
    assert_refused(put, STATUS_IO, path, strerror(EFBIG));
    assert_refused(create, STATUS_IO, "other/record.json", strerror(EFBIG));
    assert_int_equal(scratch_entries(*state), 1); /* the folder made for it is gone again */
    char *after = scratch_read(path);
    assert_string_equal(before, after);
    assert_int_equal(scratch_entries(scratch_path(*state, "run")), 1);
    free(before);
    free(after);
    assert_ok(record_finish(r)); /* once there is room again, nothing is missing */
    json_t *root = load(path);
    assert_int_equal(json_array_size(json_object_get(root, "cells")), 2);
    json_decref(root);
    record_close(r);
}

/* The real thing, where this process may mount: a 64 KiB file system, then a read-only one. */
static void a_full_and_a_read_only_file_system(void **state)
{
    if (mount("tmpfs", *state, "tmpfs", 0, "size=64k") != 0) {
        print_message("skipped: cannot mount a small file system: %s\n", strerror(errno));
        skip();
    }
    Record *r = NULL, *r2;
    char    text[4096];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    Status s = record_create(scratch_path(*state, "run"), make_run(), json_object(), &r);
    int    cells = 0;
    for (; s.code == STATUS_OK && cells < 100; cells++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", cells);
        s = record_put(r, RECORD_CELLS, json_pack("{s:s,s:s,s:{},s:s}", "name", name, "status", "ok", "axes", "reason", text));
    }
    json_t *root = NULL, *root2 = NULL;
    Status loaded = record_load(scratch_path(*state, "run"), &root);
    size_t kept = json_array_size(json_object_get(root, "cells"));
    json_decref(root);
    record_close(r);
    int remounted = mount("tmpfs", *state, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k");
    Status ro = record_create(scratch_path(*state, "other"), make_run(), json_object(), &r2);
    Status ro_open = record_open(scratch_path(*state, "run"), &r2);
    Status ro_load = record_load(scratch_path(*state, "run"), &root2);
    json_decref(root2);
    assert_int_equal(umount(*state), 0); /* before anything may fail */
    assert_refused(s, STATUS_IO, "run/record.json", "No space left on device");
    assert_ok(loaded);
    assert_int_equal(kept, cells - 1);
    assert_true(kept >= 2);
    assert_int_equal(remounted, 0);
    assert_refused(ro, STATUS_IO, "other", "Read-only file system");
    assert_refused(ro_open, STATUS_IO, "run/record.json", "Read-only file system");
    assert_ok(ro_load);
}

static void a_leftover_or_linked_temporary_file_does_no_harm(void **state)
{
    Record *r = make_record(scratch_path(*state, "run"));
    scratch_write(scratch_path(*state, "victim"), "keep me", 7);
    assert_int_equal(symlink("../victim", scratch_path(*state, "run/record.json.tmp")), 0);
    assert_ok(record_put(r, RECORD_CELLS, make_cell("one", "ok", 1)));
    char *victim = scratch_read(scratch_path(*state, "victim"));
    assert_string_equal(victim, "keep me");
    free(victim);
    assert_int_equal(scratch_entries(scratch_path(*state, "run")), 1);
    assert_int_equal(mkdir(scratch_path(*state, "run/record.json.tmp"), 0777), 0);
    assert_refused(record_put(r, RECORD_CELLS, make_cell("two", "ok", 1)), STATUS_IO, "record.json.tmp", "File exists");
    record_close(r);
}

static void a_document_can_be_printed(void **state)
{
    const char *path = scratch_path(*state, "out");
    json_t *document = json_pack("{s:f}", "x", 0.1);
    FILE   *to = fopen(path, "w");
    assert_ok(record_dump(document, to));
    fclose(to);
    char *text = scratch_read(path);
    assert_string_equal(text, "{\n \"x\": 0.10000000000000001\n}\n");
    free(text);
    to = fopen("/dev/full", "w");
    assert_non_null(to);
    assert_refused(record_dump(document, to), STATUS_IO, "No space left on device", "");
    fclose(to);
    json_decref(document);
}

/* ---- killed while writing ---- */

static void write_for_ever(const char *dir)
{
    Record *r;
    if (record_open(dir, &r).code != STATUS_OK)
        _exit(1);
    for (int i = 0;; i++) {
        char name[32];
        snprintf(name, sizeof name, "cell %d", i % 200);
        if (record_put(r, RECORD_CELLS, make_cell(name, "ok", i / 3.0)).code != STATUS_OK)
            _exit(1);
    }
}

static void killed_at_any_moment_the_file_is_whole(void **state)
{
    size_t most = 0;
    record_close(make_record(*state));
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_for_ever(*state);
        struct timespec moment = { .tv_nsec = 1000000 + (long)rng_below(1, 2, (uint64_t)round, 40000000) };
        nanosleep(&moment, NULL);
        kill(child, SIGKILL);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how)); /* it was writing, it had not given up */
        json_t *root = load(*state);
        size_t  cells = json_array_size(json_object_get(root, "cells"));
        assert_true(cells >= most); /* what was there stays */
        most = cells;
        json_decref(root);
    }
    assert_true(most > 0);
}

/* ---- out of memory ---- */

static Status whole_life(void *context)
{
    const char *dir = context;
    json_t     *run = make_run(), *environment = json_object(), *root = NULL;
    Record     *r = NULL;
    if (!run || !environment) {
        json_decref(run);
        json_decref(environment);
        return status_error(STATUS_OOM, "the test's own");
    }
    unlink(scratch_path(dir, "record.json"));
    Status s = record_create(dir, run, environment, &r);
    if (s.code == STATUS_OK)
        s = record_put(r, RECORD_CELLS, make_cell("one", "ok", 0.5));
    if (s.code == STATUS_OK)
        s = record_put(r, RECORD_CELLS, make_cell("one", "failed", NAN));
    if (s.code == STATUS_OK)
        s = record_finish(r);
    record_close(r);
    if (s.code == STATUS_OK) {
        s = record_open(dir, &r);
        if (s.code == STATUS_OK)
            record_close(r);
    }
    if (s.code == STATUS_OK)
        s = record_load(dir, &root);
    json_decref(root);
    return s;
}

static void memory_may_run_out_anywhere(void **state)
{
    assert_true(fault_alloc_sweep(whole_life, *state) > 100);
    assert_int_equal(scratch_entries(*state), 1);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_new_record_is_on_disk_at_once),
        IN_SCRATCH(entries_are_added_replaced_and_found),
        IN_SCRATCH(a_finished_run_can_be_gone_on_with),
        cmocka_unit_test(closing_nothing_is_fine),
        IN_SCRATCH(numbers_come_back_bit_for_bit),
        cmocka_unit_test(what_is_no_number_becomes_null),
        IN_SCRATCH(a_comma_locale_changes_no_number),
        IN_SCRATCH(every_wrong_member_is_named),
        IN_SCRATCH(a_cut_record_is_refused_at_any_length),
        IN_SCRATCH(other_files_are_refused),
        IN_SCRATCH(a_missing_record_is_named),
        IN_SCRATCH(an_existing_record_is_not_overwritten),
        IN_SCRATCH(two_runs_do_not_write_one_record),
        IN_SCRATCH(a_folder_that_cannot_be_is_named),
        IN_SCRATCH(without_permission_the_folder_is_named),
        IN_SCRATCH(a_full_disk_loses_only_what_did_not_fit),
        IN_SCRATCH(a_full_and_a_read_only_file_system),
        IN_SCRATCH(a_leftover_or_linked_temporary_file_does_no_harm),
        IN_SCRATCH(a_document_can_be_printed),
        IN_SCRATCH(killed_at_any_moment_the_file_is_whole),
        IN_SCRATCH(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, use_counted_allocator, NULL);
}
