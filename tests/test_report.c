/* test_report.c - the report of a stored record: that gaps stay gaps, names stay literal, numbers keep every bit, and
 * that whatever is wrong with the record, gnuplot, the fonts or the disk ends in one line and no half file.
 *
 * data/record_small.json (as format 1 was when there was one net) and data/record_nets.json (three nets) are fixtures, made for
 * this test: their figures say nothing about any machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/charts.h"
#include "bench/page.h"
#include "bench/record.h"
#include "bench/report.h"
#include "bench/tables.h"
#include "fault_alloc.h"

enum { NAME_BYTES = PATH_BYTES };

/* ---- folders and files ---- */

typedef struct Scratch { char path[64]; } Scratch;

static int make_scratch(void **state)
{
    Scratch *s = malloc(sizeof *s);
    assert_non_null(s);
    strcpy(s->path, "/tmp/test_report_XXXXXX");
    assert_non_null(mkdtemp(s->path));
    *state = s;
    return 0;
}

static int remove_scratch(void **state)
{
    Scratch *s = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", s->path);
    int rc = system(command);
    free(s);
    return rc;
}

static const char *at(void **state, const char *name, char out[NAME_BYTES])
{
    assert_int_equal(path_join(out, NAME_BYTES, ((Scratch *)*state)->path, name).code, STATUS_OK);
    return out;
}

static void write_file(const char *path, const char *content, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static bool exists(const char *folder, const char *name)
{
    char path[NAME_BYTES];
    assert_int_equal(path_join(path, sizeof path, folder, name).code, STATUS_OK);
    return access(path, F_OK) == 0;
}

static Text read_in(const char *folder, const char *name)
{
    char path[NAME_BYTES];
    assert_int_equal(path_join(path, sizeof path, folder, name).code, STATUS_OK);
    Text t = { 0 };
    Status s = text_read_file(&t, path);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return t;
}

/* Call `visit` for every file of a folder. Returns how many there are with this ending. */
static size_t each_file(const char *folder, const char *ending, void (*visit)(const char *folder, const char *name))
{
    size_t count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name), m = strlen(ending);
        if (e->d_name[0] == '.' || n < m || strcmp(e->d_name + n - m, ending) != 0)
            continue;
        if (visit)
            visit(folder, e->d_name);
        count++;
    }
    closedir(d);
    return count;
}

static const char *inside(const char *folder, const char *name, char out[NAME_BYTES])
{
    assert_int_equal(path_join(out, NAME_BYTES, folder, name).code, STATUS_OK);
    return out;
}

static const ReportOptions quiet_svg = { .quiet = true, .no_png = true };

static void write_ok(const char *record, const char *out, const ReportOptions *options)
{
    Status s = report_write(record, out, options);
    if (s.code != STATUS_OK)
        fail_msg("report_write: %s: %s", status_code_name(s.code), s.text);
}

/* The fixture with some members emptied, as a file of its own: fewer charts, a faster test. */
static void write_part(const char *path, bool cells, bool trainings, bool claims)
{
    json_t *record = json_load_file(FIXTURE, 0, NULL);
    assert_non_null(record);
    if (!cells)
        json_object_set_new(record, "cells", json_array());
    if (!trainings)
        json_object_set_new(record, "trainings", json_array());
    if (!claims)
        json_object_set_new(record, "claims", json_array());
    assert_int_equal(json_dump_file(record, path, 0), 0);
    json_decref(record);
}

/* ---- what a whole report holds ---- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* No number of the C library's kind of nothing, as a word of its own, in whatever case. */
static void holds_no_nan(const char *folder, const char *name)
{
    static const char *const words[] = { "nan", "inf", "null", "infinity" };
    Text t = read_in(folder, name);
    for (size_t i = 0; i < t.length; i++) {
        if (i && (is_letter(t.bytes[i - 1]) || t.bytes[i - 1] == '_'))
            continue;
        for (size_t k = 0; k < COUNT_OF(words); k++) {
            size_t n = strlen(words[k]);
            if (strncasecmp(t.bytes + i, words[k], n) == 0 && !is_letter(t.bytes[i + n]))
                fail_msg("%s/%s holds \"%.40s\"", folder, name, t.bytes + (i > 10 ? i - 10 : 0));
        }
    }
    text_free(&t);
}

static void is_no_temporary(const char *folder, const char *name)
{
    if (strstr(name, ".tmp"))
        fail_msg("left behind: %s/%s", folder, name);
}

