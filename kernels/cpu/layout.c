/* layout.c - how tensors lie in memory: descriptors, the table of private layouts, copies from one layout to another. */
#include "cpu.h"
#include "tile_copy.h"

#include <string.h>

bool cpu_is_blocked(const CpuBackend *be, const Tensor *t)
{
    return t->layout == LAYOUT_ACT && t->rank == 4 && t->dim[3] % 16 == 0 && be->blocked[t->dtype];
}

/* The (N, H, W, C) of a tensor in oneDNN's order. */
static void desc_dims(const Tensor *t, dnnl_dims_t dims)
{
    static const int order[4] = { 0, 3, 1, 2 };
    for (int i = 0; i < t->rank; i++)
        dims[i] = t->dim[t->rank == 4 ? order[i] : i];
}

Status cpu_desc_create(const CpuBackend *be, const Tensor *t, MemDesc *out)
{
    static const dnnl_format_tag_t plain[TENSOR_MAX_RANK + 1] = { dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_acdb };
    *out = NULL;
    if (t->layout >= LAYOUT_PRIVATE) {
        CHECK(t->layout - LAYOUT_PRIVATE < be->layout_count);
        DNNL_TRY(compat_md_clone(out, be->layouts[t->layout - LAYOUT_PRIVATE]));
        return status_ok();
    }
    dnnl_dims_t dims;
    desc_dims(t, dims);
    DNNL_TRY(compat_md_create(out, t->rank, dims, cpu_dnnl_type(t->dtype), cpu_is_blocked(be, t) ? dnnl_aBcd16b : plain[t->rank]));
    return status_ok();
}

static Status layout_append(CpuBackend *be, ConstMemDesc md)
{
    if (be->layout_count == be->layout_capacity) {
        int capacity = be->layout_capacity ? 2 * be->layout_capacity : 32;
        MemDesc *grown = realloc(be->layouts, (size_t)capacity * sizeof *grown);
        if (!grown)
            return status_error(STATUS_OOM, "no memory for the table of weight layouts");
        be->layouts = grown;
        be->layout_capacity = capacity;
    }
    DNNL_TRY(compat_md_clone(&be->layouts[be->layout_count], md));
    be->layout_count++;
    return status_ok();
}

Status cpu_layout_id(CpuBackend *be, const Tensor *t, ConstMemDesc md, int *id)
{
    Blocking b;
    if (!compat_md_blocking(md, &b))
        return status_error(STATUS_BACKEND, "oneDNN chose a weight layout that is not made of blocks");
    Tensor  plain = *t;
    MemDesc plain_md;
    plain.layout = LAYOUT_PLAIN;
    TRY(cpu_desc_create(be, &plain, &plain_md));
    bool is_plain = dnnl_memory_desc_equal(plain_md, md);
    compat_md_destroy(plain_md);
    *id = LAYOUT_PLAIN;
    if (is_plain)
        return status_ok();
    for (int i = 0; i < be->layout_count; i++) {
        *id = LAYOUT_PRIVATE + i;
        if (dnnl_memory_desc_equal(be->layouts[i], md))
            return status_ok();
    }
    *id = LAYOUT_PRIVATE + be->layout_count;
    return layout_append(be, md);
}

size_t cpu_tensor_bytes(const CpuBackend *be, const Tensor *t)
{
    if (t->layout < LAYOUT_PRIVATE)
        return tensor_bytes(t);
    CHECK(t->layout - LAYOUT_PRIVATE < be->layout_count);
    size_t bytes = dnnl_memory_desc_get_size(be->layouts[t->layout - LAYOUT_PRIVATE]);
    return t->dtype == DTYPE_F16 ? bytes / 2 : bytes; /* the layout is that of an f32 tensor (half.c) */
}

ActView act_view(const CpuBackend *be, const Tensor *t)
{
    ActView v = { .n = t->dim[0], .h = t->dim[1], .w = t->dim[2], .c = t->dim[3] };
    v.image = v.h * v.w;
    v.rows = v.n * v.image;
    v.blocks = (int)((v.c + 15) / 16);
    v.whole = v.c % 16 == 0;
    v.image_stride = v.image * v.c;
    if (cpu_is_blocked(be, t)) {
        v.block_stride = 16 * v.image;
        v.row_stride = 16;
        v.run = 256; /* contiguous */
    } else {
        v.block_stride = 16;
        v.row_stride = v.c;
        v.run = 8;   /* as many lines a block apart as the first-level cache holds even where they fall into one set */
    }
    return v;
}

