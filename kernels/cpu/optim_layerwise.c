/* optim_layerwise.c - LAMB and LARS: the rate of each tensor follows from norms of that tensor, so there are two passes.
 *
 * A tensor is cut into blocks of a fixed length. A thread adds up whole blocks, and the blocks of a tensor are added in
 * order: the bits do not depend on the number of threads. */
#include "optim.h"

#include <omp.h>

enum { BLOCK = 4096, SUM_LANES = 32 };

/* What both optimisers work on; v is LAMB's alone. */
typedef struct Layerwise {
    const OpAttr *attr;
    Adam          adam;
    float         rate;
    const float  *g;
    float        *w, *m, *v;
} Layerwise;

/* The blocks of all tensors in order, and what is known of each; lies in scratch. */
typedef struct Blocks {
    const int32_t *table;
    int64_t        tensors;
    int64_t       *first;     /* [tensors + 1] first block of each */
    double       (*sums)[2];  /* [blocks] two square sums */
    float         *trust;     /* [tensors] what the learning rate is multiplied by */
} Blocks;

static size_t place(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* Cuts scratch; with scratch NULL only the size is of use, which is returned. */
static size_t blocks_carve(const CpuBackend *be, const OpDesc *op, char *scratch, Blocks *b)
{
    const size_t tensors = (size_t)op->in[3].dim[0] - 1, most = (size_t)cpu_physical_count(be, &op->in[0]) / BLOCK + tensors;
    size_t at = 0, first = place(&at, (tensors + 1) * sizeof *b->first), sums = place(&at, most * sizeof *b->sums);
    size_t trust = place(&at, tensors * sizeof *b->trust);
    if (scratch) {
        b->tensors = (int64_t)tensors;
        b->first = (int64_t *)(void *)(scratch + first);
        b->sums = (double(*)[2])(void *)(scratch + sums);
        b->trust = (float *)(void *)(scratch + trust);
    }
    return at;
}

static Status layerwise_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    Blocks unused;
    needs->scratch = blocks_carve(cpu_of(base), op, NULL, &unused);
    return status_ok();
}

/* Numbers the blocks; a table that does not lie within `count` elements is refused. */
static Status blocks_number(const OpDesc *op, const int32_t *table, int64_t count, Blocks *b)
{
    b->table = table;
    b->first[0] = 0;
    for (int64_t i = 0; i < b->tensors; i++) {
        if (table[i] < 0 || table[i] > table[i + 1] || table[i + 1] > count)
            return status_error(STATUS_NUMERIC, "%s: tensor %lld of the table is %d..%d of %lld elements", op_names[op->kind],
                                (long long)i, (int)table[i], (int)table[i + 1], (long long)count);
        b->first[i + 1] = b->first[i] + (table[i + 1] - table[i] + BLOCK - 1) / BLOCK;
    }
    return status_ok();
}

/* A pass over elements at .. at + n - 1 of one tensor: either adds up two square sums, or updates. */
typedef void Measure(const Layerwise *u, int64_t at, int64_t n, double sums[2]);
typedef void Apply(const Layerwise *u, int64_t at, int64_t n, float trust);

static void run_blocks(const CpuBackend *be, const Blocks *b, const Layerwise *u, Measure *measure, Apply *apply)
{
#pragma omp parallel num_threads(be->threads)
    {
        int64_t block, last, tensor = 0;
        thread_share(b->first[b->tensors], 1, omp_get_thread_num(), omp_get_num_threads(), &block, &last);
        for (; block < last; block++) {
            while (b->first[tensor + 1] <= block)
                tensor++;
            const int64_t at = b->table[tensor] + (block - b->first[tensor]) * BLOCK, left = b->table[tensor + 1] - at;
            const int64_t n = left < BLOCK ? left : BLOCK;
            if (measure)
                measure(u, at, n, b->sums[block]);
            else
                apply(u, at, n, b->trust[tensor]);
        }
    }
}

/* trust = of(|first|, |second|) of each tensor. */
static void find_trust(const Blocks *b, const OpAttr *a, float (*of)(const OpAttr *a, double x, double y))
{
    for (int64_t i = 0; i < b->tensors; i++) {
        double x = 0, y = 0;
        for (int64_t block = b->first[i]; block < b->first[i + 1]; block++) {
            x += b->sums[block][0];
            y += b->sums[block][1];
        }
        b->trust[i] = a->adapt ? of(a, sqrt(x), sqrt(y)) : 1;
    }
}