static size_t count_of(const Text *t, const char *what)
{
    size_t n = 0;
    for (const char *s = t->bytes; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

static void holds(const Text *t, const char *what)
{
    if (!strstr(text_bytes(t), what))
        fail_msg("not in the file: %s", what);
}

static void lacks(const Text *t, const char *what)
{
    if (strstr(text_bytes(t), what))
        fail_msg("in the file, but must not be: %s", what);
}

static void ids_differ(const Text *html)
{
    enum { MOST = 8192 };
    static const char mark[] = " id='";
    char **ids = calloc(MOST, sizeof *ids);
    assert_non_null(ids);
    size_t n = 0;
    for (const char *s = html->bytes; (s = strstr(s, mark)) && n < MOST;) {
        s += strlen(mark);
        size_t length = strcspn(s, "'");
        ids[n] = calloc(1, length + 1);
        assert_non_null(ids[n]);
        memcpy(ids[n++], s, length);
    }
    assert_true(n > 100);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(ids[i], ids[j]) == 0)
                fail_msg("two elements have the id %s", ids[i]);
    for (size_t i = 0; i < n; i++)
        free(ids[i]);
    free(ids);
}

static void test_whole_report(void **state)
{
    char out[NAME_BYTES], folder[NAME_BYTES];
    at(state, "out", out);
    const ReportOptions with_png = { .quiet = true };
    write_ok(FIXTURE, out, &with_png);
    inside(out, "charts", folder);
    size_t scripts = each_file(folder, ".gp", NULL) - 1; /* style.gp */
    assert_true(scripts > 20);
    assert_int_equal(each_file(folder, ".svg", holds_no_nan), scripts);
    assert_int_equal(each_file(folder, ".png", NULL), scripts);
    assert_int_equal(each_file(folder, ".dat", holds_no_nan), scripts);
    each_file(folder, "", is_no_temporary);
    each_file(folder, ".gp", holds_no_nan);
    inside(out, "tables", folder);
    assert_true(each_file(folder, ".csv", holds_no_nan) >= 6);
    assert_true(each_file(folder, ".md", holds_no_nan) >= 6);
    holds_no_nan(out, "report.md");
    holds_no_nan(out, "report.html");
    Text html = read_in(out, "report.html");
    assert_int_equal(count_of(&html, "<svg"), scripts);
    lacks(&html, "<img");
    lacks(&html, "<script");
    lacks(&html, "<link");
    lacks(&html, "gnuplot_plot_1</title>");
    ids_differ(&html);
    holds(&html, "needs 5.94 GiB, 5.10 GiB are free");
    holds(&html, "batch_max = (card - model) / per_sample");
    holds(&html, "waits for the CUDA backend");
    text_free(&html);
}

/* Text of a record can neither become markup nor start a command, and is read as it was written. */
static void test_text_stays_text(void **state)
{
    char out[NAME_BYTES];
    write_ok(FIXTURE, at(state, "out", out), &quiet_svg);
    Text html = read_in(out, "report.html");
    holds(&html, "layer4.2_{conv2}^T@x differs by 0.31 | &lt;b&gt;bound&lt;/b&gt; 0.02 `uname` $HOME");
    lacks(&html, "<b>bound");
    lacks(&html, "<i>samples");
    holds(&html, "&lt;i&gt;samples&lt;/i&gt;");
    holds(&html, "'results/it'\\''s here'");
    text_free(&html);
    char charts[NAME_BYTES];
    Text svg = read_in(inside(out, "charts", charts), "claim-a1-1.svg");
    holds(&svg, ">resnet50_fp32 {measured} ^a @b<");
    holds(&svg, ">A1: Memory line of resnet50_fp32 {a} ^b @c `id` 100%<");
    text_free(&svg);
}

/* A cell without a value is a gap in its line: no zero, no line across, and a cross at its place. */
static void test_missing_is_a_gap(void **state)
{
    char out[NAME_BYTES], charts[NAME_BYTES];
    write_ok(FIXTURE, at(state, "out", out), &quiet_svg);
    inside(out, "charts", charts);
    Text dat = read_in(charts, "throughput-resnet50-224-w1-c1000-standard.dat");
    const char *fp32 = strstr(dat.bytes, "# fp32\n"), *accumulated = strstr(dat.bytes, "# fp32, accumulation 4\n");
    const char *bf16 = strstr(dat.bytes, "# bf16, accumulation 4\n");
    assert_true(fp32 && accumulated && bf16);
    const char *oom = strstr(fp32, "\n64 ");
    assert_true(oom > accumulated); /* fp32 has no point at 64, a later series has */
    const char *before = strstr(bf16, "\n16 "), *after = strstr(bf16, "\n64 "), *gap = strstr(bf16, "\n\n64 ");
    assert_true(before && after && gap && before < gap);
    assert_null(strstr(bf16, "\n32 "));
    assert_null(strstr(dat.bytes, " 0\n"));
    text_free(&dat);
    Text gp = read_in(charts, "throughput-resnet50-224-w1-c1000-standard.gp");
    assert_int_equal(count_of(&gp, "set label"), 3);
    holds(&gp, "No value: fp32 at batch 64 (out of memory)");
    text_free(&gp);
}

/* The next field of a CSV line into out; returns the start of the one after, or NULL at the line's end. */
static const char *csv_field(const char *s, char *out, size_t size)
{
    size_t n = 0;
    bool quoted = *s == '"';
    s += quoted;
    while (*s && (quoted || (*s != ',' && *s != '\r'))) {
        if (quoted && *s == '"') {
            if (s[1] != '"')
                break;
            s++;
        }
        assert_true(n + 1 < size);
        out[n++] = *s++;
    }
    out[n] = '\0';
    s += quoted;
    return *s == ',' ? s + 1 : NULL;
}

static void check_csv_row(const char *line, const char *const *headings, size_t count, const json_t *item)
{
    static const struct { const char *heading, *path; } numbers[] = {
        { "throughput_per_s", "throughput" }, { "step_median_s", "step_seconds.median" },
        { "step_sem_s", "step_seconds.sem" }, { "planned_total_bytes", "memory.planned.total" },
        { "floor_s", "floor_seconds" }, { "compute_s", "profile.compute_seconds" },
    };
    char field[512];
    for (size_t i = 0; i < count; i++) {
        assert_non_null(line);
        line = csv_field(line, field, sizeof field);
        if (strcmp(headings[i], "name") == 0)
            assert_string_equal(field, record_string(item, "name"));
        if (strcmp(headings[i], "reason") == 0)
            assert_string_equal(field, record_string(item, "reason") ? record_string(item, "reason") : "");
        for (size_t k = 0; k < COUNT_OF(numbers); k++) {
            if (strcmp(headings[i], numbers[k].heading) != 0)
                continue;
            double want = record_number(item, numbers[k].path), got = strtod(field, NULL);
            assert_true(isfinite(want) ? memcmp(&want, &got, sizeof got) == 0 : *field == '\0');
        }
    }
    assert_null(line);
}

static void check_cells_csv(const char *out)
{
    enum { MOST = 80 };
    char tables[NAME_BYTES], names[MOST][64];
    const char *headings[MOST];
    size_t count = 0;
    json_t *record = json_load_file(FIXTURE, 0, NULL);
    Text csv = read_in(inside(out, "tables", tables), "cells.csv");
    for (const char *s = csv.bytes; s; count++) {
        assert_true(count < MOST);
        s = csv_field(s, names[count], sizeof names[count]);
        headings[count] = names[count];
    }
    const char *line = strstr(csv.bytes, "\r\n") + 2;
    const json_t *cells = record_array(record, "cells");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        check_csv_row(line, headings, count, json_array_get(cells, i));
        line = strstr(line, "\r\n") + 2;
    }
    assert_int_equal(*line, '\0');
    text_free(&csv);
    json_decref(record);
}

