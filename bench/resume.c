/* resume.c - the options of a record's own command line; see resume.h. */
#include "resume.h"

#include "record.h"

#include <string.h>

/* Options that may differ between the run that began a record and the one that goes on with it. */
static bool is_free(const char *name)
{
    static const char *const names[] = { "out", "resume", "json", "quiet", "no-report", "no-png" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* An option that was given now must be the one the record was begun with. */
static Status check_same(const Options *now, const Options *begun)
{
    char *bare[] = { "batchmark", "bench" };
    Options initial;
    json_t *echo[3] = { NULL, NULL, NULL };
    Status status;
    TRY_GOTO(status, options_parse(2, bare, &initial), out);
    TRY_GOTO(status, options_echo(now, &echo[0]), out);
    TRY_GOTO(status, options_echo(begun, &echo[1]), out);
    TRY_GOTO(status, options_echo(&initial, &echo[2]), out);
    const char *name;
    json_t *value;
    json_object_foreach (echo[0], name, value)
        if (!is_free(name) && !json_equal(value, json_object_get(echo[2], name)) && !json_equal(value, json_object_get(echo[1], name)))
            TRY_GOTO(status, status_error(STATUS_USAGE, "--resume: the record was begun with another --%s; leave it out, the record's options are used", name), out);
out:
    for (int i = 0; i < 3; i++)
        json_decref(echo[i]);
    return status;
}

Status resume_options(const Options *now, json_t **root, Options *out)
{
    enum { WORDS_MAX = 128 };
    char *words[WORDS_MAX];
    int count = 0;
    TRY(record_load(now->out, root));
    const json_t *command = json_object_get(json_object_get(*root, "run"), "command");
    for (size_t i = 0; i < json_array_size(command) && count < WORDS_MAX; i++) {
        const char *word = json_string_value(json_array_get(command, i));
        if (strncmp(word, "--benchmark_", strlen("--benchmark_")))
            words[count++] = (char *)(uintptr_t)word;
    }
    TRY(status_context(options_parse(count, words, out), "%s: run.command", now->out));
    if (out->command != COMMAND_BENCH)
        return status_error(STATUS_USAGE, "--resume: %s is not the record of a bench", now->out);
    TRY(check_same(now, out));
    out->out = now->out;
    out->resume = true;
    out->json = now->json;
    out->quiet = now->quiet;
    out->no_report = now->no_report;
    out->no_png = now->no_png;
    return status_ok();
}
