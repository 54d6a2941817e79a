/* tiny_text.h - a small BERT for tests and its batches: sequences that are the same wherever they lie.
 *
 * Every function fails the running cmocka test on an error. */
#ifndef BATCHMARK_TESTS_TINY_TEXT_H
#define BATCHMARK_TESTS_TINY_TEXT_H

#include "tiny_net.h"

/* bert with 2 layers of 32 features, 2 heads, 60 entries, sequences of at most 20 tokens, 24 positions, no dropout. */
NetConfig tiny_bert(int64_t batch);

/* Sequence `id`: its tokens, and the labels of its first `targets` tokens, follow from the number alone. length 0 = none. */
typedef struct TinySequence { int id, length, targets; } TinySequence;

enum { TINY_PACKED = 0 }; /* as a stride: sequences lie back to back */

/* One micro-batch in memory of its own, shaped by the net's configuration. */
typedef struct TinyText {
    int32_t   *tokens, *positions, *types, *spans, *rows, *labels;
    MicroBatch batch;
} TinyText;

/* Lays the sequences out with `stride` rows from one to the next. Classification: the class is id modulo the classes. */
TinyText tiny_text(const NetConfig *config, const TinySequence *sequences, int count, int64_t stride);
void     tiny_text_free(TinyText *text);

/* Gradients of one window of micro-batches, without the update; returns the loss sum. */
double tiny_text_window(Tiny *t, const TinyText *micro, int count);

/* Fails unless every gradient of a is that of b: |a - b| <= limit (|b| + |all gradients of b| / 100). */
void expect_same_gradients(Tiny *a, Tiny *b, double limit);

#endif
