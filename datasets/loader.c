/* loader.c - threads that fill batches ahead of the training loop.
 *
 * Batches lie in the slots of a ring (ring.h): `queue` ready ones and the `hold` that the caller keeps. The unit of work
 * is one sample: a thread claims the next (batch, position) in order, then decodes. So all threads work on the oldest
 * batch, batches finish in order, and what is in them does not depend on how many threads there are: order and
 * augmentation are pure functions of (seed, epoch, sample). */
#include "ring.h"
#include "source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Slot {
    Batch   batch;
    int64_t pending;  /* samples not yet written */
    int64_t error_at; /* position of the first unreadable sample; batch.size = none */
    Status  error;    /* of that sample, so it is the same for any number of threads */
} Slot;

struct Loader {
    const Dataset *ds;
    LoaderConfig   config;
    int64_t        samples, batches; /* in one epoch */
    size_t         image_bytes, mask_bytes; /* of one sample; mask_bytes is 0 for a classification set */

    Slot    *slots;   /* (slots of the ring) */
    uint8_t *pixels;  /* (slots, batch, size, size, 3) */
    int32_t *labels;  /* (slots, batch), or NULL */
    uint8_t *masks;   /* (slots, batch, size, size), or NULL */
    uint8_t *scratch; /* for each worker one image before augmentation, (size, size, 3), and its mask (size, size) */

    Ring     ring;    /* its lock guards everything below and the slots' bookkeeping */
    int64_t *order;   /* sample indices of the epoch that claims are in; NULL = index order */
    int64_t  claim_position; /* in the batch that claims are in, number ring.claimed */
    Status   failure; /* what ended the loader */
};

/* One sample to produce. */
typedef struct Claim {
    Slot   *slot;
    int64_t position, index, epoch;
} Claim;

/* ---- augmentation ---- */

/* One row of `size` pixels of so many bytes moved to the left by shift (to the right if negative), zeros moving in. */
static void shift_row(const uint8_t *in, int64_t size, int64_t bytes, int64_t shift, uint8_t *out)
{
    int64_t cut = shift > 0 ? shift : 0, gap = shift < 0 ? -shift : 0, kept = size - cut - gap;
    memset(out, 0, (size_t)(gap * bytes));
    memcpy(out + bytes * gap, in + bytes * cut, (size_t)(kept * bytes));
    memset(out + bytes * (gap + kept), 0, (size_t)(cut * bytes));
}

static void mirror_row(uint8_t *row, int64_t size, int64_t bytes)
{
    for (uint8_t *a = row, *b = row + bytes * (size - 1); a < b; a += bytes, b -= bytes) {
        for (int64_t c = 0; c < bytes; c++) {
            uint8_t value = a[c];
            a[c] = b[c];
            b[c] = value;
        }
    }
}

typedef struct Move {
    int64_t x, y; /* pixels that the window lies to the right and below */
    bool    flip;
} Move;

/* An image of 3 bytes a pixel, or a mask of 1. */
static void move_plane(const Move *move, int64_t size, int64_t bytes, const uint8_t *in, uint8_t *out)
{
    for (int64_t y = 0; y < size; y++) {
        int64_t from = y + move->y;
        uint8_t *row = out + y * size * bytes;
        if (from < 0 || from >= size) {
            memset(row, 0, (size_t)(size * bytes));
            continue;
        }
        shift_row(in + from * size * bytes, size, bytes, move->x, row);
        if (move->flip)
            mirror_row(row, size, bytes);
    }
}

/* Pads by size / 8 black pixels on each side, cuts a random window of the old size, mirrors half of them where the data
 * set says that this keeps the truth (Krizhevsky 2012; He et al. 2015, 4.2). A mask moves with its image; its padding
 * is 0, the background, as that of the image is black. */
static Move draw_move(const Loader *loader, const Claim *claim)
{
    int64_t pad = loader->ds->size / 8;
    RngBlock r = rng_block(loader->config.seed, STREAM_AUGMENT + (uint64_t)claim->epoch, (uint64_t)claim->index);
    return (Move){ .x = (int64_t)((r.word[0] * (uint64_t)(2 * pad + 1)) >> 32) - pad,
                   .y = (int64_t)((r.word[1] * (uint64_t)(2 * pad + 1)) >> 32) - pad,
                   .flip = loader->ds->source->flip_keeps_truth && r.word[2] >> 31 };
}

/* ---- one sample ---- */

static Status read_sample(const Loader *loader, const Claim *claim, uint8_t *pixels, uint8_t *mask)
{
    const Dataset *ds = loader->ds;
    Split split = loader->config.split;
    return mask ? dataset_read_mask(ds, split, claim->index, pixels, mask)
                : dataset_read(ds, split, claim->index, pixels, &claim->slot->batch.labels[claim->position]);
}

