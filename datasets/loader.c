/* loader.c - threads that fill batches ahead of the training loop.
 *
 * Batches lie in a ring of slots: `queue` ready ones and the `hold` that the caller keeps. The unit of work is one sample:
 * under the lock a thread claims the next (batch, position) in order, then decodes without the lock. So all threads
 * work on the oldest batch, batches finish in order, and what is in them does not depend on how many threads there
 * are: order and augmentation are pure functions of (seed, epoch, sample). With no threads, loader_next does the same
 * claims itself. A claim is refused while its slot is still taken: that bounds the queue. */
#include "source.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 256, MAX_QUEUE = 4096, MAX_HOLD = 4096 };

typedef struct Slot {
    Batch   batch;
    int64_t pending;  /* samples not yet written */
    int64_t error_at; /* position of the first unreadable sample; batch.size = none */
    Status  error;    /* of that sample, so it is the same for any number of threads */
} Slot;

typedef struct Worker {
    Loader   *loader;
    uint8_t  *scratch; /* one image before augmentation, (size, size, 3), and its mask (size, size) behind it */
    pthread_t thread;
} Worker;

struct Loader {
    const Dataset *ds;
    LoaderConfig   config;
    int64_t        samples, batches; /* in one epoch */
    size_t         image_bytes, mask_bytes; /* of one sample; mask_bytes is 0 for a classification set */

    Slot    *slots;
    int64_t  slot_count;
    uint8_t *pixels;  /* (slot_count, batch, size, size, 3) */
    int32_t *labels;  /* (slot_count, batch), or NULL */
    uint8_t *masks;   /* (slot_count, batch, size, size), or NULL */
    uint8_t *scratch; /* one image and mask a worker */
    Worker  *workers; /* at least one; without threads it is the caller's */
    int      running; /* threads that were started */

