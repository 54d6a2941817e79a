/* linear.c - fully connected layers as oneDNN matrix products on plain row-major operands, or by own kernels where there is AVX-512 or AMX.
 *
 *   y (M,O) = x (M,K) w (O,K)^T + bias;   dx (M,K) = dy (M,O) w (O,K);   dw (O,K) = dy (M,O)^T x (M,K)
 *
 * Row-major is as fast as inner_product's own weight layout, and then nothing has to be repacked. */
#include "amx_linear.h"
#include "cpu.h"
#include "gemm_f32.h"
#include "vec.h"

#include <stdlib.h>

typedef struct LinearState { Prim prim; } LinearState;

typedef struct LinearDescs { MemDesc a, b, bias, c; } LinearDescs;

/* A rows x columns matrix; `transposed` means that memory holds its transpose row-major. */
static Status matrix_desc(MemDesc *md, int64_t rows, int64_t columns, Dtype t, bool transposed)
{
    dnnl_dims_t dims = { rows, columns };
    DNNL_TRY(compat_md_create(md, 2, dims, cpu_dnnl_type(t), transposed ? dnnl_ba : dnnl_ab));
    return status_ok();
}

static Status linear_descs(const OpDesc *op, LinearDescs *d)
{
    const Tensor *a = &op->in[0], *b = &op->in[1], *c = &op->out[0];
    *d = (LinearDescs){ 0 };
    switch (op->kind) {
    case OP_linear:
        TRY(matrix_desc(&d->a, a->dim[0], a->dim[1], a->dtype, false));
        TRY(matrix_desc(&d->b, b->dim[1], b->dim[0], b->dtype, true));
        if (op->n_in == 3)
            TRY(matrix_desc(&d->bias, 1, b->dim[0], DTYPE_F32, false));
        break;
    case OP_linear_dgrad:
        TRY(matrix_desc(&d->a, a->dim[0], a->dim[1], a->dtype, false));
        TRY(matrix_desc(&d->b, b->dim[0], b->dim[1], b->dtype, false));
        break;
    default: /* wgrad: the product's left factor is dy^T */
        TRY(matrix_desc(&d->a, b->dim[1], b->dim[0], b->dtype, true));
        TRY(matrix_desc(&d->b, a->dim[0], a->dim[1], a->dtype, false));
        break;
    }
    return matrix_desc(&d->c, c->dim[0], c->dim[1], c->dtype, false);
}

static Status linear_pd_create(CpuBackend *be, const OpDesc *op, dnnl_primitive_desc_t *pd)
{
    LinearDescs d;
    Status      status;
    dnnl_primitive_attr_t attr = NULL;
    *pd = NULL;
    TRY_GOTO(status, linear_descs(op, &d), done);
    TRY_GOTO(status, prim_attr_create(false, op->kind == OP_linear_wgrad && op->attr.accumulate, &attr), done);
    DNNL_TRY_GOTO(status, compat_matmul(pd, be->engine, d.a, d.b, d.bias, d.c, attr), done);
done:
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    compat_md_destroy(d.a);
    compat_md_destroy(d.b);
    compat_md_destroy(d.bias);
    compat_md_destroy(d.c);
    return status;
}

static Status linear_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    for (int i = 0; i < op->n_in; i++)
        needs->in_layout[i] = LAYOUT_PLAIN;
    for (int i = 0; i < op->n_out; i++)
        needs->out_layout[i] = LAYOUT_PLAIN;
    if (amx_linear_fits(cpu_of(be), op)) {
        needs->scratch = amx_linear_scratch(cpu_of(be), op);
        needs->in_master[1] = op->kind != OP_linear_wgrad;
        return status_ok();
    }
    if (gemm_f32_fits(op)) {
        needs->scratch = gemm_f32_scratch(cpu_of(be), op);
        return status_ok();
    }
    dnnl_primitive_desc_t pd;
    TRY(linear_pd_create(cpu_of(be), op, &pd));
    needs->scratch = prim_scratch_bytes(pd);
    dnnl_primitive_desc_destroy(pd);
    return status_ok();
}

static void linear_release(void *state)
{
    LinearState *s = state;
    if (!s)
        return;
    prim_release(&s->prim);
    free(s);
}

