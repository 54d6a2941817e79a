/* workload.h - a small net that is made, trained and destroyed on the CUDA backend, from opening the device to closing it: what
 * the tests of replay and of faults do again and again. Errors come back as a Status, and leave nothing behind. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_WORKLOAD_H
#define BATCHMARK_TESTS_CUDA_HOST_WORKLOAD_H

#include "../tiny_net.h"

typedef enum WorkloadKind {
    WORKLOAD_PLAIN,    /* convolutions with bias and ReLU, max pool, a linear layer; SGD with clipping */
    WORKLOAD_BERT      /* tiny_bert with one layer: embeddings, layer norm, attention, GELU; AdamW */
} WorkloadKind;

typedef struct Workload {
    WorkloadKind kind;
    Dtype        type;        /* f32, bf16 or f16 */
    int          steps;       /* updates of two micro-batches each */
    ExecOptions  options;
    void       (*created)(void); /* called when the executor is there; NULL = nothing */
} Workload;

/* The fake runtime as it starts, with the fake cuDNN and cuBLASLt. */
void workload_set_up(void);

/* hash: of all weights and of the optimiser's state at the end, bit by bit; loss: the last one. */
typedef struct WorkloadResult { uint64_t hash; double loss; } WorkloadResult;
Status workload_run(const Workload *w, WorkloadResult *out);

#endif
