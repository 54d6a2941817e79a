/* matmul.h - one matrix product by cuBLASLt. An LtCall says all of it in plain numbers; the descriptors that the library wants are
 * built from it in one place, so that a test can compute the same product from them.
 *
 *   D (m,n) = epilogue(op(A) (m,k) op(B) (k,n) + beta D),   sums in f32
 *
 * cuBLASLt's matrices are column-major: a row-major (R,C) matrix is its (C,R) matrix with leading dimension C. */
#ifndef BATCHMARK_KERNELS_CUDA_MATMUL_H
#define BATCHMARK_KERNELS_CUDA_MATMUL_H

#include "cuda.h"

/* The most workspace that a product may use, and what query asks for: which algorithm there will be is only known with a
 * device, and a plan must come out the same without one. 4, 12 or 32 MiB by compute capability: cuBLAS's own defaults ("cuBLAS",
 * cublasSetWorkspace). */
size_t lt_workspace(const CudaBackend *be);

/* cublasLtMatmul wants its workspace at a multiple of this. */
enum { LT_WORKSPACE_ALIGN = 256 };

typedef enum LtEpilogue {
    LT_PLAIN,
    LT_BIAS,          /* + vector (m), of the type of D, the same for every column */
    LT_BIAS_GRADIENT  /* also writes vector (n), of the type of D: sum over k of op(B) */
} LtEpilogue;

typedef struct LtCall {
    int64_t    m, n, k;
    bool       trans_a, trans_b; /* memory holds A as (k,m), B as (n,k) */
    Dtype      in, out;          /* of A and B; of C = D. f32 to f32, 16 bits to the same 16 bits or to f32 */
    int64_t    lda, ldb, ldd;    /* elements from one column to the next */
    LtEpilogue epilogue;
    bool       accumulate;       /* beta = 1; else 0, and D is not read */
} LtCall;

/* Where the operands are; all 64-byte aligned, the workspace as above. */
typedef struct LtPlaces { const void *a, *b; void *d, *vector, *workspace; } LtPlaces;

typedef struct LtPlan LtPlan;

/* Asks the library for algorithms. `name` tells products apart in messages and in the choice cache. STATUS_UNSUPPORTED if there is none:
 * a caller with an epilogue may then do without it. */
Status lt_plan_create(CudaBackend *be, const LtCall *call, const char *name, LtPlan **out);
void   lt_plan_destroy(LtPlan *p); /* NULL is fine */

/* Times the algorithms in turns and keeps the fastest, or takes the one that the cache of choices knows. Writes to d and vector. */
Status lt_plan_tune(CudaBackend *be, LtPlan *p, const LtPlaces *at);

/* Enqueues the product. */
Status lt_plan_run(CudaBackend *be, LtPlan *p, const LtPlaces *at);

#endif
