/* text_loader.c - threads that fill batches of token sequences ahead of the training loop.
 *
 * Batches lie in the slots of a ring (ring.h): `queue` ready ones and the `hold` that the caller keeps. The unit of work
 * is a whole batch: under the lock a thread claims the next one and notes which samples are in it, which only needs
 * their lengths; then it fills the arrays without the lock. What is in a batch is a function of (seed, epoch, number), so
 * it does not depend on the number of threads. Nothing can fail after creation: the texts are in memory. */
#include "ring.h"
#include "source.h"
#include "text_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAD_USUAL = 8 };

typedef struct Slot {
    TextBatch batch;
    int64_t  *sample;  /* (batch) */
    bool      pending; /* claimed and not yet filled */
} Slot;

struct TextLoader {
    const TextSet   *set;
    TextLoaderConfig config;
    int64_t          samples, batches; /* in one epoch, the first */

    Slot    *slots;     /* (slots of the ring) */
    int32_t *arrays;    /* of all slots */
    int64_t *chosen;    /* Slot.sample of all slots */
    int64_t  slot_ints; /* int32 of one slot */

    Ring     ring;      /* its lock guards everything below and the slots' bookkeeping */
    int64_t *order;     /* sample indices of the epoch that claims are in; NULL = index order */
    int64_t  epoch, index, at; /* the next claim: its epoch, number in it, first position in order */
};

const char *text_policy_name(TextPolicy policy)
{
    static const char *const names[TEXT_POLICY_COUNT] = { "fixed", "dynamic", "budget" };
    return policy >= 0 && policy < TEXT_POLICY_COUNT ? names[policy] : "unknown";
}

/* ---- choosing samples; all of these run under the lock ---- */

static int64_t sample_at(const TextLoader *loader, int64_t at)
{
    return loader->order ? loader->order[at] : at;
}

static void begin_epoch(TextLoader *loader, int64_t epoch)
{
    loader->epoch = epoch;
    loader->index = loader->at = 0;
    if (!loader->order)
        return;
    for (int64_t i = 0; i < loader->samples; i++)
        loader->order[i] = i;
    dataset_shuffle(loader->order, loader->samples, loader->samples, loader->config.seed,
                    STREAM_TEXT_ORDER + (uint64_t)epoch);
}

/* Notes the samples of the next batch; false where the epoch has none left, or too few for a whole batch. */
static bool choose_samples(TextLoader *loader, Slot *slot)
{
    const TextLoaderConfig *config = &loader->config;
    int64_t n = 0, used = 0;
    for (; n < config->batch && loader->at < loader->samples; n++, loader->at++) {
        int64_t sample = sample_at(loader, loader->at);
        used += text_length(loader->set, config->split, sample);
        if (config->policy == TEXT_BUDGET && used > config->rows)
            break;
        slot->sample[n] = sample;
    }
    if (n == 0 || (config->drop_last && n < config->batch && loader->at == loader->samples))
        return false;
    slot->batch.sequences = n;
    slot->batch.epoch = loader->epoch;
    slot->batch.index = loader->index++;
    return true;
}

/* NULL where nothing can be claimed now, or ever. */
static Slot *claim_batch(TextLoader *loader)
{
    int64_t number = ring_claim_slot(&loader->ring);
    if (number < 0)
        return NULL;
    Slot *slot = &loader->slots[number];
    while (!choose_samples(loader, slot)) {
        if (!loader->config.repeat) {
            loader->ring.ended = true;
            pthread_cond_signal(&loader->ring.ready);
            return NULL;
        }
        begin_epoch(loader, loader->epoch + 1);
    }
    slot->pending = true;
    loader->ring.claimed++;
    return slot;
}

/* ---- filling; without the lock ---- */

static void clear_batch(const TextLoader *loader, TextBatch *batch)
{
    memset(batch->tokens, 0xFF, (size_t)loader->slot_ints * sizeof *batch->tokens); /* -1; tokens is the first array */
    memset(batch->spans, 0, 2 * (size_t)loader->config.batch * sizeof *batch->spans);
    batch->token_count = batch->rows_used = batch->targets = 0;
}

