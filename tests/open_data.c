/* open_data.c - the bodies of open_data.h. */
#include "open_data.h"

#include "fault_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

Dataset *data_open_or_fail(DatasetConfig config)
{
    Dataset *ds = NULL;
    Status status = dataset_open(&config, &ds);
    if (status.code != STATUS_OK)
        fail_msg("dataset_open: %s", status.text);
    return ds;
}

TextSet *text_open_or_fail(TextConfig config)
{
    TextSet *set = NULL;
    Status status = text_open(&config, &set);
    if (status.code != STATUS_OK)
        fail_msg("text_open: %s", status.text);
    return set;
}

void data_expect_error(Status status, StatusCode code, const char *word, const char *word2)
{
    if (status.code != code || !strstr(status.text, word) || !strstr(status.text, word2))
        fail_msg("expected %s with '%s' and '%s', got %s: %s", status_code_name(code), word, word2,
                 status_code_name(status.code), status.text);
    assert_null(strchr(status.text, '\n'));
}

void data_expect_refusal(DatasetConfig config, StatusCode code, const char *word, const char *word2)
{
    Dataset *ds = NULL;
    int64_t live = fault_alloc_live();
    data_expect_error(dataset_open(&config, &ds), code, word, word2);
    assert_null(ds);
    assert_int_equal(fault_alloc_live(), live);
}

void text_expect_refusal(TextConfig config, StatusCode code, const char *word, const char *word2)
{
    TextSet *set = NULL;
    int64_t live = fault_alloc_live();
    data_expect_error(text_open(&config, &set), code, word, word2);
    assert_null(set);
    assert_int_equal(fault_alloc_live(), live);
}

void data_read_mask_or_fail(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, uint8_t *mask)
{
    Status status = dataset_read_mask(ds, split, index, pixels, mask);
    if (status.code != STATUS_OK)
        fail_msg("dataset_read_mask: %s", status.text);
}

Loader *loader_create_or_fail(const Dataset *ds, LoaderConfig config)
{
    Loader *loader = NULL;
    Status status = loader_create(ds, &config, &loader);
    if (status.code != STATUS_OK)
        fail_msg("loader_create: %s", status.text);
    return loader;
}

const Batch *loader_next_or_fail(Loader *loader)
{
    const Batch *batch = NULL;
    Status status = loader_next(loader, &batch);
    if (status.code != STATUS_OK)
        fail_msg("loader_next: %s", status.text);
    return batch;
}

uint64_t data_hash(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *b = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    return hash;
}
