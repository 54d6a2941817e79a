/* test_text.c - text sets: samples, splits, classes, the generator, the cache, the packages if installed. */
#include "../datasets/text_source.h"
#include "fault_alloc.h"
#include "open_data.h"
#include "sample_files.h"
#include "sample_texts.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQ = 32 };

static TextConfig config_of(const char *name, const char *dir)
{
    return (TextConfig){ .name = name, .dir = dir, .seq = SEQ, .vocab_size = 300, .seed = 1 };
}

/* The sample's pieces put together again, a space between words. */
static void spell(const TextSet *set, Split split, int64_t index, char *out)
{
    int32_t tokens[TEXT_SEQ_MAX], types[TEXT_SEQ_MAX];
    text_read(set, split, index, tokens, types);
    *out = '\0';
    for (int64_t i = 0; i < text_length(set, split, index); i++) {
        const char *piece = text_token(set, tokens[i]);
        bool goes_on = strncmp(piece, "##", 2) == 0;
        sprintf(out + strlen(out), "%s%s", goes_on || i == 0 ? "" : " ", piece + (goes_on ? 2 : 0));
    }
}

/* ---- what all sets share ---- */

static void bad_configs_are_usage_errors(void **state)
{
    const TextFolder *folder = *state;
    TextConfig config = config_of("bibel", NULL);
    text_expect_refusal(config, STATUS_USAGE, "'bibel' is unknown", "gloss-classes");
    config.name = NULL;
    text_expect_refusal(config, STATUS_USAGE, "'' is unknown", "copy");
    config = config_of("copy", NULL);
    config.seq = 7;
    text_expect_refusal(config, STATUS_USAGE, "sequence length 7", "8..512");
    config.seq = 513;
    text_expect_refusal(config, STATUS_USAGE, "sequence length 513", "8..512");
    config = config_of("copy", NULL);
    config.vocab_size = 31;
    text_expect_refusal(config, STATUS_USAGE, "vocabulary size 31", "32..");
    config.vocab_size = -1;
    text_expect_refusal(config, STATUS_USAGE, "vocabulary size -1", "32..");
    config = config_of("copy", NULL);
    config.limit = -1;
    text_expect_refusal(config, STATUS_USAGE, "limit -1", "copy");
    text_expect_refusal(config_of("copy", "somewhere"), STATUS_USAGE, "reads no directory", "somewhere");
    config = config_of("copy", NULL);
    config.vocab = "v.txt";
    text_expect_refusal(config, STATUS_USAGE, "reads no vocabulary", "v.txt");
    config = config_of("bible", folder->dir);
    config.classify = true;
    text_expect_refusal(config, STATUS_USAGE, "bible has no classes", "gloss-classes");
}

static void check_samples(const TextSet *set, int64_t seq)
{
    int32_t tokens[TEXT_SEQ_MAX + 2], types[TEXT_SEQ_MAX + 2];
    const Vocab *vocab = &set->corpus.vocab;
    for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++)
        for (int64_t i = 0; i < text_count(set, split); i++) {
            int64_t n = text_length(set, split, i);
            assert_in_range(n, 3, seq);
            tokens[n] = types[n] = 77;
            int32_t label = text_read(set, split, i, tokens, types);
            assert_true(set->classes ? label >= 0 && label < set->classes : label == -1);
            assert_true(tokens[0] == vocab->cls && tokens[n - 1] == vocab->sep && tokens[n] == 77 && types[n] == 77);
            for (int64_t k = 1; k < n - 1; k++)
                assert_true(tokens[k] >= 0 && tokens[k] < text_vocab_size(set) && tokens[k] != vocab->cls);
        }
}

