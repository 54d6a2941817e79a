/* fake_cublaslt.c - see fake_cublaslt.h. The state is the process's, like that of a library. */
#include "fake_cublaslt.h"

#include "../../kernels/tensor.h"
#include "fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_HANDLE = 0x48414e44, MARK_PRODUCT = 0x50524f44, MARK_LAYOUT = 0x4c41594f, MARK_PREFERENCE = 0x50524546, MARK_ALGORITHM = 0x414c474f,
       WORKSPACE_ALIGN = 256 };

static FakeCublasLt fake = { .proposals = 8, .last_algorithm = -1 };

FakeCublasLt *fake_cublaslt(void) { return &fake; }
void fake_cublaslt_reset(void) { fake = (FakeCublasLt){ .proposals = 8, .last_algorithm = -1, .live = fake.live }; }

/* Each begins with a mark, so that one cannot be taken for another, nor used after it was destroyed. */
typedef struct Product {
    int     mark;
    int32_t compute, scale, trans_a, trans_b, vector_type;
    uint32_t epilogue;
    void   *vector;
} Product;

typedef struct Layout { int mark; uint32_t type; uint64_t rows, columns; int64_t ld; } Layout;

typedef struct Preference { int mark; uint64_t workspace; uint32_t reductions, align_a, align_b, align_c, align_d; } Preference;

/* What lies in the eight words of a cublasLtMatmulAlgo_t. */
typedef struct Algorithm { uint64_t mark, product, workspace, index, align; } Algorithm;

#define BEGIN_CALL(name) do { int e_ = fake_enter(FAKE_CUBLASLT, name); if (e_) return (cublasStatus_t)e_; } while (0)
#define REQUIRE(condition) do { if (!(condition)) return CUBLAS_STATUS_INVALID_VALUE; } while (0)

/* ---- handles and descriptors ---- */

static cublasStatus_t create(const char *call, size_t size, int mark, void **out)
{
    REQUIRE(out);
    BEGIN_CALL(call);
    int *made = calloc(1, size);
    if (!made)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *made = mark;
    *out = made;
    fake.live++;
    return CUBLAS_STATUS_SUCCESS;
}

/* What is destroyed is gone even if the call fails. */
static cublasStatus_t destroy(const char *call, void *what, int mark)
{
    REQUIRE(what && *(int *)what == mark);
    *(int *)what = 0;
    free(what);
    fake.live--;
    return (cublasStatus_t)fake_enter(FAKE_CUBLASLT, call);
}

static cublasStatus_t fake_create(cublasLtHandle_t *handle)
{
    void *made = NULL;
    cublasStatus_t s = create("cublasLtCreate", sizeof(int), MARK_HANDLE, &made);
    *handle = made;
    return s;
}

static cublasStatus_t fake_destroy(cublasLtHandle_t handle) { return destroy("cublasLtDestroy", handle, MARK_HANDLE); }
static size_t         fake_version(void) { return 130000; }

static const char *fake_status_string(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:       return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:  return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:                          return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

static cublasStatus_t fake_product_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    void *made = NULL;
    cublasStatus_t s = create("cublasLtMatmulDescCreate", sizeof(Product), MARK_PRODUCT, &made);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    Product *p = made;
    p->compute = (int32_t)compute;
    p->scale = (int32_t)scale;
    p->trans_a = p->trans_b = CUBLAS_OP_N;
    p->vector_type = -1;
    p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = made;
    return s;
}

static cublasStatus_t fake_product_destroy(cublasLtMatmulDesc_t p) { return destroy("cublasLtMatmulDescDestroy", p, MARK_PRODUCT); }

static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld)
{
    REQUIRE(rows > 0 && columns > 0 && ld >= (int64_t)rows);
    void *made = NULL;
    cublasStatus_t s = create("cublasLtMatrixLayoutCreate", sizeof(Layout), MARK_LAYOUT, &made);
    if (s == CUBLAS_STATUS_SUCCESS)
        *(Layout *)made = (Layout){ MARK_LAYOUT, (uint32_t)type, rows, columns, ld };
    *out = made;
    return s;
}

