/* random_batch.h - generated host data of one micro-batch, for timing and verification: speed does not depend on what it
 * shows. */
#ifndef BATCHMARK_BENCH_RANDOM_BATCH_H
#define BATCHMARK_BENCH_RANDOM_BATCH_H

#include "../nets/nets.h"

/* Random pixels with labels or masks; for bert sequences of full length, with as many targets as the head has rows (15 % of a
 * sequence; with a head over all rows the others have no label). STATUS_OOM. random_batch_free takes any state. */
Status random_batch_create(const NetConfig *net, uint64_t seed, MicroBatch *out);
void   random_batch_free(MicroBatch *batch);

#endif
