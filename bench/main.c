/* main.c - the sub-commands and the exit code; info and report are here. */
#include "bench.h"
#include "env.h"
#include "gbench.h"
#include "interrupt.h"
#include "plan.h"
#include "record.h"
#include "report.h"
#include "serve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_PARTIAL = 3 };

static Status print_json(json_t *root)
{
    if (!root)
        return status_error(STATUS_OOM, "out of memory for the output");
    Status status = record_dump(root, stdout);
    json_decref(root);
    return status;
}

/* ---- info ---- */

static void print_device(const BackendInfo *info)
{
    char memory[32];
    format_bytes((double)info->memory_bytes, memory, sizeof memory);
    if (!info->is_gpu) {
        printf("device      %s, %d threads, %s\n", info->name, info->threads, memory);
        printf("library     %s; instructions: %s\n", info->library, info->isa);
        return;
    }
    printf("device      %s, compute capability %d.%d, %s, %s\n", info->name, info->gpu_capability / 10, info->gpu_capability % 10, memory,
           info->gpu_uuid);
    printf("library     %s\n", info->library);
    printf("CUDA        runtime %d.%d, driver for up to %d.%d\n", info->runtime_version / 1000, info->runtime_version % 1000 / 10,
           info->driver_version / 1000, info->driver_version % 1000 / 10);
    if (info->note[0])
        printf("note        %s\n", info->note);
}

/* Why auto was the CPU. */
static void print_no_gpu(const MeasureOptions *options)
{
    Backend *gpu = NULL;
    Status   status = backend_open("cuda", &options->backend, &gpu);
    printf("GPU         not used: %s\n", status.text);
    backend_close(gpu);
}

/* "peak bf16   407 GFLOP/s", or why there is none. */
static void print_peak(const char *type, double rate, const char *reason)
{
    if (rate > 0)
        printf("peak %-7s%.0f GFLOP/s\n", type, rate / 1e9);
    else
        printf("%-12snot timed: %s\n", type, reason);
}

static void print_peaks(const BackendInfo *info, const Peaks *peaks)
{
    print_peak("fp32", peaks->f32_flops, "");
    print_peak("tf32", peaks->tf32_flops, info->tf32_reason);
    print_peak("bf16", peaks->bf16_flops, info->bf16_reason);
    print_peak("fp16", peaks->f16_flops, info->fp16_reason);
    printf("bandwidth   %.1f GB/s (two reads, one write)\n", peaks->copy_bytes / 1e9);
}

static Status run_info(const Options *o)
{
    MeasureOptions options = measure_from_options(o);
    Backend *be = NULL;
    BackendInfo info;
    json_t *environment = NULL, *tool = NULL;
    Peaks peaks;
    Status status;
    TRY_GOTO(status, backend_open(options.device, &options.backend, &be), out);
    backend_describe(be, &info);
    TRY_GOTO(status, env_capture(&info, &environment), out);
    TRY_GOTO(status, env_tool(&tool), out);
    TRY_GOTO(status, peaks_measure(&options, &peaks), out);
    if (json_object_set_new(environment, "peaks", peaks_json(&peaks)))
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for the output"), out);
    if (o->json) {
        status = print_json(json_pack("{s:O,s:O}", "tool", tool, "environment", environment));
        goto out;
    }
    printf("batchmark %s (git %s)\n", json_string_value(json_object_get(tool, "version")),
           json_is_string(json_object_get(tool, "git")) ? json_string_value(json_object_get(tool, "git")) : "unknown");
    print_device(&info);
    if (!info.is_gpu && !strcmp(o->device, "auto"))
        print_no_gpu(&options);
    print_peaks(&info, &peaks);
out:
    json_decref(environment);
    json_decref(tool);
    backend_close(be);
    return status;
}

/* ---- report ---- */

static Status run_report(const Options *o)
{
    if (o->word_count != 1)
        return status_error(STATUS_USAGE, "report needs one record: batchmark report results/<run>");
    json_t *root = NULL;
    TRY(record_load(o->words[0], &root)); /* checks it before anything is written */
    json_decref(root);
    char path[1024], dir[1024];
    const char *word = o->words[0], *slash = strrchr(word, '/');
    bool is_file = strlen(word) > 5 && !strcmp(word + strlen(word) - 5, ".json");
    snprintf(path, sizeof path, is_file ? "%s" : "%s/record.json", word);
    if (o->out)
        snprintf(dir, sizeof dir, "%s", o->out);
    else if (!is_file)
        snprintf(dir, sizeof dir, "%s", word);
    else
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - word) : 1, slash ? word : ".");
    ReportOptions options = { .no_png = o->no_png, .quiet = true };
    TRY(report_write(path, dir, &options));
    if (o->json)
        return print_json(json_pack("{s:s}", "report", dir));
    printf("report: %s/report.html\n", dir);
    return status_ok();
}

/* ---- the program ---- */

static Status print_version(void)
{
    json_t *tool = NULL;
    TRY(env_tool(&tool));
    const char *git = json_string_value(json_object_get(tool, "git"));
    printf("batchmark %s (git %s)\n", json_string_value(json_object_get(tool, "version")), git ? git : "unknown");
    json_decref(tool);
    return status_ok();
}

static Status run(const Options *o, int argc, char **argv, bool *partial)
{
    switch (o->command) {
    case COMMAND_BENCH:  return run_bench(o, argc, argv, partial);
    case COMMAND_TRAIN:  return run_train(o, argc, argv, partial);
    case COMMAND_CLAIMS: return run_claims(o, argc, argv, partial);
    case COMMAND_PLAN:   return run_plan(o, partial);
    case COMMAND_INFO:   return run_info(o);
    case COMMAND_REPORT: return run_report(o);
    case COMMAND_SERVE:  return serve_steps(o);
    default:             return status_error(STATUS_USAGE, "no command");
    }
}

int main(int argc, char **argv)
{
    Options options;
    bool partial = false;
    interrupt_install();
    int all_argc = argc;
    char **all_argv = calloc((size_t)argc + 1, sizeof *all_argv); /* the whole command line, for the record */
    if (!all_argv)
        return EXIT_FAILED;
    memcpy(all_argv, argv, (size_t)argc * sizeof *argv);
    Status status = gbench_init(&argc, argv) ? options_parse(argc, argv, &options)
                                             : status_error(STATUS_USAGE, "a --benchmark_ flag is wrong: see the line above");
    if (status.code == STATUS_OK && options.version)
        status = print_version();
    else if (status.code == STATUS_OK && options.help)
        options_help(stdout, options.command);
    else if (status.code == STATUS_OK)
        status = run(&options, all_argc, all_argv, &partial);
    free(all_argv);
    if (status.code == STATUS_OK && fflush(stdout))
        status = status_error(STATUS_IO, "cannot write to standard output");
    if (status.code == STATUS_OK)
        return partial ? EXIT_PARTIAL : EXIT_OK;
    fprintf(stderr, "batchmark: error: %s\n", status.text);
    return status.code == STATUS_USAGE ? EXIT_USAGE : EXIT_FAILED;
}
