/* b16_rules_of_thumb.h - the analysis behind claim B16: pure functions of throughput curves. */
#ifndef BATCHMARK_BENCH_CLAIMS_B16_RULES_OF_THUMB_H
#define BATCHMARK_BENCH_CLAIMS_B16_RULES_OF_THUMB_H

#include "curves.h"
#include "entry.h"

/* What one throughput curve says about the rule "32 to 256" for vision nets; of text the batches count twice, as sequences and as
 * tokens. */
typedef struct ThumbRule {
    bool    text;
    int64_t tokens;         /* in one sequence; 1 for images */
    size_t  points;         /* batches with a throughput */
    double  peak;           /* samples/s */
    int64_t peak_batch;
    int64_t first, last;    /* smallest and largest measured batch within 5 % of the peak */
    size_t  inside;         /* measured batches from 32 to 256 */
    size_t  inside_good;    /* of these, within 5 % of the peak */
    bool    decided;        /* at least three batches, one of them from 32 to 256 */
} ThumbRule;

ThumbRule rules_of_thumb_read(const Curve *curve);

/* Over the curves of images: NOT_RUN if none is decided; CONTRADICTED if no batch from 32 to 256 is within 5 % of the peak; else
 * PARTLY: of the three parts of the claim throughput can settle the one on vision nets. Text is reported and not judged. */
Verdict rules_of_thumb_judge(const ThumbRule *rules, size_t count);

#endif