/* *labelled: 1, or the pixels of its mask that count. */
static Status load_sample(const Loader *loader, int worker, const Claim *claim, int64_t *labelled)
{
    const Batch *batch = &claim->slot->batch;
    int64_t size = loader->ds->size;
    uint8_t *pixels = batch->pixels + (size_t)claim->position * loader->image_bytes;
    uint8_t *mask = batch->mask ? batch->mask + (size_t)claim->position * loader->mask_bytes : NULL;
    if (loader->config.augment) {
        uint8_t *plain = loader->scratch + (size_t)worker * (loader->image_bytes + loader->mask_bytes);
        uint8_t *plain_mask = mask ? plain + loader->image_bytes : NULL;
        TRY(read_sample(loader, claim, plain, plain_mask));
        Move move = draw_move(loader, claim);
        move_plane(&move, size, 3, plain, pixels);
        if (mask)
            move_plane(&move, size, 1, plain_mask, mask);
    } else {
        TRY(read_sample(loader, claim, pixels, mask));
    }
    *labelled = mask ? 0 : 1;
    for (size_t i = 0; i < loader->mask_bytes; i++)
        *labelled += mask[i] != MASK_IGNORE;
    return status_ok();
}

/* ---- claims; all of these run under the lock ---- */

static void open_batch(Loader *loader, Slot *slot)
{
    int64_t epoch = loader->ring.claimed / loader->batches, index = loader->ring.claimed % loader->batches;
    if (index == 0 && loader->order) {
        for (int64_t i = 0; i < loader->samples; i++)
            loader->order[i] = i;
        dataset_shuffle(loader->order, loader->samples, loader->samples, loader->config.seed,
                        STREAM_ORDER + (uint64_t)epoch);
    }
    Batch *batch = &slot->batch;
    int64_t left = loader->samples - index * batch->size;
    batch->epoch = epoch;
    batch->index = index;
    batch->valid = left < batch->size ? left : batch->size;
    batch->labelled = 0;
    size_t empty = (size_t)(batch->size - batch->valid);
    for (int64_t i = batch->valid; i < batch->size && batch->labels; i++)
        batch->labels[i] = -1;
    if (batch->mask)
        memset(batch->mask + (size_t)batch->valid * loader->mask_bytes, MASK_IGNORE, empty * loader->mask_bytes);
    memset(batch->pixels + (size_t)batch->valid * loader->image_bytes, 0, empty * loader->image_bytes);
    slot->pending = batch->valid;
    slot->error_at = batch->size;
}

/* The next sample in order; false where there is none, or its slot is still taken. */
static bool claim_sample(Loader *loader, Claim *claim)
{
    int64_t number = ring_claim_slot(&loader->ring);
    if (number < 0 || (!loader->config.repeat && loader->ring.claimed >= loader->batches))
        return false;
    Slot *slot = &loader->slots[number];
    if (loader->claim_position == 0)
        open_batch(loader, slot);
    int64_t sample = slot->batch.index * slot->batch.size + loader->claim_position;
    *claim = (Claim){ slot, loader->claim_position, loader->order ? loader->order[sample] : sample, slot->batch.epoch };
    if (++loader->claim_position == slot->batch.valid) {
        loader->claim_position = 0;
        loader->ring.claimed++;
    }
    return true;
}

static void finish_claim(Loader *loader, const Claim *claim, const Status *status, int64_t labelled)
{
    Slot *slot = claim->slot;
    slot->batch.labelled += labelled;
    if (status->code != STATUS_OK && claim->position < slot->error_at) {
        slot->error_at = claim->position;
        slot->error = *status;
    }
    if (--slot->pending == 0)
        pthread_cond_signal(&loader->ring.ready);
}

/* Claims, loads and finishes one sample; the lock is open while it loads. False where nothing can be claimed. */
static bool do_one_sample(void *argument, int worker)
{
    Loader *loader = argument;
    Claim claim;
    if (!claim_sample(loader, &claim))
        return false;
    pthread_mutex_unlock(&loader->ring.lock);
    int64_t labelled = 0;
    Status status = load_sample(loader, worker, &claim, &labelled);
    pthread_mutex_lock(&loader->ring.lock);
    finish_claim(loader, &claim, &status, labelled);
    return true;
}

/* ---- creating and ending ---- */

static Status check_config(const Dataset *ds, const LoaderConfig *config)
{
    CHECK(config->split >= 0 && config->split < SPLIT_COUNT);
    int64_t samples = dataset_count(ds, config->split);
    if (config->batch < 1)
        return status_error(STATUS_USAGE, "batch size %" PRId64 ", expected at least 1", config->batch);
    if (config->drop_last && config->batch > samples)
        return status_error(STATUS_USAGE, "batch size %" PRId64 " is larger than the %" PRId64 " samples of the split, "
                            "and only whole batches are wanted", config->batch, samples);
    TRY(ring_check(config->threads, config->queue));
    if (config->hold < 0 || config->hold > RING_HOLD_MAX)
        return status_error(STATUS_USAGE, "%d batches to hold, expected 0..%d", config->hold, RING_HOLD_MAX);
    return status_ok();
}

