/* test_report_faults.c - whatever is wrong with the record, gnuplot, the fonts, the disk or memory ends in one line and no half
 * file of a report. */
#include "report_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/charts.h"
#include "bench/page.h"
#include "bench/record.h"
#include "bench/tables.h"
#include "fault_alloc.h"

/* ---- wrong records ---- */

static void rejects(void **state, const char *content, const char *words)
{
    char record[NAME_BYTES], out[NAME_BYTES];
    write_file(at(state, "record.json", record), content, 0600);
    Status s = report_write(record, at(state, "never", out), &quiet_svg);
    if (s.code != STATUS_INPUT || !strstr(s.text, words) || !strstr(s.text, "record.json") || strchr(s.text, '\n'))
        fail_msg("wanted \"%s\", got %s: %s", words, status_code_name(s.code), s.text);
    assert_int_equal(access(out, F_OK), -1); /* nothing was begun */
}

static void test_wrong_records(void **state)
{
    Text fixture = { 0 };
    assert_int_equal(text_read_file(&fixture, FIXTURE).code, STATUS_OK);
    for (size_t cut = 1; cut < 20; cut++) { /* killed while writing, or a broken copy */
        Text part = { 0 };
        text_add_bytes(&part, fixture.bytes, fixture.length * cut / 20);
        rejects(state, part.bytes, "cut short");
        text_free(&part);
    }
    text_free(&fixture);
    rejects(state, "", "the file is empty");
    rejects(state, "\x89PNG\r\n", "not JSON");
    rejects(state, "[1, 2]", "not a batchmark record");
    rejects(state, "{\"context\": {}, \"benchmarks\": []}", "not a batchmark record");
    rejects(state, "{\"format\": 2, \"tool\": {\"name\": \"batchmark\"}}", "the record has format 2, this build reads format 1");
    rejects(state, "{\"format\": \"1\", \"tool\": {\"name\": \"batchmark\"}}", "format must be the integer 1");
#define HEAD "{\"format\": 1, \"tool\": {\"name\": \"batchmark\"}, \"run\": {\"id\": \"r\", \"started\": \"s\", " \
             "\"command\": [], \"options\": {}}, \"environment\": {}, "
    rejects(state, HEAD "\"trainings\": [], \"claims\": []}", "cells must be an array, but is missing");
    rejects(state, HEAD "\"cells\": [], \"trainings\": [], \"claims\": [{}]}", "claims[0]");
    rejects(state, HEAD "\"cells\": [{\"name\": \"a\", \"status\": \"fine\", \"axes\": {}}], \"trainings\": [], \"claims\": []}",
            "cells[0].status is");
    rejects(state, HEAD "\"cells\": [{\"name\": \"a\", \"status\": \"ok\"}], \"trainings\": [], \"claims\": []}", "cells[0].axes");
    rejects(state, HEAD "\"cells\": [1e999], \"trainings\": [], \"claims\": []}", "not JSON");
    char missing[NAME_BYTES], out[NAME_BYTES];
    Status s = report_write(at(state, "none.json", missing), at(state, "never", out), &quiet_svg);
    assert_int_equal(s.code, STATUS_INPUT);
    assert_non_null(strstr(s.text, "none.json: there is no such record"));
}