/* Rows from one sequence to the next; 0: back to back. */
static int64_t find_stride(const TextLoader *loader, const Slot *slot)
{
    const TextLoaderConfig *config = &loader->config;
    int64_t seq = loader->set->seq, longest = 0;
    if (config->policy != TEXT_DYNAMIC)
        return config->policy == TEXT_FIXED ? seq : 0;
    for (int64_t b = 0; b < slot->batch.sequences; b++) {
        int64_t length = text_length(loader->set, config->split, slot->sample[b]);
        longest = length > longest ? length : longest;
    }
    int64_t stride = (longest + config->pad_multiple - 1) / config->pad_multiple * config->pad_multiple;
    return stride < seq ? stride : seq;
}

static void mask_sequence(const TextLoader *loader, TextBatch *batch, int64_t sample, int64_t row, int64_t length)
{
    const TextLoaderConfig *config = &loader->config;
    bool training = config->split == SPLIT_TRAIN;
    uint64_t stream = training ? STREAM_TEXT_MASK + (uint64_t)batch->epoch : STREAM_TEXT_EVAL;
    int32_t labels[TEXT_SEQ_MAX];
    int64_t found = text_mask(&loader->set->corpus.vocab, config->seed, stream, sample,
                              config->targets - batch->targets, batch->tokens + row, length, labels);
    if (config->all_rows) {
        memcpy(batch->target_labels + row, labels, (size_t)length * sizeof *labels);
        batch->targets += found;
        return;
    }
    for (int64_t i = 0; i < length; i++) {
        if (labels[i] < 0)
            continue;
        batch->target_rows[batch->targets] = (int32_t)(row + i);
        batch->target_labels[batch->targets++] = labels[i];
    }
}

static void fill_batch(const TextLoader *loader, Slot *slot)
{
    TextBatch *batch = &slot->batch;
    clear_batch(loader, batch);
    int64_t stride = find_stride(loader, slot), row = 0;
    for (int64_t b = 0; b < batch->sequences; b++) {
        int64_t sample = slot->sample[b], length = text_length(loader->set, loader->config.split, sample);
        int32_t label = text_read(loader->set, loader->config.split, sample, batch->tokens + row, batch->types + row);
        for (int64_t i = 0; i < length; i++)
            batch->positions[row + i] = (int32_t)i;
        batch->spans[2 * b] = (int32_t)row;
        batch->spans[2 * b + 1] = (int32_t)length;
        if (batch->labels)
            batch->labels[b] = label;
        else
            mask_sequence(loader, batch, sample, row, length);
        batch->token_count += length;
        row += stride ? stride : length;
    }
    batch->rows_used = row;
}

/* Claims and fills one batch; the lock is open while it fills. False where nothing can be claimed. */
static bool do_one_batch(void *argument, int worker)
{
    (void)worker;
    TextLoader *loader = argument;
    Slot *slot = claim_batch(loader);
    if (!slot)
        return false;
    pthread_mutex_unlock(&loader->ring.lock);
    fill_batch(loader, slot);
    pthread_mutex_lock(&loader->ring.lock);
    slot->pending = false;
    pthread_cond_signal(&loader->ring.ready);
    return true;
}

/* ---- the config ---- */

