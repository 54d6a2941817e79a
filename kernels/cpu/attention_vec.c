/* attention_vec.c - attention's heads by products in f32 vectors; bf16 is converted on the way in and out.
 *
 * One product serves all seven: c (M,N) = a (M,K) b (K,N), where a is read element by element, so it may be transposed, and
 * b and c have rows of whole vectors. Rows of c are made six at a time; a last block of fewer makes rows that nobody reads,
 * for which every buffer has room. */
#include "attention_rows.h"
#include "transpose.h"

#include <string.h>

enum { TILE_ROWS = 6, TILE_VECTORS = 4, BLOCK = 48, SLACK = TILE_ROWS * 64 };

/* a[i][k] at a + i row + k step. */
typedef struct Factor { const float *at; int64_t row, step; } Factor;

ALWAYS_INLINE void tile_product(int vectors, Factor a, const float *b, float *c, int64_t width, int64_t depth, bool add)
{
    VecF sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < TILE_ROWS; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = add ? vec_load_f32(c + i * width + v * LANES) : vec_set(0);
    for (int64_t k = 0; k < depth; k++) {
        VecF row[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            row[v] = vec_load_f32(b + k * width + v * LANES);
        for (int i = 0; i < TILE_ROWS; i++) {
            const VecF factor = vec_set(a.at[i * a.row + k * a.step]);
            for (int v = 0; v < vectors; v++)
                sum[i][v] = vec_fma(factor, row[v], sum[i][v]);
        }
    }
    for (int i = 0; i < TILE_ROWS; i++)
        for (int v = 0; v < vectors; v++)
            vec_store_f32(c + i * width + v * LANES, sum[i][v]);
}

/* c (M,N) = a b, or += with add; b and c have rows of `width` = N elements, a multiple of 16. */
static void product(int64_t rows, int64_t width, int64_t depth, Factor a, const float *b, float *c, bool add)
{
    for (int64_t n = 0; n < width; n += TILE_VECTORS * LANES)
        for (int64_t m = 0; m < rows; m += TILE_ROWS) {
            const Factor at = { a.at + m * a.row, a.row, a.step };
            float       *to = c + m * width + n;
            switch (width - n) {
            case LANES:     tile_product(1, at, b + n, to, width, depth, add); break;
            case 2 * LANES: tile_product(2, at, b + n, to, width, depth, add); break;
            case 3 * LANES: tile_product(3, at, b + n, to, width, depth, add); break;
            default:        tile_product(4, at, b + n, to, width, depth, add); break;
            }
        }
}

/* Lengths in elements, and where everything lies. wide: columns of scores; deep: features, both as whole vectors. */
typedef struct Work {
    int64_t wide, deep;
    float  *k_turned, *v_turned, *k, *v;  /* (D,wide), (D,wide), (n,deep), (n,deep) */
    float  *q, *dy;                       /* (BLOCK,deep) */
    float  *s, *dp;                       /* (BLOCK,wide) */
    float  *out;                          /* (BLOCK,deep): y or dq */
    float  *dk, *dv;                      /* (n,deep) */
    uintptr_t end;
} Work;

static float *take(uintptr_t *at, int64_t rows, int64_t columns)
{
    return scratch_take(at, (rows + TILE_ROWS) * columns * (int64_t)sizeof(float) + SLACK);
}

static Work work_place(int64_t rows, int64_t size, bool gradient, uintptr_t at)
{
    Work w = { .wide = round_up(rows, LANES), .deep = round_up(size, LANES) };
    w.k_turned = take(&at, size, w.wide);
    w.v = take(&at, rows, w.deep);
    w.q = take(&at, BLOCK, w.deep);
    w.s = take(&at, BLOCK, w.wide);
    w.out = take(&at, BLOCK, w.deep);
    if (gradient) {
        w.v_turned = take(&at, size, w.wide);
        w.k = take(&at, rows, w.deep);
        w.dy = take(&at, BLOCK, w.deep);
        w.dp = take(&at, BLOCK, w.wide);
        w.dk = take(&at, rows, w.deep);
        w.dv = take(&at, rows, w.deep);
    }
    w.end = at;
    return w;
}

size_t attention_vec_scratch(int64_t rows, int64_t size, bool gradient)
{
    return (size_t)work_place(rows, size, gradient, 0).end;
}

/* Rows of D elements of type t to rows of `deep` floats, zeros behind. */
ALWAYS_INLINE void copy_in(Dtype t, const void *from, int64_t row, int64_t rows, int64_t size, float *to, int64_t deep)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < deep; d += LANES)
            vec_store_f32(to + i * deep + d, vec_load_some(t, from, i * row + d, columns_at(size, d)));
}

/* Sixteen vectors turned over: lane l of vector d becomes lane d of vector l. */
ALWAYS_INLINE void turn(VecF v[LANES])
{
#ifdef __AVX512F__
    __m512i rows[LANES];
    for (int l = 0; l < LANES; l++)
        rows[l] = (__m512i)v[l];
    transpose_16x16(rows);
    for (int l = 0; l < LANES; l++)
        v[l] = (VecF)rows[l];
#else
    for (int l = 0; l < LANES; l++)
        for (int d = 0; d < l; d++) {
            const float f = v[l][d];
            v[l][d] = v[d][l];
            v[d][l] = f;
        }
#endif
}

/* The same turned over: to[d][i], zeros for i from `rows` to `wide`. */
ALWAYS_INLINE void copy_turned(Dtype t, const void *from, int64_t row, int64_t rows, int64_t size, float *to, int64_t wide)
{
    VecF v[LANES];
    for (int64_t i = 0; i < wide; i += LANES)
        for (int64_t d = 0; d < size; d += LANES) {
            const int lanes = columns_at(size, d);
            for (int l = 0; l < LANES; l++)
                v[l] = i + l < rows ? vec_load_some(t, from, (i + l) * row + d, lanes) : vec_set(0);
            turn(v);
            for (int l = 0; l < lanes; l++)
                vec_store_f32(to + (d + l) * wide + i, v[l]);
        }
}

