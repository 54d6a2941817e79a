/* plans.c - asks the real cuDNN, on a machine without a GPU, for a plan of every layer of the three nets that it does, through the
 * backend's own code and device descriptions: each must have one, within the workspace cap, with tensor cores where they belong
 * and without rounding where f32 is promised. Prints the table, the fall-backs and the totals.
 *
 *     cuda_plans [--full]
 *
 * Each plan is made in a child of its own, since cuDNN ends the process over some graphs; two run at a time. Without --full each
 * layer and type is asked about on one GPU and at one batch size, which take turns from layer to layer, and those compiled at run
 * time in one of the two 16-bit types. Exit codes: 0 good, 1 not, 77 there is no cuDNN here. */
#include "layers.h"

#include "kernels/cuda/conv.h"
#include "kernels/cuda/dnn_engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, SKIPPED = 77 };

static const char *const gpus[] = { "a100-80g", "h100-80g", "b200-180g" };
static const int64_t batches[] = { 1, 32, 256 };

typedef struct Answer {
    DnnFacts facts;
    double   seconds;
    char     error[STATUS_TEXT_BYTES]; /* "" = good */
} Answer;

typedef struct Case {
    OpDesc      op;
    const char *gpu;
    Amp         amp;
    Answer      answer;
    int         pipe;
    pid_t       child;
} Case;

typedef struct Cases { Case *at; int count, room; } Cases;

/* ---- which */

static Status add_case(Cases *c, const OpDesc *op, const char *gpu, Amp amp)
{
    if (c->count == c->room) {
        const int room = c->room ? 2 * c->room : 512;
        Case     *more = realloc(c->at, (size_t)room * sizeof *more);
        if (!more)
            return status_error(STATUS_OOM, "no memory for cases");
        c->at = more;
        c->room = room;
    }
    c->at[c->count++] = (Case){ .op = *op, .gpu = gpu, .amp = amp };
    return status_ok();
}

/* As conv.c says: f32 bias or f32 weight gradient beside 16-bit images. */
static bool is_compiled_at_run_time(const OpDesc *op)
{
    return dtype_bits(op->in[0].dtype) == 16 && (op->kind == OP_conv2d_wgrad || op->n_in == 3);
}

static bool is_in_turn(const OpDesc *op, int layer, size_t gpu, size_t batch, Amp amp)
{
    const size_t gpu_turn = (size_t)layer % COUNT_OF(gpus), batch_turn = (size_t)layer / COUNT_OF(gpus) % COUNT_OF(batches);
    if (gpu != gpu_turn || batch != batch_turn)
        return false;
    return !is_compiled_at_run_time(op) || (layer / 2 % 2 == 0) == (amp == AMP_FP16);
}

static Status list_cases(Cases *c, bool full)
{
    static const char *const nets[] = { "resnet50", "unet", "bert" };
    for (Amp amp = AMP_OFF; amp < AMP_COUNT; amp++)
        for (size_t b = 0; b < COUNT_OF(batches); b++) {
            Layers l = { 0 };
            Status status = status_ok();
            for (size_t n = 0; n < COUNT_OF(nets); n++)
                TRY_GOTO(status, layers_add(&l, nets[n], batches[b], amp), out);
            for (int i = 0; i < l.count; i++)
                for (size_t g = 0; g < COUNT_OF(gpus); g++)
                    if (full || is_in_turn(&l.op[i], i, g, b, amp))
                        TRY_GOTO(status, add_case(c, &l.op[i], gpus[g], amp), out);
out:
            layers_free(&l);
            TRY(status);
        }
    return status_ok();
}

/* ---- asking */

static Status open_gpu(const char *gpu, Amp amp, bool tune, Backend **out)
{
    return backend_open("cuda", &(BackendOptions){ .gpu = gpu, .tf32 = amp == AMP_TF32, .no_tune = !tune }, out);
}

static Status make_plan(const Case *c, bool tune, DnnFacts *facts)
{
    Backend  *be;
    DnnGraph *g;
    DnnPlan  *plan = NULL;
    size_t    scratch;
    bool      counted = true;
    TRY(open_gpu(c->gpu, c->amp, tune, &be));
    Status status = conv_graph_create(cuda_of(be), &c->op, &g);
    if (status.code == STATUS_OK)
        status = dnn_query(cuda_of(be), g, &scratch, &counted);
    if (status.code == STATUS_OK && !counted)
        status = status_error(STATUS_UNSUPPORTED, "cuDNN proposes no engine");
    if (status.code == STATUS_OK)
        status = dnn_prepare(cuda_of(be), g, &plan);
    if (status.code == STATUS_OK) {
        dnn_plan_facts(plan, facts);
        if (facts->workspace > scratch)
            status = status_error(STATUS_NUMERIC, "the plan needs %zu bytes, the query said %zu", facts->workspace, scratch);
    }
    dnn_plan_destroy(plan);
    backend_close(be);
    return status;
}

static void start(Case *c, bool tune)
{
    int ends[2];
    fflush(NULL);
    if (pipe(ends) != 0 || (c->child = fork()) < 0) {
        perror("cuda_plans");
        exit(1);
    }
    if (c->child > 0) {
        close(ends[1]);
        c->pipe = ends[0];
        return;
    }
    Answer       a = { 0 };
    const double begin = clock_seconds();
    Status       status = make_plan(c, tune, &a.facts);
    a.seconds = clock_seconds() - begin;
    snprintf(a.error, sizeof a.error, "%s", status.text);
    _exit(write(ends[1], &a, sizeof a) == (ssize_t)sizeof a ? 0 : 1);
}

