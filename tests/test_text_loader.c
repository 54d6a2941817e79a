/* test_text_loader.c - batches of sequences: where they lie, what is masked, the same for any number of threads, every
 * sample once an epoch, how long a batch stays, shutdown. */
#include "../datasets/text_source.h"
#include "fault_alloc.h"
#include "open_data.h"
#include "sample_files.h"
#include "sample_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SEQ = 48, SAMPLES = 61 };

typedef struct Sets {
    TextSet *copy, *classes;
} Sets;

static int open_sets(void **state)
{
    static Sets sets;
    char dir[SAMPLE_PATH_BYTES];
    setenv("BATCHMARK_CACHE", "", 1);
    sample_make_dir(dir);
    sample_write_wordnet(dir);
    sets.copy = text_open_or_fail((TextConfig){ .name = "copy", .seq = SEQ, .vocab_size = 500, .seed = 3,
                                                .limit = SAMPLES });
    sets.classes = text_open_or_fail((TextConfig){ .name = "gloss-classes", .dir = dir, .seq = SEQ,
                                                   .vocab_size = 300, .seed = 3 });
    sample_remove_tree(dir);
    *state = &sets;
    return 0;
}

static int close_sets(void **state)
{
    Sets *sets = *state;
    text_close(sets->copy);
    text_close(sets->classes);
    return 0;
}

static TextLoaderConfig training(int64_t batch, TextPolicy policy, int threads)
{
    return (TextLoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .policy = policy, .threads = threads, .queue = 2,
                               .seed = 5, .shuffle = true, .repeat = true };
}

static TextLoader *create_or_fail(const TextSet *set, TextLoaderConfig config)
{
    TextLoader *loader = NULL;
    Status status = text_loader_create(set, &config, &loader);
    if (status.code != STATUS_OK)
        fail_msg("text_loader_create: %s", status.text);
    return loader;
}

static const TextBatch *next_or_fail(TextLoader *loader)
{
    const TextBatch *batch = NULL;
    Status status = text_loader_next(loader, &batch);
    if (status.code != STATUS_OK)
        fail_msg("text_loader_next: %s", status.text);
    return batch;
}

static uint64_t hash_ints(uint64_t hash, const int32_t *ints, int64_t count)
{
    return ints ? strings_hash(hash, (const char *)ints, (size_t)count * sizeof *ints) : hash;
}

static uint64_t hash_batch(const TextBatch *batch, const TextLoaderConfig *full)
{
    bool lists = batch->target_rows != NULL;
    uint64_t hash = hash_ints(STRINGS_HASH, batch->tokens, full->rows);
    hash = hash_ints(hash, batch->positions, full->rows);
    hash = hash_ints(hash, batch->types, full->rows);
    hash = hash_ints(hash, batch->spans, 2 * full->batch);
    hash = hash_ints(hash, batch->target_rows, full->targets);
    hash = hash_ints(hash, batch->target_labels, lists ? full->targets : full->rows);
    hash = hash_ints(hash, batch->labels, full->batch);
    int64_t rest[] = { batch->sequences, batch->token_count, batch->rows_used, batch->targets,
                       batch->epoch, batch->index };
    return strings_hash(hash, (const char *)rest, sizeof rest);
}

static TextLoaderConfig full_config(const TextSet *set, TextLoaderConfig config)
{
    Status status = text_loader_defaults(set, &config);
    if (status.code != STATUS_OK)
        fail_msg("text_loader_defaults: %s", status.text);
    return config;
}

/* ---- where sequences lie ---- */

/* The sample with these tokens, once its targets are put back; -1: none. Only some glosses are equal. */
static int64_t find_sample(const TextSet *set, Split split, const int32_t *tokens, int64_t length, const bool *taken)
{
    for (int64_t i = 0; i < text_count(set, split); i++) {
        int32_t want[TEXT_SEQ_MAX], types[TEXT_SEQ_MAX];
        if (taken[i] || text_length(set, split, i) != length)
            continue;
        text_read(set, split, i, want, types);
        if (memcmp(want, tokens, (size_t)length * sizeof *want) == 0)
            return i;
    }
    return -1;
}

