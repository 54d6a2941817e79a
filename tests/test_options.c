/* test_options.c - the option table: what is taken, what is refused and with which words, the echo, sizes in bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../bench/options.h"

#include <math.h>

enum { ARGS_MAX = 16 };

/* Parses "batchmark" and the words, which are separated by single spaces. */
static Status parse(const char *line, char *buffer, size_t size, Options *o)
{
    char *argv[ARGS_MAX] = { "batchmark" };
    int argc = 1;
    assert_true(strlen(line) < size);
    strcpy(buffer, line);
    for (char *word = strtok(buffer, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return options_parse(argc, argv, o);
}

static void expect_refused(const char *line, const char *words)
{
    char buffer[256];
    Options o;
    Status s = parse(line, buffer, sizeof buffer, &o);
    if (s.code != STATUS_USAGE || !strstr(s.text, words))
        fail_msg("'%s' gave code %d, text '%s'; expected usage and '%s'", line, (int)s.code, s.text, words);
}

static void test_values_arrive(void **state)
{
    (void)state;
    char buffer[256];
    Options o;
    Status s = parse("bench --batch 1,2,32 --amp=off,bf16 --accum 4 --width 0.5 --mem-limit 16GiB --resume --stem small --out x", buffer, sizeof buffer, &o);
    assert_string_equal(s.text, "");
    assert_int_equal(o.command, COMMAND_BENCH);
    assert_int_equal(o.batch.count, 3);
    assert_int_equal(o.batch.value[2], 32);
    assert_int_equal(o.amp.count, 2);
    assert_int_equal(o.amp.value[1], AMP_BF16);
    assert_int_equal(o.accum.value[0], 4);
    assert_true(o.width == 0.5);
    assert_true(o.mem_limit == INT64_C(16) << 30);
    assert_true(o.resume);
    assert_int_equal(o.stem, STEM_SMALL);
    assert_string_equal(o.out, "x");
}

static void test_defaults(void **state)
{
    (void)state;
    char buffer[256];
    Options o;
    assert_int_equal(parse("train", buffer, sizeof buffer, &o).code, STATUS_OK);
    assert_null(o.net); /* resnet50, or all that a preset has */
    assert_null(o.data); /* follows from the net */
    assert_true(isnan(o.momentum));
    assert_int_equal(o.optimizer, -1);
    assert_int_equal(o.batch.count, 0);
    assert_int_equal(o.seed, 1);
    assert_true(o.precision == 0.01);
}

static void test_help_and_no_command(void **state)
{
    (void)state;
    char buffer[256];
    Options o;
    assert_int_equal(parse("", buffer, sizeof buffer, &o).code, STATUS_OK);
    assert_true(o.help);
    assert_int_equal(parse("plan --help", buffer, sizeof buffer, &o).code, STATUS_OK);
    assert_true(o.help);
    assert_int_equal(o.command, COMMAND_PLAN);
}

/* Every option of a command stands there once, and no line is too long for a terminal. */
static void test_help_fits(void **state)
{
    (void)state;
    for (int c = 0; c <= COMMAND_COUNT; c++) {
        FILE  *file = tmpfile();
        char   line[512];
        int    options = 0;
        assert_non_null(file);
        options_help(file, (Command)c);
        rewind(file);
        while (fgets(line, sizeof line, file)) {
            if (strlen(line) > 120 || (!strncmp(line, "  --", 4) && strlen(line) > 101))
                fail_msg("%zu characters: %s", strlen(line), line);
            options += !strncmp(line, "  --", 4);
        }
        fclose(file);
        char    buffer[64], words[32];
        Options o;
        json_t *echo = NULL;
        if (c == COMMAND_COUNT)
            continue;
        snprintf(words, sizeof words, "%s", command_names[c]);
        assert_int_equal(parse(words, buffer, sizeof buffer, &o).code, STATUS_OK);
        assert_int_equal(options_echo(&o, &echo).code, STATUS_OK);
        assert_int_equal(options, json_object_size(echo));
        json_decref(echo);
    }
}

static void test_bad_input_is_named(void **state)
{
    (void)state;
    expect_refused("fly", "unknown command 'fly': use bench, train");
    expect_refused("bench --bath 2", "unknown option --bath");
    expect_refused("plan --epochs 2", "--epochs is not an option of 'batchmark plan'");
    expect_refused("bench --batch 0", "--batch '0': must be a whole number from 1");
    expect_refused("bench --batch -4", "--batch '-4'");
    expect_refused("bench --batch 2,x", "--batch 'x'");
    expect_refused("bench --batch 2,,4", "--batch '2,,4': must be values separated by commas");
    expect_refused("bench --batch 2,2", "stands there twice");
    expect_refused("bench --batch 2.5", "--batch '2.5'");
    expect_refused("bench --batch 99999999999999999999", "--batch");
    expect_refused("bench --batch 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "at most 16 values");
    expect_refused("bench --batch", "--batch needs a value");
    expect_refused("bench --batch=", "--batch ''");
    expect_refused("bench --accum 0", "--accum '0'");
    expect_refused("bench --amp fp8", "--amp 'fp8': must be one of off, bf16");
    expect_refused("bench --preset huge", "must be one of smoke, quick, full");
    expect_refused("bench --mem-limit lots", "must be a size such as 16GiB");
    expect_refused("bench --mem-limit 0", "must be a size");
    expect_refused("bench --width nan", "--width 'nan': must be a number from 0.01");
    expect_refused("train --lr -1", "--lr '-1'");
    expect_refused("train --target-acc 101", "--target-acc '101': must be a number from 0 to 100");
    expect_refused("train --out=", "--out needs a value");
    expect_refused("bench --resume=yes", "--resume takes no value");
    expect_refused("bench -b 2", "unknown option -b: options are written --name value");
    expect_refused("bench stray", "takes no word 'stray'");
}

static void test_axis_single(void **state)
{
    (void)state;
    int64_t value = 7;
    Axis axis = { .count = 0 };
    assert_int_equal(axis_single(&axis, "batch", &value).code, STATUS_OK);
    assert_int_equal(value, 7);
    axis = (Axis){ .value = { 3, 4 }, .count = 2 };
    Status s = axis_single(&axis, "batch", &value);
    assert_int_equal(s.code, STATUS_USAGE);
    assert_non_null(strstr(s.text, "--batch: this command takes one value, 2 were given"));
}

static void test_echo_holds_every_option(void **state)
{
    (void)state;
    char buffer[256];
    Options o;
    json_t *echo = NULL;
    assert_int_equal(parse("bench --batch 1,2 --amp bf16 --no-png", buffer, sizeof buffer, &o).code, STATUS_OK);
    assert_int_equal(options_echo(&o, &echo).code, STATUS_OK);
    assert_int_equal(json_array_size(json_object_get(echo, "batch")), 2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(echo, "amp"), 0)), "bf16");
    assert_true(json_is_true(json_object_get(echo, "no-png")));
    assert_true(json_is_null(json_object_get(echo, "mem-limit")));
    assert_null(json_object_get(echo, "epochs")); /* not bench's */
    json_decref(echo);
}

static void test_bytes(void **state)
{
    (void)state;
    int64_t n = 0;
    char text[32];
    assert_true(parse_bytes("1500000", &n) && n == 1500000);
    assert_true(parse_bytes("2 GiB", &n) && n == INT64_C(2) << 30);
    assert_true(parse_bytes("1.5MiB", &n) && n == 1572864);
    assert_true(parse_bytes("2GB", &n) && n == 2000000000);
    assert_false(parse_bytes("GiB", &n));
    assert_false(parse_bytes("-1", &n));
    assert_false(parse_bytes("1 XB", &n));
    assert_false(parse_bytes("1e300", &n));
    assert_string_equal(format_bytes(2727304192.0, text, sizeof text), "2.54 GiB");
    assert_string_equal(format_bytes(512, text, sizeof text), "512 B");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_arrive),      cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_help_and_no_command), cmocka_unit_test(test_help_fits),
        cmocka_unit_test(test_bad_input_is_named),
        cmocka_unit_test(test_axis_single),        cmocka_unit_test(test_echo_holds_every_option),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
