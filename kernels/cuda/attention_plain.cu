/* attention_plain.cu - attention in f32 arithmetic: any float type, any head size up to 128. See attention.cuh for the tiles.
 *
 * With a = 1 / sqrt(D), s = q k^T, z = keep / (1 - rate):
 *   forward   over tiles of keys, with the largest score so far m and the sum l of exp(a s - m) kept for each row:
 *             y = z (exp(a s - m) / l) v, lse = m + log l (Milakov and Gimelshein 2018)
 *   backward  p = exp(a s - lse), ds = p (z dy v^T - delta);  dq = a ds k by tiles of queries;
 *             dv = (z p)^T dy, dk = a ds^T q by tiles of keys. So p is made twice, and nothing is added up from two blocks. */
#include "attention.cuh"

/* Which of the scores (query 2 y + r, key x + 8 k) of two tiles are kept: bit k of keep[r]. Eight threads share a row. */
template <int CHUNKS> static __device__ __forceinline__ void keep_by_query(const AttentionShape &s, const int32_t *rng, int64_t row,
                                                                           int64_t key, unsigned (&keep)[2])
{
    enum { COLUMNS = Tile<CHUNKS>::COLUMNS };
    const int x = threadIdx.x % 8, y = threadIdx.x / 8, mine = x % (2 * COLUMNS);
    const unsigned bits = attention_keeps(s, rng, row + 2 * y + mine / COLUMNS, key / 8 + mine % COLUMNS);
    for (int r = 0; r < 2; r++) {
        keep[r] = 0;
        for (int k = 0; k < COLUMNS; k++)
            keep[r] |= (__shfl_sync(0xffffffffu, bits, r * COLUMNS + k, 8) >> x & 1) << k;
    }
}

/* The same for (key 2 y + r, query x + 8 k): a warp has eight keys, one block of the generator for each query. */
template <int CHUNKS> static __device__ __forceinline__ void keep_by_key(const AttentionShape &s, const int32_t *rng, int64_t row,
                                                                         int64_t key, unsigned (&keep)[2])
{
    enum { ROWS = Tile<CHUNKS>::ROWS, COLUMNS = Tile<CHUNKS>::COLUMNS };
    const int x = threadIdx.x % 8, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned bits = attention_keeps(s, rng, row + lane % ROWS, key / 8 + warp);
    keep[0] = keep[1] = 0;
    for (int k = 0; k < COLUMNS; k++) {
        const unsigned query = __shfl_sync(0xffffffffu, bits, x + 8 * k);
        for (int r = 0; r < 2; r++)
            keep[r] |= (query >> (lane / 8 * 2 + r) & 1) << k;
    }
}

