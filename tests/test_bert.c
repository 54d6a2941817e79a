/* test_bert.c - BERT as a whole: its size, what its plan does not hold, gradients that are derivatives, the CPU backend against
 * the reference, batches that say the same in other rows, batches that say nothing, and dropout. */
#include "../nets/grad.h"
#include "tiny_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const TinySequence three[] = { { 1, 20, 3 }, { 2, 7, 2 }, { 3, 11, 3 } };

static void open_bert(const NetConfig *config, const char *backend, Tiny *t)
{
    tiny_open(config, backend, &(ExecOptions){ .poison = true }, t);
}

/* ---- the graph ---- */

static int64_t params_of(NetConfig c)
{
    Net net;
    expect_ok(net_build(&c, &net));
    const int64_t count = graph_param_count(net.graph);
    net_destroy(&net);
    return count;
}

/* Devlin et al. give 110 million; these are the published checkpoint's, whose decoder is the token table. */
static void test_parameters(void **state)
{
    (void)state;
    NetConfig c = net_config_default("bert");
    assert_int_equal(params_of(c), 109514298);
    c.head = HEAD_ALL;
    assert_int_equal(params_of(c), 109514298);
    c.head = HEAD_CLASSIFY;
    for (int classes = 2; classes <= 45; classes += 43) {
        c.classes = classes;
        assert_int_equal(params_of(c), 109482240 + 769 * classes);
    }
}

static MemPlan plan_of(int64_t batch, int64_t size)
{
    NetConfig c = tiny_bert(batch);
    Net       net;
    MemPlan   plan;
    Backend  *be = tiny_backend("cpu");
    c.size = size;
    c.positions = 1024;
    expect_ok(net_build(&c, &net));
    for (int v = 0; v < net.graph->value_count; v++) { /* 1,024 is also the positions: their table is a weight */
        const Tensor *t = &net.graph->values[v].tensor;
        assert_false(!graph_is_persistent(&net.graph->values[v]) && t->rank >= 2 && t->dim[t->rank - 1] == size && t->dim[t->rank - 2] == size);
    }
    expect_ok(exec_plan_memory(net.graph, be, NULL, &plan));
    net_destroy(&net);
    backend_close(be);
    return plan;
}

/* The same number of tokens in 16 sequences or in one: a matrix of scores would be 16 times as large, 4 MiB a head. */
static void test_no_matrix_of_scores(void **state)
{
    (void)state;
    const MemPlan many = plan_of(16, 64), one = plan_of(1, 1024);
    assert_true((double)one.arena_peak < 1.1 * (double)many.arena_peak);
}

