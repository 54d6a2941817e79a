/* dropout.c - dropout of a matrix (Srivastava et al. 2014), forward and backward alike: dropout.h says what is kept. */
#include "cpu.h"
#include "dropout_vec.h"

#include <omp.h>

ALWAYS_INLINE void drop_row(Dtype t, const DropoutVec *d, int64_t row, int64_t k, const void *x, void *y)
{
    for (int64_t j = 0; j < k; j += 64) {
        const uint64_t keep = dropout_keep64(d, row, j);
        const int64_t  n = k - j < 64 ? k - j : 64, i = row * k + j;
        FOR_BLOCKS(at, 0, n, lanes, {
            VecF v = vec_load_some(t, x, i + at, lanes) * d->scale;
            vec_store_some(t, y, i + at, vec_keep(v, dropout_sixteen(keep, at)), lanes);
        });
    }
}

/* p = 0 */
static void copy(const OpDesc *op, int threads, const void *x, void *y)
{
    const int64_t bytes = (int64_t)tensor_bytes(&op->out[0]);
    if (x == y)
        return;
#pragma omp parallel num_threads(threads)
    {
        int64_t first, last;
        thread_share(bytes, 64, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        memcpy((char *)y + first, (const char *)x + first, (size_t)(last - first));
    }
}

static Status dropout_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    return cpu_query_plain(op, needs);
}

static Status dropout_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int     threads = cpu_of(base)->threads;
    const int64_t rows = op->in[0].dim[0], k = op->in[0].dim[1];
    const bool    f32 = op->in[0].dtype == DTYPE_F32;
    if (op->attr.dropout <= 0) {
        copy(op, threads, buf[0], buf[2]);
        return status_ok();
    }
    const DropoutVec d = dropout_vec(buf[1], op->attr.stream, k, op->attr.dropout);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        if (f32)
            drop_row(DTYPE_F32, &d, row, k, buf[0], buf[2]);
        else
            drop_row(DTYPE_BF16, &d, row, k, buf[0], buf[2]);
    }
    return status_ok();
}

const Kernel cpu_dropout = { .query = dropout_query, .run = dropout_run };