/* Checks all that a batch promises and notes which samples are in it. */
static void check_batch(const TextSet *set, const TextLoaderConfig *full, const TextBatch *batch, bool *taken)
{
    assert_in_range(batch->sequences, 1, full->batch);
    int32_t *whole = malloc((size_t)full->rows * sizeof *whole);
    assert_non_null(whole);
    memcpy(whole, batch->tokens, (size_t)full->rows * sizeof *whole);
    int64_t targets = 0, tokens = 0, row = 0, longest = 0;
    for (int64_t p = 0; batch->target_rows && p < full->targets; p++) {
        int32_t at = batch->target_rows[p];
        assert_true(p < batch->targets ? at >= 0 && at < batch->rows_used && (p == 0 || at > batch->target_rows[p - 1])
                                       : at == -1);
        assert_true((batch->target_labels[p] == -1) == (at == -1));
        if (at >= 0)
            whole[at] = batch->target_labels[p];
        targets += at >= 0;
    }
    for (int64_t r = 0; full->all_rows && batch->target_labels && r < full->rows; r++)
        if (batch->target_labels[r] != -1) {
            whole[r] = batch->target_labels[r];
            targets++;
        }
    for (int64_t b = 0; b < batch->sequences; b++)
        longest = batch->spans[2 * b + 1] > longest ? batch->spans[2 * b + 1] : longest;
    int64_t stride = full->policy == TEXT_FIXED ? SEQ : full->policy == TEXT_DYNAMIC ? (longest + 7) / 8 * 8 : 0;
    for (int64_t b = 0; b < full->batch; b++) {
        int64_t first = batch->spans[2 * b], n = batch->spans[2 * b + 1];
        if (b >= batch->sequences) {
            assert_true(first == 0 && n == 0 && (!batch->labels || batch->labels[b] == -1));
            continue;
        }
        assert_int_equal(first, stride ? b * stride : row);
        for (; row < first; row++)
            assert_true(batch->tokens[row] == -1 && batch->positions[row] == -1 && batch->types[row] == -1);
        for (int64_t i = 0; i < n; i++, row++)
            assert_true(batch->tokens[row] >= 0 && batch->positions[row] == i && batch->types[row] >= 0);
        int64_t sample = find_sample(set, full->split, whole + first, n, taken);
        assert_in_range(sample, 0, text_count(set, full->split) - 1);
        taken[sample] = true;
        int32_t ids[TEXT_SEQ_MAX], types[TEXT_SEQ_MAX];
        int32_t label = text_read(set, full->split, sample, ids, types);
        assert_memory_equal(types, batch->types + first, (size_t)n * sizeof *types);
        if (!batch->labels)
            assert_int_equal(label, -1);
        tokens += n;
    }
    assert_int_equal(batch->rows_used, stride ? batch->sequences * stride : row);
    assert_true(batch->rows_used <= full->rows);
    for (; row < full->rows; row++)
        assert_true(batch->tokens[row] == -1 && batch->positions[row] == -1 && batch->types[row] == -1);
    assert_int_equal(tokens, batch->token_count);
    assert_int_equal(targets, batch->targets);
    assert_true((batch->labels != NULL) == (set->classes > 0));
    free(whole);
}