static void test_logits_of_targets_only(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(4);
    Net       net;
    for (c.head = HEAD_MASKED; c.head <= HEAD_ALL; c.head++) {
        expect_ok(net_build(&c, &net));
        const int64_t rows = c.head == HEAD_MASKED ? 4 * 3 : 4 * 20;
        int           with_vocab = 0;
        assert_int_equal(net_head_rows(&c), rows);
        for (int v = 0; v < net.graph->value_count; v++) {
            const Tensor *t = &net.graph->values[v].tensor;
            if (graph_is_persistent(&net.graph->values[v]) || t->rank != 2 || t->dim[1] != c.vocab)
                continue;
            assert_int_equal(t->dim[0], rows);
            with_vocab++;
        }
        assert_true(with_vocab > 0);
        net_destroy(&net);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(2);
    expect_ok(net_check(&c));
    c.size = 25;
    expect_error(net_check(&c), STATUS_USAGE, "a sequence of 25 tokens is longer than the 24 positions");
    c = tiny_bert(2);
    c.heads = 3;
    expect_error(net_check(&c), STATUS_USAGE, "32 features cannot be split among 3 heads");
    c = tiny_bert(2);
    c.width = 0.5;
    expect_error(net_check(&c), STATUS_USAGE, "bert has no width multiplier");
    c = tiny_bert(2);
    c.rows = 19;
    expect_error(net_check(&c), STATUS_USAGE, "rows of tokens is 19");
    c = tiny_bert(2);
    c.dropout = 1;
    expect_error(net_check(&c), STATUS_USAGE, "dropout is 1");
    c = tiny_bert(2);
    c.head = HEAD_CLASSIFY;
    c.classes = 1;
    expect_error(net_check(&c), STATUS_USAGE, "classes is 1");
}

/* ---- gradients ---- */

static double loss_with(Tiny *t, const TinyText *text, Value p, const float *values)
{
    expect_ok(exec_write(t->session.exec, p, values));
    expect_ok(exec_refresh_copies(t->session.exec));
    t->session.draws = 3; /* the same dropout each time */
    return tiny_text_window(t, text, 1) / (double)text->batch.counted;
}

/* Along its gradient g the loss must rise by |g|^2 times the step. */
static void expect_derivative(Tiny *t, const TinyText *text, Value p)
{
    const int64_t n = tensor_count(graph_tensor(t->net.graph, p));
    const char   *name = t->net.graph->values[p.id].name;
    float        *start = tiny_read(t, p), *moved = malloc((size_t)n * sizeof *moved);
    double        norm2 = 0, side[2];
    assert_non_null(moved);
    loss_with(t, text, p, start);
    float *g = tiny_read(t, grad_of_param(t->net.graph, p));
    for (int64_t i = 0; i < n; i++)
        norm2 += (double)g[i] * (double)g[i];
    assert_true(norm2 > 0);
    const double step = fmin(2e-3 / norm2, 0.05 / sqrt(norm2)); /* a change of the loss that shows, a move that is small */
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < n; i++)
            moved[i] = start[i] + (float)((k ? -step : step) * (double)g[i]);
        side[k] = loss_with(t, text, p, moved);
    }
    loss_with(t, text, p, start);
    const double rise = (side[0] - side[1]) / (2 * step);
    if (norm2 > 1e-5 && fabs(rise - norm2) > 0.02 * norm2)
        fail_msg("'%s': along its gradient the loss rises by %g, not %g", name, rise, norm2);
    free(start);
    free(moved);
    free(g);
}

static void test_gradients_are_derivatives(void **state)
{
    (void)state;
    for (int head = HEAD_MASKED; head <= HEAD_CLASSIFY; head++) {
        NetConfig c = tiny_bert(3);
        Tiny      t;
        c.head = (Head)head;
        c.classes = 3;
        c.layers = 1;
        c.dropout = 0.2f;
        open_bert(&c, "cpu", &t);
        TinyText text = tiny_text(&c, three, 3, c.size);
        for (int v = 0; v < t.net.graph->value_count; v++)
            if (t.net.graph->values[v].is_param)
                expect_derivative(&t, &text, (Value){ v });
        tiny_text_free(&text);
        tiny_close(&t);
    }
}

/* Elements of the token table: of a token that is read, of one that is only a label, of one that is neither, whose gradient
 * comes through the softmax. */
static void test_table_gets_both_gradients(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(3);
    Tiny      t;
    open_bert(&c, "cpu", &t);
    TinyText    text = tiny_text(&c, three, 3, c.size);
    const Value table = graph_find(t.net.graph, "embed.tokens");
    float      *start = tiny_read(&t, table);
    loss_with(&t, &text, table, start);
    float *g = tiny_read(&t, grad_of_param(t.net.graph, table));
    const int32_t rows[] = { text.tokens[0], text.tokens[25], text.labels[0], text.labels[5], 0 };
    for (size_t r = 0; r < COUNT_OF(rows); r++)
        for (int64_t column = 3; column < c.hidden; column += 11) {
            const int64_t i = rows[r] * c.hidden + column;
            const float   kept = start[i], step = 2e-3f;
            start[i] = kept + step;
            const double up = loss_with(&t, &text, table, start);
            start[i] = kept - step;
            const double down = loss_with(&t, &text, table, start), slope = (up - down) / (2 * (double)step);
            start[i] = kept;
            if (g[i] == 0 || fabs(slope - (double)g[i]) > 2e-4 + 0.02 * fabs(slope))
                fail_msg("row %d, column %d: gradient %g, the loss rises by %g", (int)rows[r], (int)column, (double)g[i], slope);
        }
    free(start);
    free(g);
    tiny_text_free(&text);
    tiny_close(&t);
}