    pthread_mutex_t lock; /* guards everything below and the slots' bookkeeping */
    pthread_cond_t  space, ready;
    bool            stop;
    int64_t        *order;          /* sample indices of the epoch that claims are in; NULL = index order */
    int64_t         claim_batch;    /* batches are numbered through all epochs */
    int64_t         claim_position;
    int64_t         given;          /* batches handed to the caller */
    int64_t         released;       /* of these, the ones it is done with: all but the last `hold` */
    Status          failure;        /* what ended the loader */
    double          waited;
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
static Status load_sample(const Worker *worker, const Claim *claim, int64_t *labelled)
{
    const Loader *loader = worker->loader;
    const Batch *batch = &claim->slot->batch;
    int64_t size = loader->ds->size;
    uint8_t *pixels = batch->pixels + (size_t)claim->position * loader->image_bytes;
    uint8_t *mask = batch->mask ? batch->mask + (size_t)claim->position * loader->mask_bytes : NULL;
    if (loader->config.augment) {
        uint8_t *plain_mask = mask ? worker->scratch + loader->image_bytes : NULL;
        TRY(read_sample(loader, claim, worker->scratch, plain_mask));
        Move move = draw_move(loader, claim);
        move_plane(&move, size, 3, worker->scratch, pixels);
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
    int64_t epoch = loader->claim_batch / loader->batches, index = loader->claim_batch % loader->batches;
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
    int64_t number = loader->claim_batch;
    if (number >= loader->released + loader->slot_count || (!loader->config.repeat && number >= loader->batches))
        return false;
    Slot *slot = &loader->slots[number % loader->slot_count];
    if (loader->claim_position == 0)
        open_batch(loader, slot);
    int64_t sample = slot->batch.index * slot->batch.size + loader->claim_position;
    *claim = (Claim){ slot, loader->claim_position, loader->order ? loader->order[sample] : sample, slot->batch.epoch };
    if (++loader->claim_position == slot->batch.valid) {
        loader->claim_position = 0;
        loader->claim_batch++;
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
        pthread_cond_signal(&loader->ready);
}

/* Claims, loads and finishes one sample; the lock is open while it loads. False where nothing can be claimed. */
static bool do_one_sample(Worker *worker)
{
    Loader *loader = worker->loader;
    Claim claim;
    if (!claim_sample(loader, &claim))
        return false;
    pthread_mutex_unlock(&loader->lock);
    int64_t labelled = 0;
    Status status = load_sample(worker, &claim, &labelled);
    pthread_mutex_lock(&loader->lock);
    finish_claim(loader, &claim, &status, labelled);
    return true;
}

static void *work(void *argument)
{
    Worker *worker = argument;
    Loader *loader = worker->loader;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop)
        if (!do_one_sample(worker))
            pthread_cond_wait(&loader->space, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    return NULL;
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
    if (config->threads < 0 || config->threads > MAX_THREADS)
        return status_error(STATUS_USAGE, "%d loader threads, expected 0..%d", config->threads, MAX_THREADS);
    if (config->queue < 1 || config->queue > MAX_QUEUE)
        return status_error(STATUS_USAGE, "loader queue of %d batches, expected 1..%d", config->queue, MAX_QUEUE);
    if (config->hold < 0 || config->hold > MAX_HOLD)
        return status_error(STATUS_USAGE, "%d batches to hold, expected 0..%d", config->hold, MAX_HOLD);
    return status_ok();
}

static Status no_memory(int64_t batch, int64_t count)
{
    return status_error(STATUS_OOM, "batch size %" PRId64 ": no memory for %" PRId64 " batches of it", batch, count);
}

static Status allocate_slots(Loader *loader)
{
    int64_t batch = loader->config.batch, count = loader->slot_count;
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
    loader->workers = calloc(workers, sizeof *loader->workers);
    if (loader->config.augment)
        loader->scratch = malloc(workers * sample);
    if (loader->config.shuffle)
        loader->order = malloc((size_t)loader->samples * sizeof *loader->order);
    if (!loader->slots || !loader->pixels || (!loader->labels && !loader->masks) || !loader->workers ||
        (loader->config.augment && !loader->scratch) || (loader->config.shuffle && !loader->order))
        return no_memory(batch, count);

    for (int64_t i = 0; i < count; i++) {
        Batch *b = &loader->slots[i].batch;
        b->size = batch;
        b->pixels = loader->pixels + (size_t)(i * batch) * loader->image_bytes;
        b->labels = loader->labels ? loader->labels + i * batch : NULL;
        b->mask = loader->masks ? loader->masks + (size_t)(i * batch) * loader->mask_bytes : NULL;
    }
    for (size_t i = 0; i < workers; i++) {
        loader->workers[i].loader = loader;
        loader->workers[i].scratch = loader->scratch ? loader->scratch + i * sample : NULL;
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
    loader->slot_count = (int64_t)loader->config.hold + (config->threads ? config->queue : 0);
    loader->failure = status_ok();
    pthread_mutex_init(&loader->lock, NULL); /* these three cannot fail with default attributes on Linux */
    pthread_cond_init(&loader->space, NULL);
    pthread_cond_init(&loader->ready, NULL);

    Status status;
    TRY_GOTO(status, allocate_slots(loader), fail);
    for (int i = 0; i < config->threads; i++) {
        int error = pthread_create(&loader->workers[i].thread, NULL, work, &loader->workers[i]);
        if (error != 0) {
            status = status_error(STATUS_OOM, "the system refuses loader thread %d of %d (error %d)", i + 1,
                                  config->threads, error);
            goto fail;
        }
        loader->running++;
    }
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
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->space);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->running; i++)
        pthread_join(loader->workers[i].thread, NULL);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->space);
    pthread_mutex_destroy(&loader->lock);
    free(loader->order);
    free(loader->scratch);
    free(loader->workers);
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
    if (!loader->config.repeat && loader->given == loader->batches)
        return status_ok();
    Slot *slot = &loader->slots[loader->given % loader->slot_count];
    /* Past the claims means that the slot holds this batch and not the one before it. */
    while (loader->claim_batch <= loader->given || slot->pending > 0) {
        if (loader->running > 0)
            pthread_cond_wait(&loader->ready, &loader->lock);
        else
            CHECK(do_one_sample(&loader->workers[0]));
    }
    if (slot->error_at < slot->batch.size) {
        loader->failure = slot->error;
        loader->stop = true;
        pthread_cond_broadcast(&loader->space);
        return loader->failure;
    }
    loader->given++;
    *out = &slot->batch;
    return status_ok();
}

Status loader_next(Loader *loader, const Batch **out)
{
    *out = NULL;
    double start = clock_seconds();
    pthread_mutex_lock(&loader->lock);
    if (loader->given - loader->released >= loader->config.hold) { /* room for the one that follows */
        loader->released = loader->given - loader->config.hold + 1;
        pthread_cond_broadcast(&loader->space);
    }
    Status status = take_batch(loader, out);
    loader->waited += clock_seconds() - start;
    pthread_mutex_unlock(&loader->lock);
    return status;
}

int64_t loader_batches(const Loader *loader)
{
    return loader->batches;
}

/* Only loader_next writes it, so the caller's own thread reads it without the lock. */
double loader_wait_seconds(const Loader *loader)
{
    return loader->waited;
}
