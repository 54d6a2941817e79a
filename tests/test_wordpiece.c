/* test_wordpiece.c - words, vocabularies and word pieces: known examples, damaged vocabularies, training against a
 * count that starts afresh at every merge. */
#include "../datasets/wordpiece.h"
#include "fault_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- UTF-8 and words ---- */

static void utf8_is_decoded_strictly(void **state)
{
    (void)state;
    static const struct { const char *bytes; uint32_t c; size_t used; } cases[] = {
        { "A", 'A', 1 },           { "\xC3\xA9", 0xE9, 2 },           { "\xE2\x82\xAC", 0x20AC, 3 },
        { "\xF0\x9F\x98\x80", 0x1F600, 4 }, { "\xC0\x80", 0xFFFD, 1 }, { "\xC1\xBF", 0xFFFD, 1 },
        { "\xE0\x80\x80", 0xFFFD, 1 }, { "\xED\xA0\x80", 0xFFFD, 1 }, { "\xF4\x90\x80\x80", 0xFFFD, 1 },
        { "\xF5\x80\x80\x80", 0xFFFD, 1 }, { "\x80", 0xFFFD, 1 },     { "\xE2\x82", 0xFFFD, 1 },
        { "\xC3(", 0xFFFD, 1 },    { "\xEF\xBF\xBD", 0xFFFD, 3 },     { "\xF4\x8F\xBF\xBF", 0x10FFFF, 4 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t at = 0;
        assert_int_equal(utf8_decode(cases[i].bytes, strlen(cases[i].bytes), &at), cases[i].c);
        assert_int_equal(at, cases[i].used);
    }
    for (uint32_t c = 1; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
        char bytes[4];
        size_t at = 0, n = utf8_encode(c, bytes);
        bool surrogate = c >= 0xD800 && c < 0xE000;
        assert_int_equal(utf8_decode(bytes, n, &at), surrogate ? 0xFFFD : c);
        assert_int_equal(at, surrogate ? 1 : n);
    }
}

static Status note_word(void *context, Word *word)
{
    char *out = context;
    sprintf(out + strlen(out), "%s%.*s", *out ? "|" : "", (int)word->length, word->bytes);
    return status_ok();
}

static void expect_words(const char *text, const char *want)
{
    char got[2000] = "";
    assert_int_equal(split_words(text, strlen(text), note_word, got).code, STATUS_OK);
    assert_string_equal(got, want);
}

static void words_are_lower_case_without_accents(void **state)
{
    (void)state;
    expect_words("", "");
    expect_words(" \t\r\n", "");
    expect_words("Hello, World!", "hello|,|world|!");
    expect_words("don't re-use_it", "don|'|t|re|-|use|_|it");
    expect_words("H\u00E9llo W\u00D6RLD na\u00EFve \u00C7a", "hello|world|naive|ca");
    /* what does not decompose stays */
    expect_words("\u0141\u00F3d\u017A \u0130stanbul \u0158eka \u0178 \u0152uvre \u00D8re \u00DF",
                 "\u0142odz|istanbul|reka|y|\u0153uvre|\u00F8re|\u00DF");
    expect_words("e\u0301a\u0308", "ea"); /* combining accents */
    expect_words("\u0391\u03B2\u0393 \u0410\u0411\u0451 \u0401", "\u03B1\u03B2\u03B3|\u0430\u0431\u0451|\u0451");
    expect_words("a\u4E2D\u6587b", "a|\u4E2D|\u6587|b");
    expect_words("a\u00A0b\u3000c\u2003d", "a|b|c|d");
    expect_words("a\u200Bb\x01" "c\u00AD" "d\uFEFF", "abcd");
    expect_words("\u201Cquote\u201D\u2014x\u2026", "\u201C|quote|\u201D|\u2014|x|\u2026");
    expect_words("a\xFF\xC3" "b", "ab"); /* no UTF-8: dropped */
}

/* ---- vocabularies ---- */

#define SPECIALS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

static Vocab parse_or_fail(const char *text, int64_t size)
{
    Vocab vocab;
    Status status = vocab_parse(text, strlen(text), "v.txt", size, &vocab);
    if (status.code != STATUS_OK)
        fail_msg("vocab_parse: %s", status.text);
    return vocab;
}

static void expect_bad_vocab_bytes(const char *text, size_t length, int64_t size, const char *word)
{
    Vocab vocab;
    Status status = vocab_parse(text, length, "v.txt", size, &vocab);
    vocab_free(&vocab);
    if (status.code != STATUS_INPUT || !strstr(status.text, word) || !strstr(status.text, "v.txt"))
        fail_msg("expected '%s', got %s: %s", word, status_code_name(status.code), status.text);
}

static void expect_bad_vocab(const char *text, int64_t size, const char *word)
{
    expect_bad_vocab_bytes(text, strlen(text), size, word);
}

static void damaged_vocabularies_are_refused(void **state)
{
    (void)state;
    expect_bad_vocab("", 0, "empty");
    expect_bad_vocab(SPECIALS, 0, "no entries besides");
    expect_bad_vocab(SPECIALS "a\n\nb\n", 0, "line 7 is empty");
    expect_bad_vocab(SPECIALS "a\r\n\r\nb\n", 0, "line 7 is empty");
    expect_bad_vocab(SPECIALS "a\nb\na\n", 0, "line 8 repeats the entry 'a' of line 6");
    expect_bad_vocab(SPECIALS "a\nb", 0, "line 7 has no end");
    expect_bad_vocab(SPECIALS "a\n\xC3(\n", 0, "line 7 is not UTF-8");
    expect_bad_vocab_bytes(SPECIALS "a\0b\n", sizeof SPECIALS + 3, 0, "line 6 is not UTF-8");
    expect_bad_vocab(SPECIALS "a\nb\n", 6, "more than 6 entries");
    expect_bad_vocab("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", 0, "[MASK] is missing");
    expect_bad_vocab("[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", 0, "[PAD] is missing");
    char line[600] = SPECIALS;
    memset(line + strlen(line), 'a', 500);
    strcat(line, "\n");
    expect_bad_vocab(line, 0, "line 6 is 500 bytes long");
}

static void vocabularies_are_filled_up(void **state)
{
    (void)state;
    Vocab vocab = parse_or_fail("[UNK]\n[unused1]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\nx\r\n##y\n", 11);
    assert_int_equal(vocab.entries.count, 11);
    assert_int_equal(vocab.unk, 0);
    assert_int_equal(vocab.pad, 2);
    assert_int_equal(vocab.mask, 5);
    assert_int_equal(vocab.ordinaries, 2);
    assert_int_equal(vocab.ordinary[1], 7);
    assert_string_equal(strings_get(&vocab.entries, 6), "x");
    assert_string_equal(strings_get(&vocab.entries, 8), "[unused0]");
    assert_string_equal(strings_get(&vocab.entries, 9), "[unused2]");
    vocab_free(&vocab);
}

static void expect_pieces(const Vocab *vocab, const char *text, const char *want)
{
    Tokens tokens = { NULL, 0, 0 };
    assert_int_equal(wordpiece_encode(vocab, text, strlen(text), &tokens).code, STATUS_OK);
    char got[2000] = "";
    for (int64_t i = 0; i < tokens.count; i++)
        sprintf(got + strlen(got), "%s%s", i ? " " : "", strings_get(&vocab->entries, tokens.id[i]));
    free(tokens.id);
    assert_string_equal(got, want);
}

static void words_are_cut_greedily(void **state)
{
    (void)state;
    Vocab vocab = parse_or_fail(SPECIALS "want\n##want\n##ed\nwa\nun\nrunn\n##ing\n,\n##aff\n##able\n##a\n##affa\n"
                                "low\nlowest\na\n\u00E6\n##\u00E6\n", 0);
    expect_pieces(&vocab, "UNwant\u00E9d,running", "un ##want ##ed , runn ##ing");
    expect_pieces(&vocab, "unaff", "un ##aff");
    expect_pieces(&vocab, "unaffable", "[UNK]"); /* ##affa is longer than ##aff, and nothing goes on with "ble" */
    expect_pieces(&vocab, "lowest low lowing lows", "lowest low low ##ing [UNK]");
    expect_pieces(&vocab, "wanted x want", "want ##ed [UNK] want");
    expect_pieces(&vocab, "ed ##ed", "[UNK] [UNK] [UNK] [UNK]"); /* a piece with marks begins no word */
    expect_pieces(&vocab, "\u00C6\u00E6", "\u00E6 ##\u00E6");
    expect_pieces(&vocab, "[CLS]", "[UNK] [UNK] [UNK]"); /* text cannot make special tokens */
    char word[110] = "";
    memset(word, 'a', 100);
    Tokens tokens = { NULL, 0, 0 };
    assert_int_equal(wordpiece_encode(&vocab, word, 100, &tokens).code, STATUS_OK);
    assert_int_equal(tokens.count, 100);
    word[100] = 'a';
    assert_int_equal(wordpiece_encode(&vocab, word, 101, &tokens).code, STATUS_OK);
    assert_int_equal(tokens.count, 101);
    assert_int_equal(tokens.id[100], vocab.unk);
    free(tokens.id);
    vocab_free(&vocab);

    vocab = parse_or_fail(SPECIALS "un\n##aff\n##able\n", 0);
    expect_pieces(&vocab, "unaffable", "un ##aff ##able"); /* the example of BERT's own documentation */
    vocab_free(&vocab);
}

/* ---- training ---- */

static char *train_or_fail(const char *text, int64_t size)
{
    WordCounts counts;
    memset(&counts, 0, sizeof counts);
    char *out = NULL;
    size_t length = 0;
    assert_int_equal(word_counts_add(&counts, text, strlen(text)).code, STATUS_OK);
    assert_int_equal(vocab_train(&counts, size, &out, &length).code, STATUS_OK);
    word_counts_free(&counts);
    char *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, out, length);
    copy[length] = '\0';
    free(out);
    return copy;
}