static void compare_with_reference(const NetConfig *c, double gradients, double loss)
{
    Tiny cpu, ref;
    open_bert(c, "cpu/2", &cpu);
    open_bert(c, "ref/2", &ref);
    TinyText     text = tiny_text(c, three, 3, c->size);
    const double a = tiny_text_window(&cpu, &text, 1), b = tiny_text_window(&ref, &text, 1);
    if (!(fabs(a - b) <= loss * b))
        fail_msg("loss %.8g, reference %.8g", a, b);
    expect_same_gradients(&cpu, &ref, gradients);
    tiny_text_free(&text);
    tiny_close(&cpu);
    tiny_close(&ref);
}

static void test_cpu_agrees_with_reference(void **state)
{
    (void)state;
    for (int head = HEAD_MASKED; head <= HEAD_CLASSIFY; head++) {
        NetConfig c = tiny_bert(3);
        c.head = (Head)head;
        c.classes = 3;
        c.dropout = 0.1f;
        compare_with_reference(&c, 2e-5, 1e-6);
        c.amp = AMP_BF16;
        compare_with_reference(&c, 0.1, 1e-2);
    }
}

static void test_bf16_is_close_to_fp32(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(3);
    Tiny      half, full;
    c.dropout = 0.1f;
    open_bert(&c, "cpu", &full);
    c.amp = AMP_BF16;
    open_bert(&c, "cpu", &half);
    TinyText     text = tiny_text(&c, three, 3, c.size);
    const double a = tiny_text_window(&half, &text, 1), b = tiny_text_window(&full, &text, 1);
    assert_true(a != b && fabs(a - b) <= 0.01 * b);
    expect_same_gradients(&half, &full, 0.1);
    tiny_text_free(&text);
    tiny_close(&half);
    tiny_close(&full);
}

/* ---- the same sequences in other rows ---- */

static void expect_same_window(Tiny *a, double loss, const NetConfig *config, const TinySequence *sequences, int count, int64_t stride)
{
    Tiny     b;
    TinyText text = tiny_text(config, sequences, count, stride);
    open_bert(config, "cpu", &b);
    const double other = tiny_text_window(&b, &text, 1);
    if (!(fabs(other - loss) <= 2e-6 * loss))
        fail_msg("stride %d: loss sum %.9g, alone %.9g", (int)stride, other, loss);
    expect_same_gradients(&b, a, 1e-5);
    tiny_text_free(&text);
    tiny_close(&b);
}

static void test_padding_changes_nothing(void **state)
{
    (void)state;
    for (int head = HEAD_MASKED; head <= HEAD_CLASSIFY; head++) {
        NetConfig    c = tiny_bert(1);
        Tiny         alone;
        TinyText     micro[3];
        TinySequence gaps[] = { three[2], { 0, 0, 0 }, three[0], three[1] }; /* other places, an empty slot */
        c.head = (Head)head;
        c.classes = 3;
        c.accumulate = true;
        open_bert(&c, "cpu", &alone);
        for (int i = 0; i < 3; i++)
            micro[i] = tiny_text(&c, &three[i], 1, c.size);
        const double loss = tiny_text_window(&alone, micro, 3);
        c.accumulate = false;
        c.batch = 4;
        expect_same_window(&alone, loss, &c, three, 3, c.size); /* fixed */
        expect_same_window(&alone, loss, &c, gaps, 4, c.size);
        c.size = 24;
        expect_same_window(&alone, loss, &c, three, 3, 24); /* padded further */
        c.size = 20;
        c.rows = 45;
        expect_same_window(&alone, loss, &c, three, 3, TINY_PACKED);
        c.rows = 38;
        expect_same_window(&alone, loss, &c, three, 3, TINY_PACKED); /* not a row to spare */
        c.rows = 0;
        for (int i = 0; i < 3; i++)
            tiny_text_free(&micro[i]);
        tiny_close(&alone);
    }
}

/* ---- batches that say nothing ---- */