/* Layouts repeat in tiles: within a tile whose size in each dimension is a multiple of the inner blocks of both sides,
 * the place of an element relative to the tile's first one is the same in every tile. So one table of places serves all
 * whole tiles; those cut by the tensor's edge check every element. */
struct Relayout {
    Dtype    from_type, to_type;
    Blocking from, to;
    int64_t  tile[4], tiles[4];
    int      order[4];     /* dimensions, slowest first in the destination */
    int      size;         /* elements of a tile */
    bool     contiguous;   /* the destination's tile is `size` elements in a row */
    TileOrder tile_order;  /* if so, and from f32 */
    int     *from_place;   /* [size], in the order of to_place */
    int     *to_place;
    int     *coordinate;   /* [size][4] within the tile */
    int      threads;
};

static int64_t period_of(const Blocking *b, int d)
{
    int64_t p = 1;
    for (int k = 0; k < b->blocks; k++)
        if (b->block_dim[k] == d)
            p *= b->block_size[k];
    return p;
}

/* Part of an element's offset that is due to index i in dimension d; offsets of the dimensions add up. */
static int64_t place_of(const Blocking *b, int d, int64_t i)
{
    int64_t place = 0, step = 1;
    for (int k = b->blocks - 1; k >= 0; k--) {
        if (b->block_dim[k] == d) {
            place += i % b->block_size[k] * step;
            i /= b->block_size[k];
        }
        step *= b->block_size[k];
    }
    return place + i * b->stride[d];
}

static Status blocking_of(const CpuBackend *be, const Tensor *t, Blocking *b)
{
    MemDesc md;
    TRY(cpu_desc_create(be, t, &md));
    bool fine = compat_md_blocking(md, b);
    compat_md_destroy(md);
    CHECK(fine);
    for (int d = b->rank; d < 4; d++) {
        b->dim[d] = b->padded[d] = 1;
        b->stride[d] = 0;
    }
    return status_ok();
}

static int64_t least_common_multiple(int64_t a, int64_t b)
{
    int64_t m = a;
    while (m % b)
        m += a;
    return m;
}

static int64_t largest_divisor(int64_t n, int64_t most)
{
    int64_t d = n < most ? n : most;
    while (n % d)
        d--;
    return d;
}

/* Tile sizes, and the dimensions in the order of the destination's strides. */
static void relayout_measure(Relayout *r)
{
    r->size = 1;
    for (int d = 0; d < 4; d++) {
        r->tile[d] = least_common_multiple(period_of(&r->from, d), period_of(&r->to, d));
        r->order[d] = d;
    }
    for (int d = 0; d < r->to.rank && r->to.blocks == 0; d++) /* no blocks: a piece of a line of the destination */
        if (r->to.stride[d] == 1 && r->tile[d] == 1)
            r->tile[d] = largest_divisor(r->to.dim[d], 64);
    for (int d = 0; d < 4; d++) {
        r->tiles[d] = ((r->from.padded[d] > r->to.padded[d] ? r->from.padded[d] : r->to.padded[d]) + r->tile[d] - 1) / r->tile[d];
        r->size *= (int)r->tile[d];
    }
    for (int i = 1; i < 4; i++)
        for (int j = i; j > 0 && r->to.stride[r->order[j - 1]] < r->to.stride[r->order[j]]; j--) {
            int swap = r->order[j];
            r->order[j] = r->order[j - 1];
            r->order[j - 1] = swap;
        }
}

static void relayout_fill(Relayout *r)
{
    int last = 0;
    for (int i = 0; i < r->size; i++) {
        int c[4], rest = i, to = 0, from = 0;
        for (int d = 3; d >= 0; d--) {
            int dimension = r->order[d];
            c[dimension] = rest % (int)r->tile[dimension];
            rest /= (int)r->tile[dimension];
            to += (int)place_of(&r->to, dimension, c[dimension]);
            from += (int)place_of(&r->from, dimension, c[dimension]);
        }
        r->to_place[i] = to;
        r->from_place[i] = from;
        memcpy(r->coordinate + 4 * i, c, sizeof c);
        last = to > last ? to : last;
    }
    r->contiguous = last == r->size - 1;
    if (!r->contiguous)
        return;
    /* Now in the order of the destination. from_place of element i is at to_place[i]: follow the cycles with a copy. */
    for (int i = 0; i < r->size; i++)
        while (r->to_place[i] != i) {
            int j = r->to_place[i], c[4];
            int from = r->from_place[j], to = r->to_place[j];
            memcpy(c, r->coordinate + 4 * j, sizeof c);
            r->from_place[j] = r->from_place[i];
            r->to_place[j] = r->to_place[i];
            memcpy(r->coordinate + 4 * j, r->coordinate + 4 * i, sizeof c);
            r->from_place[i] = from;
            r->to_place[i] = to;
            memcpy(r->coordinate + 4 * i, c, sizeof c);
        }
}