/* Sennrich et al. 2016, figure 1's words: low 5, lower 2, newest 6, widest 3. */
static void the_papers_example_is_merged_as_by_hand(void **state)
{
    (void)state;
    char *vocab = train_or_fail("low low low low low lower lower newest newest newest newest newest newest "
                                "widest widest widest", 32);
    assert_string_equal(vocab, SPECIALS "##e\n##w\n##s\n##t\nl\n##o\nn\nw\n##i\n##d\n##r\n"
                                        "##es\n##est\nlo\nlow\nne\n##west\nnewest\nwi\n##dest\nwidest\n##er\nlower\n");
    free(vocab);
}

typedef struct Spelling { char piece[12][16]; int pieces; int64_t times; } Spelling;

/* How often two pieces are neighbours, counted afresh. */
static int64_t count_pair(const Spelling *words, int n, const char *left, const char *right)
{
    int64_t times = 0;
    for (int w = 0; w < n; w++)
        for (int i = 0; i + 1 < words[w].pieces; i++)
            if (strcmp(words[w].piece[i], left) == 0 && strcmp(words[w].piece[i + 1], right) == 0)
                times += words[w].times;
    return times;
}

/* Of the most frequent pairs (pieces of one word tie) one that makes `wanted`, or else one that makes a piece that is
 * known already; returns its count, 0 where there is neither. */
