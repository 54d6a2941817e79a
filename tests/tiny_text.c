/* tiny_text.c - see tiny_text.h. */
#include "tiny_text.h"

#include "../nets/grad.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STREAM_TOKENS = 100, STREAM_LABELS = 200, FIRST_WORD = 5 };

NetConfig tiny_bert(int64_t batch)
{
    NetConfig c = net_config_default("bert");
    c.batch = batch;
    c.size = 20;
    c.layers = 2;
    c.hidden = 32;
    c.heads = 2;
    c.vocab = 60;
    c.positions = 24;
    c.dropout = 0;
    return c;
}

/* n numbers, all -1. */
static int32_t *none(int64_t n)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = -1;
    return ids;
}

static int32_t word(const NetConfig *c, int stream, int id, int64_t position)
{
    return (int32_t)(FIRST_WORD + rng_below(9, (uint64_t)(stream + id), (uint64_t)position, c->vocab - FIRST_WORD));
}

static void lay_tokens(const NetConfig *c, TinyText *t, const TinySequence *s, int slot, int64_t first)
{
    assert_true(s->length <= c->size && first + s->length <= net_text_rows(c));
    t->spans[2 * slot] = (int32_t)first;
    t->spans[2 * slot + 1] = s->length;
    for (int64_t p = 0; p < s->length; p++) {
        t->tokens[first + p] = word(c, STREAM_TOKENS, s->id, p);
        t->positions[first + p] = (int32_t)p;
        t->types[first + p] = p > s->length / 2;
    }
}

/* The targets of a sequence at its slot in the head; returns how many. */
static int64_t lay_targets(const NetConfig *c, TinyText *t, const TinySequence *s, int slot, int64_t first, int64_t next)
{
    if (c->head == HEAD_CLASSIFY) {
        t->rows[slot] = (int32_t)first;
        t->labels[slot] = (int32_t)(s->id % c->classes);
        return 1;
    }
    assert_true(s->targets <= s->length && (c->head == HEAD_ALL || next + s->targets <= net_head_rows(c)));
    for (int64_t p = 0; p < s->targets; p++) {
        const int64_t at = c->head == HEAD_ALL ? first + p : next + p;
        t->labels[at] = word(c, STREAM_LABELS, s->id, p);
        if (c->head == HEAD_MASKED)
            t->rows[at] = (int32_t)(first + p);
    }
    return s->targets;
}

TinyText tiny_text(const NetConfig *c, const TinySequence *sequences, int count, int64_t stride)
{
    const int64_t rows = net_text_rows(c), head = net_head_rows(c);
    TinyText      t = { none(rows), none(rows), none(rows), calloc((size_t)c->batch * 2, sizeof *t.spans), none(head), none(head), { 0 } };
    int64_t       first = 0, counted = 0;
    assert_true(t.spans && count <= c->batch);
    for (int i = 0; i < count; i++) {
        if (sequences[i].length > 0) {
            lay_tokens(c, &t, &sequences[i], i, first);
            counted += lay_targets(c, &t, &sequences[i], i, first, counted);
        }
        first += stride == TINY_PACKED ? sequences[i].length : stride;
    }
    t.batch = (MicroBatch){ .tokens = t.tokens, .positions = t.positions, .types = t.types, .spans = t.spans, .rows = t.rows,
                            .labels = t.labels, .counted = counted };
    return t;
}

void tiny_text_free(TinyText *t)
{
    free(t->tokens);
    free(t->positions);
    free(t->types);
    free(t->spans);
    free(t->rows);
    free(t->labels);
}

double tiny_text_window(Tiny *t, const TinyText *micro, int count)
{
    float   metrics[4];
    int64_t counted = 0;
    for (int k = 0; k < count; k++)
        counted += micro[k].batch.counted;
    expect_ok(step_begin(&t->session, counted));
    for (int k = 0; k < count; k++)
        expect_ok(step_micro(&t->session, &micro[k].batch));
    expect_ok(exec_read(t->session.exec, t->net.metrics, metrics));
    assert_true(metrics[2] == (float)counted);
    return (double)metrics[0];
}

/* |a - b| and |b| of the gradients of one parameter. */
static void gradient_apart(Tiny *a, Tiny *b, int param, double *apart, double *length)
{
    Value d = grad_of_param(a->net.graph, (Value){ param }), e = graph_find(b->net.graph, a->net.graph->values[d.id].name);
    float *x = tiny_read(a, d), *y = tiny_read(b, e);
    *apart = *length = 0;
    for (int64_t i = 0; i < tensor_count(graph_tensor(a->net.graph, d)); i++) {
        *apart += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        *length += (double)y[i] * (double)y[i];
    }
    *apart = sqrt(*apart);
    *length = sqrt(*length);
    free(x);
    free(y);
}

void expect_same_gradients(Tiny *a, Tiny *b, double limit)
{
    double all = 0, apart, length;
    for (int turn = 0; turn < 2; turn++)
        for (int v = 0; v < a->net.graph->value_count; v++) {
            if (!a->net.graph->values[v].is_param)
                continue;
            gradient_apart(a, b, v, &apart, &length);
            if (turn == 0)
                all += length * length;
            else if (!(apart <= limit * (length + sqrt(all) / 100)))
                fail_msg("gradient of '%s' differs by %.3g, its length is %.3g, that of all %.3g", a->net.graph->values[v].name, apart,
                         length, sqrt(all));
        }
    assert_true(all > 0);
}
