/* fuzz_wordpiece.c - arbitrary bytes as a vocab.txt and a text (behind the first NUL), and as a corpus that a
 * vocabulary is made from; every text must become ids of that vocabulary. */
#include "fuzz.h"

#include "datasets/wordpiece.h"

#include <stdlib.h>

static void encode(const Vocab *vocab, const char *text, size_t length)
{
    Tokens tokens = { NULL, 0, 0 };
    CHECK(wordpiece_encode(vocab, text, length, &tokens).code == STATUS_OK);
    CHECK(tokens.count <= (int64_t)length);
    for (int64_t i = 0; i < tokens.count; i++)
        CHECK(tokens.id[i] >= 0 && tokens.id[i] < vocab->entries.count);
    free(tokens.id);
}

static void read_vocabulary(const char *vocab_text, size_t vocab_length, const char *text, size_t length, int64_t size)
{
    Vocab vocab;
    Status status = vocab_parse(vocab_text, vocab_length, "vocab.txt", size, &vocab);
    if (fuzz_accepted(&status)) {
        CHECK(size == 0 || vocab.entries.count == size);
        encode(&vocab, text, length);
    }
    vocab_free(&vocab);
}

static void train(const char *text, size_t length, int64_t size)
{
    WordCounts counts;
    memset(&counts, 0, sizeof counts);
    CHECK(word_counts_add(&counts, text, length).code == STATUS_OK);
    char *lines = NULL;
    size_t bytes = 0;
    CHECK(vocab_train(&counts, size, &lines, &bytes).code == STATUS_OK);
    Vocab vocab;
    Status status = vocab_parse(lines, bytes, "own", size, &vocab);
    CHECK((status.code == STATUS_OK) == (counts.words.count > 0)); /* without words there are only special entries */
    if (status.code == STATUS_OK) {
        CHECK(vocab.entries.count == size);
        encode(&vocab, text, length);
    }
    vocab_free(&vocab);
    free(lines);
    word_counts_free(&counts);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 1 || length > 1 << 14)
        return 0;
    int64_t size = VOCAB_SIZE_MIN + bytes[0];
    const char *text = (const char *)bytes + 1;
    length--;
    const char *nul = memchr(text, '\0', length);
    size_t head = nul ? (size_t)(nul - text) : length;
    read_vocabulary(text, head, text + head, length - head, bytes[0] & 1 ? size : 0);
    static const char specials[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    char *whole = malloc(sizeof specials + length); /* with what few inputs would have */
    CHECK(whole);
    memcpy(whole, specials, sizeof specials - 1);
    memcpy(whole + sizeof specials - 1, text, length);
    read_vocabulary(whole, sizeof specials - 1 + head, text + head, length - head, 0);
    free(whole);
    train(text, length, size);
    return 0;
}