static int64_t find_best(const Spelling *words, int n, const char *wanted, const Strings *seen, char left[16],
                         char right[16])
{
    int64_t most = 0, found = 0;
    bool exact = false;
    for (int pass = 0; pass < 2; pass++)
        for (int w = 0; w < n; w++)
            for (int i = 0; i + 1 < words[w].pieces; i++) {
                const char *a = words[w].piece[i], *b = words[w].piece[i + 1];
                int64_t times = count_pair(words, n, a, b);
                if (pass == 0) {
                    most = times > most ? times : most;
                    continue;
                }
                char merged[32];
                size_t length = (size_t)snprintf(merged, sizeof merged, "%.15s%.13s", a, b + 2);
                bool is_wanted = strcmp(merged, wanted) == 0;
                bool known = strings_find(seen, merged, length, strings_hash(STRINGS_HASH, merged, length)) >= 0;
                if (times < most || exact || !(is_wanted || known))
                    continue;
                exact = is_wanted;
                found = times;
                strcpy(left, a);
                strcpy(right, b);
            }
    return found;
}

static void merge_in(Spelling *word, const char *left, const char *right)
{
    for (int i = 0; i + 1 < word->pieces; i++) {
        if (strcmp(word->piece[i], left) != 0 || strcmp(word->piece[i + 1], right) != 0)
            continue;
        strcat(word->piece[i], right + 2);
        memmove(word->piece[i + 1], word->piece[i + 2], sizeof word->piece[0] * (size_t)(word->pieces - i - 2));
        word->pieces--;
    }
}

