/* text_corpus.c - documents to ids: the split, the vocabulary, the tokens.
 *
 * A document is in the test split when the hash of its text says so: about one in ten, the same for every seed, and
 * equal texts on the same side. A vocabulary is made from the training documents alone. */
#include "text_source.h"

#include <stdlib.h>
#include <string.h>

enum { TEST_ONE_IN = 10 };

static bool is_test(const char *text, size_t length)
{
    uint64_t hash = strings_hash(STRINGS_HASH, text, length);
    return (hash ^ hash >> 32) % TEST_ONE_IN == 0;
}

static const char *text_of(const Documents *d, int64_t i, size_t *length)
{
    int64_t start = documents_start(d, i);
    *length = (size_t)(d->end[i] - start);
    return d->bytes + start;
}

static Status make_vocab(const Documents *d, const uint8_t *test, int64_t size, Vocab *out)
{
    WordCounts counts;
    memset(&counts, 0, sizeof counts);
    char *text = NULL;
    size_t length = 0;
    Status status = status_ok();
    for (int64_t i = 0; i < d->count; i++) {
        size_t bytes;
        const char *document = text_of(d, i, &bytes);
        if (!test[i])
            TRY_GOTO(status, word_counts_add(&counts, document, bytes), out);
    }
    TRY_GOTO(status, vocab_train(&counts, size, &text, &length), out);
    status = vocab_parse(text, length, "own vocabulary", size, out);
out:
    free(text);
    word_counts_free(&counts);
    return status;
}

Status corpus_build(const Documents *d, const FileBytes *vocab_file, int64_t vocab_size, Corpus *out)
{
    memset(out, 0, sizeof *out);
    size_t count = (size_t)d->count;
    out->documents = d->count;
    out->end = malloc((count + 1) * sizeof *out->end);
    out->label = malloc((count + 1) * sizeof *out->label);
    out->test = malloc(count + 1);
    if (!out->end || !out->label || !out->test)
        return status_error(STATUS_OOM, "text: no memory for %zu documents", count);
    for (int64_t i = 0; i < d->count; i++) {
        size_t length;
        const char *text = text_of(d, i, &length);
        out->test[i] = is_test(text, length);
        out->label[i] = d->label[i];
    }
    TRY(vocab_file ? vocab_parse(vocab_file->bytes, vocab_file->length, vocab_file->path, vocab_size, &out->vocab)
                   : make_vocab(d, out->test, vocab_size, &out->vocab));
    for (int64_t i = 0; i < d->count; i++) {
        size_t length;
        const char *text = text_of(d, i, &length);
        TRY(wordpiece_encode(&out->vocab, text, length, &out->tokens));
        out->end[i] = out->tokens.count;
    }
    return status_ok();
}

void corpus_free(Corpus *corpus)
{
    vocab_free(&corpus->vocab);
    free(corpus->tokens.id);
    free(corpus->end);
    free(corpus->label);
    free(corpus->test);
    memset(corpus, 0, sizeof *corpus);
}