static Status check_ranges(const TextLoaderConfig *config)
{
    if (config->batch < 1)
        return status_error(STATUS_USAGE, "batch size %" PRId64 ", expected at least 1", config->batch);
    if (config->policy < 0 || config->policy >= TEXT_POLICY_COUNT)
        return status_error(STATUS_USAGE, "padding policy %d is unknown; there are: fixed, dynamic, budget",
                            (int)config->policy);
    if (config->rows < 0 || config->targets < 0)
        return status_error(STATUS_USAGE, "%" PRId64 " token rows and %" PRId64 " targets, expected no negative number",
                            config->rows, config->targets);
    if (config->pad_multiple < 0 || config->pad_multiple > TEXT_SEQ_MAX)
        return status_error(STATUS_USAGE, "padding to a multiple of %" PRId64 ", expected 1..%d",
                            config->pad_multiple, TEXT_SEQ_MAX);
    TRY(ring_check(config->threads, config->queue));
    if (config->hold < 0 || config->hold > RING_HOLD_MAX)
        return status_error(STATUS_USAGE, "holding %" PRId64 " batches, expected 1..%d", config->hold, RING_HOLD_MAX);
    return status_ok();
}

static Status fill_in_rows(int64_t seq, TextLoaderConfig *config)
{
    if (config->batch > INT32_MAX / seq || config->rows > INT32_MAX) /* rows are numbered by int32 */
        return status_error(STATUS_OOM, "batch size %" PRId64 ": no memory for its tokens", config->batch);
    int64_t whole = config->batch * seq, least = config->policy == TEXT_BUDGET ? seq : whole;
    if (config->rows == 0)
        config->rows = whole;
    if (config->rows < least)
        return status_error(STATUS_USAGE, "%" PRId64 " token rows are too few: %s needs at least %" PRId64,
                            config->rows, config->policy == TEXT_BUDGET ? "one sequence" : "the batch", least);
    return status_ok();
}

/* As many as there can be: of `batch` sequences that are all as long as they may be, or, under a budget, of its rows:
 * 0.15 of the tokens, and at most one more a sequence by rounding; a sequence has at least three tokens. */
static int64_t most_targets(int64_t seq, const TextLoaderConfig *config)
{
    int64_t full = config->batch * text_targets(seq - 2);
    int64_t sequences = config->batch < config->rows / 3 ? config->batch : config->rows / 3;
    int64_t packed = config->rows * 15 / 100 + 1 + sequences;
    return config->policy == TEXT_BUDGET && packed < full ? packed : full;
}

/* Would dropping the last batch leave an epoch without any? */
static bool drops_everything(const TextSet *set, const TextLoaderConfig *config)
{
    int64_t samples = text_count(set, config->split), tokens = 0;
    if (!config->drop_last || config->batch <= samples)
        return false;
    for (int64_t i = 0; i < samples && config->policy == TEXT_BUDGET && tokens <= config->rows; i++)
        tokens += text_length(set, config->split, i);
    return tokens <= config->rows;
}

Status text_loader_defaults(const TextSet *set, TextLoaderConfig *config)
{
    CHECK(config->split >= 0 && config->split < SPLIT_COUNT);
    TRY(check_ranges(config));
    TRY(fill_in_rows(set->seq, config));
    if (drops_everything(set, config))
        return status_error(STATUS_USAGE, "batch size %" PRId64 " is larger than the %" PRId64 " samples of the split, "
                            "and only whole batches are wanted", config->batch, text_count(set, config->split));
    if (config->pad_multiple == 0)
        config->pad_multiple = PAD_USUAL;
    if (config->hold == 0)
        config->hold = 1;
    if (set->classes)
        config->targets = 0;
    else if (config->targets == 0)
        config->targets = most_targets(set->seq, config);
    if (config->targets > INT32_MAX)
        return status_error(STATUS_USAGE, "%" PRId64 " targets are too many", config->targets);
    return status_ok();
}

/* ---- creating and ending ---- */

/* Where the arrays of a slot begin in its int32 block; tokens first. Returns the block's length. */
static int64_t lay_out(const TextLoader *loader, int32_t *block, TextBatch *batch)
{
    const TextLoaderConfig *config = &loader->config;
    bool masked = loader->set->classes == 0;
    int64_t list = masked && !config->all_rows ? config->targets : 0, at = 0;
    const struct { int32_t **array; int64_t length; } parts[] = {
        { &batch->tokens, config->rows },
        { &batch->positions, config->rows },
        { &batch->types, config->rows },
        { &batch->spans, 2 * config->batch },
        { &batch->target_rows, list },
        { &batch->target_labels, masked && config->all_rows ? config->rows : list },
        { &batch->labels, masked ? 0 : config->batch },
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        *parts[i].array = block && parts[i].length ? block + at : NULL;
        at += parts[i].length;
    }
    return at;
}

