/* a4_accumulation.h - the analysis behind claim A4, and the comparison of gradients on any backend. */
#ifndef BATCHMARK_BENCH_CLAIMS_A4_ACCUMULATION_H
#define BATCHMARK_BENCH_CLAIMS_A4_ACCUMULATION_H

#include "curves.h"
#include "entry.h"

/* Three convolutions with bias and ReLU, global average, one linear layer: no batch norm, so that samples do not see each
 * other. Of the configuration, batch, size, channels, classes, accumulate and the input's mean and deviation count. */
Status plain_net_build(const NetConfig *config, Net *out);

/* The nets whose gradients are compared: the plain net and BERT with dropout off have no batch norm, the other two do. */
typedef enum CheckNet { CHECK_PLAIN, CHECK_BERT, CHECK_RESNET, CHECK_UNET, CHECK_NETS } CheckNet;
extern const char *const check_net_names[CHECK_NETS]; /* "no batch norm, convolutions", "bert, dropout off", ... */

/* A small configuration of each, with this batch: what the comparison costs a second at most for. */
NetConfig check_net_config(CheckNet which, int64_t batch);

/* |g_k - g_1| / |g_1| over all parameter gradients: g_1 of one batch of config->batch random samples, g_k of the same
 * samples in k micro-batches, both from the same start. Text has a different number of targets in each sequence, so that a mean
 * of the micro-batches' means would show (tests/CASES.md D12). plain: the net above; else the net that the configuration names.
 * config->batch must be divisible by k. STATUS_NUMERIC if the gradient is not a number or zero. */
Status accumulation_distance(Backend *be, const NetConfig *config, bool plain, int64_t k, uint64_t seed, double *distance);

/* What rounding allows in fp32. Images: a weight's gradient is a sum over batch x size x size products: 4 x 2^-24 x the root of
 * their number (errors of random sign; 4 for the layers in between). Text: 1e-5, the layers are deeper. */
double accumulation_bound(const NetConfig *config);

typedef struct GradientCheck { int64_t k, batch; double distance[CHECK_NETS], bound[CHECK_NETS]; } GradientCheck; /* NaN = not compared */

/* One accumulated cell beside the two it is compared with. */
typedef struct AccumulationPair { CellPoint small, accumulated, large; } AccumulationPair;

enum { PAIRS_MAX = 24 };
size_t accumulation_pairs(const CellPoints *points, AccumulationPair pairs[PAIRS_MAX]);

/* The verdict: CONTRADICTED if gradients differ without batch norm, or memory is not saved; PARTLY if they differ with
 * batch norm only, memory is more than 1.1 x the small batch's, or one half could not be measured; NOT_RUN if neither. */
Verdict accumulation_judge(const GradientCheck *checks, size_t check_count, const AccumulationPair *pairs, size_t pair_count);

#endif
