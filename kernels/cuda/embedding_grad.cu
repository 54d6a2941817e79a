/* embedding_grad.cu - gradients of rows picked by number: rows of dy add up where they were picked from.
 *
 * The positions are sorted by id (id_order.h). A warp adds up to SECTION rows of one id, in their order, in f32. An id with more
 * rows has several sections, whose sums are then added in order: so the bits depend on nothing but the ids, and a thousand rows
 * of one id, as of BERT's token types, do not wait for each other. A warp has 256 columns, eight a lane.
 *
 * dy is read once. Rows of the result that were picked are written once (read and written when accumulating), the others written
 * once or, when accumulating, left alone: op_cost's bytes. Besides, some 20 bytes an id for the sort, and 8 bytes a column for every
 * SECTION rows of an id that has more. */
#include "groups.cuh"
#include "id_order.h"

enum { WARPS = 8, THREADS = 32 * WARPS, SECTION = 128, COLUMNS = 32 * GROUP };

struct Scatter {
    IdOrder     order;
    int64_t     columns;
    const void *dy;
    void       *out;
    float      *partial; /* [2 (count / SECTION + 1)][columns]; see section_sum */
    bool        accumulate, wide;
};

static __device__ __forceinline__ bool is_id(const IdOrder &o, int64_t i, uint32_t id) { return i < o.count && o.id[i] == id; }

/* The sum of section `i` of an id, i = the place of its first row, if the id has more than one. Sections of one id lie SECTION
 * apart; what may lie closer is the last of one id and the first of the next. */
static __device__ __forceinline__ float *section_sum(const Scatter &s, int64_t i, bool is_first)
{
    return s.partial + (2 * (i / SECTION) + !is_first) * s.columns;
}

static __device__ __forceinline__ void add_to(Group<float> *sum, const Group<float> &v)
{
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        sum->at[k] += v.at[k];
}

template <class T> static __device__ __forceinline__ Group<float> widen_group(const Group<T> &v)
{
    Group<float> w;
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        w.at[k] = widen(v.at[k]);
    return w;
}

template <class T> static __device__ __forceinline__ Group<T> narrow_group(const Group<float> &v)
{
    Group<T> n;
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        n.at[k] = narrow<T>(v.at[k]);
    return n;
}

/* Adds the rows of id from place i on, at most SECTION: `left` columns from `column` on. The lanes know 32 places at a time. */
template <class T> static __device__ __forceinline__ void add_section(const Scatter &s, int64_t i, uint32_t id, int64_t column,
                                                                      Group<float> *sum)
{
    const int lane = threadIdx.x % 32;
    for (int begin = 0, found = 32; begin < SECTION && found == 32; begin += 32) {
        const bool mine = is_id(s.order, i + begin + lane, id);
        const int  at = mine ? s.order.at[i + begin + lane] : 0;
        found = __popc(__ballot_sync(0xffffffffu, mine));
#pragma unroll 4
        for (int m = 0; m < found; m++) {
            const T *row = (const T *)s.dy + __shfl_sync(0xffffffffu, at, m) * s.columns;
            add_to(sum, widen_group(load_group(row + column, s.columns - column, s.wide)));
        }
    }
}

/* T: of dy; O: of the result. A warp for each place where a section begins. */
template <class T, class O> static __global__ void __launch_bounds__(THREADS) add_sections(Scatter s)
{
    const IdOrder &o = s.order;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; i < o.count; i += (int64_t)gridDim.x * WARPS) {
        const uint32_t id = o.id[i];
        if (id >= o.none || (i - o.first[id]) % SECTION != 0)
            continue;
        const bool is_first = i == o.first[id], is_only = is_first && !is_id(o, i + SECTION, id);
        for (int64_t begin = (int64_t)blockIdx.y * COLUMNS; begin < s.columns; begin += (int64_t)gridDim.y * COLUMNS) {
            const int64_t column = begin + threadIdx.x % 32 * GROUP, left = s.columns - column;
            O            *to = (O *)s.out + id * s.columns + column;
            Group<float>  sum = {};
            if (is_only && s.accumulate)
                sum = widen_group(load_group(to, left, s.wide));
            add_section<T>(s, i, id, column, &sum);
            if (is_only)
                store_group(to, narrow_group<O>(sum), left, s.wide);
            else
                store_group(section_sum(s, i, is_first) + column, sum, left, s.wide);
        }
    }
}