Status relayout_create(const CpuBackend *be, const Tensor *from, const Tensor *to, Relayout **out)
{
    *out = NULL;
    Relayout *r = calloc(1, sizeof *r);
    if (!r)
        return status_error(STATUS_OOM, "no memory for a change of layout");
    Status status;
    r->from_type = from->dtype;
    r->to_type = to->dtype;
    r->threads = be->threads;
    TRY_GOTO(status, blocking_of(be, from, &r->from), fail);
    TRY_GOTO(status, blocking_of(be, to, &r->to), fail);
    relayout_measure(r);
    size_t n = (size_t)r->size;
    r->from_place = malloc(6 * n * sizeof *r->from_place);
    if (!r->from_place) {
        status = status_error(STATUS_OOM, "no memory for a change of layout");
        goto fail;
    }
    r->to_place = r->from_place + n;
    r->coordinate = r->to_place + n;
    relayout_fill(r);
    if (r->contiguous)
        r->tile_order = tile_order(r->to_type, r->from_place, r->size);
    *out = r;
    return status_ok();
fail:
    relayout_destroy(r);
    return status;
}

void relayout_destroy(Relayout *r)
{
    if (!r)
        return;
    free(r->from_place);
    free(r);
}

/* One element: bits as they are where the types agree. */
static inline void copy_element(const Relayout *r, const void *from, int64_t i, void *to, int64_t j)
{
    if (r->from_type == r->to_type) {
        size_t size = (size_t)dtype_bits(r->to_type) / 8;
        memcpy((char *)to + (size_t)j * size, (const char *)from + (size_t)i * size, size);
    } else if (r->to_type == DTYPE_BF16) {
        ((uint16_t *)to)[j] = bf16_from_f32(((const float *)from)[i]);
    } else {
        ((float *)to)[j] = bf16_to_f32(((const uint16_t *)from)[i]);
    }
}

static void copy_cut_tile(const Relayout *r, const int64_t *first, const void *from, int64_t from_base, void *to, int64_t to_base)
{
    for (int i = 0; i < r->size; i++) {
        bool inside = true, padded = true;
        for (int d = 0; d < 4; d++) {
            int64_t c = first[d] + r->coordinate[4 * i + d];
            inside &= c < r->to.dim[d];
            padded &= c < r->to.padded[d];
        }
        size_t size = (size_t)dtype_bits(r->to_type) / 8;
        if (inside)
            copy_element(r, from, from_base + r->from_place[i], to, to_base + r->to_place[i]);
        else if (padded)
            memset((char *)to + (size_t)(to_base + r->to_place[i]) * size, 0, size);
    }
}

static void copy_whole_tile(const Relayout *r, const void *from, int64_t from_base, void *to, int64_t to_base)
{
    if (r->contiguous && r->from_type == DTYPE_F32) {
        size_t size = (size_t)dtype_bits(r->to_type) / 8;
        tile_copy(r->tile_order, r->to_type, r->from_place, r->size, (const float *)from + from_base,
                  (char *)to + (size_t)to_base * size);
        return;
    }
    for (int i = 0; i < r->size; i++)
        copy_element(r, from, from_base + r->from_place[i], to, to_base + r->to_place[i]);
}

void relayout_run(const Relayout *r, const void *from, void *to)
{
    const int *o = r->order;
    int64_t count = r->tiles[0] * r->tiles[1] * r->tiles[2] * r->tiles[3];
#pragma omp parallel for num_threads(r->threads) schedule(static)
    for (int64_t t = 0; t < count; t++) {
        int64_t first[4], rest = t, from_base = 0, to_base = 0;
        bool    whole = true;
        for (int d = 3; d >= 0; d--) {
            int dimension = o[d];
            first[dimension] = rest % r->tiles[dimension] * r->tile[dimension];
            rest /= r->tiles[dimension];
            from_base += place_of(&r->from, dimension, first[dimension]);
            to_base += place_of(&r->to, dimension, first[dimension]);
            whole &= first[dimension] + r->tile[dimension] <= r->to.dim[dimension];
        }
        if (whole)
            copy_whole_tile(r, from, from_base, to, to_base);
        else
            copy_cut_tile(r, first, from, from_base, to, to_base);
    }
}
