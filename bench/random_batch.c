/* random_batch.c - see random_batch.h. Everything is drawn from the counter-based generator, one stream a purpose. */
#include "random_batch.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_PIXELS = 1, STREAM_LABELS, STREAM_MASK, STREAM_TOKENS };

void random_batch_free(MicroBatch *b)
{
    free((void *)b->pixels);
    free((void *)b->labels);
    free((void *)b->mask);
    free((void *)b->tokens);
    free((void *)b->positions);
    free((void *)b->types);
    free((void *)b->spans);
    free((void *)b->rows);
    *b = (MicroBatch){ 0 };
}

static uint8_t *random_bytes(uint64_t seed, uint64_t stream, size_t n)
{
    uint8_t *bytes = malloc(n);
    for (size_t i = 0; bytes && i < n; i += 16) {
        RngBlock block = rng_block(seed, stream, i);
        memcpy(bytes + i, block.word, n - i < 16 ? n - i : 16);
    }
    return bytes;
}

static int32_t *random_ids(uint64_t seed, uint64_t stream, int64_t n, int64_t below)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; ids && i < n; i++)
        ids[i] = (int32_t)rng_below(seed, stream, (uint64_t)i, below);
    return ids;
}

static bool make_image(const NetConfig *c, uint64_t seed, MicroBatch *b)
{
    const int64_t pixels = c->batch * c->size * c->size;
    b->pixels = random_bytes(seed, STREAM_PIXELS, (size_t)(pixels * c->channels));
    b->counted = c->batch;
    if (net_loss(c) == LOSS_CLASSES)
        return b->pixels && (b->labels = random_ids(seed, STREAM_LABELS, c->batch, c->classes));
    uint8_t *mask = random_bytes(seed, STREAM_MASK, (size_t)pixels);
    for (int64_t i = 0; mask && i < pixels; i++)
        mask[i] = (uint8_t)(mask[i] % (c->classes == 1 ? 2 : c->classes));
    b->mask = mask;
    if (net_loss(c) == LOSS_PIXELS)
        b->counted = pixels;
    return b->pixels && mask;
}

/* Target i of the `count` of one sequence: spread evenly. */
static int64_t target_row(const NetConfig *c, int64_t sequence, int64_t i, int64_t count)
{
    return sequence * c->size + i * c->size / count;
}

/* Sequences of full length that the rows hold. */
static int64_t sequences_of(const NetConfig *c)
{
    int64_t whole = net_text_rows(c) / c->size;
    return whole < c->batch ? whole : c->batch;
}

static bool make_head(const NetConfig *c, uint64_t seed, MicroBatch *b)
{
    NetConfig one = *c;
    one.batch = 1;
    one.rows = 0;
    one.head = c->head == HEAD_CLASSIFY ? HEAD_CLASSIFY : HEAD_MASKED;
    const int64_t rows = net_head_rows(c), sequences = sequences_of(c), each = net_head_rows(&one);
    const int64_t places = c->head == HEAD_ALL ? sequences * each : rows;
    int32_t *labels = random_ids(seed, STREAM_LABELS, rows, c->head == HEAD_CLASSIFY ? c->classes : c->vocab);
    int32_t *at = malloc((size_t)places * sizeof *at);
    b->labels = labels;
    b->rows = at;
    b->counted = sequences * each;
    if (!labels || !at)
        return false;
    for (int64_t i = 0; i < places; i++) {
        at[i] = i < b->counted ? (int32_t)target_row(c, i / each, i % each, each) : -1;
        if (c->head != HEAD_ALL && i >= b->counted)
            labels[i] = -1;
    }
    for (int64_t r = 0, next = 0; c->head == HEAD_ALL && r < rows; r++) {
        if (next < b->counted && at[next] == r)
            next++;
        else
            labels[r] = -1;
    }
    return true;
}

static bool make_text(const NetConfig *c, uint64_t seed, MicroBatch *b)
{
    const int64_t rows = net_text_rows(c), sequences = sequences_of(c);
    int32_t *positions = malloc((size_t)rows * sizeof *positions), *spans = calloc((size_t)c->batch * 2, sizeof *spans);
    b->tokens = random_ids(seed, STREAM_TOKENS, rows, c->vocab);
    b->types = calloc((size_t)rows, sizeof *b->types);
    b->positions = positions;
    b->spans = spans;
    if (!b->tokens || !b->types || !positions || !spans)
        return false;
    for (int64_t r = 0; r < rows; r++)
        positions[r] = (int32_t)(r % c->size);
    for (int64_t s = 0; s < sequences; s++) {
        spans[2 * s] = (int32_t)(s * c->size);
        spans[2 * s + 1] = (int32_t)c->size;
    }
    return make_head(c, seed, b);
}

Status random_batch_create(const NetConfig *net, uint64_t seed, MicroBatch *out)
{
    *out = (MicroBatch){ 0 };
    if (net_is_text(net) ? make_text(net, seed, out) : make_image(net, seed, out))
        return status_ok();
    random_batch_free(out);
    return status_error(STATUS_OOM, "out of memory for one generated batch of %lld samples", (long long)net->batch);
}
