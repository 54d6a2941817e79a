/* tiny_net.h - small nets and data for tests: a ResNet-50 narrow enough to run in a blink, and a net without batch norm.
 *
 * Every function fails the running cmocka test on an error. */
#ifndef BATCHMARK_TESTS_TINY_NET_H
#define BATCHMARK_TESTS_TINY_NET_H

#include "../nets/nets.h"
#include "../nets/optim.h"

/* Fails the test with the status' own text. */
void expect_ok(Status s);

/* Fails the test unless the status has this code and its text holds the word. */
void expect_error(Status s, StatusCode code, const char *word);

/* "ref" or a name that backend_open knows; one thread, or as many as stand behind a slash: "cpu/2". (With more threads than
 * free cores every parallel loop waits for the scheduler: on a busy machine a small net is ten times slower.) */
Backend *tiny_backend(const char *name);

/* resnet50 of width 1/8 (16 to 256 channels), small stem, 32 pixels, 10 classes; last gammas of blocks 0. */
NetConfig tiny_config(int64_t batch);

/* A net of the same interface without batch norm, 16 pixels: convolutions with bias and ReLU, max pool, an addition, a
 * linear layer. */
void plain_net_build(int64_t batch, bool accumulate, Net *out);

/* The same with another optimiser, precision (with a loss scale if the optimiser has one), or batch norm after each
 * convolution. */
typedef struct PlainConfig {
    int64_t     batch;
    Dtype       type;
    bool        batch_norm;
    float       deviation; /* that the pixels, from 0 to 1, are divided by after 1/2 is taken off */
    OptimConfig optim;
} PlainConfig;
PlainConfig plain_config(int64_t batch, bool accumulate); /* SGD with momentum 0.9; the others' numbers are set too */
void plain_net_build_as(const PlainConfig *config, Net *out);

/* Random images and labels; the caller frees with tiny_data_free. */
typedef struct TinyData { uint8_t *pixels; int32_t *labels; } TinyData;
TinyData tiny_data(const NetConfig *config, uint64_t seed);
void     tiny_data_free(TinyData *data);
MicroBatch tiny_batch(const TinyData *data, const NetConfig *config, int64_t first_sample);

/* A session with everything it stands on, its parameters set from seed 1 and moved off starts of exactly 0 and 1. */
typedef struct Tiny { Net net; Backend *be; Session session; } Tiny;
void tiny_open(const NetConfig *config, const char *backend, const ExecOptions *options, Tiny *out);
void tiny_bind(Tiny *t, const char *backend, const ExecOptions *options); /* the same for a net that is built already */
void tiny_close(Tiny *t);

/* Trains `steps` updates of `accum` micro-batches each on data of this seed and returns the last result. */
StepResult tiny_train(Tiny *t, int steps, int accum, uint64_t seed);

/* A value as floats (bf16 and f16 widened); the caller frees. */
float *tiny_read(Tiny *t, Value v);

/* Hash of all parameters and running statistics, bit by bit. */
uint64_t tiny_hash(Tiny *t);

/* |a - b| / |b| over two values of the same shape, in the 2-norm; fails on NaN and where b is all 0. */
double tiny_distance(Tiny *a, Value va, Tiny *b, Value vb);

#endif