static void test_csv_reads_back_bit_equal(void **state)
{
    char out[NAME_BYTES];
    const ReportOptions o = { .quiet = true, .no_png = true, .gnuplot = "no-such-gnuplot" };
    report_write(FIXTURE, at(state, "out", out), &o);
    check_cells_csv(out);
}

/* Under a locale with a decimal comma, made here since few machines have one, the files are the same; the caller's
 * locale is left as it was. */
static void test_locale_does_not_matter(void **state)
{
    char command[NAME_BYTES];
    assert_true(snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' 2>/dev/null",
                         ((Scratch *)*state)->path) < (int)sizeof command);
    int made = system(command);
    setenv("LOCPATH", ((Scratch *)*state)->path, 1);
    if (made != 0 || !setlocale(LC_ALL, "de_DE.UTF-8")) {
        unsetenv("LOCPATH");
        print_message("skipped: cannot make a locale with a decimal comma (apt: locales)\n");
        skip();
    }
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    char out[NAME_BYTES], comma[16], charts[NAME_BYTES];
    write_ok(FIXTURE, at(state, "out", out), &quiet_svg);
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    unsetenv("LC_ALL");
    unsetenv("LOCPATH");
    assert_string_equal(comma, "0,5");
    check_cells_csv(out);
    Text svg = read_in(inside(out, "charts", charts), "step-time-resnet50-224-w1-c1000-standard.svg");
    holds(&svg, "0.5<");
    text_free(&svg);
}