static void every_sample_comes_once_an_epoch_in_every_policy(void **state)
{
    const Sets *sets = *state;
    const TextSet *both[] = { sets->copy, sets->classes };
    for (int s = 0; s < 2; s++)
        for (TextPolicy policy = TEXT_FIXED; policy < TEXT_POLICY_COUNT; policy++)
            for (int variant = 0; variant < 4; variant++) {
                TextLoaderConfig config = training(7, policy, variant);
                config.split = variant == 3 ? SPLIT_TEST : SPLIT_TRAIN;
                config.all_rows = variant == 1;
                if (policy == TEXT_BUDGET)
                    config.rows = variant == 2 ? SEQ : 3 * SEQ; /* room for one of the longest, or three */
                TextLoaderConfig full = full_config(both[s], config);
                TextLoader *loader = create_or_fail(both[s], config);
                int64_t n = text_count(both[s], config.split);
                bool *taken = calloc((size_t)n, sizeof *taken);
                assert_non_null(taken);
                for (int64_t seen = 0, epoch = 0, index = 0; epoch < 2;) {
                    const TextBatch *batch = next_or_fail(loader);
                    assert_int_equal(batch->epoch, epoch);
                    assert_int_equal(batch->index, index++);
                    check_batch(both[s], &full, batch, taken);
                    seen += batch->sequences;
                    assert_true(seen <= n);
                    if (seen == n) {
                        if (epoch == 0)
                            assert_int_equal(index, text_loader_batches(loader));
                        memset(taken, 0, (size_t)n * sizeof *taken);
                        seen = index = 0;
                        epoch++;
                    }
                }
                free(taken);
                text_loader_destroy(loader);
            }
}

static void a_budget_batch_ends_where_the_next_does_not_fit(void **state)
{
    const Sets *sets = *state;
    TextLoaderConfig config = { .split = SPLIT_TRAIN, .batch = 50, .policy = TEXT_BUDGET, .rows = 200, .queue = 1 };
    TextLoader *loader = create_or_fail(sets->copy, config);
    int64_t at = 0;
    for (const TextBatch *batch; (batch = next_or_fail(loader)) != NULL;) {
        int64_t used = 0;
        for (int64_t b = 0; b < batch->sequences; b++)
            used += text_length(sets->copy, SPLIT_TRAIN, at++);
        assert_true(used <= 200 && batch->rows_used == used && batch->token_count == used);
        if (at < SAMPLES)
            assert_true(used + text_length(sets->copy, SPLIT_TRAIN, at) > 200);
    }
    assert_int_equal(at, SAMPLES);
    text_loader_destroy(loader);
}

/* ---- masking ---- */

static void masking_has_its_shares(void **state)
{
    (void)state;
    TextConfig copies = { .name = "copy", .seq = 128, .vocab_size = 1000, .seed = 3, .limit = 4000 };
    TextSet *set = text_open_or_fail(copies);
    const Vocab *vocab = &set->corpus.vocab;
    TextLoaderConfig config = training(40, TEXT_FIXED, 2);
    config.repeat = config.shuffle = false;
    config.all_rows = true;
    TextLoader *loader = create_or_fail(set, config);
    int64_t targets = 0, masked = 0, kept = 0, other = 0, sample = 0, place[2] = { 0, 0 };
    int64_t drawn[1000] = { 0 };
    for (const TextBatch *batch; (batch = next_or_fail(loader)) != NULL;)
        for (int64_t b = 0; b < batch->sequences; b++, sample++) {
            int32_t ids[128], types[128];
            int64_t n = text_length(set, SPLIT_TRAIN, sample), found = 0;
            text_read(set, SPLIT_TRAIN, sample, ids, types);
            for (int64_t i = 0; i < n; i++) {
                int32_t seen = batch->tokens[b * 128 + i], label = batch->target_labels[b * 128 + i];
                bool special = ids[i] == vocab->cls || ids[i] == vocab->sep;
                assert_true(label == -1 ? seen == ids[i] : label == ids[i] && !special);
                if (label < 0)
                    continue;
                found++;
                masked += seen == vocab->mask;
                kept += seen == label;
                other += seen != label && seen != vocab->mask;
                drawn[seen] += seen != label && seen != vocab->mask;
                place[i >= n / 2]++;
            }
            assert_int_equal(found, text_targets(n - 3));
            targets += found;
        }
    assert_int_equal(sample, 4000);
    double n = (double)targets; /* about 45,000 */
    assert_true(n > 30000);
    assert_true((double)masked / n > 0.79 && (double)masked / n < 0.81); /* five standard deviations */
    assert_true((double)kept / n > 0.09 && (double)kept / n < 0.11);
    assert_true((double)other / n > 0.09 && (double)other / n < 0.11);
    assert_true((double)place[0] / n > 0.485 && (double)place[0] / n < 0.515);
    int64_t different = 0;
    for (int32_t id = 0; id < 1000; id++) {
        assert_true(drawn[id] == 0 || (id >= 5 && id != vocab->mask));
        different += drawn[id] > 0;
    }
    assert_true(different > 960); /* of 995, 4.5 draws each */
    text_loader_destroy(loader);
    text_close(set);
}