static Status allocate(TextLoader *loader)
{
    int64_t batch = loader->config.batch, count = loader->ring.slots;
    TextBatch layout;
    loader->slot_ints = lay_out(loader, NULL, &layout);
    size_t bytes = (size_t)loader->slot_ints * sizeof(int32_t), most = SIZE_MAX / 2 / (size_t)count;
    if (bytes <= most) { /* batch sample numbers are fewer bytes than that: spans alone are as many */
        loader->slots = calloc((size_t)count, sizeof *loader->slots);
        loader->arrays = malloc((size_t)count * bytes);
        loader->chosen = malloc((size_t)(count * batch) * sizeof *loader->chosen);
        if (loader->config.shuffle)
            loader->order = malloc((size_t)loader->samples * sizeof *loader->order);
    }
    if (!loader->slots || !loader->arrays || !loader->chosen || (loader->config.shuffle && !loader->order))
        return status_error(STATUS_OOM, "batch size %" PRId64 ": no memory for %" PRId64 " batches of it", batch,
                            count);
    for (int64_t i = 0; i < count; i++) {
        lay_out(loader, loader->arrays + i * loader->slot_ints, &loader->slots[i].batch);
        loader->slots[i].sample = loader->chosen + i * batch;
    }
    return status_ok();
}

/* Goes through the first epoch once, then back to its start. */
static void count_batches(TextLoader *loader)
{
    begin_epoch(loader, 0);
    while (choose_samples(loader, &loader->slots[0]))
        loader->batches++;
    loader->index = loader->at = 0;
}

Status text_loader_create(const TextSet *set, const TextLoaderConfig *config, TextLoader **out)
{
    *out = NULL;
    TextLoaderConfig full = *config;
    TRY(text_loader_defaults(set, &full));
    TextLoader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return status_error(STATUS_OOM, "no memory for a loader");
    loader->set = set;
    loader->config = full;
    loader->samples = text_count(set, full.split);
    ring_open(&loader->ring, full.hold, full.threads, full.queue);

    Status status;
    TRY_GOTO(status, allocate(loader), fail);
    count_batches(loader);
    TRY_GOTO(status, ring_start(&loader->ring, full.threads, do_one_batch, loader), fail);
    *out = loader;
    return status_ok();
fail:
    text_loader_destroy(loader);
    return status;
}

void text_loader_destroy(TextLoader *loader)
{
    if (!loader)
        return;
    ring_close(&loader->ring);
    free(loader->order);
    free(loader->chosen);
    free(loader->arrays);
    free(loader->slots);
    free(loader);
}

/* ---- the consumer ---- */

/* Under the lock: waits for (or, without threads, makes) batch number `given`; NULL after the last one. */
static const TextBatch *take_batch(TextLoader *loader)
{
    for (;;) {
        int64_t number = ring_next_slot(&loader->ring);
        if (number >= 0 && !loader->slots[number].pending) {
            loader->ring.given++;
            return &loader->slots[number].batch;
        }
        if (number < 0 && loader->ring.ended)
            return NULL;
        ring_wait(&loader->ring);
    }
}

Status text_loader_next(TextLoader *loader, const TextBatch **out)
{
    ring_enter(&loader->ring);
    *out = take_batch(loader);
    ring_leave(&loader->ring);
    return status_ok();
}

int64_t text_loader_batches(const TextLoader *loader)
{
    return loader->batches;
}

/* Only text_loader_next writes it, so the caller's own thread reads it without the lock. */
double text_loader_wait_seconds(const TextLoader *loader)
{
    return loader->ring.waited;
}