static void expect_no_gradient(Tiny *t)
{
    const Graph *g = t->net.graph;
    for (int v = 0; v < g->value_count; v++) {
        if (!g->values[v].is_param)
            continue;
        Value  d = grad_of_param(g, (Value){ v });
        float *x = tiny_read(t, d);
        for (int64_t i = 0; i < tensor_count(graph_tensor(g, d)); i++)
            if (x[i] != 0)
                fail_msg("'%s' has a gradient of %g", g->values[v].name, (double)x[i]);
        free(x);
    }
}

/* Decay is all that an update from nothing does: w -= lr decay w for the tensors that decay. */
static void expect_decay_only(Tiny *t, float *const *before, double factor)
{
    const Graph *g = t->net.graph;
    int          decayed = 0;
    for (int v = 0; v < g->value_count; v++) {
        if (!g->values[v].is_param)
            continue;
        float *w = tiny_read(t, (Value){ v });
        bool   same = true;
        for (int64_t i = 0; i < tensor_count(&g->values[v].tensor); i++) {
            same = same && w[i] == before[v][i];
            if (w[i] != before[v][i] && fabs((double)w[i] - factor * (double)before[v][i]) > 1e-7 * fabs((double)w[i]))
                fail_msg("'%s' went from %g to %g", g->values[v].name, (double)before[v][i], (double)w[i]);
        }
        decayed += !same;
        free(w);
    }
    assert_true(factor == 1 ? decayed == 0 : decayed > 10);
}

static void update_from_nothing(const TinySequence *sequences, int count, Head head, float decay)
{
    NetConfig  c = tiny_bert(3);
    Tiny       t;
    StepResult result;
    c.head = head;
    c.accumulate = true;
    c.optim.weight_decay = decay;
    open_bert(&c, "cpu", &t);
    const int values = t.net.graph->value_count;
    float   **before = calloc((size_t)values, sizeof *before);
    assert_non_null(before);
    for (int v = 0; v < values; v++)
        if (t.net.graph->values[v].is_param)
            before[v] = tiny_read(&t, (Value){ v });
    TinyText micro[2] = { tiny_text(&c, sequences, count, c.size), tiny_text(&c, sequences, count, c.size) };
    assert_true(tiny_text_window(&t, micro, 2) == 0);
    expect_no_gradient(&t);
    expect_ok(step_update(&t.session, 0.1f));
    expect_ok(step_result(&t.session, &result));
    assert_true(result.loss == 0 && result.accuracy == 0 && result.counted == 0 && result.grad_norm == 0 && !result.skipped);
    expect_decay_only(&t, before, 1 - 0.1 * (double)decay);
    for (int v = 0; v < values; v++)
        free(before[v]);
    free(before);
    tiny_text_free(&micro[0]);
    tiny_text_free(&micro[1]);
    tiny_close(&t);
}

static void test_windows_without_targets(void **state)
{
    (void)state;
    const TinySequence untargeted[] = { { 1, 20, 0 }, { 2, 7, 0 } };
    for (int head = HEAD_MASKED; head <= HEAD_CLASSIFY; head++)
        update_from_nothing(NULL, 0, (Head)head, 0); /* padding only */
    update_from_nothing(untargeted, 2, HEAD_MASKED, 0.01f);
    update_from_nothing(untargeted, 2, HEAD_ALL, 0);
}

/* ---- numbers out of range ---- */

static void expect_bad(Tiny *t, const TinyText *text, int32_t *at, int32_t value, const char *words)
{
    const int32_t kept = *at;
    *at = value;
    expect_ok(step_begin(&t->session, text->batch.counted));
    expect_error(step_micro(&t->session, &text->batch), STATUS_NUMERIC, words);
    *at = kept;
}

static void test_numbers_out_of_range_are_named(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(3);
    Tiny      t;
    open_bert(&c, "cpu/2", &t);
    TinyText text = tiny_text(&c, three, 3, c.size);
    expect_bad(&t, &text, &text.tokens[4], 60, "60");
    expect_bad(&t, &text, &text.tokens[4], -2, "-2");
    expect_bad(&t, &text, &text.tokens[4], 60, "embedding");
    expect_bad(&t, &text, &text.positions[4], 24, "24");
    expect_bad(&t, &text, &text.types[4], 2, "embedding");
    expect_bad(&t, &text, &text.labels[1], 60, "60");
    expect_bad(&t, &text, &text.rows[1], 60, "60");
    expect_bad(&t, &text, &text.spans[0], 50, "attention");
    expect_bad(&t, &text, &text.spans[2], 19, "attention"); /* over the first */
    expect_bad(&t, &text, &text.spans[1], 21, "attention"); /* longer than the longest */
    tiny_text_window(&t, &text, 1);                         /* and the session goes on */
    tiny_text_free(&text);
    tiny_close(&t);
}

