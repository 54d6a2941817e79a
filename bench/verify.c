/* verify.c - nothing is timed that this build has not compared with the float64 reference: a small net of the same kind,
 * one forward and backward on both backends from the same start, loss and every gradient compared. */
#include "cell.h"
#include "record.h"

#include "../tests/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Both backends round to the same types at the same places, so the gradients differ by the order of summation only, which
 * fifty layers of batch norm amplify. Bounds on |g - g_ref| / |g_ref| over all gradients together, several times what is
 * seen: about 1e-5 in fp32, 0.03 in bf16. */
static const double bounds[AMP_COUNT] = { [AMP_OFF] = 1e-3, [AMP_BF16] = 0.2 };

enum { VERIFY_BATCH = 4 };

static NetConfig reduced(const NetConfig *like)
{
    NetConfig c = *like;
    c.batch = VERIFY_BATCH;
    c.size = like->stem == STEM_SMALL ? 16 : 64;
    c.width = like->width < 0.25 ? like->width : 0.25;
    c.classes = like->classes < 10 ? like->classes : 10;
    c.zero_init_gamma = false; /* so that every gradient is alive */
    c.eval = false;
    return c;
}

/* The loss and all gradients, in order of value id, of one micro-batch on a backend. The caller frees *gradients. */
static Status run_once(const NetConfig *config, Backend *be, uint64_t seed, double *loss, float **gradients, int64_t *count)
{
    Net net;
    memset(&net, 0, sizeof net);
    Session session = { .net = &net };
    float *g = NULL;
    uint8_t *pixels = NULL;
    Status status;
    TRY_GOTO(status, net_build(config, &net), out);
    TRY_GOTO(status, exec_create(net.graph, be, NULL, &session.exec), out);
    TRY_GOTO(status, exec_init(session.exec, seed), out);
    size_t n = (size_t)(config->batch * config->size * config->size * config->channels);
    int32_t labels[VERIFY_BATCH];
    pixels = malloc(n);
    g = malloc((size_t)graph_param_count(net.graph) * sizeof *g);
    if (!pixels || !g)
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for the verification"), out);
    for (size_t i = 0; i < n; i++)
        pixels[i] = (uint8_t)rng_block(seed, 3, i).word[0];
    for (int i = 0; i < VERIFY_BATCH; i++)
        labels[i] = (int32_t)(i % config->classes);
    MicroBatch batch = { pixels, labels };
    StepResult result;
    TRY_GOTO(status, step_begin(&session, config->batch), out);
    TRY_GOTO(status, step_micro(&session, &batch), out);
    TRY_GOTO(status, step_update(&session, 0.0f), out);
    TRY_GOTO(status, step_result(&session, &result), out);
    *loss = result.loss;
    *count = 0;
    for (int v = 0; v < net.graph->value_count; v++)
        if (net.graph->values[v].kind == MEM_GRAD && !net.graph->values[v].span_group) {
            TRY_GOTO(status, exec_read(session.exec, (Value){ v }, g + *count), out);
            *count += tensor_count(&net.graph->values[v].tensor);
        }
    *gradients = g;
    g = NULL;
out:
    free(g);
    free(pixels);
    exec_destroy(session.exec);
    net_destroy(&net);
    return status;
}

static Status compare(const NetConfig *c, double loss, double loss_ref, const float *g, const float *ref, int64_t n, json_t **result)
{
    double difference = 0, length = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)g[i] - ref[i]) * ((double)g[i] - ref[i]);
        length += (double)ref[i] * ref[i];
    }
    double error = sqrt(difference / length), loss_error = fabs(loss - loss_ref) / fabs(loss_ref), bound = bounds[c->amp];
    if (!(length > 0) || !(error <= bound) || !(loss_error <= bound))
        return status_error(STATUS_NUMERIC, "%s amp %s does not agree with the reference: gradients differ by %.3g, the loss by %.3g, allowed is %.3g",
                            c->net, amp_names[c->amp], error, loss_error, bound);
    *result = json_pack("{s:s,s:o,s:o,s:o,s:I}", "against", "float64 reference, all gradients of a small net", "max_error",
                        record_real(error), "loss_error", record_real(loss_error), "bound", record_real(bound), "values", (json_int_t)n);
    return *result ? status_ok() : status_error(STATUS_OOM, "out of memory for the verification");
}

Status verify_net(const NetConfig *like, const MeasureOptions *options, json_t **result)
{
    NetConfig config = reduced(like);
    Backend *device = NULL, *reference = NULL;
    float *g = NULL, *g_ref = NULL;
    double loss = 0, loss_ref = 0;
    int64_t n = 0, n_ref = 0;
    Status status;
    TRY_GOTO(status, backend_open(options->device, &options->backend, &device), out);
    TRY_GOTO(status, ref_backend.open(&options->backend, &reference), out);
    TRY_GOTO(status, run_once(&config, device, options->seed, &loss, &g, &n), out);
    TRY_GOTO(status, run_once(&config, reference, options->seed, &loss_ref, &g_ref, &n_ref), out);
    CHECK(n == n_ref);
    status = compare(&config, loss, loss_ref, g, g_ref, n, result);
out:
    free(g);
    free(g_ref);
    backend_close(device);
    backend_close(reference);
    return status;
}