static void numbers_of_targets_are_rounded(void **state)
{
    (void)state;
    static const struct { int64_t n, k; } cases[] = { { 0, 0 }, { 1, 1 }, { 3, 1 }, { 9, 1 }, { 10, 2 }, { 16, 2 },
                                                      { 17, 3 }, { 100, 15 }, { 126, 19 }, { 510, 77 } };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(text_targets(cases[i].n), cases[i].k);
}

/* Batch number `number` of two loaders: are the masked tokens the same? */
static bool same_masks(const TextSet *set, TextLoaderConfig a, TextLoaderConfig b, int number_a, int number_b)
{
    TextLoaderConfig full = full_config(set, a);
    TextLoader *one = create_or_fail(set, a), *two = create_or_fail(set, b);
    const TextBatch *x = next_or_fail(one), *y = next_or_fail(two);
    for (int i = 0; i < number_a; i++)
        x = next_or_fail(one);
    for (int i = 0; i < number_b; i++)
        y = next_or_fail(two);
    bool same = memcmp(x->tokens, y->tokens, (size_t)full.rows * sizeof *x->tokens) == 0;
    text_loader_destroy(one);
    text_loader_destroy(two);
    return same;
}

static void masks_change_with_the_epoch_in_training_alone(void **state)
{
    const Sets *sets = *state;
    TextLoaderConfig config = training(SAMPLES, TEXT_FIXED, 0);
    config.shuffle = false;
    assert_true(same_masks(sets->copy, config, config, 1, 1));
    assert_false(same_masks(sets->copy, config, config, 0, 1)); /* one batch an epoch */
    TextLoaderConfig other = config;
    other.seed++;
    assert_false(same_masks(sets->copy, config, other, 0, 0));
    config.split = other.split = SPLIT_TEST;
    assert_true(same_masks(sets->copy, config, config, 0, 1));
    assert_false(same_masks(sets->copy, config, other, 0, 0));
}

static void targets_are_capped(void **state)
{
    const Sets *sets = *state;
    TextLoaderConfig config = training(6, TEXT_FIXED, 1);
    config.shuffle = false;
    TextLoaderConfig full = full_config(sets->copy, config);
    assert_int_equal(full.targets, 6 * text_targets(SEQ - 2));
    TextLoader *all = create_or_fail(sets->copy, config);
    config.targets = 9;
    TextLoader *capped = create_or_fail(sets->copy, config);
    bool reached = false;
    for (int k = 0; k < 10; k++) {
        const TextBatch *a = next_or_fail(all), *c = next_or_fail(capped);
        assert_int_equal(c->targets, a->targets < 9 ? a->targets : 9);
        assert_memory_equal(a->target_rows, c->target_rows, (size_t)c->targets * sizeof *c->target_rows);
        assert_memory_equal(a->target_labels, c->target_labels, (size_t)c->targets * sizeof *c->target_labels);
        for (int64_t p = c->targets; p < a->targets; p++) { /* what is no target is not changed either */
            assert_int_equal(c->tokens[a->target_rows[p]], a->target_labels[p]);
            reached = true;
        }
    }
    assert_true(reached);
    text_loader_destroy(all);
    text_loader_destroy(capped);
}