/* Adds the sections of ids that have more than one. Such an id has a row at a multiple of SECTION; the first of those stands for it. */
template <class O> static __global__ void __launch_bounds__(THREADS) join_sections(Scatter s)
{
    const IdOrder &o = s.order;
    const int      lane = threadIdx.x % 32;
    for (int64_t at = SECTION * ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32); at < o.count; at += SECTION * (int64_t)gridDim.x * WARPS) {
        const uint32_t id = o.id[at];
        if (id >= o.none || at - o.first[id] >= SECTION || !is_id(o, (int64_t)o.first[id] + SECTION, id))
            continue;
        for (int64_t begin = (int64_t)blockIdx.y * COLUMNS; begin < s.columns; begin += (int64_t)gridDim.y * COLUMNS) {
            const int64_t column = begin + lane * GROUP, left = s.columns - column;
            O            *to = (O *)s.out + id * s.columns + column;
            Group<float>  sum = {};
            if (s.accumulate)
                sum = widen_group(load_group(to, left, s.wide));
            int64_t i = o.first[id];
            for (int found = 32; found == 32; i += 32 * SECTION) {
                found = __popc(__ballot_sync(0xffffffffu, is_id(o, i + lane * SECTION, id)));
#pragma unroll 8
                for (int m = 0; m < found; m++)
                    add_to(&sum, load_group(section_sum(s, i + m * SECTION, i + m * SECTION == o.first[id]) + column, left, s.wide));
            }
            store_group(to, narrow_group<O>(sum), left, s.wide);
        }
    }
}

/* Zeros in the rows that were not picked. */
template <class O> static __global__ void __launch_bounds__(THREADS) zero_others(Scatter s, int64_t rows)
{
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += (int64_t)gridDim.x * WARPS)
        for (int64_t column = threadIdx.x % 32 * GROUP; column < s.columns && s.order.first[row] < 0; column += COLUMNS)
            store_group((O *)s.out + row * s.columns + column, narrow_group<O>(Group<float>{}), s.columns - column, s.wide);
}

#define EACH_TYPE(...) \
    LAUNCHABLE(add_sections<__VA_ARGS__, float>); \
    LAUNCHABLE(join_sections<__VA_ARGS__>); \
    LAUNCHABLE(zero_others<__VA_ARGS__>)
EACH_TYPE(float);
EACH_TYPE(bf16);
EACH_TYPE(f16);
LAUNCHABLE(add_sections<bf16, bf16>);
LAUNCHABLE(add_sections<f16, f16>);

/* Where in scratch the sums of sections begin; *bytes is then all of it. */
static size_t partial_place(const OpDesc *op, size_t *bytes)
{
    const int64_t count = op->in[1].dim[0], sums = count > SECTION ? 2 * (count / SECTION + 1) : 0;
    *bytes = 0;
    cuda_place(bytes, id_order_bytes(count, op->out[0].dim[0]));
    return cuda_place(bytes, (size_t)(sums * op->out[0].dim[1]) * sizeof(float));
}

static Status scatter_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    partial_place(op, &needs->scratch);
    return cuda_query_rows(op);
}

/* embedding_grad and gather_rows_grad. */
static Status scatter_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const Tensor *to = &op->out[0];
    const Dtype   from = op->in[0].dtype;
    const bool    to_f32 = to->dtype == DTYPE_F32;
    Scatter       s = {};
    size_t        bytes;
    s.columns = to->dim[1];
    s.dy = buf[0];
    s.out = buf[2];
    s.partial = (float *)((char *)scratch + partial_place(op, &bytes));
    s.accumulate = op->attr.accumulate;
    s.wide = groups_are_wide(s.columns, DTYPE_F32, { s.dy, s.out, scratch });
    TRY(id_order_make(be, op->kind, (const int32_t *)buf[1], op->in[1].dim[0], to->dim[0], scratch, &s.order));
    const unsigned across = cuda_blocks(s.columns, COLUMNS);
    if (!s.accumulate)
        TRY(cuda_launch(be, cuda_of_type(to->dtype, zero_others<float>, zero_others<bf16>, zero_others<f16>),
                        cuda_blocks(to->dim[0], WARPS), THREADS, 0, s, to->dim[0]));
    TRY(cuda_launch(be, cuda_of_type(from, add_sections<float, float>, to_f32 ? add_sections<bf16, float> : add_sections<bf16, bf16>,
                                     to_f32 ? add_sections<f16, float> : add_sections<f16, f16>),
                    dim3(cuda_blocks(s.order.count, WARPS), across), THREADS, 0, s));
    if (s.order.count <= SECTION)
        return status_ok();
    return cuda_launch(be, cuda_of_type(to->dtype, join_sections<float>, join_sections<bf16>, join_sections<f16>),
                       dim3(cuda_blocks(s.order.count, SECTION * WARPS), across), THREADS, 0, s);
}

CUDA_KERNEL(embedding_grad, scatter_query, nullptr, scatter_run, nullptr, nullptr)
CUDA_KERNEL(gather_rows_grad, scatter_query, nullptr, scatter_run, nullptr, nullptr)