/* Words without a repeated letter (so that places of a pair never overlap), with random counts (so that few tie). */
static int make_words(WordCounts *counts, Spelling *words)
{
    int n = 0;
    for (uint64_t i = 0; i < 60; i++) {
        char letters[] = "abcdefghi", word[10] = "";
        int length = 2 + (int)rng_below(5, 1, i, 7);
        for (int k = 0; k < length; k++) {
            int pick = k + (int)rng_below(5, 2, 100 * i + (uint64_t)k, k < 3 ? 3 : 9 - k);
            char c = letters[pick];
            letters[pick] = letters[k];
            letters[k] = word[k] = c;
        }
        int64_t number;
        assert_int_equal(strings_add(&counts->words, word, (size_t)length, &number).code, STATUS_OK);
        if (number < n)
            continue;
        void **times = (void **)&counts->times;
        assert_int_equal(grow_array(times, number, &counts->capacity, sizeof *counts->times).code, STATUS_OK);
        Spelling *s = &words[n++];
        memset(s, 0, sizeof *s);
        s->times = counts->times[number] = 1000 + rng_below(5, 3, i, 1000000000);
        s->pieces = length;
        for (int k = 0; k < length; k++)
            sprintf(s->piece[k], "%s%c", k ? "##" : "", word[k]);
    }
    return n;
}

static void merges_follow_counts_taken_afresh(void **state)
{
    (void)state;
    WordCounts counts;
    memset(&counts, 0, sizeof counts);
    Spelling words[60];
    int n = make_words(&counts, words);
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(vocab_train(&counts, 1000, &text, &length).code, STATUS_OK);
    Vocab vocab;
    assert_int_equal(vocab_parse(text, length, "trained", 0, &vocab).code, STATUS_OK);
    int64_t at = 5;
    while (strlen(strings_get(&vocab.entries, at)) == (strings_get(&vocab.entries, at)[0] == '#' ? 3u : 1u))
        at++;
    Strings seen;
    memset(&seen, 0, sizeof seen);
    char left[16], right[16], merged[32];
    int64_t merges = 0;
    for (;;) {
        const char *wanted = at < vocab.entries.count ? strings_get(&vocab.entries, at) : "";
        if (find_best(words, n, wanted, &seen, left, right) < 2)
            break;
        int64_t number, before = seen.count;
        size_t bytes = (size_t)snprintf(merged, sizeof merged, "%.15s%.13s", left, right + 2);
        assert_int_equal(strings_add(&seen, merged, bytes, &number).code, STATUS_OK);
        at += seen.count > before; /* else two ways lead to one piece */
        for (int w = 0; w < n; w++)
            merge_in(&words[w], left, right);
        merges++;
    }
    for (int w = 0; w < n; w++)
        assert_int_equal(words[w].pieces, 1); /* all merges were found */
    assert_int_equal(at, vocab.entries.count);
    assert_true(merges > 60);
    strings_free(&seen);
    vocab_free(&vocab);
    free(text);
    word_counts_free(&counts);
}