static void every_set_gives_sound_samples(void **state)
{
    const TextFolder *folder = *state;
    static const char *const names[] = { "bible", "glosses", "text", "gloss-classes", "copy" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        for (int64_t seq = 8; seq <= 512; seq *= 4) {
            TextConfig config = config_of(names[i], strcmp(names[i], "copy") ? folder->dir : NULL);
            config.seq = seq;
            TextSet *set = text_open_or_fail(config);
            assert_non_null(strstr(text_names(), names[i]));
            assert_int_equal(text_vocab_size(set), 300);
            assert_int_equal(text_classes(set), strcmp(names[i], "gloss-classes") ? 0 : 10);
            assert_ptr_equal(strstr(text_describe(set), names[i]), text_describe(set));
            double test = (double)text_count(set, SPLIT_TEST);
            double share = test / (test + (double)text_count(set, SPLIT_TRAIN));
            assert_true(share > 0.03 && share < 0.2);
            check_samples(set, seq);
            text_close(set);
        }
    text_close(NULL);
}

/* The passages of a chapter are its words, in order; a chapter is on one side. */
static void passages_make_up_the_chapters(void **state)
{
    const TextFolder *folder = *state;
    TextSet *set = text_open_or_fail(config_of("bible", folder->dir));
    const Corpus *corpus = &set->corpus;
    assert_int_equal(corpus->documents, 2 * SAMPLE_BOOKS * SAMPLE_CHAPTERS);
    int64_t at[SPLIT_COUNT] = { 0, 0 }, sentence_ends = 0, passages = 0;
    for (int64_t d = 0, first = 0; d < corpus->documents; first = corpus->end[d++]) {
        int split = corpus->test[d] ? SPLIT_TEST : SPLIT_TRAIN;
        for (; first < corpus->end[d]; at[split]++, passages++) {
            const Sample *sample = &set->samples[split][at[split]];
            assert_int_equal(sample->first, first);
            first += sample->length;
            assert_true(first <= corpus->end[d]);
            assert_int_not_equal(strncmp(text_token(set, corpus->tokens.id[sample->first]), "##", 2), 0);
            sentence_ends += strcmp(text_token(set, corpus->tokens.id[first - 1]), ".") == 0;
        }
    }
    assert_true(at[0] == set->count[0] && at[1] == set->count[1]);
    assert_true(passages > 2 * corpus->documents);
    assert_true(sentence_ends > passages / 2);
    for (int64_t i = 0; i < set->count[SPLIT_TRAIN]; i++) {
        char text[2000];
        spell(set, SPLIT_TRAIN, i, text);
        assert_null(strstr(text, "footnote"));
        assert_null(strstr(text, "strong"));
    }
    text_close(set);
}

/* Equal glosses must not be on both sides, whatever the seed. */
static void no_text_is_in_both_splits(void **state)
{
    const TextFolder *folder = *state;
    TextConfig config = config_of("glosses", folder->dir);
    config.seq = 128;
    TextSet *set = text_open_or_fail(config);
    config.seed = 99;
    TextSet *other = text_open_or_fail(config);
    assert_int_equal(text_count(set, SPLIT_TEST), text_count(other, SPLIT_TEST));
    Strings train;
    memset(&train, 0, sizeof train);
    char text[2000];
    int64_t number;
    for (int64_t i = 0; i < text_count(set, SPLIT_TRAIN); i++) {
        spell(set, SPLIT_TRAIN, i, text);
        assert_int_equal(strings_add(&train, text, strlen(text), &number).code, STATUS_OK);
    }
    assert_true(train.count < text_count(set, SPLIT_TRAIN)); /* there are equal ones */
    for (int64_t i = 0; i < text_count(set, SPLIT_TEST); i++) {
        spell(set, SPLIT_TEST, i, text);
        assert_int_equal(strings_find(&train, text, strlen(text), strings_hash(STRINGS_HASH, text, strlen(text))), -1);
    }
    strings_free(&train);
    text_close(set);
    text_close(other);
}

static void the_ten_largest_classes_are_kept(void **state)
{
    const TextFolder *folder = *state;
    TextSet *set = text_open_or_fail(config_of("gloss-classes", folder->dir));
    int64_t count[10] = { 0 };
    int32_t tokens[SEQ], types[SEQ];
    for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++)
        for (int64_t i = 0; i < text_count(set, split); i++)
            count[text_read(set, split, i, tokens, types)]++;
    assert_string_equal(text_class_name(set, 0), "noun.Tops"); /* files 3..14, 25 glosses each, 125 in file 5 */
    assert_string_equal(text_class_name(set, 2), "noun.animal");
    assert_string_equal(text_class_name(set, 9), "noun.feeling"); /* of equals the first ones: 13 and 14 are out */
    for (int c = 0; c < 10; c++)
        assert_int_equal(count[c], c == 2 ? 125 : 25);
    text_close(set);
}

