/* main.c - the sub-commands and the exit code; plan, info and report, which run nothing, are here. */
#include "bench.h"
#include "env.h"
#include "gbench.h"
#include "interrupt.h"
#include "presets.h"
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

/* ---- plan ---- */

static void print_plan(const NetConfig *net, const MemPlan *plan, int64_t params, size_t limit)
{
    char text[32];
    if (net_is_text(net))
        printf("%s, sequences of %" PRId64, net->net, net->size);
    else
        printf("%s, %" PRId64 " x %" PRId64, net->net, net->size, net->size);
    printf(", batch %" PRId64 ", amp %s, %s: %" PRId64 " parameters\n", net->batch, amp_names[net->amp], optim_names[net->optim.kind], params);
    for (int k = 0; k < MEM_KIND_COUNT; k++)
        printf("  %-12s %14zu  %10s\n", mem_kind_names[k], plan->kind[k], format_bytes((double)plan->kind[k], text, sizeof text));
    printf("  %-12s %14zu  %10s\n", "total", plan->total, format_bytes((double)plan->total, text, sizeof text));
    printf("arena %s", format_bytes((double)plan->arena_peak, text, sizeof text));
    printf(", lower bound %s", format_bytes((double)plan->arena_lower_bound, text, sizeof text));
    printf(", without planning %s\n", format_bytes((double)plan->arena_naive, text, sizeof text));
    printf("%s in ", plan->total <= limit ? "fits" : "does not fit");
    printf("%s", format_bytes((double)limit, text, sizeof text));
    if (plan->total <= limit)
        printf(", %s left\n", format_bytes((double)(limit - plan->total), text, sizeof text));
    else
        printf(", %s too much\n", format_bytes((double)(plan->total - limit), text, sizeof text));
}

static Status run_plan(const Options *o, bool *partial)
{
    CellConfig cell;
    TRY(cell_from_axes(o, &cell));
    const NetConfig *net = &cell.net;

    MeasureOptions options = measure_from_options(o);
    Backend *be = NULL;
    Net built;
    MemPlan plan;
    BackendInfo info;
    Status status;
    memset(&built, 0, sizeof built);
    TRY_GOTO(status, net_build(net, &built), out);
    TRY_GOTO(status, backend_open(options.device, &options.backend, &be), out);
    backend_describe(be, &info);
    TRY_GOTO(status, exec_plan_memory(built.graph, be, &options.exec, &plan), out);
    size_t limit = o->mem_limit ? (size_t)o->mem_limit : info.memory_bytes;
    *partial = plan.total > limit;
    int64_t params = graph_param_count(built.graph);
    if (o->print_graph)
        graph_print(built.graph, o->json ? stderr : stdout);
    if (o->json)
        status = print_json(json_pack("{s:o,s:I,s:o,s:I,s:b,s:I,s:I}", "axes", cell_axes(&cell), "parameters", (json_int_t)params, "memory",
                                      memory_json(&plan, 0, 0), "limit", (json_int_t)limit, "fits", plan.total <= limit, "arena_peak",
                                      (json_int_t)plan.arena_peak, "arena_lower_bound", (json_int_t)plan.arena_lower_bound));
    else
        print_plan(net, &plan, params, limit);
out:
    net_destroy(&built);
    backend_close(be);
    return status;
}

/* ---- info ---- */

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
    json_t *member = json_pack("{s:o,s:o,s:o}", "f32_flops", record_real(peaks.f32_flops), "bf16_flops",
                               peaks.bf16_flops > 0 ? record_real(peaks.bf16_flops) : json_null(), "copy_bytes_per_s",
                               record_real(peaks.copy_bytes));
    if (json_object_set_new(environment, "peaks", member))
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for the output"), out);
    if (o->json) {
        status = print_json(json_pack("{s:O,s:O}", "tool", tool, "environment", environment));
        goto out;
    }
    char memory[32];
    printf("batchmark %s (git %s)\n", json_string_value(json_object_get(tool, "version")),
           json_is_string(json_object_get(tool, "git")) ? json_string_value(json_object_get(tool, "git")) : "unknown");
    printf("device      %s, %d threads, %s\n", info.name, info.threads, format_bytes((double)info.memory_bytes, memory, sizeof memory));
    printf("library     %s; instructions: %s\n", info.library, info.isa);
    printf("peak fp32   %.0f GFLOP/s\n", peaks.f32_flops / 1e9);
    if (info.fast_bf16)
        printf("peak bf16   %.0f GFLOP/s\n", peaks.bf16_flops / 1e9);
    else
        printf("bf16        not timed: %s\n", info.bf16_reason);
    printf("bandwidth   %.1f GB/s (two reads, one write)\n", peaks.copy_bytes / 1e9);
    printf("CUDA        not in this build\n");
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
