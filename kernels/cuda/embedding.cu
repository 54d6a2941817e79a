/* embedding.cu - rows picked by number: embeddings, a sum over up to three tables, and gathered rows. Their gradients are
 * embedding_grad.cu.
 *
 * A warp takes a row of the result. Each row that is picked is read once (again where it is picked again, mostly from the
 * caches), each row of the result written once. A number out of range is reported and picks nothing. */
#include "groups.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, TABLES = 3 };

/* Whether a number picks a row: -1 does not; what is neither it nor a row is told by lane 0. */
static __device__ __forceinline__ bool picks(OpKind op, int id, int64_t rows, int64_t place, CudaFault *fault)
{
    if (id >= 0 && id < rows)
        return true;
    if (id != -1 && threadIdx.x % 32 == 0)
        report_fault(fault, op, id, rows, place);
    return false;
}

struct Embedding {
    const float   *table[TABLES];
    const int32_t *ids[TABLES];
    int64_t        table_rows[TABLES];
    int            tables;
    int64_t        rows, columns;
    bool           wide;
    CudaFault     *fault;
};

template <class T> static __global__ void __launch_bounds__(THREADS) embed_rows(Embedding e, void *y)
{
    const int64_t groups = group_count(e.columns);
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; t < e.rows; t += (int64_t)gridDim.x * WARPS) {
        const float *row[TABLES] = {};
#pragma unroll
        for (int k = 0; k < TABLES; k++)
            if (k < e.tables && picks(OP_embedding, e.ids[k][t], e.table_rows[k], t, e.fault))
                row[k] = e.table[k] + e.ids[k][t] * e.columns;
        for (int64_t g = threadIdx.x % 32; g < groups; g += 32) {
            const int64_t left = e.columns - g * GROUP;
            Group<float>  sum = {};
            Group<T>      v;
#pragma unroll
            for (int k = 0; k < TABLES; k++) {
                const Group<float> term = row[k] ? load_group(row[k] + g * GROUP, left, e.wide) : Group<float>{};
                for (int i = 0; i < GROUP; i++)
                    sum.at[i] += term.at[i];
            }
#pragma unroll
            for (int i = 0; i < GROUP; i++)
                v.at[i] = narrow<T>(sum.at[i]);
            store_group((T *)y + t * e.columns + g * GROUP, v, left, e.wide);
        }
    }
}
LAUNCHABLE(embed_rows<float>);
LAUNCHABLE(embed_rows<bf16>);
LAUNCHABLE(embed_rows<f16>);

static Status rows_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return cuda_query_rows(op);
}

static Status embedding_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    void     *y = buf[op->n_in];
    Embedding e = {};
    e.tables = op->n_in / 2;
    for (int k = 0; k < e.tables; k++) {
        e.table[k] = (const float *)buf[2 * k];
        e.ids[k] = (const int32_t *)buf[2 * k + 1];
        e.table_rows[k] = op->in[2 * k].dim[0];
    }
    e.rows = op->out[0].dim[0];
    e.columns = op->out[0].dim[1];
    e.wide = groups_are_wide(e.columns, DTYPE_F32, { e.table[0], e.table[1], e.table[2], y });
    e.fault = cuda_of(be)->fault;
    return cuda_launch(be, cuda_of_type(op->out[0].dtype, embed_rows<float>, embed_rows<bf16>, embed_rows<f16>),
                       cuda_blocks(e.rows, WARPS), THREADS, 0, e, y);
}

/* y[p] = x[rows[p]], rows of so many units: 16 bytes, or one element. */
template <class Unit> static __global__ void __launch_bounds__(THREADS)
copy_rows(int64_t count, int64_t units, int64_t table_rows, const void *x, const int32_t *rows, void *y, CudaFault *fault)
{
    for (int64_t p = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; p < count; p += (int64_t)gridDim.x * WARPS) {
        const bool  picked = picks(OP_gather_rows, rows[p], table_rows, p, fault);
        const Unit *from = (const Unit *)x + (picked ? rows[p] * units : 0);
        for (int64_t i = threadIdx.x % 32; i < units; i += 32)
            ((Unit *)y)[p * units + i] = picked ? from[i] : Unit();
    }
}
typedef Pack<float, 4> Unit16;
LAUNCHABLE(copy_rows<Unit16>);
LAUNCHABLE(copy_rows<uint32_t>);
LAUNCHABLE(copy_rows<uint16_t>);

static Status gather_rows_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t count = op->out[0].dim[0], columns = op->out[0].dim[1], size = dtype_bits(op->out[0].dtype) / 8;
    const bool    wide = columns * size % 16 == 0 && cuda_is_aligned({ buf[0], buf[2] });
    return cuda_launch(be, wide ? copy_rows<Unit16> : size == 4 ? copy_rows<uint32_t> : copy_rows<uint16_t>,
                       cuda_blocks(count, WARPS), THREADS, 0, count, wide ? columns * size / 16 : columns, op->in[0].dim[0], buf[0],
                       (const int32_t *)buf[1], buf[2], cuda_of(be)->fault);
}

CUDA_KERNEL(embedding, rows_query, nullptr, embedding_run, nullptr, nullptr)
CUDA_KERNEL(gather_rows, rows_query, nullptr, gather_rows_run, nullptr, nullptr)
