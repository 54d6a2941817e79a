/* dataset.c - the part of a Dataset that all sources share: look-up by name, checks of the config, `limit`,
 * channel statistics; and the shuffle that the sources use. */
#include "source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MIN = 8, SIZE_MAX_PIXELS = 4096, CLASSES_MIN = 2, CLASSES_MAX = 255 };

static const Source *const sources[] = {
    &source_fashion_mnist, &source_folder, &source_shapes, &source_mri, &source_masks, &source_ellipses, &source_vessels,
};

const char *dataset_names(void)
{
    return "fashion-mnist, folder, shapes, mri, masks, ellipses, vessels";
}

static Status check_config(const DatasetConfig *config, const Source **out)
{
    const char *name = config->name ? config->name : "";
    const Source *source = NULL;
    for (size_t i = 0; i < COUNT_OF(sources); i++)
        if (strcmp(sources[i]->name, name) == 0)
            source = sources[i];
    if (!source)
        return status_error(STATUS_USAGE, "data set '%.100s' is unknown; there are: %s", name, dataset_names());
    if (config->size < SIZE_MIN || config->size > SIZE_MAX_PIXELS)
        return status_error(STATUS_USAGE, "%s: image size %" PRId64 " is outside %d..%d", name, config->size, SIZE_MIN,
                            SIZE_MAX_PIXELS);
    if (config->limit < 0)
        return status_error(STATUS_USAGE, "%s: limit %" PRId64 " is negative; 0 means all samples", name,
                            config->limit);
    if (!(config->label_noise >= 0.0 && config->label_noise <= 1.0))
        return status_error(STATUS_USAGE, "%s: label noise %g is outside 0..1", name, config->label_noise);
    if (config->label_noise > 0.0 && !(source->generator && source->read))
        return status_error(STATUS_USAGE, "%s: label noise is for generated labels only", name);
    if (config->classes != 0 && !source->takes_classes)
        return status_error(STATUS_USAGE, "%s has its own number of classes (%" PRId64 " was given)", name, config->classes);
    if (config->classes != 0 && (config->classes < CLASSES_MIN || config->classes > CLASSES_MAX))
        return status_error(STATUS_USAGE, "%s: %" PRId64 " classes, expected %d..%d with the background", name,
                            config->classes, CLASSES_MIN, CLASSES_MAX);
    if (config->dir && source->generator)
        return status_error(STATUS_USAGE, "%s is generated and reads no directory ('%s' was given)", name,
                            dataset_shown_path(config->dir));
    *out = source;
    return status_ok();
}

