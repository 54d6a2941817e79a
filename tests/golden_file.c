/* golden_file.c - see golden_file.h. */
#include "golden_file.h"

#include "test_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the file ---- */

static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!value)
        fail_msg("the golden file has no '%s'", key);
    return value;
}

Golden golden_open(const char *net, const char *variant)
{
    char         path[512];
    json_error_t error;
    const char *tests = getenv("BATCHMARK_TEST_FILES"); /* the folder of tests, for a program that was not built where it runs */
    snprintf(path, sizeof path, "%s%s/%s_tiny.json", tests ? tests : GOLDEN_DIR, tests ? "/golden" : "", net);
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s:%d: %s", error.source, error.line, error.text);
    Golden golden = { .root = root, .config = member(root, "config") };
    golden.variant = member(member(root, "variants"), variant);
    golden.curves = member(golden.variant, "curves");
    return golden;
}

void golden_close(Golden *golden)
{
    json_decref(golden->root);
}

double golden_number(const json_t *object, const char *key)
{
    json_t *value = member(object, key);
    if (!json_is_number(value))
        fail_msg("'%s' of the golden file is not a number", key);
    return json_number_value(value);
}

const char *golden_string(const json_t *object, const char *key)
{
    const char *value = json_string_value(member(object, key));
    if (!value)
        fail_msg("'%s' of the golden file is not a string", key);
    return value;
}

static double element(const json_t *object, const char *key, int i)
{
    json_t *value = json_array_get(member(object, key), (size_t)i);
    if (!json_is_number(value))
        fail_msg("the golden file has no number '%s'[%d]", key, i);
    return json_number_value(value);
}

int golden_curve_count(const Golden *golden)
{
    return (int)json_array_size(golden->curves);
}

static const json_t *curve_at(const Golden *golden, int index)
{
    json_t *curve = json_array_get(golden->curves, (size_t)index);
    assert_non_null(curve);
    return curve;
}

static double at_least(double value, double floor)
{
    return value > floor ? value : floor;
}

GoldenLimits golden_limits(const Golden *golden)
{
    const json_t *distance = member(member(golden->variant, "first"), "f32_distance");
    const char   *name;
    json_t       *variant, *curve;
    size_t        i;
    double        later = 0;
    json_object_foreach(member(golden->root, "variants"), name, variant)
        json_array_foreach(member(variant, "curves"), i, curve)
            later = at_least(golden_number(curve, "f32_distance"), later);
    GoldenLimits limits = {
        .first_loss = at_least(10 * golden_number(distance, "loss"), 1e-6),
        .logits = at_least(10 * golden_number(distance, "logits"), 1e-5),
        .first_norm = 1e-5,
        .later_loss = at_least(5 * later, 1e-5),
    };
    return limits;
}

static void expect_near(const char *what, int step, double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit * fabs(want)))
        fail_msg("%s of step %d is %.9g, PyTorch has %.9g: relative difference %.2g, allowed %.2g", what, step, got, want,
                 fabs(got / want - 1), limit);
}

/* The configuration with the recipe of a curve; of everything else `config` has a say. */
static NetConfig with_recipe(const Golden *golden, const json_t *curve, Amp amp, const NetConfig *config)
{
    const int accum = (int)golden_number(curve, "accum");
    NetConfig c = *config;
    c.batch = (int64_t)golden_number(golden->config, "batch") / accum;
    c.accumulate = accum > 1;
    c.amp = amp;
    c.eval = true;
    c.optim = (OptimConfig){
        .kind = strcmp(golden_string(curve, "optimizer"), "sgd") ? OPTIM_ADAMW : OPTIM_SGD,
        .momentum = (float)golden_number(golden->config, "momentum"),
        .beta1 = (float)element(golden->config, "betas", 0),
        .beta2 = (float)element(golden->config, "betas", 1),
        .eps = (float)golden_number(golden->config, "eps"),
        .weight_decay = (float)golden_number(curve, "weight_decay"),
    };
    return c;
}

/* ---- parameters ---- */

static Value find(const Tiny *t, const char *name)
{
    Value v = graph_find(t->net.graph, name);
    if (v.id < 0)
        fail_msg("the net has no value '%s'", name);
    return v;
}

static void expect_shape(const Tiny *t, Value v, const json_t *param)
{
    const Tensor *tensor = graph_tensor(t->net.graph, v);
    const json_t *shape = member(param, "shape");
    bool          same = (size_t)tensor->rank == json_array_size(shape);
    for (int d = 0; same && d < tensor->rank; d++)
        same = tensor->dim[d] == json_integer_value(json_array_get(shape, (size_t)d));
    if (!same)
        fail_msg("'%s' does not have PyTorch's shape", golden_string(param, "name"));
}

/* Element i of parameter number `stream`: as golden/params.py draws it. */
static float drawn(bool normal, float centre, float scale, uint64_t seed, uint64_t stream, uint64_t i)
{
    float x = normal ? (float)rng_normal(seed, stream, i) : 2 * rng_uniform(rng_block(seed, stream, i).word[0]) - 1;
    return centre + scale * x;
}