static void limit_keeps_a_seeded_choice(void **state)
{
    const TextFolder *folder = *state;
    TextConfig config = config_of("glosses", folder->dir);
    TextSet *all = text_open_or_fail(config);
    config.limit = 50;
    TextSet *one = text_open_or_fail(config), *same = text_open_or_fail(config);
    config.seed = 2;
    TextSet *other = text_open_or_fail(config);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        assert_int_equal(text_count(one, split), 50);
        assert_memory_equal(one->samples[split], same->samples[split], 50 * sizeof(Sample));
        assert_memory_not_equal(one->samples[split], other->samples[split], 50 * sizeof(Sample));
        for (int64_t i = 0; i < 50; i++) {
            int64_t k = 0;
            const Sample *kept = &one->samples[split][i];
            while (k < all->count[split] && memcmp(&all->samples[split][k], kept, sizeof *kept) != 0)
                k++;
            assert_true(k < all->count[split]);
        }
    }
    text_close(all);
    text_close(one);
    text_close(same);
    text_close(other);
}

static void a_given_vocabulary_is_used(void **state)
{
    const TextFolder *folder = *state;
    char path[SAMPLE_PATH_BYTES], lines[3000] = "";
    for (int i = 0; i < 10; i++)
        sprintf(lines + strlen(lines), "[unused%d]\n", i);
    strcat(lines, "[MASK]\n[SEP]\n[CLS]\n[UNK]\n[PAD]\n.\n");
    static const char *const syllables[] = { "ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "wu" };
    for (int i = 0; i < 10; i++)
        sprintf(lines + strlen(lines), "%s\n##%s\n", syllables[i], syllables[i]);
    sample_write(sample_path(path, folder->empty, "vocab.txt"), lines, strlen(lines));
    TextConfig config = config_of("bible", folder->dir);
    config.vocab = path;
    config.vocab_size = 0;
    TextSet *set = text_open_or_fail(config);
    assert_int_equal(text_vocab_size(set), 36);
    int32_t tokens[SEQ], types[SEQ];
    text_read(set, SPLIT_TRAIN, 0, tokens, types);
    assert_int_equal(tokens[0], 12);
    for (int64_t i = 0; i < set->corpus.tokens.count; i++)
        assert_true(set->corpus.tokens.id[i] >= 15); /* every word has its syllables */
    text_close(set);
    config.vocab_size = 50;
    set = text_open_or_fail(config);
    assert_string_equal(text_token(set, 36), "[unused10]");
    assert_int_equal(text_vocab_size(set), 50);
    text_close(set);
    config.vocab_size = 35;
    text_expect_refusal(config, STATUS_INPUT, "vocab.txt", "more than 35 entries");
}

static void copies_are_copies(void **state)
{
    (void)state;
    TextConfig config = config_of("copy", NULL);
    TextSet *set = text_open_or_fail(config);
    config.seed = 2;
    TextSet *other = text_open_or_fail(config);
    int64_t lengths[SEQ + 1] = { 0 }, equal = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int32_t tokens[SEQ], types[SEQ], again[SEQ];
        int64_t n = text_length(set, SPLIT_TRAIN, i), half = (n - 3) / 2;
        lengths[n]++;
        assert_int_equal(text_read(set, SPLIT_TRAIN, i, tokens, types), -1);
        assert_memory_equal(tokens + 1, tokens + half + 2, (size_t)half * sizeof *tokens);
        for (int64_t k = 0; k < n; k++)
            assert_int_equal(types[k], k > half + 1);
        assert_int_equal(tokens[half + 1], set->corpus.vocab.sep);
        text_read(other, SPLIT_TRAIN, i, again, types);
        equal += tokens[1] == again[1];
        text_read(set, SPLIT_TEST, i, again, types);
        equal += tokens[1] == again[1];
    }
    assert_true(equal < 40); /* 2000 / 295 expected */
    for (int64_t half = 3; half <= 14; half++)
        assert_in_range(lengths[2 * half + 3], 40, 140); /* 1000 / 12 expected */
    text_close(set);
    text_close(other);
}

/* ---- the cache ---- */

/* The one file in the folder, which is not a temporary one. */
static const char *only_file(const char *dir, char path[SAMPLE_PATH_BYTES])
{
    DIR *handle = opendir(dir);
    assert_non_null(handle);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(handle)) != NULL;)
        if (entry->d_name[0] != '.') {
            sample_path(path, dir, entry->d_name);
            files++;
        }
    closedir(handle);
    assert_int_equal(files, 1);
    assert_string_equal(path + strlen(path) - 6, ".cache");
    return path;
}

