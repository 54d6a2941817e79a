/* plan.c - memory by category and the largest batch; see plan.h. */
#include "plan.h"

#include "bench.h"
#include "presets.h"
#include "record.h"

#include "../kernels/gpus.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BATCH_MOST = 65536 };

/* ---- one plan ---- */

typedef struct Planned {
    MemPlan memory;
    int64_t parameters;
} Planned;

static Status plan_net(const NetConfig *config, Backend *be, const ExecOptions *exec, FILE *graph_to, Planned *out)
{
    Net net;
    memset(&net, 0, sizeof net);
    TRY(net_build(config, &net));
    Status status = exec_plan_memory(net.graph, be, exec, &out->memory);
    out->parameters = graph_param_count(net.graph);
    if (status.code == STATUS_OK && graph_to)
        graph_print(net.graph, graph_to);
    net_destroy(&net);
    return status;
}

/* ---- the largest batch ---- */

/* A batch that was tried. */
typedef struct Tried { int64_t batch; size_t bytes; } Tried;

/* Where the line through two plans meets the limit, as a whole batch within low..high. */
static int64_t batch_on_line(const Tried *a, const Tried *b, size_t limit, int64_t low, int64_t high)
{
    const double slope = ((double)b->bytes - (double)a->bytes) / (double)(b->batch - a->batch);
    if (!(slope > 0))
        return high;
    const double at = floor((double)a->batch + ((double)limit - (double)a->bytes) / slope);
    return at < (double)low ? low : at > (double)high ? high : (int64_t)at;
}

/* `fits` is the largest that is known to fit, `over` the smallest that is known not to. Each guess is where the line through the last two
 * meets the limit, or next to it on the other side if that is known; if that closes in too slowly, the middle. */
Status plan_largest_batch(PlanTotal *total, void *context, size_t limit, int64_t most, int64_t *batch, size_t *bytes)
{
    Tried fits = { 1, 0 }, over = { most + 1, 0 }, before = { 0, 0 }, last;
    TRY(total(context, 1, &fits.bytes));
    *batch = fits.bytes <= limit;
    *bytes = fits.bytes;
    if (!*batch)
        return status_ok();
    last = fits;
    for (int turn = 0; over.batch - fits.batch > 1; turn++) {
        const int64_t low = fits.batch + 1, high = over.batch - 1;
        int64_t       guess = turn == 0 ? 2 : batch_on_line(&before, &last, limit, low, high);
        if (turn > 0 && turn % 4 == 0)
            guess = low + (high - low) / 2;
        before = last;
        last.batch = guess < high ? guess : high;
        TRY(total(context, last.batch, &last.bytes));
        *(last.bytes <= limit ? &fits : &over) = last;
    }
    *batch = fits.batch;
    *bytes = fits.bytes;
    return status_ok();
}

typedef struct Search { NetConfig net; Backend *be; const ExecOptions *exec; } Search;

static Status total_of_batch(void *context, int64_t batch, size_t *bytes)
{
    Search *s = context;
    Planned planned;
    s->net.batch = batch;
    TRY(plan_net(&s->net, s->be, s->exec, NULL, &planned));
    *bytes = planned.memory.total;
    return status_ok();
}

/* ---- output ---- */

typedef struct Answer {
    CellConfig  cell;
    Planned     planned;
    BackendInfo info;
    size_t      capacity, limit; /* limit: what the reserve leaves of the capacity */
    int64_t     largest;         /* --max-batch: 0 = not even 1 */
    bool        fits;
} Answer;

static void print_net(const Answer *a)
{
    const NetConfig *net = &a->cell.net;
    if (net_is_text(net))
        printf("%s, sequences of %" PRId64, net->net, net->size);
    else
        printf("%s, %" PRId64 " x %" PRId64, net->net, net->size, net->size);
    printf(", batch %" PRId64 ", amp %s, %s: %" PRId64 " parameters\n", net->batch, amp_names[net->amp], optim_names[net->optim.kind],
           a->planned.parameters);
}

static void print_memory(const MemPlan *plan)
{
    char text[32];
    for (int k = 0; k < MEM_KIND_COUNT; k++)
        printf("  %-12s %14zu  %10s\n", mem_kind_names[k], plan->kind[k], format_bytes((double)plan->kind[k], text, sizeof text));
    printf("  %-12s %14zu  %10s\n", "total", plan->total, format_bytes((double)plan->total, text, sizeof text));
    printf("arena %s", format_bytes((double)plan->arena_peak, text, sizeof text));
    printf(", lower bound %s", format_bytes((double)plan->arena_lower_bound, text, sizeof text));
    printf(", without planning %s\n", format_bytes((double)plan->arena_naive, text, sizeof text));
}