template <class T, int CHUNKS> __global__ void __launch_bounds__(Tile<CHUNKS>::THREADS, 3)
attention_forward(AttentionShape s, const T *__restrict__ qkv, const int32_t *__restrict__ spans, const int32_t *__restrict__ rng,
                  T *__restrict__ y, float *__restrict__ lse)
{
    typedef Tile<CHUNKS> Shape;
    SHARED_DYNAMIC(float, room);
    float *q = room, *kv = q + Shape::FLOATS, *scores = kv + Shape::FLOATS;
    const Head head = attention_head<Shape::ROWS>(s, spans);
    const int rows = head.span.rows, x = threadIdx.x % 8, row = threadIdx.x / 8 * 2;
    if (head.first >= rows)
        return;
    const int64_t step = 3 * s.width;
    tile_load<CHUNKS>(q, qkv + head.qkv + head.first * step, step, rows - head.first, s.size);
    float sum[2][4 * CHUNKS] = {}, most[2] = { -INFINITY, -INFINITY }, total[2] = {};
    for (int key = 0; key < rows; key += Shape::ROWS) {
        float p[2][Shape::COLUMNS];
        unsigned keep[2] = { ~0u, ~0u };
        __syncthreads();
        tile_load<CHUNKS>(kv, qkv + head.qkv + s.width + key * step, step, rows - key, s.size);
        __syncthreads();
        tile_products<CHUNKS>(q, kv, p);
        if (s.threshold)
            keep_by_query<CHUNKS>(s, rng, head.mask_row + head.first, key, keep);
        for (int r = 0; r < 2; r++) {
            float largest = most[r], part = 0;
            for (int k = 0; k < Shape::COLUMNS; k++) {
                p[r][k] = key + x + 8 * k < rows ? p[r][k] * s.scale : -INFINITY;
                largest = fmaxf(largest, p[r][k]);
            }
            for (int lane = 4; lane > 0; lane /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
            const float shrink = expf(most[r] - largest);
            for (int k = 0; k < Shape::COLUMNS; k++) {
                const float e = expf(p[r][k] - largest);
                part += e;
                scores[(row + r) * Shape::SCORE_PITCH + x + 8 * k] = keep[r] >> k & 1 ? e : 0.0f;
            }
            for (int lane = 4; lane > 0; lane /= 2)
                part += __shfl_xor_sync(0xffffffffu, part, lane);
            total[r] = total[r] * shrink + part;
            most[r] = largest;
            for (int i = 0; i < 4 * CHUNKS; i++)
                sum[r][i] *= shrink;
        }
        __syncthreads();
        tile_load<CHUNKS>(kv, qkv + head.qkv + 2 * s.width + key * step, step, rows - key, s.size);
        __syncthreads();
        tile_accumulate<CHUNKS>(scores, kv, sum);
    }
    for (int r = 0; r < 2; r++) {
        const int i = head.first + row + r;
        if (i >= rows)
            continue;
        tile_store_row<CHUNKS>(y + head.y + i * s.width, s.size, s.dropped_scale / total[r], sum[r]);
        if (x == 0)
            lse[head.lse + (int64_t)i * s.heads] = most[r] + logf(total[r]);
    }
}

template <class T, int CHUNKS> __global__ void __launch_bounds__(Tile<CHUNKS>::THREADS, 3)
attention_grad_queries(AttentionShape s, const T *__restrict__ qkv, const T *__restrict__ dy, const float *__restrict__ lse,
                       const float *__restrict__ delta, const int32_t *__restrict__ spans, const int32_t *__restrict__ rng,
                       T *__restrict__ dqkv)
{
    typedef Tile<CHUNKS> Shape;
    SHARED_DYNAMIC(float, room);
    float *q = room, *d = q + Shape::FLOATS, *kv = d + Shape::FLOATS, *scores = kv + Shape::FLOATS;
    const Head head = attention_head<Shape::ROWS>(s, spans);
    const int rows = head.span.rows, x = threadIdx.x % 8, row = threadIdx.x / 8 * 2;
    if (head.first >= rows)
        return;
    const int64_t step = 3 * s.width;
    tile_load<CHUNKS>(q, qkv + head.qkv + head.first * step, step, rows - head.first, s.size);
    tile_load<CHUNKS>(d, dy + head.y + head.first * s.width, s.width, rows - head.first, s.size);
    float sum[2][4 * CHUNKS] = {}, log_sum[2] = {}, minus[2] = {};
    for (int r = 0; r < 2; r++)
        if (head.first + row + r < rows) {
            const int64_t at = head.lse + (int64_t)(head.first + row + r) * s.heads;
            log_sum[r] = lse[at];
            minus[r] = delta[at];
        }
    for (int key = 0; key < rows; key += Shape::ROWS) {
        float p[2][Shape::COLUMNS], dp[2][Shape::COLUMNS];
        unsigned keep[2] = { ~0u, ~0u };
        __syncthreads();
        tile_load<CHUNKS>(kv, qkv + head.qkv + 2 * s.width + key * step, step, rows - key, s.size);
        __syncthreads();
        tile_products<CHUNKS>(d, kv, dp);
        __syncthreads();
        tile_load<CHUNKS>(kv, qkv + head.qkv + s.width + key * step, step, rows - key, s.size);
        __syncthreads();
        tile_products<CHUNKS>(q, kv, p);
        if (s.threshold)
            keep_by_query<CHUNKS>(s, rng, head.mask_row + head.first, key, keep);
        for (int r = 0; r < 2; r++)
            for (int k = 0; k < Shape::COLUMNS; k++) {
                const float e = key + x + 8 * k < rows ? expf(p[r][k] * s.scale - log_sum[r]) : 0.0f;
                const float z = keep[r] >> k & 1 ? s.dropped_scale : 0.0f;
                scores[(row + r) * Shape::SCORE_PITCH + x + 8 * k] = e * (z * dp[r][k] - minus[r]);
            }
        __syncthreads();
        tile_accumulate<CHUNKS>(scores, kv, sum);
    }
    for (int r = 0; r < 2; r++)
        if (head.first + row + r < rows)
            tile_store_row<CHUNKS>(dqkv + head.qkv + (head.first + row + r) * step, s.size, s.scale, sum[r]);
}

template <class T, int CHUNKS> __global__ void __launch_bounds__(Tile<CHUNKS>::THREADS, 3)
attention_grad_keys(AttentionShape s, const T *__restrict__ qkv, const T *__restrict__ dy, const float *__restrict__ lse,
                    const float *__restrict__ delta, const int32_t *__restrict__ spans, const int32_t *__restrict__ rng,
                    T *__restrict__ dqkv)
{
    typedef Tile<CHUNKS> Shape;
    SHARED_DYNAMIC(float, room);
    float *keys = room, *v = keys + Shape::FLOATS, *q = v + Shape::FLOATS, *d = q + Shape::FLOATS, *scores = d + Shape::FLOATS;
    const Head head = attention_head<Shape::ROWS>(s, spans);
    const int rows = head.span.rows, x = threadIdx.x % 8, row = threadIdx.x / 8 * 2;
    if (head.first >= rows)
        return;
    const int64_t step = 3 * s.width, own = head.qkv + head.first * step;
    tile_load<CHUNKS>(keys, qkv + own + s.width, step, rows - head.first, s.size);
    tile_load<CHUNKS>(v, qkv + own + 2 * s.width, step, rows - head.first, s.size);
    float dk[2][4 * CHUNKS] = {}, dv[2][4 * CHUNKS] = {};
    for (int query = 0; query < rows; query += Shape::ROWS) {
        float p[2][Shape::COLUMNS], dp[2][Shape::COLUMNS];
        unsigned keep[2] = { ~0u, ~0u };
        __syncthreads();
        tile_load<CHUNKS>(q, qkv + head.qkv + query * step, step, rows - query, s.size);
        tile_load<CHUNKS>(d, dy + head.y + query * s.width, s.width, rows - query, s.size);
        __syncthreads();
        tile_products<CHUNKS>(keys, q, p);
        tile_products<CHUNKS>(v, d, dp);
        if (s.threshold)
            keep_by_key<CHUNKS>(s, rng, head.mask_row + query, head.first, keep);
        for (int k = 0; k < Shape::COLUMNS; k++) {
            const int i = query + x + 8 * k;
            const int64_t at = head.lse + (int64_t)i * s.heads;
            const float log_sum = i < rows ? lse[at] : 0.0f, minus = i < rows ? delta[at] : 0.0f;
            for (int r = 0; r < 2; r++) {
                const float e = i < rows ? expf(p[r][k] * s.scale - log_sum) : 0.0f, z = keep[r] >> k & 1 ? s.dropped_scale : 0.0f;
                scores[(row + r) * Shape::SCORE_PITCH + x + 8 * k] = e * z;
                dp[r][k] = e * (z * dp[r][k] - minus);
            }
        }
        __syncthreads();
        tile_accumulate<CHUNKS>(scores, d, dv);
        __syncthreads();
        for (int r = 0; r < 2; r++)
            for (int k = 0; k < Shape::COLUMNS; k++)
                scores[(row + r) * Shape::SCORE_PITCH + x + 8 * k] = dp[r][k];
        __syncthreads();
        tile_accumulate<CHUNKS>(scores, q, dk);
    }
    for (int r = 0; r < 2; r++)
        if (head.first + row + r < rows) {
            tile_store_row<CHUNKS>(dqkv + own + (row + r) * step + s.width, s.size, s.scale, dk[r]);
            tile_store_row<CHUNKS>(dqkv + own + (row + r) * step + 2 * s.width, s.size, 1.0f, dv[r]);
        }
}

#define EACH_SIZE(T, CHUNKS)                                                                                                   \
    LAUNCHABLE(attention_forward<T, CHUNKS>); LAUNCHABLE(attention_grad_queries<T, CHUNKS>);                                   \
    LAUNCHABLE(attention_grad_keys<T, CHUNKS>);
#define EACH_TYPE(T) EACH_SIZE(T, 1) EACH_SIZE(T, 2) EACH_SIZE(T, 4)
EACH_TYPE(float)
EACH_TYPE(bf16)
EACH_TYPE(f16)

/* Shared memory of `tiles` tiles and one of scores. */
template <int CHUNKS> static size_t shared_bytes(int tiles)
{
    return (size_t)(tiles * Tile<CHUNKS>::FLOATS + Tile<CHUNKS>::SCORES) * sizeof(float);
}

template <class T, int CHUNKS> static Status forward(Backend *be, const AttentionShape *s, void *const *buf)
{
    void *const *out = buf + s->inputs;
    return cuda_launch(be, attention_forward<T, CHUNKS>, attention_grid(s, Tile<CHUNKS>::ROWS), Tile<CHUNKS>::THREADS,
                       shared_bytes<CHUNKS>(2), *s, (const T *)buf[0], (const int32_t *)buf[1], (const int32_t *)buf[2], (T *)out[0],
                       (float *)out[1]);
}

template <class T, int CHUNKS> static Status backward(Backend *be, const AttentionShape *s, void *const *buf, const float *delta)
{
    const T *qkv = (const T *)buf[0], *dy = (const T *)buf[2];
    const float *lse = (const float *)buf[3];
    const int32_t *spans = (const int32_t *)buf[4], *rng = (const int32_t *)buf[5];
    T *dqkv = (T *)buf[s->inputs];
    TRY(cuda_launch(be, attention_grad_queries<T, CHUNKS>, attention_grid(s, Tile<CHUNKS>::ROWS), Tile<CHUNKS>::THREADS,
                    shared_bytes<CHUNKS>(3), *s, qkv, dy, lse, delta, spans, rng, dqkv));
    return cuda_launch(be, attention_grad_keys<T, CHUNKS>, attention_grid(s, Tile<CHUNKS>::ROWS), Tile<CHUNKS>::THREADS,
                       shared_bytes<CHUNKS>(4), *s, qkv, dy, lse, delta, spans, rng, dqkv);
}

template <class T> static Status forward_by_size(Backend *be, const AttentionShape *s, void *const *buf)
{
    return (s->size <= 32 ? forward<T, 1> : s->size <= 64 ? forward<T, 2> : forward<T, 4>)(be, s, buf);
}

template <class T> static Status backward_by_size(Backend *be, const AttentionShape *s, void *const *buf, const float *delta)
{
    return (s->size <= 32 ? backward<T, 1> : s->size <= 64 ? backward<T, 2> : backward<T, 4>)(be, s, buf, delta);
}

Status attention_forward_plain(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf)
{
    return CUDA_BY_TYPE(op->in[0].dtype, forward_by_size, be, s, buf);
}

Status attention_backward_plain(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, const float *delta)
{
    return CUDA_BY_TYPE(op->in[0].dtype, backward_by_size, be, s, buf, delta);
}