static void expect_same_corpus(const Corpus *a, const Corpus *b)
{
    assert_int_equal(a->documents, b->documents);
    assert_int_equal(a->tokens.count, b->tokens.count);
    assert_memory_equal(a->tokens.id, b->tokens.id, (size_t)a->tokens.count * sizeof *a->tokens.id);
    assert_memory_equal(a->end, b->end, (size_t)a->documents * sizeof *a->end);
    assert_memory_equal(a->label, b->label, (size_t)a->documents * sizeof *a->label);
    assert_memory_equal(a->test, b->test, (size_t)a->documents);
    assert_int_equal(a->vocab.entries.length, b->vocab.entries.length);
    assert_memory_equal(a->vocab.entries.bytes, b->vocab.entries.bytes, a->vocab.entries.length);
}

static void the_cache_gives_the_same_and_is_refused_when_damaged(void **state)
{
    const TextFolder *folder = *state;
    char cache[SAMPLE_PATH_BYTES], path[SAMPLE_PATH_BYTES];
    sample_make_dir(cache);
    TextConfig config = config_of("gloss-classes", folder->dir);
    TextSet *plain = text_open_or_fail(config);
    setenv("BATCHMARK_CACHE", sample_path(path, cache, "a/b/c"), 1); /* is made */
    char inner[SAMPLE_PATH_BYTES];
    strcpy(inner, path);
    TextSet *first = text_open_or_fail(config);
    expect_same_corpus(&plain->corpus, &first->corpus);
    size_t length;
    uint8_t *good = sample_read(only_file(inner, path), &length);
    ino_t inode = 0;
    for (size_t i = 0; i < 60; i++) {
        TextSet *set = text_open_or_fail(config);
        expect_same_corpus(&plain->corpus, &set->corpus);
        text_close(set);
        size_t now;
        uint8_t *bytes = sample_read(only_file(inner, path), &now); /* after damage it was written anew */
        assert_int_equal(now, length);
        assert_memory_equal(bytes, good, length);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        if (i == 1)
            assert_int_equal(info.st_ino, inode); /* an undamaged one was left alone */
        inode = info.st_ino;
        if (i > 30)
            sample_write(path, bytes, (i - 30) * length / 30 - 1); /* cut */
        else if (i > 0) {
            bytes[i <= 12 ? 8 * i : i * (length - 1) / 30] ^= 1; /* the header, then anywhere */
            sample_write(path, bytes, length);
        }
        free(bytes);
    }
    free(good);
    text_close(first);
    text_close(plain);
    setenv("BATCHMARK_CACHE", "", 1);
    sample_remove_tree(cache);
}

static void the_cache_is_refused_when_the_source_changed(void **state)
{
    const TextFolder *folder = *state;
    char cache[SAMPLE_PATH_BYTES], path[SAMPLE_PATH_BYTES];
    sample_make_dir(cache);
    setenv("BATCHMARK_CACHE", cache, 1);
    TextConfig config = config_of("gloss-classes", folder->dir);
    TextSet *before = text_open_or_fail(config);
    size_t length;
    uint8_t *text = sample_read(sample_path(path, folder->dir, "data.noun"), &length);
    memcpy(strstr((char *)text, "| ") + 2, "zz", 1); /* inside the licence: the corpus is the same */
    sample_write(path, text, length);
    text_close(text_open_or_fail(config));
    char *gloss = strstr((char *)text, "\n0"); /* inside the first gloss */
    gloss = strstr(gloss, "| ") + 2;
    memcpy(gloss, "xy", 2);
    sample_write(path, text, length);
    TextSet *after = text_open_or_fail(config);
    assert_true(before->corpus.tokens.count != after->corpus.tokens.count ||
                memcmp(before->corpus.tokens.id, after->corpus.tokens.id, 400) != 0 ||
                before->corpus.vocab.entries.length != after->corpus.vocab.entries.length);
    config.vocab_size = 200; /* another vocabulary, another file */
    TextSet *small = text_open_or_fail(config);
    assert_int_equal(text_vocab_size(small), 200);
    text_close(small);
    text_close(before);
    text_close(after);
    free(text);
    sample_write_wordnet(folder->dir);
    setenv("BATCHMARK_CACHE", "", 1);
    sample_remove_tree(cache);
}