/* Rows of `deep` floats, times a factor, to rows of D elements. */
ALWAYS_INLINE void copy_out(Dtype t, const float *from, int64_t deep, int64_t rows, int64_t size, float factor, void *to,
                            int64_t row)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < size; d += LANES)
            vec_store_some(t, to, i * row + d, vec_load_f32(from + i * deep + d) * factor, columns_at(size, d));
}

ALWAYS_INLINE void forward(const AttentionHead *h, Dtype t, const Work *w)
{
    copy_turned(t, h->k, h->qkv_row, h->rows, h->size, w->k_turned, w->wide);
    copy_in(t, h->v, h->qkv_row, h->rows, h->size, w->v, w->deep);
    for (int64_t first = 0; first < h->rows; first += BLOCK) {
        const int64_t rows = h->rows - first < BLOCK ? h->rows - first : BLOCK;
        float factor[BLOCK];
        copy_in(t, head_element(h, h->q, first * h->qkv_row), h->qkv_row, rows, h->size, w->q, w->deep);
        product(rows, w->wide, h->size, (Factor){ w->q, w->deep, 1 }, w->k_turned, w->s, false);
        for (int64_t i = 0; i < rows; i++)
            factor[i] = softmax_row(h, first + i, w->s + i * w->wide, DTYPE_F32, w->s + i * w->wide, 32, w->wide);
        product(rows, w->deep, h->rows, (Factor){ w->s, w->wide, 1 }, w->v, w->out, false);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t d = 0; d < h->size; d += LANES)
                vec_store_some(t, h->y, (first + i) * h->y_row + d, vec_load_f32(w->out + i * w->deep + d) * factor[i],
                               columns_at(h->size, d));
    }
}

/* Scores and dy v^T of query row i become keep p and ds, in place. */
static void gradient_row(const AttentionHead *h, int64_t i, float delta_of_row, float *s, float *dp, int64_t wide)
{
    const VecF scale = vec_set(h->scale), lse = vec_set(h->lse[i * h->lse_row]), delta = vec_set(delta_of_row);
    KeepBits   keep = { 0 };
    for (int64_t j = 0; j < wide; j += LANES) {
        const int      lanes = columns_at(h->rows, j);
        const uint32_t exist = lanes == LANES ? 0xffffu : (1u << lanes) - 1u;
        const GradientLanes g = gradient_lanes(vec_load_f32(s + j), vec_load_f32(dp + j), scale, lse, delta, exist,
                                               keep_bits(h, &keep, i, j));
        vec_store_f32(s + j, g.p);
        vec_store_f32(dp + j, g.ds);
    }
}

ALWAYS_INLINE void backward(const AttentionHead *h, Dtype t, const Work *w)
{
    const float z = dropout_scale(h);
    copy_turned(t, h->k, h->qkv_row, h->rows, h->size, w->k_turned, w->wide);
    copy_turned(t, h->v, h->qkv_row, h->rows, h->size, w->v_turned, w->wide);
    copy_in(t, h->k, h->qkv_row, h->rows, h->size, w->k, w->deep);
    for (int64_t first = 0; first < h->rows; first += BLOCK) {
        const int64_t rows = h->rows - first < BLOCK ? h->rows - first : BLOCK;
        const bool    add = first > 0;
        copy_in(t, head_element(h, h->q, first * h->qkv_row), h->qkv_row, rows, h->size, w->q, w->deep);
        copy_in(t, head_element(h, h->dy, first * h->y_row), h->y_row, rows, h->size, w->dy, w->deep);
        product(rows, w->wide, h->size, (Factor){ w->q, w->deep, 1 }, w->k_turned, w->s, false);
        product(rows, w->wide, h->size, (Factor){ w->dy, w->deep, 1 }, w->v_turned, w->dp, false);
        for (int64_t i = 0; i < rows; i++)
            gradient_row(h, first + i, row_delta(h, t, first + i), w->s + i * w->wide, w->dp + i * w->wide, w->wide);
        product(rows, w->deep, h->rows, (Factor){ w->dp, w->wide, 1 }, w->k, w->out, false);
        product(h->rows, w->deep, rows, (Factor){ w->dp, 1, w->wide }, w->q, w->dk, add);
        product(h->rows, w->deep, rows, (Factor){ w->s, 1, w->wide }, w->dy, w->dv, add);
        copy_out(t, w->out, w->deep, rows, h->size, h->scale * z, (void *)head_element(h, h->dq, first * h->qkv_row), h->qkv_row);
    }
    copy_out(t, w->dk, w->deep, h->rows, h->size, h->scale * z, h->dk, h->qkv_row);
    copy_out(t, w->dv, w->deep, h->rows, h->size, z, h->dv, h->qkv_row);
}

void attention_vec_forward(const AttentionHead *h, void *scratch)
{
    const Work w = work_place(h->rows, h->size, false, (uintptr_t)scratch);
    if (h->type == DTYPE_F32)
        forward(h, DTYPE_F32, &w);
    else
        forward(h, DTYPE_BF16, &w);
}

void attention_vec_backward(const AttentionHead *h, void *scratch)
{
    const Work w = work_place(h->rows, h->size, true, (uintptr_t)scratch);
    if (h->type == DTYPE_F32)
        backward(h, DTYPE_F32, &w);
    else
        backward(h, DTYPE_BF16, &w);
}
