/* attention_amx.c - attention's heads by products on AMX tiles, bf16; sums, scores and softmax in f32.
 *
 * A product c = a b takes a in tiles of 16 rows by 32 terms and b in tiles of 16 pairs of terms by 16 columns. All operands
 * are packed in such tiles of 1 KiB each (n, D padded with zeros), so a tile is always 16 neighbouring cache lines:
 *   s = q k^T, dp = dy v^T   a: rows of q, dy          b: k, v "turned" (terms are features)
 *   y = e v, dq = ds k       a: e, ds as softmax rows   b: k, v in pairs of rows
 *   dv^T = dy^T p            a: dy, q "turned pairs"    b: p, ds, written in pairs of rows straight away
 *   dk^T = q^T ds
 * Queries go in blocks of 32 rows, whose scores stay in the first-level cache; dk^T and dv^T are summed up over a group of
 * four blocks in the tiles, then added in memory. */
#include "attention_rows.h"

#include "amx_pack.h"
#include "amx_product.h"

enum { TILE = AMX_TILE, BLOCK = 32, GROUP = 4 }; /* elements of a tile; rows of queries; blocks of a group */

/* Where everything lies, and how many tiles. Pitches in floats: whole vectors plus one, against rows in one cache set. */
typedef struct Work {
    int64_t   rows32, rows16;               /* n in blocks of 32 and of 16 (an even number) */
    int64_t   size32, size16;               /* D likewise (any number) */
    int64_t   s_pitch, out_pitch;
    uint16_t *k_turned, *v_turned;          /* [rows16][size32] tiles */
    uint16_t *k_pairs, *v_pairs;            /* [size16][rows32] */
    uint16_t *q, *dy;                       /* [2][size32], of a block */
    uint16_t *e;                            /* [2][rows32]: e or ds */
    uint16_t *q_turned, *dy_turned;         /* [size16][GROUP] */
    uint16_t *p_pairs, *ds_pairs;           /* [rows16][GROUP] */
    float    *s, *dp;                       /* (BLOCK, s_pitch) */
    float    *out;                          /* (BLOCK, out_pitch) */
    float    *dk, *dv;                      /* (16 size16, s_pitch), turned */
    uintptr_t end;
} Work;

static uint16_t *take_tiles(uintptr_t *at, int64_t tiles) { return scratch_take(at, tiles * TILE * 2); }
static float    *take_floats(uintptr_t *at, int64_t rows, int64_t pitch) { return scratch_take(at, rows * pitch * 4); }

static Work work_place(int64_t rows, int64_t size, bool gradient, uintptr_t at)
{
    Work w = { .rows32 = (rows + 31) / 32, .size32 = (size + 31) / 32, .size16 = (size + 15) / 16 };
    w.rows16 = 2 * w.rows32;
    w.s_pitch = w.rows16 * AMX_BLOCK + LANES;
    w.out_pitch = w.size16 * AMX_BLOCK + LANES;
    w.k_turned = take_tiles(&at, w.rows16 * w.size32);
    w.q = take_tiles(&at, 2 * w.size32);
    w.s = take_floats(&at, BLOCK, w.s_pitch);
    w.e = take_tiles(&at, 2 * w.rows32);
    w.out = take_floats(&at, BLOCK, w.out_pitch);
    if (gradient) {
        w.dy = take_tiles(&at, 2 * w.size32);
        w.dp = take_floats(&at, BLOCK, w.s_pitch);
        w.q_turned = take_tiles(&at, w.size16 * GROUP);
        w.dy_turned = take_tiles(&at, w.size16 * GROUP);
        w.p_pairs = take_tiles(&at, w.rows16 * GROUP);
        w.ds_pairs = take_tiles(&at, w.rows16 * GROUP);
        w.v_turned = take_tiles(&at, w.rows16 * w.size32);
        w.k_pairs = take_tiles(&at, w.size16 * w.rows32);
        w.dk = take_floats(&at, w.size16 * AMX_BLOCK, w.s_pitch);
        w.dv = take_floats(&at, w.size16 * AMX_BLOCK, w.s_pitch);
    } else {
        w.v_pairs = take_tiles(&at, w.size16 * w.rows32);
    }
    w.end = at;
    return w;
}

size_t attention_amx_scratch(int64_t rows, int64_t size, bool gradient)
{
    return (size_t)work_place(rows, size, gradient, 0).end;
}

#if HAVE_AMX

/* ---- products */

