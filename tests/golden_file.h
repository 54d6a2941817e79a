/* golden_file.h - what the tests against PyTorch's golden files (golden/<net>_tiny.json) share: the file, the parameters drawn
 * as it says, and the comparison of the first step and of whole curves. What a net's batches hold is its test's business.
 *
 * The device is that of test_device.h. Every function fails the running cmocka test on an error. */
#ifndef BATCHMARK_TESTS_GOLDEN_FILE_H
#define BATCHMARK_TESTS_GOLDEN_FILE_H

#include "tiny_net.h"

#include <jansson.h>

/* One variant (a loss or a head) of one net. */
typedef struct Golden { json_t *root, *config, *variant, *curves; } Golden;

Golden golden_open(const char *net, const char *variant);
void   golden_close(Golden *golden);

double      golden_number(const json_t *object, const char *key);
const char *golden_string(const json_t *object, const char *key);

/* How many recipes the variant was trained with. */
int golden_curve_count(const Golden *golden);

/* How far a result may be from PyTorch's, relative. */
typedef struct GoldenLimits {
    double logits, first_loss, first_norm; /* of the first step: it has no history */
    double later_loss;                     /* of the others: the rounding errors of a step are multiplied by the next */
} GoldenLimits;

/* For f32, from what the file says of PyTorch's own f32 against float64: ten times its distance in the first step; five times
 * its largest distance in any of the net's curves. Never below what sums of a few thousand f32 terms in another order make
 * of it. */
GoldenLimits golden_limits(const Golden *golden);

/* Where a test's batches come from. All samples of a step are drawn at once and cut into micro-batches. */
typedef struct GoldenBatches {
    int64_t (*draw)(void *data, int step); /* returns what the window counts: labelled samples, pixels, targets */
    MicroBatch (*micro)(void *data, int64_t first, int64_t count); /* samples first .. first + count - 1 of the drawn step */
    bool (*compared)(void *data, int64_t row); /* whether a row of a matrix of logits is one of PyTorch's; NULL = all are */
    void   *data;
    int64_t samples;
} GoldenBatches;

/* The first step in f32 as one micro-batch, with each optimiser: loss, logits, every parameter's gradient, and what the update
 * makes of every parameter. */
void golden_check_first(const Golden *golden, const NetConfig *config, const GoldenBatches *batches);

/* Ten steps with the recipe of this number (optimiser, micro-batches, clipping), and an evaluation. */
void golden_follow(const Golden *golden, const NetConfig *config, int curve, Amp amp, const GoldenLimits *limits,
                   const GoldenBatches *batches);

#endif
