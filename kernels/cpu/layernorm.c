/* layernorm.c - layer normalisation (Ba et al. 2016) over the rows of a matrix, with the residual's add and dropout fused in.
 *
 * A row of K features fits the first-level cache, so the statistics are taken the safe way, the mean first and then the
 * squares about it, and memory is still read once. The gradients of gamma and beta add up over chunks of rows in fp32 and
 * then over the chunks in double; chunks depend on the shape alone, so the bits do not depend on the number of threads. */
#include "cpu.h"
#include "dropout_vec.h"
#include "vec_math.h"

/* ---- forward */

/* Which inputs a row is made of. */
typedef enum Parts { PLAIN, RESIDUAL, DROPOUT } Parts;

typedef struct Forward {
    int64_t k;
    const void  *x, *residual;
    const float *gamma, *beta;
    void        *y, *sum; /* sum is x where there is no residual */
    float       *mean, *invstd;
    float        eps;
    Dtype        dtype;
    Parts        parts;
    DropoutVec   dropout;
} Forward;

ALWAYS_INLINE VecF round_to(Dtype t, VecF v) { return t == DTYPE_BF16 ? vec_from_bf16(vec_to_bf16(v)) : v; }

/* One block of sum = dropout(x) + residual, stored; returns what was stored. Lanes that are missing give 0. */
ALWAYS_INLINE VecF sum_block(Dtype t, Parts parts, const Forward *f, int64_t i, uint32_t keep, int lanes)
{
    VecF v = vec_load_some(t, f->x, i, lanes);
    if (parts == PLAIN)
        return v;
    if (parts == DROPOUT)
        v = vec_keep(v * f->dropout.scale, keep);
    v = round_to(t, v + vec_load_some(t, f->residual, i, lanes));
    vec_store_some(t, f->sum, i, v, lanes);
    return v;
}

/* Makes a row of sum and adds it up. */
ALWAYS_INLINE float sum_row(Dtype t, Parts parts, const Forward *f, int64_t row)
{
    const int64_t start = row * f->k;
    VecF    total[4] = { { 0 } };
    int64_t j = 0;
    for (; j + 64 <= f->k; j += 64) {
        const uint64_t keep = parts == DROPOUT ? dropout_keep64(&f->dropout, row, j) : 0;
        for (int b = 0; b < 4; b++)
            total[b] += sum_block(t, parts, f, start + j + 16 * b, dropout_sixteen(keep, 16 * b), LANES);
    }
    if (j < f->k) {
        const uint64_t keep = parts == DROPOUT ? dropout_keep64(&f->dropout, row, j) : 0;
        for (int64_t at = 0; j + at < f->k; at += LANES)
            total[0] += sum_block(t, parts, f, start + j + at, dropout_sixteen(keep, at), vec_lanes(f->k - j - at));
    }
    return vec_sum((total[0] + total[1]) + (total[2] + total[3]));
}

/* Sum over a row of (v - mean)^2. */
ALWAYS_INLINE float square_row(Dtype t, const void *v, int64_t start, int64_t k, float mean)
{
    VecF    total[4] = { { 0 } };
    int64_t j = 0;
    for (; j + 64 <= k; j += 64)
        for (int b = 0; b < 4; b++) {
            VecF d = vec_load(t, v, start + j + 16 * b) - mean;
            total[b] = vec_fma(d, d, total[b]);
        }
    for (; j < k; j += LANES) {
        const int lanes = vec_lanes(k - j);
        VecF d = vec_keep(vec_load_some(t, v, start + j, lanes) - mean, (1u << lanes) - 1);
        total[0] = vec_fma(d, d, total[0]);
    }
    return vec_sum((total[0] + total[1]) + (total[2] + total[3]));
}

ALWAYS_INLINE void forward_row_of(Dtype t, Parts parts, const Forward *f, int64_t row)
{
    const int64_t start = row * f->k;
    const float mean = sum_row(t, parts, f, row) / (float)f->k;
    const float invstd = 1.0f / sqrtf(square_row(t, f->sum, start, f->k, mean) / (float)f->k + f->eps);
    f->mean[row] = mean;
    f->invstd[row] = invstd;
    FOR_BLOCKS(j, 0, f->k, lanes, {
        VecF normal = (vec_load_some(t, f->sum, start + j, lanes) - mean) * invstd;
        VecF gamma = vec_load_some(DTYPE_F32, f->gamma, j, lanes), beta = vec_load_some(DTYPE_F32, f->beta, j, lanes);
        vec_store_some(t, f->y, start + j, vec_fma(normal, gamma, beta), lanes);
    });
}

