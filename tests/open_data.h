/* open_data.h - data sets, text sets and loaders for tests: opened, or refused as they should be. Failures end the cmocka
 * test; what is opened, the caller closes. */
#ifndef BATCHMARK_TESTS_OPEN_DATA_H
#define BATCHMARK_TESTS_OPEN_DATA_H

#include "../datasets/data.h"
#include "../datasets/text.h"

Dataset *data_open_or_fail(DatasetConfig config);
TextSet *text_open_or_fail(TextConfig config);

/* An error of this code in one line that holds both words. */
void data_expect_error(Status status, StatusCode code, const char *word, const char *word2);

/* Opening ends in such an error, opens nothing and leaves nothing allocated (in programs with WRAP_ALLOC). */
void data_expect_refusal(DatasetConfig config, StatusCode code, const char *word, const char *word2);
void text_expect_refusal(TextConfig config, StatusCode code, const char *word, const char *word2);

void data_read_mask_or_fail(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, uint8_t *mask);

Loader      *loader_create_or_fail(const Dataset *ds, LoaderConfig config);
const Batch *loader_next_or_fail(Loader *loader); /* NULL after the last batch */

/* FNV-1a: `hash` continued over these bytes. */
uint64_t data_hash(uint64_t hash, const void *data, size_t bytes);

#endif