/* The shortest sequences have one ordinary token and one target each: more than 15 %. */
static void the_default_targets_suffice_for_the_shortest_sequences(void **state)
{
    (void)state;
    TextSet *set = text_open_or_fail((TextConfig){ .name = "copy", .seq = 8, .vocab_size = 64, .seed = 1, .limit = 500 });
    for (TextPolicy policy = TEXT_FIXED; policy < TEXT_POLICY_COUNT; policy++) {
        TextLoaderConfig config = training(20, policy, 0);
        config.repeat = false;
        config.rows = policy == TEXT_BUDGET ? 40 : 0;
        TextLoader *loader = create_or_fail(set, config);
        for (const TextBatch *batch; (batch = next_or_fail(loader)) != NULL;)
            assert_int_equal(batch->targets, batch->sequences);
        text_loader_destroy(loader);
    }
    text_close(set);
}

static void class_labels_belong_to_their_glosses(void **state)
{
    const Sets *sets = *state;
    TextLoaderConfig config = { .split = SPLIT_TEST, .batch = 5, .policy = TEXT_DYNAMIC, .queue = 1, .targets = 99 };
    assert_int_equal(full_config(sets->classes, config).targets, 0);
    TextLoader *loader = create_or_fail(sets->classes, config);
    int64_t at = 0;
    for (const TextBatch *batch; (batch = next_or_fail(loader)) != NULL;) {
        assert_true(batch->targets == 0 && !batch->target_rows && !batch->target_labels);
        for (int64_t b = 0; b < batch->sequences; b++) {
            int32_t ids[SEQ], types[SEQ];
            assert_int_equal(batch->labels[b], text_read(sets->classes, SPLIT_TEST, at++, ids, types));
            const int32_t *span = batch->spans + 2 * b;
            assert_memory_equal(ids, batch->tokens + span[0], (size_t)span[1] * sizeof *ids);
        }
    }
    assert_int_equal(at, text_count(sets->classes, SPLIT_TEST));
    text_loader_destroy(loader);
}

/* ---- threads, ends, holding ---- */

static void batches_are_the_same_for_any_number_of_threads(void **state)
{
    enum { BATCHES = 40 };
    const Sets *sets = *state;
    static const struct { int threads, queue; int64_t hold; } cases[] = {
        { 0, 1, 1 }, { 1, 1, 1 }, { 1, 3, 4 }, { 2, 1, 2 }, { 3, 2, 1 }, { 8, 5, 3 }, { 0, 1, 6 },
    };
    for (TextPolicy policy = TEXT_FIXED; policy < TEXT_POLICY_COUNT; policy++)
        for (int drop = 0; drop < 2; drop++) {
            uint64_t want[BATCHES];
            for (size_t c = 0; c < COUNT_OF(cases); c++) {
                TextLoaderConfig config = training(8, policy, cases[c].threads);
                config.queue = cases[c].queue;
                config.hold = cases[c].hold;
                config.drop_last = drop;
                config.rows = policy == TEXT_BUDGET ? 150 : 0;
                TextLoaderConfig full = full_config(sets->copy, config);
                TextLoader *loader = create_or_fail(sets->copy, config);
                for (int b = 0; b < BATCHES; b++) {
                    uint64_t hash = hash_batch(next_or_fail(loader), &full);
                    if (c == 0)
                        want[b] = hash;
                    assert_int_equal(hash, want[b]);
                }
                text_loader_destroy(loader);
            }
            for (int b = 1; b < BATCHES; b++)
                assert_int_not_equal(want[b], want[b - 1]);
        }
}

static void the_last_batch_is_kept_or_dropped(void **state)
{
    const Sets *sets = *state;
    for (int threads = 0; threads < 3; threads++)
        for (int drop = 0; drop < 2; drop++) {
            TextLoaderConfig config = training(10, TEXT_DYNAMIC, threads);
            config.repeat = false;
            config.drop_last = drop;
            TextLoader *loader = create_or_fail(sets->copy, config);
            assert_int_equal(text_loader_batches(loader), 7 - drop);
            for (int b = 0; b < 7 - drop; b++)
                assert_int_equal(next_or_fail(loader)->sequences, b < 6 ? 10 : 1);
            assert_null(next_or_fail(loader));
            assert_null(next_or_fail(loader)); /* and stays so */
            text_loader_destroy(loader);
        }
}

