/* dropout.cu - dropout of a matrix (Srivastava et al. 2014), forward and backward alike: kernels/dropout.h says what is kept.
 *
 * x is read once and y written once: twice the elements' bytes. y may lie on x. */
#include "groups.cuh"

enum { THREADS = 256 };

/* A thread takes a group of eight at a time. */
template <class T> static __global__ void __launch_bounds__(THREADS)
drop_groups(int64_t rows, int64_t columns, bool wide, Drop drop, const void *x, void *y)
{
    for (int64_t i = grid_thread(); i < rows * drop.groups; i += grid_threads()) {
        const int64_t row = i / drop.groups, group = i % drop.groups, at = row * columns + group * GROUP;
        Group<T>      v = load_group((const T *)x + at, columns - group * GROUP, wide);
        const unsigned kept = drop_kept(drop, row, group);
#pragma unroll
        for (int k = 0; k < GROUP; k++)
            v.at[k] = narrow<T>(kept >> k & 1u ? widen(v.at[k]) * drop.scale : 0.0f);
        store_group((T *)y + at, v, columns - group * GROUP, wide);
    }
}
LAUNCHABLE(drop_groups<float>);
LAUNCHABLE(drop_groups<bf16>);
LAUNCHABLE(drop_groups<f16>);

static Status dropout_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return cuda_query_rows(op);
}

static Status dropout_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const void   *x = buf[0];
    void         *y = buf[2];
    const int64_t rows = op->in[0].dim[0], columns = op->in[0].dim[1];
    const Drop    drop = drop_of(op, buf[1]);
    if (!drop.rng && x == y)
        return status_ok();
    if (!drop.rng)
        return cuda_status(cudaMemcpyAsync(y, x, tensor_bytes(&op->out[0]), cudaMemcpyDeviceToDevice, cuda_of(be)->stream),
                           "cudaMemcpyAsync");
    return cuda_launch(be, cuda_of_type(op->in[0].dtype, drop_groups<float>, drop_groups<bf16>, drop_groups<f16>),
                       cuda_blocks(rows * drop.groups, THREADS), THREADS, 0, rows, columns,
                       groups_are_wide(columns, op->in[0].dtype, { x, y }), drop, x, y);
}

CUDA_KERNEL(dropout, dropout_query, nullptr, dropout_run, nullptr, nullptr)
