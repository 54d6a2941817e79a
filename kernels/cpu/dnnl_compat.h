/* dnnl_compat.h - everything that differs between oneDNN 2.6 and 3.x, in the shape of 3.x.
 *
 * 3.x made memory descriptors opaque, dropped operation descriptors and the dilation-free calls, and the scale of
 * element-wise post-ops. Sources: oneDNN developer guide, "Transition from v2.x to v3.x". */
#ifndef BATCHMARK_KERNELS_CPU_DNNL_COMPAT_H
#define BATCHMARK_KERNELS_CPU_DNNL_COMPAT_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdlib.h>

/* A memory layout spelt out. Element (i0, i1, ..) lies at sum(outer index * stride) + position in the inner blocks;
 * inner block k has block_size[k] steps of dimension block_dim[k], the last one is contiguous. */
typedef struct Blocking {
    int     rank, blocks;
    int64_t dim[DNNL_MAX_NDIMS], padded[DNNL_MAX_NDIMS], stride[DNNL_MAX_NDIMS];
    int64_t block_size[DNNL_MAX_NDIMS], block_dim[DNNL_MAX_NDIMS];
} Blocking;

/* What a convolution pd is made of; bias may be NULL. Undilated, the same padding on all sides. */
typedef struct ConvShape { dnnl_dims_t stride, pad, dilation; } ConvShape;

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t       MemDesc;
typedef const_dnnl_memory_desc_t ConstMemDesc;

static inline dnnl_status_t compat_md_create(MemDesc *md, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                             dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(md, rank, dims, type, tag);
}

static inline dnnl_status_t compat_md_clone(MemDesc *md, ConstMemDesc from)
{
    return dnnl_memory_desc_clone(md, from);
}

static inline void compat_md_destroy(MemDesc md)
{
    if (md)
        dnnl_memory_desc_destroy(md);
}

static inline bool compat_md_blocking(ConstMemDesc md, Blocking *b)
{
    int32_t               rank = 0, blocks = 0;
    dnnl_format_kind_t    kind = dnnl_format_kind_undef;
    const dnnl_dims_t    *v[5] = { NULL, NULL, NULL, NULL, NULL };
    static const dnnl_query_t what[5] = { dnnl_query_dims, dnnl_query_padded_dims, dnnl_query_strides,
                                          dnnl_query_inner_blks, dnnl_query_inner_idxs };
    if (dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) || kind != dnnl_blocked ||
        dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &rank) ||
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &blocks))
        return false;
    for (int q = 0; q < 5; q++)
        if (dnnl_memory_desc_query(md, what[q], (void *)&v[q]) || (!v[q] && (q < 3 || blocks)))
            return false;
    b->rank = rank;
    b->blocks = blocks;
    for (int i = 0; i < rank; i++) {
        b->dim[i] = (*v[0])[i];
        b->padded[i] = (*v[1])[i];
        b->stride[i] = (*v[2])[i];
    }
    for (int i = 0; i < blocks; i++) {
        b->block_size[i] = (*v[3])[i];
        b->block_dim[i] = (*v[4])[i];
    }
    return true;
}

static inline dnnl_status_t compat_conv_forward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc x, ConstMemDesc w,
                                                ConstMemDesc bias, ConstMemDesc y, const ConvShape *s,
                                                const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, dnnl_convolution_direct, x, w, bias,
                                                          y, s->stride, s->dilation, s->pad, s->pad, attr);
}

static inline dnnl_status_t compat_conv_backward_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc dx,
                                                      ConstMemDesc w, ConstMemDesc dy, const ConvShape *s,
                                                      const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, dx, w, dy, s->stride,
                                                                s->dilation, s->pad, s->pad, hint, attr);
}

static inline dnnl_status_t compat_conv_backward_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc x,
                                                         ConstMemDesc dw, ConstMemDesc dbias, ConstMemDesc dy, const ConvShape *s,
                                                         const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, x, dw, dbias, dy,
                                                                   s->stride, s->dilation, s->pad, s->pad, hint, attr);
}

static inline dnnl_status_t compat_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc a, ConstMemDesc b,
                                          ConstMemDesc bias, ConstMemDesc c, const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, c, attr);
}

static inline dnnl_status_t compat_append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
}

static inline dnnl_status_t compat_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

#else /* 2.6 */

typedef dnnl_memory_desc_t       *MemDesc;
typedef const dnnl_memory_desc_t *ConstMemDesc;

static inline dnnl_status_t compat_md_create(MemDesc *md, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                             dnnl_format_tag_t tag)
{
    *md = malloc(sizeof **md);
    if (!*md)
        return dnnl_out_of_memory;
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(*md, rank, dims, type, tag);
    if (s) {
        free(*md);
        *md = NULL;
    }
    return s;
}

static inline dnnl_status_t compat_md_clone(MemDesc *md, ConstMemDesc from)
{
    *md = malloc(sizeof **md);
    if (!*md)
        return dnnl_out_of_memory;
    **md = *from;
    return dnnl_success;
}

static inline void compat_md_destroy(MemDesc md) { free(md); }

static inline bool compat_md_blocking(ConstMemDesc md, Blocking *b)
{
    if (md->format_kind != dnnl_blocked)
        return false;
    b->rank = md->ndims;
    b->blocks = md->format_desc.blocking.inner_nblks;
    for (int i = 0; i < b->rank; i++) {
        b->dim[i] = md->dims[i];
        b->padded[i] = md->padded_dims[i];
        b->stride[i] = md->format_desc.blocking.strides[i];
    }
    for (int i = 0; i < b->blocks; i++) {
        b->block_size[i] = md->format_desc.blocking.inner_blks[i];
        b->block_dim[i] = md->format_desc.blocking.inner_idxs[i];
    }
    return true;
}

static inline dnnl_status_t compat_conv_forward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc x, ConstMemDesc w,
                                                ConstMemDesc bias, ConstMemDesc y, const ConvShape *s,
                                                const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t e = dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, x, w, bias, y,
                                                         s->stride, s->pad, s->pad);
    return e ? e : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}

static inline dnnl_status_t compat_conv_backward_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc dx,
                                                      ConstMemDesc w, ConstMemDesc dy, const ConvShape *s,
                                                      const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t e = dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, dx, w, dy, s->stride, s->pad, s->pad);
    return e ? e : dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
}

static inline dnnl_status_t compat_conv_backward_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc x,
                                                         ConstMemDesc dw, ConstMemDesc dbias, ConstMemDesc dy, const ConvShape *s,
                                                         const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t e = dnnl_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, x, dw, dbias, dy, s->stride,
                                                                  s->pad, s->pad);
    return e ? e : dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
}

static inline dnnl_status_t compat_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ConstMemDesc a, ConstMemDesc b,
                                          ConstMemDesc bias, ConstMemDesc c, const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t e = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return e ? e : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}

static inline dnnl_status_t compat_append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
}

static inline dnnl_status_t compat_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1);
}

#endif
#endif