static void held_batches_are_not_touched(void **state)
{
    const Sets *sets = *state;
    for (int64_t hold = 1; hold <= 5; hold += 2)
        for (int threads = 0; threads < 4; threads += 3) {
            TextLoaderConfig config = training(4, TEXT_BUDGET, threads);
            config.hold = hold;
            TextLoaderConfig full = full_config(sets->copy, config);
            TextLoader *loader = create_or_fail(sets->copy, config);
            const TextBatch *held[30];
            uint64_t hash[30];
            for (int b = 0; b < 30; b++) {
                held[b] = next_or_fail(loader);
                hash[b] = hash_batch(held[b], &full);
                if (threads && b % 10 == 9) /* let the threads fill all that they may */
                    nanosleep(&(struct timespec){ 0, 2 * 1000 * 1000 }, NULL);
                for (int k = b; k >= 0 && k > b - hold; k--)
                    assert_int_equal(hash_batch(held[k], &full), hash[k]);
            }
            text_loader_destroy(loader);
        }
}

static void stopping_in_the_middle_neither_hangs_nor_leaks(void **state)
{
    const Sets *sets = *state;
    int64_t live = fault_alloc_live();
    for (int round = 0; round < 200; round++) {
        TextLoaderConfig config = training(1 + round % 9, (TextPolicy)(round % 3), round % 6);
        config.queue = 1 + round % 3;
        config.hold = 1 + round % 2;
        TextLoader *loader = create_or_fail(sets->copy, config);
        for (int taken = 0; taken < round % 5; taken++)
            assert_non_null(next_or_fail(loader));
        if (round % 20 == 19) /* let the queue run full, so that all threads wait */
            nanosleep(&(struct timespec){ 0, 2 * 1000 * 1000 }, NULL);
        text_loader_destroy(loader);
    }
    text_loader_destroy(NULL);
    assert_int_equal(fault_alloc_live(), live);
}

static void waiting_is_accounted(void **state)
{
    const Sets *sets = *state;
    for (int threads = 0; threads < 2; threads++) {
        TextLoader *loader = create_or_fail(sets->copy, training(SAMPLES, TEXT_FIXED, threads));
        assert_true(text_loader_wait_seconds(loader) == 0.0);
        double start = clock_seconds(), before = 0;
        for (int b = 0; b < 5; b++) {
            assert_non_null(next_or_fail(loader));
            assert_true(text_loader_wait_seconds(loader) > before);
            before = text_loader_wait_seconds(loader);
        }
        assert_true(before <= clock_seconds() - start);
        text_loader_destroy(loader);
    }
}

/* ---- errors ---- */

static void expect_error(const TextSet *set, TextLoaderConfig config, StatusCode code, const char *word)
{
    TextLoader *loader;
    Status status = text_loader_create(set, &config, &loader);
    assert_null(loader);
    if (status.code != code || !strstr(status.text, word))
        fail_msg("expected %s with '%s', got %s: %s", status_code_name(code), word, status_code_name(status.code),
                 status.text);
}