/* ---- dropout ---- */

static double loss_of_seed(const NetConfig *c, uint64_t seed, int windows, uint64_t *hash, double *eval)
{
    Tiny       t;
    StepResult result;
    double     loss = 0;
    open_bert(c, "cpu/2", &t);
    t.session.seed = seed;
    TinyText text = tiny_text(c, three, 3, c->size);
    expect_ok(eval_begin(&t.session));
    expect_ok(eval_batch(&t.session, &text.batch));
    expect_ok(eval_result(&t.session, &result));
    *eval = result.loss;
    for (int i = 0; i < windows; i++) {
        loss = tiny_text_window(&t, &text, 1);
        expect_ok(step_update(&t.session, 1e-3f));
    }
    *hash = tiny_hash(&t);
    tiny_text_free(&text);
    tiny_close(&t);
    return loss;
}

static void test_dropout_follows_the_seed(void **state)
{
    (void)state;
    for (int amp = AMP_OFF; amp <= AMP_BF16; amp++) {
        NetConfig c = tiny_bert(3);
        uint64_t  hash[3];
        double    eval[3];
        c.dropout = 0.1f;
        c.eval = true;
        c.amp = (Amp)amp;
        const double first = loss_of_seed(&c, 1, 3, &hash[0], &eval[0]), again = loss_of_seed(&c, 1, 3, &hash[1], &eval[1]);
        const double other = loss_of_seed(&c, UINT64_C(1) << 32, 3, &hash[2], &eval[2]); /* the upper half of a seed counts too */
        assert_true(first == again && hash[0] == hash[1]);
        assert_true(first != other && hash[0] != hash[2]);
        assert_true(eval[0] == eval[1] && eval[0] == eval[2]);
    }
}

static void test_evaluation_has_no_dropout(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(3);
    Net       net;
    int       with = 0;
    c.dropout = 0.1f;
    c.eval = true;
    for (c.head = HEAD_MASKED; c.head <= HEAD_CLASSIFY; c.head++) {
        expect_ok(net_build(&c, &net));
        for (int i = 0; i < net.graph->node_count; i++) {
            const GraphNode *n = &net.graph->nodes[i];
            assert_true(n->segment != SEG_EVAL || n->op.attr.dropout == 0);
            with += n->op.attr.dropout > 0;
        }
        net_destroy(&net);
    }
    assert_true(with > 3 * 2 * 3 * c.layers); /* attention, two sums, and their gradients */
}

static void test_each_draw_is_another(void **state)
{
    (void)state;
    NetConfig c = tiny_bert(3);
    Tiny      t;
    c.dropout = 0.1f;
    open_bert(&c, "cpu", &t);
    TinyText     text = tiny_text(&c, three, 3, c.size);
    const double first = tiny_text_window(&t, &text, 1);
    assert_true(first != tiny_text_window(&t, &text, 1));
    t.session.draws = 0;
    assert_true(first == tiny_text_window(&t, &text, 1));
    tiny_text_free(&text);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_no_matrix_of_scores),
        cmocka_unit_test(test_logits_of_targets_only),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gradients_are_derivatives),
        cmocka_unit_test(test_table_gets_both_gradients),
        cmocka_unit_test(test_cpu_agrees_with_reference),
        cmocka_unit_test(test_bf16_is_close_to_fp32),
        cmocka_unit_test(test_padding_changes_nothing),
        cmocka_unit_test(test_windows_without_targets),
        cmocka_unit_test(test_numbers_out_of_range_are_named),
        cmocka_unit_test(test_dropout_follows_the_seed),
        cmocka_unit_test(test_evaluation_has_no_dropout),
        cmocka_unit_test(test_each_draw_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