static Status linear_prepare(Backend *base, const OpDesc *op, void **state)
{
    CpuBackend *be = cpu_of(base);
    Status      status;
    dnnl_primitive_desc_t pd = NULL;
    const bool  wgrad = op->kind == OP_linear_wgrad;
    *state = NULL; /* stays so for own kernels */
    if (amx_linear_fits(be, op) || gemm_f32_fits(op))
        return status_ok();
    LinearState *s = calloc(1, sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for a linear layer");
    TRY_GOTO(status, linear_pd_create(be, op, &pd), done);
    TRY_GOTO(status, prim_create(be, &s->prim, pd, 0), done);
    TRY_GOTO(status, prim_bind(be, &s->prim, DNNL_ARG_SRC, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), wgrad, 0), done);
    TRY_GOTO(status, prim_bind(be, &s->prim, DNNL_ARG_WEIGHTS, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0),
                               !wgrad, 0), done);
    if (op->n_in == 3)
        TRY_GOTO(status, prim_bind(be, &s->prim, DNNL_ARG_BIAS, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1),
                                   2, 0), done);
    status = prim_bind(be, &s->prim, DNNL_ARG_DST, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), op->n_in, 0);
done:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (status.code == STATUS_OK)
        *state = s;
    else
        linear_release(s);
    return status;
}

static Status linear_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    if (state)
        return prim_run(cpu_of(be), &((LinearState *)state)->prim, buf, scratch);
    if (op->in[0].dtype == DTYPE_F32)
        gemm_f32_run(cpu_of(be), op, buf, scratch);
    else
        amx_linear_run(cpu_of(be), op, buf, scratch);
    return status_ok();
}

enum { SUM_COLUMNS = 4 * LANES, SUM_ROWS = 64 };

/* Sums of SUM_COLUMNS columns from element `first` on, of which `columns` exist: SUM_ROWS rows at a time in f32, those in
 * double, since rows can be many. */
ALWAYS_INLINE void sum_columns(Dtype t, const void *dy, int64_t first, int64_t rows, int64_t row, int columns, double *sum)
{
    for (int64_t r = 0; r < rows; r += SUM_ROWS) {
        VecF part[SUM_COLUMNS / LANES] = { { 0 } };
        for (int64_t i = r; i < r + SUM_ROWS && i < rows; i++)
            for (int c = 0; c < columns; c += LANES)
                part[c / LANES] += vec_load_some(t, dy, first + i * row + c, columns - c < LANES ? columns - c : LANES);
        for (int c = 0; c < columns; c++)
            sum[c] += (double)part[c / LANES][c % LANES];
    }
}

/* dbias (O) = sum over rows of dy (M,O). */
static void sum_rows(int threads, const Tensor *dy, const void *address, float *dbias, bool accumulate)
{
    const int64_t rows = dy->dim[0], columns = dy->dim[1];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < columns; first += SUM_COLUMNS) {
        const int n = (int)(columns - first < SUM_COLUMNS ? columns - first : SUM_COLUMNS);
        double    sum[SUM_COLUMNS] = { 0 };
        if (dy->dtype == DTYPE_F32 && n == SUM_COLUMNS)
            sum_columns(DTYPE_F32, address, first, rows, columns, SUM_COLUMNS, sum);
        else if (n == SUM_COLUMNS)
            sum_columns(DTYPE_BF16, address, first, rows, columns, SUM_COLUMNS, sum);
        else
            sum_columns(dy->dtype, address, first, rows, columns, n, sum);
        for (int c = 0; c < n; c++)
            dbias[first + c] = (accumulate ? dbias[first + c] : 0.0f) + (float)sum[c];
    }
}

static Status linear_wgrad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    TRY(linear_run(be, op, state, buf, scratch));
    if (op->n_out == 2)
        sum_rows(cpu_of(be)->threads, &op->in[1], buf[1], buf[op->n_in + 1], op->attr.accumulate);
    return status_ok();
}

const Kernel cpu_linear = { linear_query, linear_prepare, linear_run, linear_release, NULL };
const Kernel cpu_linear_dgrad = { linear_query, linear_prepare, linear_run, linear_release, NULL };
const Kernel cpu_linear_wgrad = { linear_query, linear_prepare, linear_wgrad_run, linear_release, NULL };
