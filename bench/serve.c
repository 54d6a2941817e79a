/* serve.c - the line protocol of bench/peers, on top of one open cell. */
#include "serve.h"

#include "bench.h"
#include "env.h"
#include "interrupt.h"
#include "isolate.h"
#include "presets.h"
#include "random_batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 128, RUN_MAX = 100000 };

/* ---- answers: each takes its message over ---- */

static Status reply(json_t *message)
{
    if (!message)
        return status_error(STATUS_OOM, "out of memory for an answer");
    int failed = json_dumpf(message, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(message);
    failed = failed || putchar('\n') == EOF || fflush(stdout);
    return failed ? status_error(STATUS_IO, "cannot write to standard output") : status_ok();
}

static Status reply_ready(const Bench *b, const CellConfig *cell)
{
    const BackendInfo *info = &b->info;
    char name[CELL_NAME_BYTES];
    json_t *tool = NULL;
    TRY(env_tool(&tool));
    return reply(json_pack("{s:b,s:s,s:o,s:s,s:s,s:s,s:s,s:i,s:I}", "ready", 1, "name", "batchmark", "tool", tool, "cell",
                           cell_name(cell, name, sizeof name), "device", info->name, "library", info->library, "isa", info->isa,
                           "threads", info->threads, "planned_bytes", (json_int_t)b->plan.total));
}

/* Tells the other side why it will hear no more, and passes the error on. */
static Status reply_failure(Status status)
{
    Status sent = reply(json_pack("{s:s,s:s}", "error", status.text, "code", status_code_name(status.code)));
    (void)sent; /* the first error is the one to report */
    return status;
}

static Status reply_steps(const double *seconds, int64_t count, double loss)
{
    json_t *list = json_array();
    for (int64_t i = 0; list && i < count; i++)
        if (json_array_append_new(list, json_real(seconds[i]))) {
            json_decref(list);
            list = NULL;
        }
    if (!list)
        return status_error(STATUS_OOM, "out of memory for an answer");
    return reply(json_pack("{s:o,s:f}", "seconds", list, "loss", loss));
}

/* On a GPU what was taken of its memory, all at the start; else resident memory. */
static Status reply_peak(const Bench *b)
{
    BackendMemory memory;
    size_t peak = env_process_peak_bytes();
    if (b->info.is_gpu && b->backend->vtable->memory) {
        TRY(b->backend->vtable->memory(b->backend, &memory));
        peak = memory.allocated;
    }
    return reply(json_pack("{s:o}", "peak_bytes", peak ? json_integer((json_int_t)peak) : json_null()));
}

/* ---- commands ---- */

static Status run_steps(Bench *b, const MicroBatch *data, int64_t accum, int64_t count)
{
    double *seconds = malloc((size_t)count * sizeof *seconds);
    StepResult result;
    Status status = seconds ? status_ok() : status_error(STATUS_OOM, "out of memory for the times of %" PRId64 " steps", count);
    for (int64_t i = 0; i < count && status.code == STATUS_OK; i++) {
        double start = clock_seconds();
        status = cell_run_step(b, data, accum);
        if (seconds)
            seconds[i] = clock_seconds() - start;
    }
    if (status.code == STATUS_OK)
        status = step_result(&b->session, &result); /* also: the loss is finite */
    if (status.code == STATUS_OK)
        status = reply_steps(seconds, count, result.loss);
    else
        status = reply_failure(status);
    free(seconds);
    return status;
}

/* "run N" with 1 <= N <= RUN_MAX and nothing else on the line. */
static bool parse_run(const char *line, int64_t *count)
{
    char *end;
    if (strncmp(line, "run ", 4) || line[4] < '1' || line[4] > '9')
        return false;
    long long n = strtoll(line + 4, &end, 10);
    *count = n;
    return !*end && n <= RUN_MAX;
}

static Status reply_line(Bench *b, const MicroBatch *data, int64_t accum, const char *line)
{
    int64_t count;
    char text[LINE_BYTES + 80];
    if (!strcmp(line, "peak"))
        return reply_peak(b);
    if (parse_run(line, &count))
        return run_steps(b, data, accum, count);
    snprintf(text, sizeof text, "'%.60s' is not a command: write run N (1 to %d), peak or quit", line, RUN_MAX);
    json_t *message = json_pack("{s:s}", "error", text);
    return reply(message ? message : json_pack("{s:s}", "error", "the line is not UTF-8"));
}

/* One line of stdin without its newline; what does not fit is dropped. False at the end of the input. */
static bool read_line(char *line, size_t size)
{
    if (!fgets(line, (int)size, stdin))
        return false;
    size_t n = strcspn(line, "\n");
    if (!line[n]) {
        int c = getchar();
        while (c != EOF && c != '\n')
            c = getchar();
    }
    line[n] = '\0';
    return true;
}

static Status serve(Bench *b, const MicroBatch *data, int64_t accum)
{
    char line[LINE_BYTES];
    while (read_line(line, sizeof line)) {
        if (!strcmp(line, "quit"))
            return status_ok();
        TRY(reply_line(b, data, accum, line));
    }
    TRY(interrupt_check());
    return ferror(stdin) ? status_error(STATUS_IO, "cannot read standard input") : status_ok();
}

/* ---- the cell ---- */

static Status cell_from_options(const Options *o, CellConfig *cell)
{
    TRY(cell_from_axes(o, cell));
    return net_check(&cell->net);
}

typedef struct VerifyTask { const CellConfig *cell; const MeasureOptions *options; } VerifyTask;

static Status verify_task(void *context, json_t **result)
{
    VerifyTask *task = context;
    return verify_net(&task->cell->net, task->options, result);
}

Status serve_steps(const Options *o)
{
    CellConfig cell;
    Bench bench;
    MicroBatch data = { 0 };
    MeasureOptions options = measure_from_options(o);
    json_t *verified = NULL;
    Status status;
    memset(&bench, 0, sizeof bench);
    TRY(cell_from_options(o, &cell));
    VerifyTask task = { &cell, &options };
    TRY_GOTO(status, isolate_run(verify_task, &task, &verified), failed);
    TRY_GOTO(status, bench_open(&cell.net, &options, &bench), failed);
    TRY_GOTO(status, random_batch_create(&cell.net, options.seed, &data), failed);
    TRY_GOTO(status, reply_ready(&bench, &cell), out);
    status = serve(&bench, &data, cell.accum);
    goto out;
failed:
    status = reply_failure(status);
out:
    json_decref(verified);
    random_batch_free(&data);
    bench_close(&bench);
    return status;
}