static void collect(Case *c)
{
    int           how = 0;
    const ssize_t n = read(c->pipe, &c->answer, sizeof c->answer);
    close(c->pipe);
    waitpid(c->child, &how, 0);
    if (n == (ssize_t)sizeof c->answer)
        return;
    memset(&c->answer, 0, sizeof c->answer);
    snprintf(c->answer.error, sizeof c->answer.error, "the child ended with %s %d", WIFSIGNALED(how) ? "signal" : "exit code",
             WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
}

/* ---- judging */

/* Channels that tensor cores take: multiples of 8 in 16 bits (or padded to that), of 4 in TF32. For tensors of 2 GiB and more
 * cuDNN has few engines, and those with a workspace as large. */
static bool wants_tensor_cores(const Case *c)
{
    const OpDesc *op = &c->op;
    const Tensor *x = op->kind == OP_conv2d_dgrad ? &op->out[0] : &op->in[0];
    const Tensor *y = op->kind == OP_conv2d ? &op->out[0] : op->kind == OP_conv2d_dgrad ? &op->in[0] : &op->in[1];
    const int64_t each = c->amp == AMP_TF32 ? 4 : 8;
    const bool    padded = each == 8 && x->dim[3] <= 4 && op->kind != OP_conv2d_dgrad;
    if (tensor_bytes(x) >= (size_t)1 << 31 || tensor_bytes(y) >= (size_t)1 << 31)
        return false;
    return c->amp != AMP_OFF && (padded || x->dim[3] % each == 0) && y->dim[3] % each == 0;
}

static void judge(Case *c)
{
    Answer *a = &c->answer;
    if (a->error[0])
        return;
    if (c->amp == AMP_OFF && a->facts.rounds_inputs)
        snprintf(a->error, sizeof a->error, "rounds f32 inputs");
    else if (a->facts.workspace > DNN_WORKSPACE_CAP)
        snprintf(a->error, sizeof a->error, "workspace above the cap");
    else if (wants_tensor_cores(c) && !a->facts.tensor_cores)
        snprintf(a->error, sizeof a->error, "no tensor cores");
}

static void print_case(const Case *c)
{
    char            text[256];
    const DnnFacts *f = &c->answer.facts;
    printf("%-10s %-4s %-110s ", c->gpu, amp_names[c->amp], op_format(&c->op, text, sizeof text));
    if (c->answer.error[0])
        printf("FAILED: %s\n", c->answer.error);
    else
        printf("e%-3d %10zu B%s%s%s %.2f s\n", f->engine, f->workspace, f->tensor_cores ? " tensor-cores" : "",
               f->runtime_compiled ? " run-time" : "", f->fallback ? " FALLBACK" : "", c->answer.seconds);
    fflush(stdout);
}

static int print_totals(const Cases *c)
{
    int failed = 0;
    printf("\n%-10s %-4s %6s %6s %12s %8s %9s %16s\n", "GPU", "type", "plans", "failed", "tensor cores", "run-time", "fall-back", "largest work, B");
    for (size_t g = 0; g < COUNT_OF(gpus); g++)
        for (Amp amp = AMP_OFF; amp < AMP_COUNT; amp++) {
            int    n = 0, bad = 0, cores = 0, compiled = 0, fallback = 0;
            size_t largest = 0;
            for (int i = 0; i < c->count; i++) {
                const DnnFacts *f = &c->at[i].answer.facts;
                if (strcmp(c->at[i].gpu, gpus[g]) != 0 || c->at[i].amp != amp)
                    continue;
                n++;
                bad += c->at[i].answer.error[0] != '\0';
                cores += f->tensor_cores;
                compiled += f->runtime_compiled;
                fallback += f->fallback;
                largest = f->workspace > largest ? f->workspace : largest;
            }
            printf("%-10s %-4s %6d %6d %12d %8d %9d %16zu\n", gpus[g], amp_names[amp], n, bad, cores, compiled, fallback, largest);
            failed += bad;
        }
    return failed;
}

/* Loads cuDNN and its heuristics into this process, so that children have them. */
static int warm_up(void)
{
    Backend *be;
    Case     first = { .gpu = "h100-80g", .op = { .kind = OP_conv2d, .n_in = 2, .attr = { .kernel = 1, .stride = 1 },
        .in = { tensor_act(DTYPE_BF16, 1, 8, 8, 64), tensor_4d(DTYPE_BF16, 64, 1, 1, 64) } } };
    DnnFacts facts;
    Status   status = open_gpu(first.gpu, AMP_BF16, false, &be);
    if (status.code == STATUS_OK && !cuda_of(be)->dnn) {
        backend_close(be);
        printf("SKIPPED: there is no cuDNN here\n");
        return SKIPPED;
    }
    if (status.code == STATUS_OK) {
        backend_close(be);
        status = op_infer(&first.op);
    }
    if (status.code == STATUS_OK)
        status = make_plan(&first, false, &facts);
    if (status.code == STATUS_OK)
        return 0;
    printf("%s\n", status.text);
    return 1;
}

int main(int argc, char **argv)
{
    const bool full = argc > 1 && strcmp(argv[1], "--full") == 0;
    Cases      c = { 0 };
    int        code = warm_up();
    if (code)
        return code;
    Status status = list_cases(&c, full);
    if (status.code != STATUS_OK) {
        printf("%s\n", status.text);
        free(c.at);
        return 1;
    }
    for (int i = 0; i < c.count + WORKERS; i++) { /* case i starts when case i - WORKERS is in */
        if (i >= WORKERS && i - WORKERS < c.count) {
            collect(&c.at[i - WORKERS]);
            judge(&c.at[i - WORKERS]);
            print_case(&c.at[i - WORKERS]);
        }
        if (i < c.count)
            start(&c.at[i], full);
    }
    code = print_totals(&c) ? 1 : 0;
    free(c.at);
    return code;
}