static void repeated_letters_are_merged_from_the_left(void **state)
{
    (void)state;
    char *vocab = train_or_fail("aaaaa aaaaa", 32); /* a ##a ##a ##a ##a: (##a ##a) three times, then two of them */
    Vocab v = parse_or_fail(vocab, 0);
    assert_string_equal(strings_get(&v.entries, 7), "##aa");
    expect_pieces(&v, "aaaaa", "aaaaa");
    vocab_free(&v);
    free(vocab);
}

static void the_size_is_never_exceeded(void **state)
{
    (void)state;
    char text[4000] = "";
    for (uint32_t c = 0x3B1; c < 0x3B1 + 25; c++) /* 25 letters, each beginning and continuing a word, and rarer ones */
        for (uint32_t d = 0; d <= 0x3B1 + 25 - c; d++) {
            char word[8] = "";
            utf8_encode(c, word);
            utf8_encode(c, word + 2);
            strcat(strcat(text, word), " ");
        }
    for (int64_t size = 32; size <= 80; size += 12) {
        char *vocab = train_or_fail(text, size);
        Vocab v = parse_or_fail(vocab, size);
        assert_int_equal(v.entries.count, size);
        if (size == 32) {
            expect_pieces(&v, "\u03B1\u03B1", "\u03B1 ##\u03B1"); /* the most frequent letters are in, no merges */
            expect_pieces(&v, "\u03C9\u03C9", "[UNK]");
        }
        vocab_free(&v);
        free(vocab);
    }
}

static void the_layout_is_that_of_bert_where_there_is_room(void **state)
{
    (void)state;
    char *vocab = train_or_fail("some words and some more words", 2000);
    Vocab v = parse_or_fail(vocab, 2000);
    assert_int_equal(v.pad, 0);
    assert_int_equal(v.unk, 100);
    assert_int_equal(v.cls, 101);
    assert_int_equal(v.sep, 102);
    assert_int_equal(v.mask, 103);
    assert_string_equal(strings_get(&v.entries, 1), "[unused0]");
    assert_string_equal(strings_get(&v.entries, 99), "[unused98]");
    assert_int_equal(v.ordinary[0], 104);
    assert_string_equal(strings_get(&v.entries, 1999), "[unused1976]"); /* 104 and 18 pieces, then from [unused99] on */
    char *again = train_or_fail("some words and some more words", 2000);
    assert_string_equal(vocab, again);
    free(again);
    vocab_free(&v);
    free(vocab);
}

static Status train_and_encode(void *context)
{
    const char *text = context;
    WordCounts counts;
    memset(&counts, 0, sizeof counts);
    Vocab vocab;
    memset(&vocab, 0, sizeof vocab);
    Tokens tokens = { NULL, 0, 0 };
    char *lines = NULL;
    size_t length = 0;
    Status status;
    TRY_GOTO(status, word_counts_add(&counts, text, strlen(text)), out);
    TRY_GOTO(status, vocab_train(&counts, 64, &lines, &length), out);
    TRY_GOTO(status, vocab_parse(lines, length, "trained", 64, &vocab), out);
    TRY_GOTO(status, wordpiece_encode(&vocab, text, strlen(text), &tokens), out);
out:
    free(lines);
    free(tokens.id);
    vocab_free(&vocab);
    word_counts_free(&counts);
    return status;
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    static char text[20000] = "";
    for (uint64_t i = 0; i < 2500; i++)
        sprintf(text + strlen(text), "%x%s", (unsigned)rng_block(1, 2, i).word[0] & 0xFFFF, i % 2 ? " " : "g");
    assert_true(fault_alloc_sweep(train_and_encode, text) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_decoded_strictly),
        cmocka_unit_test(words_are_lower_case_without_accents),
        cmocka_unit_test(damaged_vocabularies_are_refused),
        cmocka_unit_test(vocabularies_are_filled_up),
        cmocka_unit_test(words_are_cut_greedily),
        cmocka_unit_test(the_papers_example_is_merged_as_by_hand),
        cmocka_unit_test(merges_follow_counts_taken_afresh),
        cmocka_unit_test(repeated_letters_are_merged_from_the_left),
        cmocka_unit_test(the_size_is_never_exceeded),
        cmocka_unit_test(the_layout_is_that_of_bert_where_there_is_room),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