static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t l) { return destroy("cublasLtMatrixLayoutDestroy", l, MARK_LAYOUT); }

static cublasStatus_t fake_preference_create(cublasLtMatmulPreference_t *out)
{
    void *made = NULL;
    cublasStatus_t s = create("cublasLtMatmulPreferenceCreate", sizeof(Preference), MARK_PREFERENCE, &made);
    if (s == CUBLAS_STATUS_SUCCESS)
        *(Preference *)made = (Preference){ MARK_PREFERENCE, 0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256 };
    *out = made;
    return s;
}

static cublasStatus_t fake_preference_destroy(cublasLtMatmulPreference_t p) { return destroy("cublasLtMatmulPreferenceDestroy", p, MARK_PREFERENCE); }

/* ---- attributes: one table of places a kind of descriptor ---- */

typedef struct Place { int attribute; size_t offset, size; } Place;

static const Place product_places[] = {
    { CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, offsetof(Product, compute), 4 }, { CUBLASLT_MATMUL_DESC_SCALE_TYPE, offsetof(Product, scale), 4 },
    { CUBLASLT_MATMUL_DESC_TRANSA, offsetof(Product, trans_a), 4 }, { CUBLASLT_MATMUL_DESC_TRANSB, offsetof(Product, trans_b), 4 },
    { CUBLASLT_MATMUL_DESC_EPILOGUE, offsetof(Product, epilogue), 4 },
    { CUBLASLT_MATMUL_DESC_BIAS_POINTER, offsetof(Product, vector), sizeof(void *) },
    { CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, offsetof(Product, vector_type), 4 }, { -1, 0, 0 },
};
static const Place layout_places[] = {
    { CUBLASLT_MATRIX_LAYOUT_TYPE, offsetof(Layout, type), 4 }, { CUBLASLT_MATRIX_LAYOUT_ROWS, offsetof(Layout, rows), 8 },
    { CUBLASLT_MATRIX_LAYOUT_COLS, offsetof(Layout, columns), 8 }, { CUBLASLT_MATRIX_LAYOUT_LD, offsetof(Layout, ld), 8 }, { -1, 0, 0 },
};
static const Place preference_places[] = {
    { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, offsetof(Preference, workspace), 8 },
    { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, offsetof(Preference, reductions), 4 },
    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, offsetof(Preference, align_a), 4 },
    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, offsetof(Preference, align_b), 4 },
    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, offsetof(Preference, align_c), 4 },
    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, offsetof(Preference, align_d), 4 }, { -1, 0, 0 },
};

static void *find_place(void *what, int mark, const Place *places, int attribute, size_t size)
{
    if (!what || *(int *)what != mark)
        return NULL;
    for (; places->attribute >= 0; places++)
        if (places->attribute == attribute && places->size == size)
            return (char *)what + places->offset;
    return NULL;
}