static void a_cache_that_cannot_be_written_is_done_without(void **state)
{
    const TextFolder *folder = *state;
    char path[SAMPLE_PATH_BYTES];
    setenv("BATCHMARK_CACHE", sample_path(path, folder->dir, "ot.bzs"), 1); /* a file */
    text_close(text_open_or_fail(config_of("bible", folder->dir)));
    setenv("BATCHMARK_CACHE", "/proc/no", 1);
    text_close(text_open_or_fail(config_of("bible", folder->dir)));
    char long_name[3000];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[0] = '/';
    long_name[sizeof long_name - 1] = '\0';
    setenv("BATCHMARK_CACHE", long_name, 1);
    text_close(text_open_or_fail(config_of("bible", folder->dir)));
    setenv("BATCHMARK_CACHE", "", 1);
}

/* ---- memory ---- */

static Status open_and_close(void *context)
{
    TextSet *set = NULL;
    TRY(text_open(context, &set));
    text_close(set);
    return status_ok();
}

static void failing_allocations_are_reported(void **state)
{
    const TextFolder *folder = *state;
    TextConfig configs[] = { config_of("text", folder->dir), config_of("gloss-classes", folder->dir),
                             config_of("copy", NULL) };
    for (size_t i = 0; i < COUNT_OF(configs); i++) {
        configs[i].limit = 20;
        assert_true(fault_alloc_sweep(open_and_close, &configs[i]) > 5);
    }
    char cache[SAMPLE_PATH_BYTES];
    sample_make_dir(cache);
    setenv("BATCHMARK_CACHE", cache, 1);
    assert_true(fault_alloc_sweep(open_and_close, &configs[1]) > 5); /* makes the cache, then reads it */
    assert_true(fault_alloc_sweep(open_and_close, &configs[1]) > 5);
    setenv("BATCHMARK_CACHE", "", 1);
    sample_remove_tree(cache);
}

/* ---- the packages ---- */

static void the_real_packages_are_as_described(void **state)
{
    (void)state;
    TextConfig config = { .name = "gloss-classes", .seq = 128, .classify = true };
    if (access("/usr/share/wordnet/data.noun", R_OK) == 0) {
        TextSet *set = text_open_or_fail(config);
        assert_int_equal(text_count(set, SPLIT_TRAIN) + text_count(set, SPLIT_TEST), 63245); /* WordNet 3.0 */
        assert_string_equal(text_class_name(set, 3), "noun.attribute");
        assert_int_equal(text_vocab_size(set), 30522);
        int64_t unknown = 0;
        for (int64_t i = 0; i < set->corpus.tokens.count; i++)
            unknown += set->corpus.tokens.id[i] == set->corpus.vocab.unk;
        assert_in_range(unknown, 0, 5); /* letters that only the test split has */
        text_close(set);
    } else {
        print_message("skipped: wordnet-base is not installed\n");
    }
    config = (TextConfig){ .name = "bible", .seq = 128, .vocab_size = 4000 };
    if (access("/usr/share/sword/modules/texts/ztext/engWEB2015eb/nt.bzz", R_OK) == 0) {
        TextSet *set = text_open_or_fail(config);
        assert_in_range(set->corpus.documents, 1400, 1600); /* chapters, prefaces among them */
        assert_in_range(set->corpus.tokens.count, 1100000, 1500000);
        text_close(set);
    } else {
        print_message("skipped: sword-text-web is not installed\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configs_are_usage_errors),
        cmocka_unit_test(every_set_gives_sound_samples),
        cmocka_unit_test(passages_make_up_the_chapters),
        cmocka_unit_test(no_text_is_in_both_splits),
        cmocka_unit_test(the_ten_largest_classes_are_kept),
        cmocka_unit_test(limit_keeps_a_seeded_choice),
        cmocka_unit_test(a_given_vocabulary_is_used),
        cmocka_unit_test(copies_are_copies),
        cmocka_unit_test(the_cache_gives_the_same_and_is_refused_when_damaged),
        cmocka_unit_test(the_cache_is_refused_when_the_source_changed),
        cmocka_unit_test(a_cache_that_cannot_be_written_is_done_without),
        cmocka_unit_test(failing_allocations_are_reported),
        cmocka_unit_test(the_real_packages_are_as_described),
    };
    return cmocka_run_group_tests(tests, text_folder_setup, text_folder_teardown);
}