/* ---- several nets ---- */

static void lacks_in_file(const char *folder, const char *name, const char *what)
{
    Text t = read_in(folder, name);
    lacks(&t, what);
    text_free(&t);
}

static void holds_in_file(const char *folder, const char *name, const char *what)
{
    Text t = read_in(folder, name);
    holds(&t, what);
    text_free(&t);
}

/* Every net and size has headings, charts and tables of its own, in its own units. */
static void test_several_nets(void **state)
{
    char out[NAME_BYTES], charts[NAME_BYTES], tables[NAME_BYTES];
    write_ok(FIXTURE_NETS, at(state, "out", out), &quiet_svg);
    inside(out, "charts", charts);
    inside(out, "tables", tables);
    Text md = read_in(out, "report.md");
    holds(&md, "# batchmark: resnet50, unet, bert on ");
    assert_int_equal(count_of(&md, "\n## Results: "), 3);
    assert_int_equal(count_of(&md, "\n## Trainings: "), 3);
    holds(&md, "## Results: bert, 64 tokens, 2 layers, hidden 128, 2 heads, vocabulary 1000\n");
    holds(&md, "## Results: unet, 64 px, width 0.25, 2 classes\n");
    lacks(&md, "effective\\_batch");
    lacks(&md, "0.8999");
    holds(&md, "build/batchmark bench --preset smoke\n");
    holds(&md, "build/batchmark report ");
    holds(&md, "tokens/s) with batch ");
    assert_true(strstr(md.bytes, "throughput-bert") < strstr(md.bytes, "## Results: resnet50")); /* one main chart for each net */
    text_free(&md);
    static const char *const nets[][2] = { { "resnet50-64-w0.25-c100-standard", "samples per second" },
                                           { "unet-64-w0.25-c2", "samples per second" }, { "bert-64-l2-h128-a2-v1000", "tokens per second" } };
    for (size_t i = 0; i < COUNT_OF(nets); i++) {
        char name[160];
        snprintf(name, sizeof name, "throughput-%s.svg", nets[i][0]);
        holds_in_file(charts, name, nets[i][1]);
        snprintf(name, sizeof name, "speed-%s.md", nets[i][0]);
        holds_in_file(tables, name, i < 2 ? "| micro-batch | accum. | effective batch | precision | optimiser | samples/s |"
                                          : "| micro-batch | accum. | effective batch | precision | optimiser | sequences/s | tokens/s |");
        holds_in_file(tables, name, i < 2 ? "batch norm takes its statistics from each micro-batch" : "this net has no batch norm");
    }
}

/* Dice where there are masks, masked-LM accuracy named as such, and what fp16 skipped, in tables and on charts. */
static void test_kinds_of_trainings(void **state)
{
    char out[NAME_BYTES], charts[NAME_BYTES], tables[NAME_BYTES];
    write_ok(FIXTURE_NETS, at(state, "out", out), &quiet_svg);
    inside(out, "charts", charts);
    inside(out, "tables", tables);
    static const char unet[] = "trainings-unet-32-w0.25-c2-ellipses.md", bert[] = "trainings-bert-32-l2-h64-a2-copy.md";
    holds_in_file(tables, unet, "| data | micro-batch | accum. | effective batch | precision | optimiser | learning rate |");
    holds_in_file(tables, unet, "| test Dice (%) | Dice, mean of images (%) | best (%) | pixel accuracy (%) |");
    holds_in_file(tables, unet, "| skipped updates | last loss scale |");
    holds_in_file(tables, unet, "| ellipses | 4 | 2 | 8 | fp16 | SGD |");
    holds_in_file(tables, unet, "AdamW");
    lacks_in_file(tables, unet, "masked-LM");
    lacks_in_file(tables, unet, "test accuracy");
    holds_in_file(tables, bert, "| masked-LM test accuracy (%) |");
    holds_in_file(tables, bert, "| tokens/s | padding | padded (%) |");
    lacks_in_file(tables, bert, "Dice");
    holds_in_file(tables, "trainings-resnet50-32-w0.25-c10-small-shapes.md", "| test accuracy (%) |");
    holds_in_file(charts, "dice-unet-32-w0.25-c2-ellipses.svg", "Dice, test images (%)");
    holds_in_file(charts, "accuracy-bert-32-l2-h64-a2-copy.svg", "masked-LM accuracy, test text (%)");
    holds_in_file(charts, "loss-update-unet-32-w0.25-c2-ellipses.gp", "2 updates skipped");
    holds_in_file(charts, "loss-update-unet-32-w0.25-c2-ellipses.svg", ">skipped: see the note<");
    holds_in_file(charts, "loss-scale-unet-32-w0.25-c2-ellipses.svg", "Loss scale by update");
    assert_false(exists(charts, "loss-scale-bert-32-l2-h64-a2-copy.svg")); /* a scale that never moved is no chart */
    Text epochs = read_in(tables, "epochs.csv"), curves = read_in(tables, "curves.csv");
    holds(&epochs, ",test_dice,test_image_dice,");
    holds(&curves, ",loss_scale,skipped");
    holds(&curves, ",true\r\n");
    text_free(&epochs);
    text_free(&curves);
}

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
    assert_true(fault_alloc_sweep(compose, ((Scratch *)*state)->path) > 100);
    record = json_load_file(FIXTURE_NETS, 0, NULL); /* and one training with Dice and a loss scale alone: every run writes all its files */
    trainings = json_object_get(record, "trainings");
    json_object_set_new(record, "cells", json_array());
    while (json_array_size(trainings) > 3)
        json_array_remove(trainings, 3);
    json_array_remove(trainings, 0);
    json_array_remove(trainings, 0);
    assert_int_equal(json_dump_file(record, path, 0), 0);
    json_decref(record);
    assert_true(fault_alloc_sweep(compose, ((Scratch *)*state)->path) > 100);
}