/* Type and parts as constants. */
static void forward_row(const Forward *f, int64_t row)
{
    const bool f32 = f->dtype == DTYPE_F32;
    switch (f->parts) {
    case PLAIN:    f32 ? forward_row_of(DTYPE_F32, PLAIN, f, row) : forward_row_of(DTYPE_BF16, PLAIN, f, row); break;
    case RESIDUAL: f32 ? forward_row_of(DTYPE_F32, RESIDUAL, f, row) : forward_row_of(DTYPE_BF16, RESIDUAL, f, row); break;
    case DROPOUT:  f32 ? forward_row_of(DTYPE_F32, DROPOUT, f, row) : forward_row_of(DTYPE_BF16, DROPOUT, f, row); break;
    }
}

static Status layernorm_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    return cpu_query_plain(op, needs);
}

static Status layernorm_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int     n = op->n_in;
    const int64_t rows = op->in[0].dim[0], k = op->in[0].dim[1];
    const bool    residual = op->attr.residual, drops = op->attr.dropout > 0;
    Forward f = { .k = k, .x = buf[0], .gamma = buf[1], .beta = buf[2], .residual = residual ? buf[3] : NULL, .y = buf[n],
                  .mean = buf[n + 1], .invstd = buf[n + 2], .sum = residual ? buf[n + 3] : buf[0], .eps = op->attr.eps,
                  .dtype = op->in[0].dtype, .parts = drops ? DROPOUT : residual ? RESIDUAL : PLAIN };
    if (drops)
        f.dropout = dropout_vec(buf[4], op->attr.stream, k, op->attr.dropout);
#pragma omp parallel for num_threads(cpu_of(base)->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        forward_row(&f, row);
    return status_ok();
}

/* ---- backward */

enum { LEAST_CHUNK = 16, MOST_CHUNKS = 64 };

typedef struct Backward {
    int64_t rows, k, padded, chunk; /* padded: k up to whole blocks; chunk: rows */
    const void  *sum, *dy;
    const float *gamma, *mean, *invstd;
    void        *dx, *dresidual;
    float       *partial;           /* [chunks][2][padded]: of dgamma and dbeta */
    Dtype        dtype;
    bool         drops;
    DropoutVec   dropout;
} Backward;

static int64_t chunk_rows(int64_t rows)
{
    const int64_t even = (rows + MOST_CHUNKS - 1) / MOST_CHUNKS;
    return even > LEAST_CHUNK ? even : LEAST_CHUNK;
}

static int64_t chunk_count(int64_t rows) { return (rows + chunk_rows(rows) - 1) / chunk_rows(rows); }

typedef struct RowMeans { float g, product; } RowMeans;

/* With g = dy gamma and n = (sum - mean) invstd: the means of g and g n over a row; adds dy n and dy to the chunk. */
ALWAYS_INLINE RowMeans gather_row(Dtype t, const Backward *b, int64_t row, float *dgamma, float *dbeta)
{
    const int64_t start = row * b->k;
    const float   mean = b->mean[row], invstd = b->invstd[row];
    VecF g_total = { 0 }, product_total = { 0 };
    FOR_BLOCKS(j, 0, b->k, lanes, {
        VecF dy = vec_load_some(t, b->dy, start + j, lanes);
        VecF normal = (vec_load_some(t, b->sum, start + j, lanes) - mean) * invstd;
        VecF g = dy * vec_load_some(DTYPE_F32, b->gamma, j, lanes);
        g_total += g;
        product_total = vec_fma(g, normal, product_total);
        vec_store_f32(dgamma + j, vec_fma(dy, normal, vec_load_f32(dgamma + j)));
        vec_store_f32(dbeta + j, vec_load_f32(dbeta + j) + dy);
    });
    return (RowMeans){ vec_sum(g_total) / (float)b->k, vec_sum(product_total) / (float)b->k };
}