/* A block's scores or dp: its rows times what is turned. */
static void multiply_features(const Work *w, const uint16_t *rows, const uint16_t *turned, float *c)
{
    amx_multiply_all(&(AmxProduct){ rows, turned, c, 2, w->rows16, w->size32, w->size32 * TILE, w->size32 * TILE, w->s_pitch,
                                    false });
}

/* A block's y or dq. */
static void multiply_rows(const Work *w, const uint16_t *pairs)
{
    const int64_t step = w->rows32 * TILE;
    amx_multiply_all(&(AmxProduct){ w->e, pairs, w->out, 2, w->size16, w->rows32, step, step, w->out_pitch, false });
}

/* dk^T or dv^T of a group of `blocks` blocks. */
static void multiply_group(const Work *w, const uint16_t *turned, const uint16_t *pairs, int64_t blocks, bool add, float *c)
{
    amx_multiply_all(&(AmxProduct){ turned, pairs, c, w->size16, w->rows16, blocks, GROUP * TILE, GROUP * TILE, w->s_pitch, add });
}

/* ---- forward */

/* Row i of a block in the tiles of a. */
static uint16_t *tile_row(const Work *w, int64_t i) { return w->e + i / AMX_BLOCK * w->rows32 * TILE + i % AMX_BLOCK * AMX_STEP; }

void attention_amx_forward(const AttentionHead *h, void *scratch)
{
    const Work w = work_place(h->rows, h->size, false, (uintptr_t)scratch);
    amx_pack_rows(h->k, h->qkv_row, h->rows, h->size, w.rows16, true, w.k_turned);
    amx_pack_pairs(h->v, h->qkv_row, h->rows, h->size, w.rows32, false, w.v_pairs, w.rows32 * TILE);
    for (int64_t first = 0; first < h->rows; first += BLOCK) {
        const int64_t rows = h->rows - first < BLOCK ? h->rows - first : BLOCK;
        float factor[BLOCK];
        amx_pack_rows(head_element(h, h->q, first * h->qkv_row), h->qkv_row, rows, h->size, 2, false, w.q);
        multiply_features(&w, w.q, w.k_turned, w.s);
        for (int64_t i = 0; i < rows; i++)
            factor[i] = softmax_row(h, first + i, w.s + i * w.s_pitch, DTYPE_BF16, tile_row(&w, i), TILE, w.rows32 * BLOCK);
        multiply_rows(&w, w.v_pairs);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t d = 0; d < h->size; d += LANES)
                vec_store_some(DTYPE_BF16, h->y, (first + i) * h->y_row + d, vec_load_f32(w.out + i * w.out_pitch + d) * factor[i],
                               columns_at(h->size, d));
    }
}

/* ---- backward */

/* A query row of the gradient; one that does not exist has no columns. */
typedef struct QueryRow {
    const float *s, *dp;
    VecF     lse, delta;
    int64_t  index, columns;
    KeepBits keep;
} QueryRow;

static QueryRow query_row(const AttentionHead *h, const Work *w, int64_t first, int64_t i)
{
    QueryRow r = { .s = w->s + i * w->s_pitch, .dp = w->dp + i * w->s_pitch, .index = first + i };
    if (r.index < h->rows) {
        r.columns = h->rows;
        r.lse = vec_set(h->lse[r.index * h->lse_row]);
        r.delta = vec_set(row_delta(h, DTYPE_BF16, r.index));
    }
    return r;
}

ALWAYS_INLINE GradientLanes row_lanes(const AttentionHead *h, QueryRow *r, VecF scale, int64_t j)
{
    const uint32_t exist = j + LANES <= r->columns ? 0xffffu : j < r->columns ? (1u << (r->columns - j)) - 1u : 0;
    const uint32_t keep = j < r->columns ? keep_bits(h, &r->keep, r->index, j) : 0;
    return gradient_lanes(vec_load_f32(r->s + j), vec_load_f32(r->dp + j), scale, r->lse, r->delta, exist, keep);
}