/* ---- numbers and escapes ---- */

static void test_number_format(void **state)
{
    (void)state;
    static const struct { double x; const char *text; } cases[] = {
        { 0, "0" }, { 32, "32" }, { 1000, "1,000" }, { 1234567.8, "1,234,568" }, { 999.96, "1,000" }, { 12.345, "12.35" },
        { 0.012345, "0.01235" }, { -1234.5, "-1,234" }, { 2.1e-7, "2.1e-07" }, { 3e12, "3e+12" },
        { (double)NAN, "\xe2\x80\x93" }, { (double)INFINITY, "\xe2\x80\x93" }, { -(double)INFINITY, "\xe2\x80\x93" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[NUMBER_BYTES];
        assert_string_equal(number_format(cases[i].x, out), cases[i].text);
    }
}

static void test_escapes(void **state)
{
    (void)state;
    static const struct { void (*add)(Text *, const char *); const char *in, *out; } cases[] = {
        { text_add_gnuplot, "it's `id`\n\"%d\" \\n", "'it''s `id` \"%d\" \\n'" },
        { text_add_csv, "a,\"b\"", "\"a,\"\"b\"\"\"" },
        { text_add_csv, "plain", "plain" },
        { text_add_markdown, "a|b_c\n# d", "a\\|b\\_c \\# d" },
        { text_add_html, "<a href=\"x\">&", "&lt;a href=&quot;x&quot;&gt;&amp;" },
        { text_add_shell, "it's", "'it'\\''s'" },
        { text_add_shell, "", "''" },
        { text_add_slug, "../../ResNet 50/\xc3\xa9", "resnet-50" },
        { text_add_slug, "...", "x" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Text t = { 0 };
        cases[i].add(&t, cases[i].in);
        assert_string_equal(text_bytes(&t), cases[i].out);
        text_free(&t);
    }
    char cut[12];
    text_copy(cut, sizeof cut, "aaaaaaa\xc3\xa9xxxx"); /* cut before the two bytes of the letter, not between */
    assert_string_equal(cut, "aaaaaaa\xe2\x80\xa6");
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_whole_report), IN_FOLDER(test_text_stays_text), IN_FOLDER(test_missing_is_a_gap),
        IN_FOLDER(test_csv_reads_back_bit_equal), IN_FOLDER(test_locale_does_not_matter),
        IN_FOLDER(test_several_nets), IN_FOLDER(test_kinds_of_trainings), IN_FOLDER(test_wrong_records), IN_FOLDER(test_thin_records), IN_FOLDER(test_without_gnuplot),
        IN_FOLDER(test_gnuplot_that_lies), IN_FOLDER(test_without_cmark), IN_FOLDER(test_without_fonts),
        IN_FOLDER(test_script_runs_alone), IN_FOLDER(test_folder_that_cannot_be_written), IN_FOLDER(test_full_disk),
        IN_FOLDER(test_out_of_memory), cmocka_unit_test(test_number_format), cmocka_unit_test(test_escapes),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