/* A run that was killed before its first cell, and cells whose members are all of a wrong kind, still give a page. */
static void test_thin_records(void **state)
{
    static const char *const records[] = {
        HEAD "\"cells\": [], \"trainings\": [], \"claims\": []}",
        HEAD "\"cells\": [{\"name\": \"a\", \"status\": \"ok\", \"axes\": {}}, {\"name\": \"b\", \"status\": \"ok\", \"axes\": "
             "{\"batch\": \"x\", \"amp\": 3}, \"throughput\": \"fast\", \"step_seconds\": [], \"memory\": 7, \"profile\": "
             "{\"ops\": [1, {}]}, \"samples\": 3, \"flags\": [null]}], \"trainings\": [{\"name\": \"t\", \"status\": \"ok\", "
             "\"axes\": {}, \"epochs\": [null, {}], \"curve\": [[]]}], \"claims\": [{\"id\": \"A1\", \"verdict\": \"partly\", "
             "\"tables\": [{}, {\"columns\": [1], \"rows\": [1, []]}], \"charts\": [{\"series\": [{\"points\": [[], 1]}]}]}]}",
        /* one cell with a value: axes of no extent */
        HEAD "\"cells\": [{\"name\": \"a\", \"status\": \"ok\", \"axes\": {\"net\": \"n\", \"batch\": 3, \"amp\": \"off\", "
             "\"accum\": 1}, \"throughput\": 2.5, \"step_seconds\": {\"median\": 1.2, \"q1\": -1, \"q3\": 1.3}}], "
             "\"trainings\": [], \"claims\": []}",
    };
    for (size_t i = 0; i < COUNT_OF(records); i++) {
        char record[NAME_BYTES], out[NAME_BYTES];
        write_file(at(state, "record.json", record), records[i], 0600);
        write_ok(record, at(state, "out", out), &quiet_svg);
        holds_no_nan(out, "report.html");
        holds_no_nan(out, "report.md");
    }
}

/* ---- gnuplot, cmark-gfm, fonts ---- */

static void test_without_gnuplot(void **state)
{
    char out[NAME_BYTES], charts[NAME_BYTES];
    const ReportOptions o = { .quiet = true, .gnuplot = "no-such-gnuplot" };
    Status s = report_write(FIXTURE, at(state, "out", out), &o);
    assert_int_equal(s.code, STATUS_BACKEND);
    assert_non_null(strstr(s.text, "apt install gnuplot-nox"));
    Text html = read_in(out, "report.html");
    holds(&html, "Charts are missing");
    holds(&html, "Chart not drawn: Throughput");
    holds(&html, "26.3"); /* the tables are there */
    text_free(&html);
    assert_int_equal(each_file(inside(out, "charts", charts), ".svg", NULL), 0);
}

/* Programs that stand in for gnuplot: they say yes to the first questions and then go wrong in one way each. */
static void test_gnuplot_that_lies(void **state)
{
    static const struct { const char *drawing, *words; } lies[] = {
        { "exit 0", "wrote no" },
        { ": > \"$name.svg\"", "empty" },
        { "echo '<?xml?><svg>' > \"$name.svg\"", "cut or empty drawing" },
        { "echo '<?xml?><svg></svg>' > \"$name.svg\"", "cut or empty drawing" },
        { "echo half > \"$name.svg\"; echo '\"x.gp\" line 7: all points y value undefined' >&2; exit 1", "line 7: all points" },
        { "kill -9 $$", "signal 9" },
    };
    char record[NAME_BYTES], program[NAME_BYTES], out[NAME_BYTES], charts[NAME_BYTES], script[1024];
    write_part(at(state, "claims.json", record), false, false, true);
    inside(at(state, "out", out), "charts", charts);
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        snprintf(script, sizeof script, "#!/bin/sh\n[ $# -gt 3 ] || exit 0\nname=$(expr \"$3\" : \"out='\\(.*\\)';.*\")\n%s\n",
                 lies[i].drawing);
        write_file(at(state, "gnuplot", program), script, 0700);
        const ReportOptions o = { .quiet = true, .no_png = true, .gnuplot = program };
        Status s = report_write(record, out, &o);
        if (s.code != STATUS_BACKEND || !strstr(s.text, lies[i].words))
            fail_msg("wanted \"%s\", got %s: %s", lies[i].words, status_code_name(s.code), s.text);
        assert_int_equal(each_file(charts, ".svg", NULL), 0);
        each_file(charts, "", is_no_temporary);
    }
}