/* Scores and dp of block `block` of a group to p and ds: both in pairs of rows, ds in rows as well. */
static void gradient_block(const AttentionHead *h, const Work *w, int64_t first, int64_t block)
{
    const VecF scale = vec_set(h->scale);
    for (int64_t p = 0; p < BLOCK / 2; p++) {
        QueryRow  r0 = query_row(h, w, first, 2 * p), r1 = query_row(h, w, first, 2 * p + 1);
        uint16_t *row0 = tile_row(w, 2 * p), *row1 = row0 + AMX_STEP;
        for (int64_t j = 0; j < w->rows32 * BLOCK; j += LANES) {
            const GradientLanes g0 = row_lanes(h, &r0, scale, j), g1 = row_lanes(h, &r1, scale, j);
            const __m512i both_p = (__m512i)_mm512_cvtne2ps_pbh((__m512)g1.p, (__m512)g0.p);
            const __m512i both_ds = (__m512i)_mm512_cvtne2ps_pbh((__m512)g1.ds, (__m512)g0.ds);
            const int64_t at = (j / AMX_BLOCK * GROUP + block) * TILE + p * AMX_STEP, in_row = j / AMX_STEP * TILE + j % AMX_STEP;
            _mm512_store_si512(w->p_pairs + at, amx_pair_up(both_p));
            _mm512_store_si512(w->ds_pairs + at, amx_pair_up(both_ds));
            _mm256_store_si256((__m256i *)(row0 + in_row), _mm512_castsi512_si256(both_ds));
            _mm256_store_si256((__m256i *)(row1 + in_row), _mm512_extracti64x4_epi64(both_ds, 1));
        }
    }
}

/* dq of a block, once its scores' gradient stands in w->e. */
static void store_dq(const AttentionHead *h, const Work *w, int64_t first, int64_t rows)
{
    const float factor = h->scale * dropout_scale(h);
    multiply_rows(w, w->k_pairs);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < h->size; d += LANES)
            vec_store_some(DTYPE_BF16, h->dq, (first + i) * h->qkv_row + d, vec_load_f32(w->out + i * w->out_pitch + d) * factor,
                           columns_at(h->size, d));
}

/* dk or dv from its turned form, 16 features by 16 rows at a time. */
static void store_turned(const AttentionHead *h, const Work *w, const float *from, float factor, void *to)
{
    __m512i v[16];
    for (int64_t j = 0; j < h->rows; j += LANES)
        for (int64_t d = 0; d < h->size; d += LANES) {
            for (int i = 0; i < LANES; i++)
                v[i] = (__m512i)(vec_load_f32(from + (d + i) * w->s_pitch + j) * factor);
            transpose_16x16(v);
            for (int i = 0; i < columns_at(h->rows, j); i++)
                vec_store_some(DTYPE_BF16, to, (j + i) * h->qkv_row + d, (VecF)v[i], columns_at(h->size, d));
        }
}

void attention_amx_backward(const AttentionHead *h, void *scratch)
{
    const Work  w = work_place(h->rows, h->size, true, (uintptr_t)scratch);
    const float z = dropout_scale(h);
    amx_pack_rows(h->k, h->qkv_row, h->rows, h->size, w.rows16, true, w.k_turned);
    amx_pack_rows(h->v, h->qkv_row, h->rows, h->size, w.rows16, true, w.v_turned);
    amx_pack_pairs(h->k, h->qkv_row, h->rows, h->size, w.rows32, false, w.k_pairs, w.rows32 * TILE);
    for (int64_t group = 0; group < w.rows32; group += GROUP) {
        const int64_t blocks = w.rows32 - group < GROUP ? w.rows32 - group : GROUP;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t   first = (group + b) * BLOCK, rows = h->rows - first < BLOCK ? h->rows - first : BLOCK;
            const uint16_t *q = head_element(h, h->q, first * h->qkv_row), *dy = head_element(h, h->dy, first * h->y_row);
            amx_pack_rows(q, h->qkv_row, rows, h->size, 2, false, w.q);
            amx_pack_rows(dy, h->y_row, rows, h->size, 2, false, w.dy);
            amx_pack_pairs(q, h->qkv_row, rows, h->size, 1, true, w.q_turned + b * TILE, GROUP * TILE);
            amx_pack_pairs(dy, h->y_row, rows, h->size, 1, true, w.dy_turned + b * TILE, GROUP * TILE);
            multiply_features(&w, w.q, w.k_turned, w.s);
            multiply_features(&w, w.dy, w.v_turned, w.dp);
            gradient_block(h, &w, first, b);
            store_dq(h, &w, first, rows);
        }
        multiply_group(&w, w.q_turned, w.ds_pairs, blocks, group > 0, w.dk);
        multiply_group(&w, w.dy_turned, w.p_pairs, blocks, group > 0, w.dv);
    }
    store_turned(h, &w, w.dk, h->scale * z, h->dk);
    store_turned(h, &w, w.dv, z, h->dv);
}

#else

void attention_amx_forward(const AttentionHead *h, void *scratch)
{
    (void)h, (void)scratch;
    CHECK(!"this build has no AMX code");
}

void attention_amx_backward(const AttentionHead *h, void *scratch)
{
    (void)h, (void)scratch;
    CHECK(!"this build has no AMX code");
}

#endif