/* Returns the sum of their squares. */
static double write_param(Tiny *t, const json_t *param, uint64_t seed, uint64_t stream)
{
    const Value v = find(t, golden_string(param, "name"));
    const bool  normal = !strcmp(golden_string(param, "draw"), "normal");
    const float centre = (float)golden_number(param, "centre"), scale = (float)golden_number(param, "scale");
    expect_shape(t, v, param);
    assert_true(t->net.graph->values[v.id].is_param);

    const int64_t n = tensor_count(graph_tensor(t->net.graph, v));
    double        norm2 = 0;
    float        *host = malloc((size_t)n * sizeof *host);
    assert_non_null(host);
    for (int64_t i = 0; i < n; i++) {
        host[i] = drawn(normal, centre, scale, seed, stream, (uint64_t)i);
        norm2 += (double)host[i] * (double)host[i];
    }
    expect_ok(exec_write(t->session.exec, v, host));
    free(host);
    return norm2;
}

/* All parameters, and no more than the file has. */
static void write_params(const Golden *golden, Tiny *t)
{
    const uint64_t seed = (uint64_t)golden_number(golden->config, "param_seed");
    const Graph   *g = t->net.graph;
    size_t         stream, params = 0;
    json_t        *param;
    double         norm2 = 0;
    for (int v = 0; v < g->value_count; v++)
        params += g->values[v].is_param;
    assert_int_equal(params, json_array_size(member(golden->variant, "params")));
    json_array_foreach(member(golden->variant, "params"), stream, param)
        norm2 += write_param(t, param, seed, stream);
    expect_near("the weights' square", 0, norm2, golden_number(golden->variant, "start_norm2"), 0x1p-24); /* by f32's rounding */
    expect_ok(exec_refresh_copies(t->session.exec));
}

/* ---- the first step ---- */

/* Norm and some elements. An element may be off by its own error and by that of a typical one. */
static void expect_sampled(const char *name, const float *got, int64_t n, const json_t *sampled, double limit)
{
    const double want_norm = golden_number(sampled, "norm"), typical = want_norm / sqrt((double)n);
    double       norm2 = 0;
    for (int64_t i = 0; i < n; i++)
        norm2 += (double)got[i] * (double)got[i];
    if (!(fabs(sqrt(norm2) - want_norm) <= limit * want_norm))
        fail_msg("%s has norm %.9g, PyTorch has %.9g: relative difference %.2g, allowed %.2g", name, sqrt(norm2), want_norm,
                 fabs(sqrt(norm2) / want_norm - 1), limit);
    for (size_t s = 0; s < json_array_size(member(sampled, "at")); s++) {
        const int64_t at = (int64_t)element(sampled, "at", (int)s);
        const double  want = element(sampled, "values", (int)s), allowed = limit * (fabs(want) + typical);
        assert_true(at < n);
        if (!(fabs((double)got[at] - want) <= allowed))
            fail_msg("%s has %.9g at %lld, PyTorch has %.9g: difference %.2g, allowed %.2g", name, (double)got[at], (long long)at,
                     want, fabs((double)got[at] - want), allowed);
    }
}

/* Ten times what PyTorch's own f32 is off, and never less than a sum in another order is. */
static double allowed_distance(const json_t *grad)
{
    return at_least(10 * golden_number(grad, "f32_distance"), 1e-5);
}

static void expect_logits(Tiny *t, const GoldenBatches *batches, const json_t *sampled, double limit)
{
    const Tensor *shape = graph_tensor(t->net.graph, t->net.logits);
    const int64_t columns = shape->dim[shape->rank - 1], rows = tensor_count(shape) / columns;
    float        *logits = tiny_read(t, t->net.logits);
    int64_t       kept = 0;
    for (int64_t r = 0; r < rows; r++)
        if (!batches->compared || batches->compared(batches->data, r))
            memmove(logits + columns * kept++, logits + columns * r, (size_t)columns * sizeof *logits);
    expect_sampled("the logits", logits, columns * kept, sampled, limit);
    free(logits);
}

static void expect_gradient(Tiny *t, const json_t *param)
{
    char          name[GRAPH_NAME_BYTES + 8];
    const json_t *want = member(param, "grad");
    snprintf(name, sizeof name, "%s.grad", golden_string(param, "name"));
    const Value grad = find(t, name);
    float      *got = tiny_read(t, grad);
    expect_sampled(name, got, tensor_count(graph_tensor(t->net.graph, grad)), want, allowed_distance(want));
    free(got);
}

/* The sampled elements of a parameter after the first update. Where an element's gradient is next to nothing AdamW steps
 * a whole learning rate to a side that rounding decides: such an element is left out. */