static void test_without_cmark(void **state)
{
    char record[NAME_BYTES], out[NAME_BYTES];
    write_part(at(state, "claims.json", record), false, false, true);
    const ReportOptions o = { .quiet = true, .no_png = true, .cmark = "no-such-cmark" };
    Status s = report_write(record, at(state, "out", out), &o);
    assert_int_equal(s.code, STATUS_BACKEND);
    assert_non_null(strstr(s.text, "apt install cmark-gfm"));
    assert_true(exists(out, "report.md"));
    assert_false(exists(out, "report.html"));
}

/* No font on the machine and no display: the SVG charts are drawn, the PNG ones left out with a warning. */
static void test_without_fonts(void **state)
{
    char record[NAME_BYTES], out[NAME_BYTES], fonts[NAME_BYTES], config[NAME_BYTES], said[NAME_BYTES];
    char charts[NAME_BYTES];
    write_part(at(state, "claims.json", record), false, false, true);
    assert_int_equal(mkdir(at(state, "fonts", fonts), 0700), 0);
    Text content = { 0 };
    text_format(&content, "<?xml version=\"1.0\"?><fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>", fonts, fonts);
    write_file(at(state, "fonts.conf", config), content.bytes, 0600);
    text_free(&content);
    setenv("FONTCONFIG_FILE", config, 1);
    unsetenv("DISPLAY");
    fflush(stderr);
    int saved = dup(2), log = open(at(state, "log", said), O_CREAT | O_WRONLY, 0600);
    assert_true(saved >= 0 && log >= 0 && dup2(log, 2) == 2);
    const ReportOptions o = { .quiet = true };
    Status s = report_write(record, at(state, "out", out), &o);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(log);
    unsetenv("FONTCONFIG_FILE");
    assert_int_equal(s.code, STATUS_OK);
    Text warning = { 0 };
    assert_int_equal(text_read_file(&warning, said).code, STATUS_OK);
    holds(&warning, "SVG only, no PNG: fontconfig finds no font file: apt install fonts-dejavu-core");
    text_free(&warning);
    assert_int_equal(each_file(inside(out, "charts", charts), ".png", NULL), 0);
    assert_int_equal(each_file(charts, ".svg", NULL), 2);
}

/* A chart's folder is enough to draw it again. */
static void test_script_runs_alone(void **state)
{
    char record[NAME_BYTES], out[NAME_BYTES], charts[NAME_BYTES], moved[NAME_BYTES];
    Text command = { 0 };
    write_part(at(state, "claims.json", record), false, false, true);
    write_ok(record, at(state, "out", out), &quiet_svg);
    Text drawn = read_in(inside(out, "charts", charts), "claim-a4-1.svg");
    assert_int_equal(rename(charts, at(state, "elsewhere", moved)), 0);
    text_format(&command, "cd '%s' && rm -f *.svg *.png && gnuplot claim-a4-1.gp", moved);
    assert_int_equal(system(command.bytes), 0);
    text_free(&command);
    Text again = read_in(moved, "claim-a4-1.svg");
    assert_string_equal(again.bytes, drawn.bytes);
    assert_true(exists(moved, "claim-a4-1.png"));
    text_free(&drawn);
    text_free(&again);
}

/* ---- the system says no ---- */

static void test_folder_that_cannot_be_written(void **state)
{
    char file[NAME_BYTES], inside_file[NAME_BYTES];
    write_file(at(state, "file", file), "x", 0600);
    static const char *const folders[] = { "/proc/batchmark-report", "/no-such-folder/report" };
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        Status s = report_write(FIXTURE, folders[i], &quiet_svg);
        assert_int_equal(s.code, STATUS_IO);
        assert_non_null(strstr(s.text, folders[i]));
    }
    assert_int_equal(report_write(FIXTURE, file, &quiet_svg).code, STATUS_IO);
    assert_int_equal(report_write(FIXTURE, at(state, "file/report", inside_file), &quiet_svg).code, STATUS_IO);
    if (geteuid() == 0) {
        print_message("not tried as root, whom no permission stops: a folder without write permission\n");
        return;
    }
    char locked[NAME_BYTES];
    assert_int_equal(mkdir(at(state, "locked", locked), 0500), 0);
    Status s = report_write(FIXTURE, locked, &quiet_svg);
    assert_int_equal(s.code, STATUS_IO);
}

