/* matmul.c - descriptors, algorithms and calls of cuBLASLt; see matmul.h. */
#include "matmul.h"

#include "choice_cache.h"
#include "libs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LT_CANDIDATES = 8, LT_TURNS = 3, LT_REPEATS = 4, LT_ALIGN = 64, LT_NAME_BYTES = 256 };

struct LtPlan {
    const CublasLtApi             *api;
    LtCall                         call;
    char                           name[LT_NAME_BYTES];
    cublasLtMatmulDesc_t           product;
    cublasLtMatrixLayout_t         a, b, d;
    cublasLtMatmulHeuristicResult_t candidates[LT_CANDIDATES];
    int                            count, chosen;
};

#define LT_TRY(be, call) TRY(cuda_blas_status((be), (int)(call), #call))

static cudaDataType_t lt_type(Dtype t)
{
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static cublasLtEpilogue_t lt_epilogue(LtEpilogue e)
{
    return e == LT_BIAS ? CUBLASLT_EPILOGUE_BIAS : e == LT_BIAS_GRADIENT ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT;
}

#define SET(setter, what, attribute, value) \
    LT_TRY(be, p->api->setter((what), (attribute), &(value), sizeof(value)))

static Status describe_product(CudaBackend *be, LtPlan *p)
{
    const LtCall            *c = &p->call;
    const cublasComputeType_t compute = c->in == DTYPE_F32 && be->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t   trans_a = c->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, trans_b = c->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t  epilogue = lt_epilogue(c->epilogue);
    LT_TRY(be, p->api->cublasLtMatmulDescCreate(&p->product, compute, CUDA_R_32F));
    SET(cublasLtMatmulDescSetAttribute, p->product, CUBLASLT_MATMUL_DESC_TRANSA, trans_a);
    SET(cublasLtMatmulDescSetAttribute, p->product, CUBLASLT_MATMUL_DESC_TRANSB, trans_b);
    SET(cublasLtMatmulDescSetAttribute, p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (c->epilogue != LT_PLAIN) {
        const int32_t type = (int32_t)lt_type(c->out); /* the library's table has no other for these products */
        const void   *aligned = (const void *)(uintptr_t)LT_ALIGN; /* not read: tells the heuristics how vectors lie */
        SET(cublasLtMatmulDescSetAttribute, p->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
        SET(cublasLtMatmulDescSetAttribute, p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
    }
    return status_ok();
}

static Status describe_matrices(CudaBackend *be, LtPlan *p)
{
    const LtCall *c = &p->call;
    LT_TRY(be, p->api->cublasLtMatrixLayoutCreate(&p->a, lt_type(c->in), (uint64_t)(c->trans_a ? c->k : c->m),
                                                  (uint64_t)(c->trans_a ? c->m : c->k), c->lda));
    LT_TRY(be, p->api->cublasLtMatrixLayoutCreate(&p->b, lt_type(c->in), (uint64_t)(c->trans_b ? c->n : c->k),
                                                  (uint64_t)(c->trans_b ? c->k : c->n), c->ldb));
    LT_TRY(be, p->api->cublasLtMatrixLayoutCreate(&p->d, lt_type(c->out), (uint64_t)c->m, (uint64_t)c->n, c->ldd));
    return status_ok();
}

/* What an algorithm may be. That f32 products are made in f32 and sums of 16-bit ones too is the compute type's promise; here pieces of a
 * sum that was split over k are kept from being rounded to 16 bits before they are added. */
static Status describe_preference(CudaBackend *be, const LtPlan *p, cublasLtMatmulPreference_t preference)
{
    const uint64_t workspace = lt_workspace(be);
    const uint32_t align = LT_ALIGN;
    const uint32_t reduction = p->call.out == DTYPE_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    SET(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    SET(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
    SET(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align);
    SET(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align);
    SET(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align);
    SET(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align);
    return status_ok();
}

/* Keeps what will run. No algorithm at all is CUBLAS_STATUS_NOT_SUPPORTED. */
static Status find_candidates(CudaBackend *be, LtPlan *p, cublasLtMatmulPreference_t preference)
{
    int found = 0;
    const cublasStatus_t s = p->api->cublasLtMatmulAlgoGetHeuristic(be->blas_handle, p->product, p->a, p->b, p->d, p->d, preference, LT_CANDIDATES,
                                                                    p->candidates, &found);
    if (s != CUBLAS_STATUS_NOT_SUPPORTED)
        LT_TRY(be, s);
    for (int i = 0; i < found && s == CUBLAS_STATUS_SUCCESS; i++)
        if (p->candidates[i].state == CUBLAS_STATUS_SUCCESS && p->candidates[i].workspaceSize <= lt_workspace(be))
            p->candidates[p->count++] = p->candidates[i];
    if (p->count)
        return status_ok();
    return status_error(STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for %s", p->name);
}

size_t lt_workspace(const CudaBackend *be)
{
    return (size_t)(be->capability >= 120 ? 12 : be->capability >= 90 ? 32 : 4) << 20;
}

Status lt_plan_create(CudaBackend *be, const LtCall *call, const char *name, LtPlan **out)
{
    cublasLtMatmulPreference_t preference = NULL;
    Status  status;
    LtPlan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return status_error(STATUS_OOM, "no memory for a matrix product");
    p->api = be->blas;
    p->call = *call;
    snprintf(p->name, sizeof p->name, "%s", name);
    TRY_GOTO(status, describe_product(be, p), out);
    TRY_GOTO(status, describe_matrices(be, p), out);
    TRY_GOTO(status, cuda_blas_status(be, (int)p->api->cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"), out);
    TRY_GOTO(status, describe_preference(be, p, preference), out);
    status = find_candidates(be, p, preference);
out:
    if (preference)
        p->api->cublasLtMatmulPreferenceDestroy(preference);
    if (status.code == STATUS_OK)
        *out = p;
    else
        lt_plan_destroy(p);
    return status;
}

void lt_plan_destroy(LtPlan *p)
{
    if (!p)
        return;
    if (p->product)
        p->api->cublasLtMatmulDescDestroy(p->product);
    if (p->a)
        p->api->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        p->api->cublasLtMatrixLayoutDestroy(p->b);
    if (p->d)
        p->api->cublasLtMatrixLayoutDestroy(p->d);
    free(p);
}

/* The vector's place is part of the description. */
static Status point_to_vector(CudaBackend *be, LtPlan *p, const LtPlaces *at)
{
    if (p->call.epilogue != LT_PLAIN)
        SET(cublasLtMatmulDescSetAttribute, p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, at->vector);
    return status_ok();
}

static Status enqueue(CudaBackend *be, LtPlan *p, int candidate, const LtPlaces *at)
{
    const cublasLtMatmulHeuristicResult_t *with = &p->candidates[candidate];
    const float alpha = 1.0f, beta = p->call.accumulate ? 1.0f : 0.0f;
    return cuda_blas_status(be, (int)p->api->cublasLtMatmul(be->blas_handle, p->product, &alpha, at->a, p->a, at->b, p->b, &beta, at->d, p->d,
                                                            at->d, p->d, &with->algo, at->workspace, with->workspaceSize, be->stream),
                            "cublasLtMatmul");
}

Status lt_plan_run(CudaBackend *be, LtPlan *p, const LtPlaces *at)
{
    TRY(point_to_vector(be, p, at));
    return status_context(enqueue(be, p, p->chosen, at), "%s", p->name);
}

/* Microseconds of one product with this algorithm; infinity if the library refuses it after all, which *refused then says. */
static Status time_candidate(CudaBackend *be, LtPlan *p, int candidate, const LtPlaces *at, cudaEvent_t start, cudaEvent_t stop, double *us,
                             Status *refused)
{
    float ms = 0;
    *us = INFINITY;
    CUDA_TRY(cudaEventRecord(start, be->stream));
    for (int i = 0; i < LT_REPEATS; i++) {
        *refused = enqueue(be, p, candidate, at);
        if (refused->code != STATUS_OK)
            return status_ok();
    }
    CUDA_TRY(cudaEventRecord(stop, be->stream));
    CUDA_TRY(cudaEventSynchronize(stop));
    CUDA_TRY(cudaEventElapsedTime(&ms, start, stop));
    *us = 1e3 * (double)ms / LT_REPEATS;
    return status_ok();
}

/* Turn by turn, so that a change of clocks meets all of them; the first turn is warm-up. */
static Status time_all(CudaBackend *be, LtPlan *p, const LtPlaces *at, cudaEvent_t start, cudaEvent_t stop, double best[LT_CANDIDATES])
{
    Status refused = status_ok();
    for (int i = 0; i < p->count; i++)
        best[i] = INFINITY;
    for (int turn = 0; turn <= LT_TURNS; turn++)
        for (int i = 0; i < p->count; i++) {
            double us;
            TRY(time_candidate(be, p, i, at, start, stop, &us, &refused));
            if (turn > 0 && us < best[i])
                best[i] = us;
        }
    p->chosen = 0;
    for (int i = 1; i < p->count; i++)
        if (best[i] < best[p->chosen])
            p->chosen = i;
    return isfinite(best[p->chosen]) ? status_ok() : status_context(refused, "%s", p->name);
}

static Status time_candidates(CudaBackend *be, LtPlan *p, const LtPlaces *at, double *us)
{
    cudaEvent_t start = NULL, stop = NULL;
    double      best[LT_CANDIDATES];
    Status      status;
    CUDA_TRY_GOTO(status, cudaEventCreate(&start), out);
    CUDA_TRY_GOTO(status, cudaEventCreate(&stop), out);
    status = time_all(be, p, at, start, stop, best);
    *us = best[p->chosen];
out:
    if (start)
        (void)cuda_status(cudaEventDestroy(start), "cudaEventDestroy");
    if (stop)
        (void)cuda_status(cudaEventDestroy(stop), "cudaEventDestroy");
    return status;
}

/* ---- the cache of choices: "proposal 2, algorithm 66", the place among what heuristics proposed and the library's own number */

static Status choice_of(CudaBackend *be, const LtPlan *p, int candidate, double us, Choice *out)
{
    int32_t id = 0;
    size_t  written;
    LT_TRY(be, p->api->cublasLtMatmulAlgoConfigGetAttribute(&p->candidates[candidate].algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written));
    *out = (Choice){ .bytes = p->candidates[candidate].workspaceSize, .us = us };
    snprintf(out->name, sizeof out->name, "proposal %d, algorithm %d", candidate, (int)id);
    return status_ok();
}

static const char *key_of(const CudaBackend *be, const LtPlan *p, char *text, size_t size)
{
    static const char *const epilogues[] = { [LT_PLAIN] = "", [LT_BIAS] = " bias", [LT_BIAS_GRADIENT] = " bias gradient" };
    const size_t version = p->api->cublasLtGetVersion();
    char         library[64], what[LT_NAME_BYTES + 32];
    snprintf(library, sizeof library, "cuBLASLt %zu", version);
    snprintf(what, sizeof what, "%s%s%s", p->name, epilogues[p->call.epilogue], be->tf32 && p->call.in == DTYPE_F32 ? " tf32" : "");
    return choice_key(be, library, what, text, size);
}

/* The candidate that the cache names, if it is still one and runs. */
static Status recall(CudaBackend *be, LtPlan *p, const LtPlaces *at, const char *key, Choice *out, bool *found)
{
    int    candidate;
    Choice kept;
    *found = false;
    if (!choice_cache_find(be->choices, key, &kept) || sscanf(kept.name, "proposal %4d,", &candidate) != 1 || candidate < 0 ||
        candidate >= p->count)
        return status_ok();
    TRY(choice_of(be, p, candidate, kept.us, out));
    *found = !strcmp(out->name, kept.name) && out->bytes == kept.bytes && enqueue(be, p, candidate, at).code == STATUS_OK;
    if (*found)
        p->chosen = candidate;
    return status_ok();
}

Status lt_plan_tune(CudaBackend *be, LtPlan *p, const LtPlaces *at)
{
    char   key[CHOICE_KEY_BYTES];
    Choice choice;
    bool   found = false;
    double us = NAN;
    TRY(point_to_vector(be, p, at));
    if (be->tune)
        TRY(recall(be, p, at, key_of(be, p, key, sizeof key), &choice, &found));
    if (be->tune && !found)
        TRY(time_candidates(be, p, at, &us));
    if (!found)
        TRY(choice_of(be, p, p->chosen, us, &choice));
    if (be->tune && !found)
        TRY(choice_cache_keep(be->choices, key, &choice));
    return choice_cache_use(be->choices, p->name, &choice);
}