static void expect_updated(Tiny *t, const json_t *param, const char *optimizer, double learning_rate)
{
    char          key[32];
    const json_t *grad = member(param, "grad");
    const bool    adamw = !strcmp(optimizer, "adamw");
    const Value   v = find(t, golden_string(param, "name"));
    const double  typical = golden_number(grad, "norm") / sqrt((double)tensor_count(graph_tensor(t->net.graph, v)));
    float        *got = tiny_read(t, v);
    snprintf(key, sizeof key, "after_%s", optimizer);
    for (size_t s = 0; s < json_array_size(member(param, key)); s++) {
        const int64_t at = (int64_t)element(grad, "at", (int)s);
        const double  want = element(param, key, (int)s), slope = fabs(element(grad, "values", (int)s));
        if (adamw && slope != 0 && slope < 0.01 * typical)
            continue;
        const double step = learning_rate * (adamw ? 1e-3 : allowed_distance(grad) * (slope + typical));
        const double allowed = 2e-7 * fabs(want) + step; /* 2^-22: the parameter's own rounding */
        if (!(fabs((double)got[at] - want) <= allowed))
            fail_msg("%s has %.9g at %lld after an update by %s, PyTorch has %.9g: difference %.2g, allowed %.2g",
                     golden_string(param, "name"), (double)got[at], (long long)at, optimizer, want,
                     fabs((double)got[at] - want), allowed);
    }
    free(got);
}

static void check_first(const Golden *golden, const NetConfig *config, const json_t *curve, const GoldenBatches *batches)
{
    const json_t      *first = member(golden->variant, "first"), *params = member(golden->variant, "params");
    const GoldenLimits limits = golden_limits(golden);
    const ExecOptions  keep_all = { .separate = true };
    const NetConfig    c = with_recipe(golden, curve, AMP_OFF, config);
    const double       learning_rate = golden_number(curve, "learning_rate");
    StepResult         result;
    Tiny               t;
    tiny_open(&c, test_device(), &keep_all, &t);
    write_params(golden, &t);

    expect_ok(step_begin(&t.session, batches->draw(batches->data, 0)));
    MicroBatch batch = batches->micro(batches->data, 0, batches->samples);
    expect_ok(step_micro(&t.session, &batch));
    expect_logits(&t, batches, member(first, "logits"), limits.logits);
    for (size_t i = 0; i < json_array_size(params); i++)
        expect_gradient(&t, json_array_get(params, i));
    expect_ok(step_update(&t.session, (float)learning_rate));
    for (size_t i = 0; i < json_array_size(params); i++)
        expect_updated(&t, json_array_get(params, i), golden_string(curve, "optimizer"), learning_rate);
    expect_ok(step_result(&t.session, &result));
    expect_near("the loss", 0, result.loss, golden_number(first, "loss"), limits.first_loss);
    expect_near("the gradient norm", 0, result.grad_norm, golden_number(first, "grad_norm"), limits.first_norm);
    tiny_close(&t);
}

void golden_check_first(const Golden *golden, const NetConfig *config, const GoldenBatches *batches)
{
    int checked = 0;
    for (int i = 0; i < golden_curve_count(golden); i++) {
        const json_t *curve = curve_at(golden, i);
        if (golden_number(curve, "accum") == 1 && golden_number(curve, "max_norm") == 0) {
            check_first(golden, config, curve, batches);
            checked++;
        }
    }
    assert_int_equal(checked, 2); /* SGD and AdamW */
}

/* ---- curves ---- */

void golden_follow(const Golden *golden, const NetConfig *config, int index, Amp amp, const GoldenLimits *limits,
                   const GoldenBatches *batches)
{
    const json_t   *curve = curve_at(golden, index);
    const NetConfig c = with_recipe(golden, curve, amp, config);
    const int64_t   samples = batches->samples;
    StepResult      result;
    Tiny            t;
    tiny_open(&c, test_device(), NULL, &t);
    t.session.rules.max_norm = (float)golden_number(curve, "max_norm");
    write_params(golden, &t);

    const int steps = (int)golden_number(golden->config, "steps");
    for (int step = 0; step < steps; step++) {
        expect_ok(step_begin(&t.session, batches->draw(batches->data, step)));
        for (int64_t s = 0; s < samples; s += c.batch) {
            MicroBatch batch = batches->micro(batches->data, s, c.batch);
            expect_ok(step_micro(&t.session, &batch));
        }
        expect_ok(step_update(&t.session, (float)golden_number(curve, "learning_rate")));
        expect_ok(step_result(&t.session, &result));
        expect_near("the loss", step, result.loss, element(curve, "loss", step), step ? limits->later_loss : limits->first_loss);
        if (step == 0)
            expect_near("the gradient norm", 0, result.grad_norm, element(curve, "grad_norm", 0), limits->first_norm);
    }

    /* Also of running statistics, after ten steps. */
    batches->draw(batches->data, 0);
    expect_ok(eval_begin(&t.session));
    for (int64_t s = 0; s < samples; s += c.batch) {
        MicroBatch batch = batches->micro(batches->data, s, c.batch);
        expect_ok(eval_batch(&t.session, &batch));
    }
    expect_ok(eval_result(&t.session, &result));
    expect_near("the evaluation loss", steps, result.loss, golden_number(curve, "eval_loss"), limits->later_loss);
    tiny_close(&t);
}