/* d = invstd (g - mean of g - n mean of g n), at sum; dx may lie on dy. */
ALWAYS_INLINE void output_block(Dtype t, bool drops, const Backward *b, int64_t row, int64_t j, RowMeans m, uint32_t keep,
                                int lanes)
{
    const int64_t i = row * b->k + j;
    const float   mean = b->mean[row], invstd = b->invstd[row];
    VecF normal = (vec_load_some(t, b->sum, i, lanes) - mean) * invstd;
    VecF g = vec_load_some(t, b->dy, i, lanes) * vec_load_some(DTYPE_F32, b->gamma, j, lanes);
    VecF d = invstd * (g - m.g - normal * m.product);
    if (drops) {
        vec_store_some(t, b->dresidual, i, d, lanes);
        d = vec_keep(d * b->dropout.scale, keep);
    }
    vec_store_some(t, b->dx, i, d, lanes);
}

ALWAYS_INLINE void backward_row_of(Dtype t, bool drops, const Backward *b, int64_t row, float *dgamma, float *dbeta)
{
    const RowMeans m = gather_row(t, b, row, dgamma, dbeta);
    for (int64_t j = 0; j < b->k; j += 64) {
        const uint64_t keep = drops ? dropout_keep64(&b->dropout, row, j) : 0;
        const int64_t  n = b->k - j < 64 ? b->k - j : 64;
        FOR_BLOCKS(at, 0, n, lanes, { output_block(t, drops, b, row, j + at, m, dropout_sixteen(keep, at), lanes); });
    }
}

static void backward_row(const Backward *b, int64_t row, float *dgamma, float *dbeta)
{
    const bool f32 = b->dtype == DTYPE_F32;
    if (b->drops)
        f32 ? backward_row_of(DTYPE_F32, true, b, row, dgamma, dbeta) : backward_row_of(DTYPE_BF16, true, b, row, dgamma, dbeta);
    else
        f32 ? backward_row_of(DTYPE_F32, false, b, row, dgamma, dbeta) : backward_row_of(DTYPE_BF16, false, b, row, dgamma, dbeta);
}

static void backward_chunk(const Backward *b, int64_t c)
{
    const int64_t last = (c + 1) * b->chunk < b->rows ? (c + 1) * b->chunk : b->rows;
    float *dgamma = b->partial + c * 2 * b->padded, *dbeta = dgamma + b->padded;
    memset(dgamma, 0, (size_t)b->padded * 2 * sizeof *dgamma);
    for (int64_t row = c * b->chunk; row < last; row++)
        backward_row(b, row, dgamma, dbeta);
}

/* out (K) = or += the sum over chunks of vector `which` of the two. */
static void add_chunks(const Backward *b, int which, float *out, bool accumulate, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < b->padded; first += LANES) {
        double sum[LANES] = { 0 };
        for (int64_t c = 0; c < chunk_count(b->rows); c++)
            for (int l = 0; l < LANES; l++)
                sum[l] += (double)b->partial[(2 * c + which) * b->padded + first + l];
        for (int64_t j = first; j < first + LANES && j < b->k; j++)
            out[j] = (float)((accumulate ? (double)out[j] : 0) + sum[j - first]);
    }
}

static Status layernorm_grad_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    const int64_t padded = (op->in[0].dim[1] + LANES - 1) / LANES * LANES;
    needs->scratch = (size_t)(chunk_count(op->in[0].dim[0]) * 2 * padded) * sizeof(float);
    return cpu_query_plain(op, needs);
}

static Status layernorm_grad_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const int     threads = cpu_of(base)->threads, n = op->n_in;
    const int64_t rows = op->in[0].dim[0], k = op->in[0].dim[1];
    const bool    drops = op->attr.dropout > 0;
    Backward b = { .rows = rows, .k = k, .padded = (k + LANES - 1) / LANES * LANES, .chunk = chunk_rows(rows),
                   .sum = buf[0], .dy = buf[1], .gamma = buf[2], .mean = buf[3], .invstd = buf[4], .dx = buf[n],
                   .dresidual = drops ? buf[n + 3] : NULL, .partial = scratch, .dtype = op->in[0].dtype, .drops = drops };
    if (drops)
        b.dropout = dropout_vec(buf[5], op->attr.stream, k, op->attr.dropout);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < chunk_count(rows); c++)
        backward_chunk(&b, c);
    add_chunks(&b, 0, buf[n + 1], op->attr.accumulate, threads);
    add_chunks(&b, 1, buf[n + 2], op->attr.accumulate, threads);
    return status_ok();
}

const Kernel cpu_layernorm = { .query = layernorm_query, .run = layernorm_run };
const Kernel cpu_layernorm_grad = { .query = layernorm_grad_query, .run = layernorm_grad_run };
