/* attention.h - inside attention: one head of one sequence, and the two ways to work it out.
 *
 * A head of a sequence of n rows and D features is small enough for the caches of one core, so it is the unit that threads
 * share. Rows of queries go in blocks: their scores against all n keys are made, used and forgotten, so memory grows with
 * n, not with n^2. With a = 1 / sqrt(D), z = keep / (1 - rate), and s = q k^T:
 *   forward   e = exp(a (s - max s)),  y = (keep e) v / ((1 - rate) sum e),  lse = a max s + log sum e
 *   backward  p = exp(a s - lse),  ds = p (keep dy v^T - (1 - rate) dy y^T),
 *             dv = (keep p)^T dy / (1 - rate),  dq = a ds k / (1 - rate),  dk = a ds^T q / (1 - rate) */
#ifndef BATCHMARK_KERNELS_CPU_ATTENTION_H
#define BATCHMARK_KERNELS_CPU_ATTENTION_H

#include "cpu.h"
#include "dropout_vec.h"

typedef struct AttentionHead {
    Dtype       type;                /* of q .. dv */
    int64_t     rows, size;          /* n, D */
    int64_t     qkv_row, y_row, lse_row; /* elements from one row to the next */
    float       scale;               /* a */
    const void *q, *k, *v;           /* all addresses: first row of the span, first feature of the head */
    const void *dy, *y_made;         /* of the gradient */
    void       *y, *dq, *dk, *dv;
    float      *lse;                 /* read by the gradient */
    const DropoutVec *dropout;       /* NULL: keep all */
    int64_t     mask_row;            /* dropout's row of query 0 */
} AttentionHead;

/* Bytes of one thread, a multiple of 64, for heads of up to `rows` rows. */
size_t attention_vec_scratch(int64_t rows, int64_t size, bool gradient);
size_t attention_amx_scratch(int64_t rows, int64_t size, bool gradient);

/* In f32 vectors; f32 and bf16. */
void attention_vec_forward(const AttentionHead *h, void *scratch);
void attention_vec_backward(const AttentionHead *h, void *scratch);

/* On AMX tiles, bf16; the thread has its tiles configured (amx.h). */
void attention_amx_forward(const AttentionHead *h, void *scratch);
void attention_amx_backward(const AttentionHead *h, void *scratch);

#endif