static Status no_memory(int64_t batch, int64_t count)
{
    return status_error(STATUS_OOM, "batch size %" PRId64 ": no memory for %" PRId64 " batches of it", batch, count);
}

static Status allocate_slots(Loader *loader)
{
    int64_t batch = loader->config.batch, count = loader->ring.slots;
    size_t workers = loader->config.threads ? (size_t)loader->config.threads : 1;
    size_t sample = loader->image_bytes + loader->mask_bytes, most = SIZE_MAX / 2 / sample;
    if ((size_t)batch > most / (size_t)count)
        return no_memory(batch, count);
    loader->slots = calloc((size_t)count, sizeof *loader->slots);
    loader->pixels = malloc((size_t)count * (size_t)batch * loader->image_bytes);
    if (loader->mask_bytes)
        loader->masks = malloc((size_t)count * (size_t)batch * loader->mask_bytes);
    else
        loader->labels = malloc((size_t)count * (size_t)batch * sizeof *loader->labels);
    if (loader->config.augment)
        loader->scratch = malloc(workers * sample);
    if (loader->config.shuffle)
        loader->order = malloc((size_t)loader->samples * sizeof *loader->order);
    if (!loader->slots || !loader->pixels || (!loader->labels && !loader->masks) ||
        (loader->config.augment && !loader->scratch) || (loader->config.shuffle && !loader->order))
        return no_memory(batch, count);

    for (int64_t i = 0; i < count; i++) {
        Batch *b = &loader->slots[i].batch;
        b->size = batch;
        b->pixels = loader->pixels + (size_t)(i * batch) * loader->image_bytes;
        b->labels = loader->labels ? loader->labels + i * batch : NULL;
        b->mask = loader->masks ? loader->masks + (size_t)(i * batch) * loader->mask_bytes : NULL;
    }
    return status_ok();
}

Status loader_create(const Dataset *ds, const LoaderConfig *config, Loader **out)
{
    *out = NULL;
    TRY(check_config(ds, config));
    Loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return status_error(STATUS_OOM, "no memory for a loader");
    loader->ds = ds;
    loader->config = *config;
    loader->samples = dataset_count(ds, config->split);
    loader->batches = config->drop_last ? loader->samples / config->batch
                                        : (loader->samples - 1) / config->batch + 1;
    if (loader->config.hold == 0)
        loader->config.hold = 1;
    loader->image_bytes = (size_t)(ds->size * ds->size) * 3;
    loader->mask_bytes = dataset_task(ds) == TASK_SEGMENT ? (size_t)(ds->size * ds->size) : 0;
    loader->failure = status_ok();
    ring_open(&loader->ring, loader->config.hold, config->threads, config->queue);

    Status status;
    TRY_GOTO(status, allocate_slots(loader), fail);
    TRY_GOTO(status, ring_start(&loader->ring, config->threads, do_one_sample, loader), fail);
    *out = loader;
    return status_ok();
fail:
    loader_destroy(loader);
    return status;
}

void loader_destroy(Loader *loader)
{
    if (!loader)
        return;
    ring_close(&loader->ring);
    free(loader->order);
    free(loader->scratch);
    free(loader->masks);
    free(loader->labels);
    free(loader->pixels);
    free(loader->slots);
    free(loader);
}

/* ---- the consumer ---- */

/* Under the lock: waits for (or, without threads, makes) batch number `given`. */
static Status take_batch(Loader *loader, const Batch **out)
{
    if (loader->failure.code != STATUS_OK)
        return loader->failure;
    if (!loader->config.repeat && loader->ring.given == loader->batches)
        return status_ok();
    int64_t number;
    while ((number = ring_next_slot(&loader->ring)) < 0 || loader->slots[number].pending > 0)
        ring_wait(&loader->ring);
    Slot *slot = &loader->slots[number];
    if (slot->error_at < slot->batch.size) {
        loader->failure = slot->error;
        ring_stop(&loader->ring);
        return loader->failure;
    }
    loader->ring.given++;
    *out = &slot->batch;
    return status_ok();
}

Status loader_next(Loader *loader, const Batch **out)
{
    *out = NULL;
    ring_enter(&loader->ring);
    Status status = take_batch(loader, out);
    ring_leave(&loader->ring);
    return status;
}

int64_t loader_batches(const Loader *loader)
{
    return loader->batches;
}

/* Only loader_next writes it, so the caller's own thread reads it without the lock. */
double loader_wait_seconds(const Loader *loader)
{
    return loader->ring.waited;
}