static void bad_configs_are_refused(void **state)
{
    const TextSet *set = ((const Sets *)*state)->copy;
    static const struct { size_t field; int64_t value; StatusCode code; const char *word; } cases[] = {
        { offsetof(TextLoaderConfig, batch), 0, STATUS_USAGE, "batch size 0" },
        { offsetof(TextLoaderConfig, batch), INT64_MAX, STATUS_OOM, "no memory" },
        { offsetof(TextLoaderConfig, rows), 4 * SEQ - 1, STATUS_USAGE, "the batch needs at least 192" },
        { offsetof(TextLoaderConfig, rows), -1, STATUS_USAGE, "-1 token rows" },
        { offsetof(TextLoaderConfig, rows), INT64_MAX, STATUS_OOM, "no memory" },
        { offsetof(TextLoaderConfig, targets), -1, STATUS_USAGE, "-1 targets" },
        { offsetof(TextLoaderConfig, targets), INT64_MAX, STATUS_USAGE, "too many" },
        { offsetof(TextLoaderConfig, pad_multiple), -8, STATUS_USAGE, "multiple of -8" },
        { offsetof(TextLoaderConfig, hold), -1, STATUS_USAGE, "holding -1" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        TextLoaderConfig config = training(4, TEXT_DYNAMIC, 0);
        memcpy((char *)&config + cases[i].field, &cases[i].value, sizeof cases[i].value);
        expect_error(set, config, cases[i].code, cases[i].word);
    }
    TextLoaderConfig config = training(4, TEXT_BUDGET, 0);
    config.rows = SEQ - 1;
    expect_error(set, config, STATUS_USAGE, "one sequence needs at least 48");
    config = training(SAMPLES + 1, TEXT_FIXED, 0);
    config.drop_last = true;
    expect_error(set, config, STATUS_USAGE, "larger than the 61 samples");
    config.policy = TEXT_BUDGET;
    expect_error(set, config, STATUS_USAGE, "larger than the 61 samples");
    config.rows = SEQ; /* this ends batches before the epoch does */
    TextLoader *loader = create_or_fail(set, config);
    assert_non_null(next_or_fail(loader));
    text_loader_destroy(loader);
    config = training(4, TEXT_POLICY_COUNT, 0);
    expect_error(set, config, STATUS_USAGE, "policy 3 is unknown");
    config = training(4, TEXT_FIXED, -1);
    expect_error(set, config, STATUS_USAGE, "-1 loader threads");
    config.threads = 257;
    expect_error(set, config, STATUS_USAGE, "257 loader threads");
    config = training(4, TEXT_FIXED, 0);
    config.queue = 0;
    expect_error(set, config, STATUS_USAGE, "queue of 0");
    assert_string_equal(text_policy_name(TEXT_FIXED), "fixed");
    assert_string_equal(text_policy_name(TEXT_DYNAMIC), "dynamic");
    assert_string_equal(text_policy_name(TEXT_BUDGET), "budget");
}

typedef struct Attempt {
    const TextSet   *set;
    TextLoaderConfig config;
} Attempt;

static Status create_and_take(void *context)
{
    const Attempt *attempt = context;
    TextLoader *loader;
    TRY(text_loader_create(attempt->set, &attempt->config, &loader));
    const TextBatch *batch;
    Status status = text_loader_next(loader, &batch);
    text_loader_destroy(loader);
    return status;
}

static void failing_allocations_are_reported(void **state)
{
    const Sets *sets = *state;
    Attempt attempt = { sets->copy, training(4, TEXT_DYNAMIC, 2) };
    assert_true(fault_alloc_sweep(create_and_take, &attempt) > 4);
    attempt.set = sets->classes;
    attempt.config.threads = 0;
    assert_true(fault_alloc_sweep(create_and_take, &attempt) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_comes_once_an_epoch_in_every_policy),
        cmocka_unit_test(a_budget_batch_ends_where_the_next_does_not_fit),
        cmocka_unit_test(masking_has_its_shares),
        cmocka_unit_test(numbers_of_targets_are_rounded),
        cmocka_unit_test(masks_change_with_the_epoch_in_training_alone),
        cmocka_unit_test(targets_are_capped),
        cmocka_unit_test(the_default_targets_suffice_for_the_shortest_sequences),
        cmocka_unit_test(class_labels_belong_to_their_glosses),
        cmocka_unit_test(batches_are_the_same_for_any_number_of_threads),
        cmocka_unit_test(the_last_batch_is_kept_or_dropped),
        cmocka_unit_test(held_batches_are_not_touched),
        cmocka_unit_test(stopping_in_the_middle_neither_hangs_nor_leaks),
        cmocka_unit_test(waiting_is_accounted),
        cmocka_unit_test(bad_configs_are_refused),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, open_sets, close_sets);
}