static Status layerwise_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch, Measure *measure,
                            Apply *apply, float (*trust)(const OpAttr *a, double x, double y))
{
    const float *control = buf[2];
    Blocks       blocks;
    if (control[CONTROL_SKIP] != 0)
        return status_ok();
    blocks_carve(be, op, scratch, &blocks);
    TRY(blocks_number(op, buf[3], cpu_physical_count(be, &op->in[0]), &blocks));
    const Layerwise u = { &op->attr, adam_of(&op->attr, control), *(const float *)buf[1],
                          buf[0], buf[4], buf[5], op->n_out == 3 ? buf[6] : NULL };
    run_blocks(be, &blocks, &u, measure, NULL);
    find_trust(&blocks, &op->attr, trust);
    run_blocks(be, &blocks, &u, NULL, apply);
    return status_ok();
}

static inline void add_squares(float x, float y, double *x2, double *y2)
{
    *x2 += (double)x * (double)x;
    *y2 += (double)y * (double)y;
}

static void add_lanes(const double *x2, const double *y2, double sums[2])
{
    sums[0] = sums[1] = 0;
    for (int k = 0; k < SUM_LANES; k++) {
        sums[0] += x2[k];
        sums[1] += y2[k];
    }
}

/* ---- LAMB ---- */

static float lamb_trust(const OpAttr *a, double w, double u)
{
    (void)a;
    return w > 0 && u > 0 ? (float)(w / u) : 1;
}

/* Both averages take the gradient in; u after that. */
static inline float lamb_direction(const Adam *a, float g, float w, float *m, float *v)
{
    return adam_direction(a, g, m, v) + a->weight_decay * w;
}

/* Takes the gradient into the averages; square sums of w and of u. */
static void lamb_measure(const Layerwise *l, int64_t at, int64_t n, double sums[2])
{
    const float *restrict g = l->g + at, *restrict w = l->w + at;
    float       *restrict m = l->m + at, *restrict v = l->v + at;
    const Adam   adam = l->adam;
    double       w2[SUM_LANES] = { 0 }, u2[SUM_LANES] = { 0 };
    int64_t      i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int k = 0; k < SUM_LANES; k++)
            add_squares(w[i + k], lamb_direction(&adam, g[i + k], w[i + k], &m[i + k], &v[i + k]), &w2[k], &u2[k]);
    for (; i < n; i++)
        add_squares(w[i], lamb_direction(&adam, g[i], w[i], &m[i], &v[i]), &w2[0], &u2[0]);
    add_lanes(w2, u2, sums);
}

static void lamb_apply(const Layerwise *l, int64_t at, int64_t n, float trust)
{
    float       *restrict w = l->w + at;
    const float *restrict m = l->m + at, *restrict v = l->v + at;
    const Adam   adam = l->adam;
    const float  rate = l->rate * trust;
    for (int64_t i = 0; i < n; i++)
        w[i] -= rate * (adam_ratio(&adam, m[i], v[i]) + adam.weight_decay * w[i]);
}

static Status lamb_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    return layerwise_run(cpu_of(be), op, buf, scratch, lamb_measure, lamb_apply, lamb_trust);
}

/* ---- LARS ---- */

static float lars_trust(const OpAttr *a, double w, double g)
{
    return w > 0 && g > 0 ? (float)((double)a->trust * w / (g + (double)a->weight_decay * w)) : 1;
}

/* Square sums of w and of the gradient. */
static void lars_measure(const Layerwise *l, int64_t at, int64_t n, double sums[2])
{
    const float *restrict g = l->g + at, *restrict w = l->w + at;
    const float  scale = l->adam.scale;
    double       w2[SUM_LANES] = { 0 }, g2[SUM_LANES] = { 0 };
    int64_t      i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int k = 0; k < SUM_LANES; k++)
            add_squares(w[i + k], g[i + k] * scale, &w2[k], &g2[k]);
    for (; i < n; i++)
        add_squares(w[i], g[i] * scale, &w2[0], &g2[0]);
    add_lanes(w2, g2, sums);
}

static void lars_apply(const Layerwise *l, int64_t at, int64_t n, float trust)
{
    const float *restrict g = l->g + at;
    float       *restrict w = l->w + at, *restrict m = l->m + at;
    const float  rate = l->rate * trust, scale = l->adam.scale, momentum = l->attr->momentum, decay = l->attr->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        m[i] = momentum * m[i] + rate * (g[i] * scale + decay * w[i]);
        w[i] -= m[i];
    }
}

static Status lars_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    return layerwise_run(cpu_of(be), op, buf, scratch, lars_measure, lars_apply, lars_trust);
}

const Kernel cpu_lamb = { .query = layerwise_query, .run = lamb_run };
const Kernel cpu_lars = { .query = layerwise_query, .run = lars_run };