static void print_limit(const Options *o, const Answer *a)
{
    const size_t total = a->planned.memory.total;
    char text[32];
    printf("%s in ", a->fits ? "fits" : "does not fit");
    printf("%s", format_bytes((double)a->limit, text, sizeof text));
    if (o->reserve > 0)
        printf(" (%s less %g %%)", format_bytes((double)a->capacity, text, sizeof text), o->reserve);
    if (o->gpu && !o->mem_limit)
        printf(" of the %s", a->info.name);
    if (a->fits)
        printf(", %s left\n", format_bytes((double)(a->limit - total), text, sizeof text));
    else
        printf(", %s too much\n", format_bytes((double)(total - a->limit), text, sizeof text));
    if (o->max_batch && a->largest)
        printf("the largest batch that fits is %" PRId64 "\n", a->largest);
    else if (o->max_batch)
        printf("not even batch 1 fits\n");
    if (a->info.is_gpu)
        printf("not counted: the driver's context and its libraries, some 0.5 GiB\n");
    if (a->info.note[0])
        printf("note: %s\n", a->info.note);
}

static Status print_json(const Options *o, const Answer *a)
{
    const MemPlan *plan = &a->planned.memory;
    json_t *root = json_pack("{s:o,s:I,s:o,s:I,s:b,s:I,s:I,s:s?,s:s,s:I,s:f,s:o,s:s?}", "axes", cell_axes(&a->cell), "parameters",
                             (json_int_t)a->planned.parameters, "memory", memory_json(plan, 0, 0, NULL), "limit", (json_int_t)a->limit, "fits",
                             a->fits, "arena_peak", (json_int_t)plan->arena_peak, "arena_lower_bound", (json_int_t)plan->arena_lower_bound,
                             "gpu", o->gpu, "device", a->info.name, "capacity", (json_int_t)a->capacity, "reserve_percent", o->reserve,
                             "max_batch", o->max_batch ? json_integer((json_int_t)a->largest) : json_null(), "note",
                             a->info.note[0] ? a->info.note : NULL);
    if (!root)
        return status_error(STATUS_OOM, "out of memory for the output");
    Status status = record_dump(root, stdout);
    json_decref(root);
    return status;
}

/* ---- the command ---- */

static Status answer(const Options *o, const MeasureOptions *options, Backend *be, Answer *a)
{
    NetConfig *net = &a->cell.net;
    backend_describe(be, &a->info);
    a->capacity = o->mem_limit ? (size_t)o->mem_limit : a->info.memory_bytes;
    a->limit = (size_t)((double)a->capacity * (1 - o->reserve / 100));
    if (o->max_batch) {
        Search search = { *net, be, &options->exec };
        size_t bytes;
        TRY(plan_largest_batch(total_of_batch, &search, a->limit, BATCH_MOST, &a->largest, &bytes));
        net->batch = a->largest ? a->largest : 1;
    }
    TRY(plan_net(net, be, &options->exec, o->print_graph ? (o->json ? stderr : stdout) : NULL, &a->planned));
    a->fits = a->planned.memory.total <= a->limit;
    return status_ok();
}

Status run_plan(const Options *o, bool *partial)
{
    MeasureOptions options = measure_from_options(o);
    Backend *be = NULL;
    Answer a;
    Status status;
    memset(&a, 0, sizeof a);
    TRY(cell_from_axes(o, &a.cell));
    TRY(net_check(&a.cell.net));
    if (o->max_batch && o->batch.count)
        return status_error(STATUS_USAGE, "--max-batch looks for the batch itself: leave out --batch");
    const BackendOptions opened = backend_options_for(&options, a.cell.net.amp);
    TRY(backend_open(options.device, &opened, &be));
    TRY_GOTO(status, answer(o, &options, be, &a), out);
    *partial = !a.fits;
    if (o->json) {
        status = print_json(o, &a);
        goto out;
    }
    print_net(&a);
    print_memory(&a.planned.memory);
    print_limit(o, &a);
out:
    backend_close(be);
    return status;
}