/* A limit on the size of files stands in for a full disk: the write fails half-way, and no part of it stays. */
static void test_full_disk(void **state)
{
    char out[NAME_BYTES], tables[NAME_BYTES];
    at(state, "out", out);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit limit = { 3000, 3000 };
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        Status s = report_write(FIXTURE, out, &quiet_svg);
        _exit(s.code == STATUS_IO && strstr(s.text, "cannot write") ? 0 : 1);
    }
    int code = 0;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    each_file(inside(out, "tables", tables), "", is_no_temporary);
    assert_false(exists(out, "report.md"));
}

/* Everything but the programs that are run, with each single allocation failing. */
static Status compose(void *folder)
{
    json_t *record = NULL;
    Groups cells = { 0 }, trainings = { 0 };
    Text page = { 0 };
    ChartSetup setup = { .folder = folder };
    char path[NAME_BYTES];
    Status s = path_join(path, sizeof path, folder, "part.json");
    if (s.code == STATUS_OK)
        s = record_load(path, &record);
    if (s.code == STATUS_OK)
        s = groups_of_cells(record, &cells);
    if (s.code == STATUS_OK)
        s = groups_of_trainings(record, &trainings);
    if (s.code == STATUS_OK)
        s = tables_write(record, &cells, &trainings, folder);
    if (s.code == STATUS_OK)
        s = charts_draw(record, &cells, &trainings, &setup);
    if (s.code == STATUS_OK) {
        const PageInput in = { record, &cells, &trainings, setup.list, setup.count, NULL, path };
        page_write(&page, &in);
        s = text_write_file(&page, folder, "report.md");
    }
    free(setup.list);
    text_free(&page);
    groups_free(&cells);
    groups_free(&trainings);
    json_decref(record);
    return s;
}

static void test_out_of_memory(void **state)
{
    char path[NAME_BYTES];
    json_t *record = json_load_file(FIXTURE, 0, NULL);
    json_t *cells = json_object_get(record, "cells"), *trainings = json_object_get(record, "trainings");
    while (json_array_size(cells) > 8)
        json_array_remove(cells, json_array_size(cells) - 1);
    json_array_remove(trainings, 0);
    json_array_remove(trainings, 0);
    assert_int_equal(json_dump_file(record, at(state, "part.json", path), 0), 0);
    json_decref(record);
    assert_true(fault_alloc_sweep(compose, *state) > 100);
    /* and one training with Dice and a loss scale alone: every run writes all its files */
    record = json_load_file(FIXTURE_NETS, 0, NULL);
    trainings = json_object_get(record, "trainings");
    json_object_set_new(record, "cells", json_array());
    while (json_array_size(trainings) > 3)
        json_array_remove(trainings, 3);
    json_array_remove(trainings, 0);
    json_array_remove(trainings, 0);
    assert_int_equal(json_dump_file(record, path, 0), 0);
    json_decref(record);
    assert_true(fault_alloc_sweep(compose, *state) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(test_wrong_records),
        IN_SCRATCH(test_thin_records),
        IN_SCRATCH(test_without_gnuplot),
        IN_SCRATCH(test_gnuplot_that_lies),
        IN_SCRATCH(test_without_cmark),
        IN_SCRATCH(test_without_fonts),
        IN_SCRATCH(test_script_runs_alone),
        IN_SCRATCH(test_folder_that_cannot_be_written),
        IN_SCRATCH(test_full_disk),
        IN_SCRATCH(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("report_faults", tests, NULL, NULL);
}