static cublasStatus_t set_attribute(const char *call, void *what, int mark, const Place *places, int attribute, const void *from, size_t size)
{
    BEGIN_CALL(call);
    void *to = find_place(what, mark, places, attribute, size);
    REQUIRE(to && from);
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get_attribute(const char *call, void *what, int mark, const Place *places, int attribute, void *to, size_t size, size_t *written)
{
    BEGIN_CALL(call);
    const void *from = find_place(what, mark, places, attribute, size);
    REQUIRE(from && to);
    memcpy(to, from, size);
    if (written)
        *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_product_set(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t a, const void *from, size_t size)
{
    return set_attribute("cublasLtMatmulDescSetAttribute", p, MARK_PRODUCT, product_places, (int)a, from, size);
}

static cublasStatus_t fake_product_get(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t a, void *to, size_t size, size_t *written)
{
    return get_attribute("cublasLtMatmulDescGetAttribute", p, MARK_PRODUCT, product_places, (int)a, to, size, written);
}

static cublasStatus_t fake_layout_set(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, const void *from, size_t size)
{
    return set_attribute("cublasLtMatrixLayoutSetAttribute", l, MARK_LAYOUT, layout_places, (int)a, from, size);
}

static cublasStatus_t fake_layout_get(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, void *to, size_t size, size_t *written)
{
    return get_attribute("cublasLtMatrixLayoutGetAttribute", l, MARK_LAYOUT, layout_places, (int)a, to, size, written);
}

static cublasStatus_t fake_preference_set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *from, size_t size)
{
    return set_attribute("cublasLtMatmulPreferenceSetAttribute", p, MARK_PREFERENCE, preference_places, (int)a, from, size);
}

static cublasStatus_t fake_algo_get(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t a, void *to, size_t size,
                                    size_t *written)
{
    BEGIN_CALL("cublasLtMatmulAlgoConfigGetAttribute");
    Algorithm from;
    memcpy(&from, algo, sizeof from);
    REQUIRE(from.mark == MARK_ALGORITHM && to && size == sizeof(int32_t) && a == CUBLASLT_ALGO_CONFIG_ID);
    *(int32_t *)to = (int32_t)from.index;
    if (written)
        *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- a product ---- */

/* Everything that a product is, taken at the time of the call: it may run later. */
typedef struct Job {
    Product     product;
    Layout      a, b, d;
    float       alpha, beta;
    const void *in_a, *in_b, *in_c;
    void       *out, *workspace;
    size_t      workspace_bytes;
    int64_t     m, n, k;
} Job;

/* "cuBLAS", cublasLtMatmul: the combinations for compute type 32F without fp8, with the type that bias vectors must have. */
static bool types_fit(const Product *p, uint32_t a, uint32_t b, uint32_t d)
{
    const bool half = a == CUDA_R_16F || a == CUDA_R_16BF, f32 = a == CUDA_R_32F;
    if (p->scale != CUDA_R_32F || a != b || !(half || f32))
        return false;
    if (p->compute != CUBLAS_COMPUTE_32F && !(f32 && p->compute == CUBLAS_COMPUTE_32F_FAST_TF32))
        return false;
    if (d != CUDA_R_32F && d != a)
        return false;
    return p->epilogue == CUBLASLT_EPILOGUE_DEFAULT || p->vector_type == -1 || (uint32_t)p->vector_type == d;
}

/* Sizes that fit together, or CUBLAS_STATUS_INVALID_VALUE; types that go together, or CUBLAS_STATUS_NOT_SUPPORTED. */
static cublasStatus_t gather(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                             cublasLtMatrixLayout_t d, Job *job)
{
    REQUIRE(product && a && b && c && d);
    memcpy(&job->product, product, sizeof job->product);
    memcpy(&job->a, a, sizeof job->a);
    memcpy(&job->b, b, sizeof job->b);
    memcpy(&job->d, d, sizeof job->d);
    REQUIRE(job->product.mark == MARK_PRODUCT && job->a.mark == MARK_LAYOUT && job->b.mark == MARK_LAYOUT && job->d.mark == MARK_LAYOUT);
    REQUIRE(!memcmp(c, d, sizeof job->d));
    const bool ta = job->product.trans_a == CUBLAS_OP_T, tb = job->product.trans_b == CUBLAS_OP_T;
    job->m = (int64_t)(ta ? job->a.columns : job->a.rows);
    job->k = (int64_t)(ta ? job->a.rows : job->a.columns);
    job->n = (int64_t)(tb ? job->b.rows : job->b.columns);
    REQUIRE(job->k == (int64_t)(tb ? job->b.columns : job->b.rows));
    REQUIRE(job->m == (int64_t)job->d.rows && job->n == (int64_t)job->d.columns);
    const uint32_t e = job->product.epilogue;
    if (e != CUBLASLT_EPILOGUE_DEFAULT && e != CUBLASLT_EPILOGUE_BIAS && e != CUBLASLT_EPILOGUE_BGRADA && e != CUBLASLT_EPILOGUE_BGRADB)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    REQUIRE(e == CUBLASLT_EPILOGUE_DEFAULT || job->product.vector);
    return types_fit(&job->product, job->a.type, job->b.type, job->d.type) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* FNV-1a over what makes one product unlike another. */
static uint64_t fingerprint(const Job *job)
{
    const int64_t words[] = { job->m, job->n, job->k, job->product.compute, job->product.trans_a, job->product.trans_b,
                              (int64_t)job->product.epilogue, (int64_t)job->a.type, (int64_t)job->d.type, job->a.ld, job->b.ld, job->d.ld };
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        h = (h ^ (uint64_t)words[i]) * 1099511628211u;
    return h;
}

/* Proposals that differ in the workspace that they want: none, then 256 KiB more each, as far as the limit goes. */
static cublasStatus_t fake_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
                                     cublasLtMatmulHeuristicResult_t results[], int *found)
{
    BEGIN_CALL("cublasLtMatmulAlgoGetHeuristic");
    Job        job = { 0 };
    Preference limits;
    REQUIRE(handle && preference && results && found && wanted > 0);
    memcpy(&limits, preference, sizeof limits);
    REQUIRE(limits.mark == MARK_PREFERENCE);
    *found = 0;
    const cublasStatus_t s = gather(product, a, b, c, d, &job);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (fake.no_epilogues && job.product.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint32_t align = limits.align_a < limits.align_b ? limits.align_a : limits.align_b;
    align = align < limits.align_c ? align : limits.align_c;
    align = align < limits.align_d ? align : limits.align_d;
    for (int i = 0; i < wanted && i < fake.proposals; i++) {
        const Algorithm made = { MARK_ALGORITHM, fingerprint(&job), (uint64_t)i << 18, (uint64_t)i, align };
        if (made.workspace > limits.workspace)
            break;
        memset(&results[i], 0, sizeof results[i]);
        memcpy(&results[i].algo, &made, sizeof made);
        results[i].workspaceSize = made.workspace;
        results[i].state = CUBLAS_STATUS_SUCCESS;
        results[i].wavesCount = 1.0f;
        (*found)++;
    }
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static float load(const void *from, uint32_t type, int64_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return type == CUDA_R_16BF ? bf16_to_f32(bits) : f16_to_f32(bits);
}

static void store(void *to, uint32_t type, int64_t i, float value)
{
    if (type == CUDA_R_32F)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = type == CUDA_R_16BF ? bf16_from_f32(value) : f16_from_f32(value);
}

/* To the 10 bits of TF32, nearest even. */
static float round_tf32(float x)
{
    union { float f; uint32_t u; } v;
    v.f = x;
    if (isfinite(x))
        v.u = (v.u + 0xfffu + (v.u >> 13 & 1u)) & ~0x1fffu;
    return v.f;
}

/* op(A) as (m,k) or op(B)^T as (n,k), row by row. */
static float *unfold(const void *from, const Layout *l, bool by_column, int64_t rows, int64_t k, bool tf32)
{
    float *to = malloc((size_t)(rows * k) * sizeof *to);
    CHECK(to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++) {
            const float x = load(from, l->type, by_column ? r * l->ld + i : i * l->ld + r);
            to[r * k + i] = tf32 ? round_tf32(x) : x;
        }
    return to;
}

static void sum_vector(const Job *job, const float *rows, int64_t count)
{
    for (int64_t r = 0; r < count; r++) {
        double sum = 0;
        for (int64_t i = 0; i < job->k; i++)
            sum += (double)rows[r * job->k + i];
        store(job->product.vector, job->d.type, r, (float)sum);
    }
}

static void compute(void *context)
{
    const Job *job = context;
    const bool tf32 = job->product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    float     *a = unfold(job->in_a, &job->a, job->product.trans_a == CUBLAS_OP_T, job->m, job->k, tf32);
    float     *b = unfold(job->in_b, &job->b, job->product.trans_b == CUBLAS_OP_N, job->n, job->k, tf32);
    if (job->workspace_bytes)
        memset(job->workspace, 0xff, job->workspace_bytes);
    for (int64_t j = 0; j < job->n; j++)
        for (int64_t i = 0; i < job->m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < job->k; l++)
                sum += (double)a[i * job->k + l] * (double)b[j * job->k + l];
            float value = job->alpha * (float)sum;
            if (job->beta != 0.0f)
                value += job->beta * load(job->in_c, job->d.type, j * job->d.ld + i);
            if (job->product.epilogue == CUBLASLT_EPILOGUE_BIAS)
                value += load(job->product.vector, job->d.type, i);
            store(job->out, job->d.type, j * job->d.ld + i, value);
        }
    if (job->product.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_vector(job, a, job->m);
    if (job->product.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        sum_vector(job, b, job->n);
    free(a);
    free(b);
}

static bool is_aligned(const void *p, uint64_t align) { return p && (uintptr_t)p % align == 0; }

/* Whole in one block of device memory, and aligned as the algorithm was promised. */
static bool is_matrix(const void *p, const Layout *l, uint64_t align)
{
    const size_t size = l->type == CUDA_R_32F ? 4 : 2;
    return is_aligned(p, align) && fake_is_device(p, (size_t)((int64_t)(l->columns - 1) * l->ld + (int64_t)l->rows) * size);
}

static bool is_vector(const Job *job, int64_t n)
{
    return is_aligned(job->product.vector, 16) && fake_is_device(job->product.vector, (size_t)n * (job->d.type == CUDA_R_32F ? 4 : 2));
}

static cublasStatus_t fake_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                                  cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                                  const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                  const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    BEGIN_CALL("cublasLtMatmul");
    Job       job = { 0 };
    Algorithm with;
    REQUIRE(handle && alpha && beta && algo && stream);
    memcpy(&with, algo, sizeof with);
    const cublasStatus_t s = gather(product, a_layout, b_layout, c_layout, d_layout, &job);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    REQUIRE(with.mark == MARK_ALGORITHM && with.product == fingerprint(&job));
    REQUIRE(is_matrix(a, &job.a, with.align) && is_matrix(b, &job.b, with.align) && c == d && is_matrix(d, &job.d, with.align));
    REQUIRE(job.product.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
            is_vector(&job, job.product.epilogue == CUBLASLT_EPILOGUE_BGRADB ? job.n : job.m));
    REQUIRE(workspace_bytes >= with.workspace);
    REQUIRE(!with.workspace || (is_aligned(workspace, WORKSPACE_ALIGN) && fake_is_device(workspace, with.workspace)));
    if ((int)with.index < fake.broken_proposals) /* as heuristics may propose what the launch then refuses */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    job.alpha = *(const float *)alpha;
    job.beta = *(const float *)beta;
    job.in_a = a, job.in_b = b, job.in_c = c;
    job.out = d;
    job.workspace = workspace;
    job.workspace_bytes = with.workspace;
    Job *later = malloc(sizeof *later);
    CHECK(later);
    *later = job;
    fake.products++;
    fake.last_algorithm = (int)with.index;
    fake.largest_workspace = with.workspace > fake.largest_workspace ? with.workspace : fake.largest_workspace;
    const double microseconds = 10 + abs((int)with.index - fake.fastest);
    return fake_enqueue(stream, "gemm", microseconds, compute, later, free) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                                            : CUBLAS_STATUS_EXECUTION_FAILED;
}

const CublasLtApi *fake_cublaslt_api(void)
{
    static const CublasLtApi api = {
        .cublasLtCreate = fake_create, .cublasLtDestroy = fake_destroy, .cublasLtGetVersion = fake_version,
        .cublasLtGetStatusString = fake_status_string, .cublasLtMatmul = fake_matmul,
        .cublasLtMatmulDescCreate = fake_product_create, .cublasLtMatmulDescDestroy = fake_product_destroy,
        .cublasLtMatmulDescSetAttribute = fake_product_set, .cublasLtMatmulDescGetAttribute = fake_product_get,
        .cublasLtMatrixLayoutCreate = fake_layout_create, .cublasLtMatrixLayoutDestroy = fake_layout_destroy,
        .cublasLtMatrixLayoutSetAttribute = fake_layout_set, .cublasLtMatrixLayoutGetAttribute = fake_layout_get,
        .cublasLtMatmulPreferenceCreate = fake_preference_create, .cublasLtMatmulPreferenceDestroy = fake_preference_destroy,
        .cublasLtMatmulPreferenceSetAttribute = fake_preference_set, .cublasLtMatmulAlgoGetHeuristic = fake_heuristic,
        .cublasLtMatmulAlgoConfigGetAttribute = fake_algo_get,
    };
    return &api;
}