void dataset_shuffle(int64_t *items, int64_t count, int64_t keep, uint64_t seed, uint64_t stream)
{
    for (int64_t i = 0; i < keep; i++) {
        int64_t j = i + rng_below(seed, stream, (uint64_t)i, count - i);
        int64_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

/* The first `limit` samples of a seeded shuffle; a limit that leaves nothing out leaves the order alone too. */
static Status apply_limit(Dataset *ds, const DatasetConfig *config)
{
    for (int split = 0; split < SPLIT_COUNT; split++) {
        int64_t count = ds->count[split];
        if (config->limit == 0 || config->limit >= count)
            continue;
        int64_t *pick = malloc((size_t)count * sizeof *pick);
        if (!pick)
            return status_error(STATUS_OOM, "%s: no memory to choose samples", ds->source->name);
        for (int64_t i = 0; i < count; i++)
            pick[i] = i;
        dataset_shuffle(pick, count, config->limit, config->seed, STREAM_LIMIT + (uint64_t)split);
        ds->pick[split] = pick;
        ds->count[split] = config->limit;
    }
    return status_ok();
}

/* One of label and mask is written, by the data set's task. */
static Status read_at_size(const Dataset *ds, Split split, int64_t index, int64_t size, uint8_t *pixels, int32_t *label,
                           uint8_t *mask)
{
    CHECK(split >= 0 && split < SPLIT_COUNT);
    CHECK(index >= 0 && index < ds->count[split]);
    int64_t from = ds->pick[split] ? ds->pick[split][index] : index;
    if (ds->source->read_mask)
        return ds->source->read_mask(ds->state, split, from, size, pixels, mask);
    TRY(ds->source->read(ds->state, split, from, size, pixels, label));
    CHECK(*label >= 0 && *label < ds->classes);
    return status_ok();
}

/* Exact integer sums, so that the result does not depend on the machine. 2^64 holds the squares of 2^48 pixels. */
static Status measure_channels(Dataset *ds)
{
    int64_t count = ds->count[SPLIT_TRAIN];
    int64_t samples = count < ds->source->stats_samples ? count : ds->source->stats_samples;
    int64_t size = ds->size < ds->source->stats_size ? ds->size : ds->source->stats_size;
    int64_t area = size * size;
    uint8_t *pixels = malloc((size_t)area * 4), *mask = pixels ? pixels + 3 * area : NULL;
    if (!pixels)
        return status_error(STATUS_OOM, "%s: no memory for channel statistics", ds->source->name);

    Status status = status_ok();
    uint64_t sum[3] = { 0, 0, 0 }, squares[3] = { 0, 0, 0 };
    for (int64_t i = 0; i < samples; i++) {
        int32_t label;
        TRY_GOTO(status, read_at_size(ds, SPLIT_TRAIN, i * count / samples, size, pixels, &label, mask), out);
        for (int64_t p = 0; p < area; p++) {
            for (int c = 0; c < 3; c++) {
                uint32_t v = pixels[3 * p + c];
                sum[c] += v;
                squares[c] += v * v;
            }
        }
    }
    double n = (double)samples * (double)area;
    for (int c = 0; c < 3; c++) {
        double mean = (double)sum[c] / n;
        double variance = (double)squares[c] / n - mean * mean;
        double deviation = variance > 0 ? sqrt(variance) : 0;
        ds->mean[c] = (float)(mean / 255);
        /* Pixels are divided by the deviation: a channel of one single colour must not divide by zero. */
        ds->deviation[c] = deviation >= 1.0 ? (float)(deviation / 255) : 1.0f / 255;
    }
out:
    free(pixels);
    return status;
}

Status dataset_open(const DatasetConfig *config, Dataset **out)
{
    *out = NULL;
    const Source *source = NULL;
    TRY(check_config(config, &source));
    Dataset *ds = calloc(1, sizeof *ds);
    if (!ds)
        return status_error(STATUS_OOM, "%s: no memory for the data set", source->name);
    ds->source = source;
    ds->size = config->size;

    char origin[352];
    Status status;
    TRY_GOTO(status, source->open(config, &ds->state, ds->count, &ds->classes, origin, sizeof origin), fail);
    CHECK(ds->count[SPLIT_TRAIN] > 0 && ds->count[SPLIT_TEST] > 0);
    TRY_GOTO(status, apply_limit(ds, config), fail);
    TRY_GOTO(status, measure_channels(ds), fail);
    snprintf(ds->description, sizeof ds->description,
             "%s: %s, %" PRId64 " train + %" PRId64 " test samples, %" PRId64 " classes, %" PRId64 "x%" PRId64 " RGB",
             source->name, origin, ds->count[SPLIT_TRAIN], ds->count[SPLIT_TEST], ds->classes, ds->size, ds->size);
    *out = ds;
    return status_ok();
fail:
    dataset_close(ds);
    return status;
}

void dataset_close(Dataset *ds)
{
    if (!ds)
        return;
    ds->source->close(ds->state);
    for (int split = 0; split < SPLIT_COUNT; split++)
        free(ds->pick[split]);
    free(ds);
}

DataTask dataset_task(const Dataset *ds)
{
    return ds->source->read_mask ? TASK_SEGMENT : TASK_CLASSIFY;
}

int64_t dataset_count(const Dataset *ds, Split split)
{
    CHECK(split >= 0 && split < SPLIT_COUNT);
    return ds->count[split];
}

int64_t dataset_classes(const Dataset *ds)
{
    return ds->classes;
}

const char *dataset_class_name(const Dataset *ds, int64_t label)
{
    CHECK(label >= 0 && label < ds->classes);
    return ds->source->class_name(ds->state, label);
}

int64_t dataset_size(const Dataset *ds)
{
    return ds->size;
}

const char *dataset_describe(const Dataset *ds)
{
    return ds->description;
}

void dataset_channel_stats(const Dataset *ds, float mean[3], float deviation[3])
{
    memcpy(mean, ds->mean, sizeof ds->mean);
    memcpy(deviation, ds->deviation, sizeof ds->deviation);
}

Status dataset_read(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, int32_t *label)
{
    CHECK(dataset_task(ds) == TASK_CLASSIFY);
    return read_at_size(ds, split, index, ds->size, pixels, label, NULL);
}

Status dataset_read_mask(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, uint8_t *mask)
{
    CHECK(dataset_task(ds) == TASK_SEGMENT);
    return read_at_size(ds, split, index, ds->size, pixels, NULL, mask);
}
