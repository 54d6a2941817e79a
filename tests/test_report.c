/* test_report.c - the report of a stored record: that gaps stay gaps, names stay literal, and numbers keep every bit. What may
 * go wrong is in test_report_faults.c.
 *
 * data/record_small.json (as format 1 was when there was one net) and data/record_nets.json (three nets) are fixtures, made for
 * this test: their figures say nothing about any machine. */
#include "bench/record_view.h"
#include "report_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what a whole report holds ---- */

static size_t count_of(const Text *t, const char *what)
{
    size_t n = 0;
    for (const char *s = t->bytes; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
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
                         (char *)*state) < (int)sizeof command);
    int made = system(command);
    setenv("LOCPATH", (char *)*state, 1);
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

/* ---- what a GPU recorded */

/* The fixture's cells as if a GPU had run them: all with records of the device, or none with the reason. */
static void write_gpu_record(const char *path, const char *no_profile)
{
    json_t *record = json_load_file(FIXTURE, 0, NULL), *cell;
    size_t  i;
    assert_non_null(record);
    json_array_foreach(json_object_get(record, "cells"), i, cell)
    {
        json_t *kernels = json_pack("[{s:s,s:f,s:f,s:f,s:b},{s:s,s:f,s:f,s:f,s:b}]", "name", "sm90_xmma_<gemm>|_kernel", "calls", 2.0, "seconds",
                                    0.003, "share", 0.75, "tensor_cores", 1, "name", "sgd_kernel<float>", "calls", 1.0, "seconds", 0.001,
                                    "share", 0.25, "tensor_cores", 0);
        json_t *profile = json_pack("{s:s,s:i,s:f,s:f,s:n,s:f,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:{s:f},s:[{s:s,s:i,s:f,s:f,s:f}]}",
            "source", "cupti", "steps", 2, "compute_seconds", 0.004, "copy_seconds", 0.0005, "wait_seconds", "other_seconds", 0.0001,
            "dropped_events", 7, "window_seconds", 0.0046, "kernel_seconds", 0.004, "copy_in_seconds", 0.0005, "overlap_seconds", 0.0002,
            "idle_seconds", 0.0001, "busy_share", 0.8696, "tensor_core_share", 0.75, "launches", 3.0, "kernels", kernels, "overhead",
            "ratio", 1.037, "ops", "op", "conv2d", "calls", 53, "seconds", 0.003, "flops", 1e9, "bytes", 1e6);
        assert_non_null(profile);
        json_object_set_new(cell, "profile", no_profile ? json_null() : profile);
        if (no_profile) {
            json_decref(profile);
            json_object_set_new(cell, "profile_reason", json_string(no_profile));
        }
    }
    assert_int_equal(json_dump_file(record, path, 0), 0);
    json_decref(record);
}

static void test_what_a_gpu_recorded(void **state)
{
    char record[NAME_BYTES], out[NAME_BYTES], tables[NAME_BYTES];
    write_gpu_record(at(state, "gpu.json", record), NULL);
    write_ok(record, at(state, "out", out), &quiet_svg);
    Text html = read_in(out, "report.html"), csv = read_in(inside(out, "tables", tables), "kernels.csv");
    holds(&html, "On the device");
    holds(&html, "sm90_xmma_&lt;gemm&gt;|_kernel");
    holds(&html, "87.0"); /* busy, percent */
    holds(&html, "3.70"); /* cost of profiling, percent */
    holds(&csv, "sgd_kernel<float>,1,0.001,0.25,false");
    text_free(&html);
    text_free(&csv);
}

static void test_no_profile_has_a_reason(void **state)
{
    char record[NAME_BYTES], out[NAME_BYTES];
    write_gpu_record(at(state, "gpu.json", record), "cuptiSubscribe: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (CUPTI error 35)");
    write_ok(record, at(state, "out", out), &quiet_svg);
    Text html = read_in(out, "report.html");
    holds(&html, "No profile of the fastest cell: cuptiSubscribe: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (CUPTI error 35)");
    lacks(&html, "On the device");
    text_free(&html);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(test_whole_report),
        IN_SCRATCH(test_text_stays_text),
        IN_SCRATCH(test_missing_is_a_gap),
        IN_SCRATCH(test_csv_reads_back_bit_equal),
        IN_SCRATCH(test_locale_does_not_matter),
        IN_SCRATCH(test_several_nets),
        IN_SCRATCH(test_what_a_gpu_recorded),
        IN_SCRATCH(test_no_profile_has_a_reason),
        IN_SCRATCH(test_kinds_of_trainings),
        cmocka_unit_test(test_number_format),
        cmocka_unit_test(test_escapes),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
