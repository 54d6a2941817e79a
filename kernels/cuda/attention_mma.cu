/* attention_mma.cu - attention on tensor cores: bf16 and f16, head sizes 8, 16, .. 64 (BERT's is 64), compute capability 8.0.
 *
 * The same equations as attention_plain.cu. A block of four warps has 64 rows of a head, a warp 16 of them: their queries stay in
 * registers as operands (for dk and dv: their keys and values in shared memory), the other side comes through shared memory by
 * tiles. Scores stay in registers as well: what comes out of one product is laid out as an operand of the next needs it
 * (Dao 2023). Scores are f32; weights and the gradients of scores are rounded to the tensors' type before they are multiplied.
 * Exponentials are powers of two: exp(a s) = 2^(a log2(e) s). */
#include "attention.cuh"
#include "mma.cuh"

enum { SIZE = ATTENTION_MMA_SIZE, PITCH = SIZE + 8, ROWS = 64, WARPS = ROWS / 16, THREADS = 32 * WARPS };
enum { FORWARD_KEYS = 64, BACKWARD_TILE = 32 };

static constexpr float LOG2E = 1.44269504088896341f, LN2 = 0.69314718055994531f;

/* first: the warp's first row within the block. A warp of which no row exists only loads tiles. */
typedef struct Warp { int g, t, first; } Warp;

static __device__ __forceinline__ Warp warp_place()
{
    const int lane = threadIdx.x % 32;
    Warp w = { lane / 4, lane % 4, (int)threadIdx.x / 32 * 16 };
    return w;
}

/* N rows of SIZE features into shared memory, 16 bytes at a time; what is missing is 0. */
template <int N, class T> static __device__ __forceinline__ void load_tile(T *to, const T *from, int64_t row_step, int rows, int size)
{
    typedef Pack<uint32_t, 4> Raw;
    for (int i = threadIdx.x; i < N * SIZE / 8; i += THREADS) {
        const int r = i / (SIZE / 8), c = i % (SIZE / 8) * 8;
        Raw raw = { { 0, 0, 0, 0 } };
        if (r < rows && c < size)
            raw = *reinterpret_cast<const Raw *>(from + r * row_step + c);
        *reinterpret_cast<Raw *>(to + r * PITCH + c) = raw;
    }
}

/* ROWS rows through shared memory into each warp's registers. */
template <class T> static __device__ __forceinline__ void load_operand(uint32_t (&a)[SIZE / 16][4], T *room, const T *from,
                                                                       int64_t row_step, int rows, int size)
{
    __syncthreads();
    load_tile<ROWS>(room, from, row_step, rows, size);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIZE / 16; k++)
        mma_load_a<PITCH>(a[k], room + warp_place().first * PITCH + 16 * k);
}

template <int N> static __device__ __forceinline__ void clear(float (&s)[N / 8][4])
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        for (int i = 0; i < 4; i++)
            s[j][i] = 0;
}

/* s += a tile^T over 16 features: the warp's rows by N rows of a tile. */
template <int N, class T> static __device__ __forceinline__ void multiply_part(float (&s)[N / 8][4], const uint32_t (&a)[4],
                                                                               const T *tile)
{
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
        uint32_t b[4];
        mma_load_b_by_column<PITCH>(b, tile + 16 * j * PITCH);
        mma_add(s[2 * j], a, b[0], b[1], T());
        mma_add(s[2 * j + 1], a, b[2], b[3], T());
    }
}

/* s = a tile^T, a in registers ... */
template <int N, class T> static __device__ __forceinline__ void multiply(float (&s)[N / 8][4], const uint32_t (&a)[SIZE / 16][4],
                                                                          const T *tile)
{
    clear<N>(s);
#pragma unroll
    for (int k = 0; k < SIZE / 16; k++)
        multiply_part<N>(s, a[k], tile + 16 * k);
}

/* ... or 16 rows in shared memory. */
template <int N, class T> static __device__ __forceinline__ void multiply(float (&s)[N / 8][4], const T *rows, const T *tile)
{
    clear<N>(s);
#pragma unroll
    for (int k = 0; k < SIZE / 16; k++) {
        uint32_t a[4];
        mma_load_a<PITCH>(a, rows + 16 * k);
        multiply_part<N>(s, a, tile + 16 * k);
    }
}

/* sum += p tile: the warp's rows of scores by the N rows of a tile. */
template <int N, class T> static __device__ __forceinline__ void accumulate(float (&sum)[SIZE / 8][4], const float (&p)[N / 8][4],
                                                                            const T *tile)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const uint32_t a[4] = { pack_floats<T>(p[2 * k][0], p[2 * k][1]), pack_floats<T>(p[2 * k][2], p[2 * k][3]),
                                pack_floats<T>(p[2 * k + 1][0], p[2 * k + 1][1]), pack_floats<T>(p[2 * k + 1][2], p[2 * k + 1][3]) };
#pragma unroll
        for (int j = 0; j < SIZE / 16; j++) {
            uint32_t b[4];
            mma_load_b_by_row<PITCH>(b, tile + 16 * k * PITCH + 16 * j);
            mma_add(sum[2 * j], a, b[0], b[1], T());
            mma_add(sum[2 * j + 1], a, b[2], b[3], T());
        }
    }
}

/* Row g of a product to `low`, row g + 8 to `high`; NULL: not there. */
template <class T> static __device__ __forceinline__ void store_rows(T *low, T *high, int size, float low_factor, float high_factor,
                                                                     const float (&sum)[SIZE / 8][4])
{
#pragma unroll
    for (int j = 0; j < SIZE / 8; j++) {
        const int c = 8 * j + 2 * warp_place().t;
        if (low && c < size)
            *reinterpret_cast<uint32_t *>(low + c) = pack_floats<T>(sum[j][0] * low_factor, sum[j][1] * low_factor);
        if (high && c < size)
            *reinterpret_cast<uint32_t *>(high + c) = pack_floats<T>(sum[j][2] * high_factor, sum[j][3] * high_factor);
    }
}

/* Bit 4 j + i: whether score i of product j is kept, for the warp's 16 queries from `row` and N keys. The four lanes of a row share
 * the blocks of the generator, eight keys each. */
template <int N> static __device__ __forceinline__ uint32_t keep_by_query(const AttentionShape &s, const int32_t *rng, int64_t row, int key)
{
    const Warp w = warp_place();
    uint32_t mine = 0, kept = 0;
    for (int q = 0; q < N / 32; q++)
        for (int r = 0; r < 2; r++)
            mine |= attention_keeps(s, rng, row + w.g + 8 * r, key / 8 + w.t + 4 * q) << 8 * (2 * q + r);
#pragma unroll
    for (int from = 0; from < 4; from++) {
        const uint32_t bits = __shfl_sync(0xffffffffu, mine, from, 4);
        for (int q = 0; q < N / 32; q++)
            for (int i = 0; i < 4; i++)
                kept |= (bits >> (8 * (2 * q + i / 2) + 2 * w.t + i % 2) & 1) << (4 * (from + 4 * q) + i);
    }
    return kept;
}

/* The same for the warp's 16 keys and 32 queries from `row`: a lane makes the bits of one query. */
static __device__ __forceinline__ uint32_t keep_by_key(const AttentionShape &s, const int32_t *rng, int64_t row, int key)
{
    const Warp w = warp_place();
    const int64_t query = row + threadIdx.x % 32;
    const uint32_t mine = attention_keeps(s, rng, query, key / 8) | attention_keeps(s, rng, query, key / 8 + 1) << 8;
    uint32_t kept = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 2; i++) {
            const uint32_t bits = __shfl_sync(0xffffffffu, mine, 8 * j + 2 * w.t + i);
            kept |= (bits >> w.g & 1) << (4 * j + i) | (bits >> (w.g + 8) & 1) << (4 * j + i + 2);
        }
    return kept;
}

template <class T> __global__ void __launch_bounds__(THREADS, 4)
mma_forward(AttentionShape s, const T *__restrict__ qkv, const int32_t *__restrict__ spans, const int32_t *__restrict__ rng,
            T *__restrict__ y, float *__restrict__ lse)
{
    SHARED_DYNAMIC(T, keys);
    T *values = keys + FORWARD_KEYS * PITCH;
    const Head head = attention_head<ROWS>(s, spans);
    const Warp w = warp_place();
    const int rows = head.span.rows;
    if (head.first >= rows)
        return;
    const int64_t step = 3 * s.width;
    const float factor = s.scale * LOG2E;
    uint32_t q[SIZE / 16][4];
    load_operand(q, keys, qkv + head.qkv + head.first * step, step, rows - head.first, s.size);
    float sum[SIZE / 8][4] = {}, most[2] = { -INFINITY, -INFINITY }, total[2] = {};
    for (int key = 0; key < rows; key += FORWARD_KEYS) {
        __syncthreads();
        load_tile<FORWARD_KEYS>(keys, qkv + head.qkv + s.width + key * step, step, rows - key, s.size);
        load_tile<FORWARD_KEYS>(values, qkv + head.qkv + 2 * s.width + key * step, step, rows - key, s.size);
        __syncthreads();
        if (head.first + w.first >= rows)
            continue;
        float p[FORWARD_KEYS / 8][4], largest[2] = { most[0], most[1] };
        multiply<FORWARD_KEYS>(p, q, keys);
#pragma unroll
        for (int j = 0; j < FORWARD_KEYS / 8; j++)
            for (int i = 0; i < 4; i++) {
                p[j][i] = key + 8 * j + 2 * w.t + i % 2 < rows ? p[j][i] * factor : -INFINITY;
                largest[i / 2] = fmaxf(largest[i / 2], p[j][i]);
            }
        for (int r = 0; r < 2; r++) {
            largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 1));
            largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 2));
            const float shrink = exp2f(most[r] - largest[r]);
            most[r] = largest[r];
            total[r] *= shrink;
#pragma unroll
            for (int j = 0; j < SIZE / 8; j++)
                for (int i = 0; i < 2; i++)
                    sum[j][2 * r + i] *= shrink;
        }
        const uint32_t kept = s.threshold ? keep_by_query<FORWARD_KEYS>(s, rng, head.mask_row + head.first + w.first, key) : ~0u;
#pragma unroll
        for (int j = 0; j < FORWARD_KEYS / 8; j++)
            for (int i = 0; i < 4; i++) {
                const float e = exp2f(p[j][i] - most[i / 2]);
                total[i / 2] += e;
                p[j][i] = kept >> (4 * j + i) & 1 ? e : 0.0f;
            }
        accumulate<FORWARD_KEYS>(sum, p, values);
    }
    T *to[2] = {};
    for (int r = 0; r < 2; r++) {
        const int row = head.first + w.first + w.g + 8 * r;
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
        if (row < rows)
            to[r] = y + head.y + row * s.width;
        if (row < rows && w.t == 0)
            lse[head.lse + (int64_t)row * s.heads] = (most[r] + log2f(total[r])) * LN2;
    }
    store_rows(to[0], to[1], s.size, s.dropped_scale / total[0], s.dropped_scale / total[1], sum);
}

template <class T> __global__ void __launch_bounds__(THREADS, 4)
mma_grad_queries(AttentionShape s, const T *__restrict__ qkv, const T *__restrict__ dy, const float *__restrict__ lse,
                 const float *__restrict__ delta, const int32_t *__restrict__ spans, const int32_t *__restrict__ rng,
                 T *__restrict__ dqkv)
{
    SHARED_DYNAMIC(T, keys);
    T *values = keys + BACKWARD_TILE * PITCH;
    const Head head = attention_head<ROWS>(s, spans);
    const Warp w = warp_place();
    const int rows = head.span.rows;
    if (head.first >= rows)
        return;
    const int64_t step = 3 * s.width;
    const float factor = s.scale * LOG2E;
    uint32_t q[SIZE / 16][4], d[SIZE / 16][4];
    load_operand(q, keys, qkv + head.qkv + head.first * step, step, rows - head.first, s.size);
    load_operand(d, keys, dy + head.y + head.first * s.width, s.width, rows - head.first, s.size);
    float sum[SIZE / 8][4] = {}, log_sum[2] = {}, minus[2] = {};
    for (int r = 0; r < 2; r++) {
        const int row = head.first + w.first + w.g + 8 * r;
        if (row < rows) {
            log_sum[r] = lse[head.lse + (int64_t)row * s.heads] * LOG2E;
            minus[r] = delta[head.lse + (int64_t)row * s.heads];
        }
    }
    for (int key = 0; key < rows; key += BACKWARD_TILE) {
        __syncthreads();
        load_tile<BACKWARD_TILE>(keys, qkv + head.qkv + s.width + key * step, step, rows - key, s.size);
        load_tile<BACKWARD_TILE>(values, qkv + head.qkv + 2 * s.width + key * step, step, rows - key, s.size);
        __syncthreads();
        if (head.first + w.first >= rows)
            continue;
        float p[BACKWARD_TILE / 8][4], dp[BACKWARD_TILE / 8][4];
        multiply<BACKWARD_TILE>(p, q, keys);
        multiply<BACKWARD_TILE>(dp, d, values);
        const uint32_t kept = s.threshold ? keep_by_query<BACKWARD_TILE>(s, rng, head.mask_row + head.first + w.first, key) : ~0u;
#pragma unroll
        for (int j = 0; j < BACKWARD_TILE / 8; j++)
            for (int i = 0; i < 4; i++) {
                const float e = key + 8 * j + 2 * w.t + i % 2 < rows ? exp2f(p[j][i] * factor - log_sum[i / 2]) : 0.0f;
                const float z = kept >> (4 * j + i) & 1 ? s.dropped_scale : 0.0f;
                p[j][i] = e * (z * dp[j][i] - minus[i / 2]);
            }
        accumulate<BACKWARD_TILE>(sum, p, keys);
    }
    T *to[2] = {};
    for (int r = 0; r < 2; r++) {
        const int row = head.first + w.first + w.g + 8 * r;
        if (row < rows)
            to[r] = dqkv + head.qkv + row * step;
    }
    store_rows(to[0], to[1], s.size, s.scale, s.scale, sum);
}

template <class T> __global__ void __launch_bounds__(THREADS, 3)
mma_grad_keys(AttentionShape s, const T *__restrict__ qkv, const T *__restrict__ dy, const float *__restrict__ lse,
              const float *__restrict__ delta, const int32_t *__restrict__ spans, const int32_t *__restrict__ rng, T *__restrict__ dqkv)
{
    SHARED_DYNAMIC(T, keys);
    T *values = keys + ROWS * PITCH, *queries = values + ROWS * PITCH, *douts = queries + BACKWARD_TILE * PITCH;
    __shared__ float log_sums[BACKWARD_TILE], minuses[BACKWARD_TILE];
    const Head head = attention_head<ROWS>(s, spans);
    const Warp w = warp_place();
    const int rows = head.span.rows;
    if (head.first >= rows)
        return;
    const int64_t step = 3 * s.width;
    const float factor = s.scale * LOG2E;
    load_tile<ROWS>(keys, qkv + head.qkv + s.width + head.first * step, step, rows - head.first, s.size);
    load_tile<ROWS>(values, qkv + head.qkv + 2 * s.width + head.first * step, step, rows - head.first, s.size);
    float dk[SIZE / 8][4] = {}, dv[SIZE / 8][4] = {};
    for (int query = 0; query < rows; query += BACKWARD_TILE) {
        __syncthreads();
        load_tile<BACKWARD_TILE>(queries, qkv + head.qkv + query * step, step, rows - query, s.size);
        load_tile<BACKWARD_TILE>(douts, dy + head.y + query * s.width, s.width, rows - query, s.size);
        if (threadIdx.x < BACKWARD_TILE) {
            const int64_t row = query + threadIdx.x, at = head.lse + row * s.heads;
            log_sums[threadIdx.x] = row < rows ? lse[at] * LOG2E : 0.0f;
            minuses[threadIdx.x] = row < rows ? delta[at] : 0.0f;
        }
        __syncthreads();
        if (head.first + w.first >= rows)
            continue;
        float p[BACKWARD_TILE / 8][4], dp[BACKWARD_TILE / 8][4];
        multiply<BACKWARD_TILE>(p, keys + w.first * PITCH, queries);
        multiply<BACKWARD_TILE>(dp, values + w.first * PITCH, douts);
        const uint32_t kept = s.threshold ? keep_by_key(s, rng, head.mask_row + query, head.first + w.first) : ~0u;
#pragma unroll
        for (int j = 0; j < BACKWARD_TILE / 8; j++)
            for (int i = 0; i < 4; i++) {
                const int column = 8 * j + 2 * w.t + i % 2;
                const float e = query + column < rows ? exp2f(p[j][i] * factor - log_sums[column]) : 0.0f;
                const float z = kept >> (4 * j + i) & 1 ? s.dropped_scale : 0.0f;
                p[j][i] = e * z;
                dp[j][i] = e * (z * dp[j][i] - minuses[column]);
            }
        accumulate<BACKWARD_TILE>(dv, p, douts);
        accumulate<BACKWARD_TILE>(dk, dp, queries);
    }
    T *to[2] = {};
    for (int r = 0; r < 2; r++) {
        const int row = head.first + w.first + w.g + 8 * r;
        if (row < rows)
            to[r] = dqkv + head.qkv + row * step + s.width;
    }
    store_rows(to[0], to[1], s.size, s.scale, s.scale, dk);
    store_rows(to[0] ? to[0] + s.width : nullptr, to[1] ? to[1] + s.width : nullptr, s.size, 1.0f, 1.0f, dv);
}

#define EACH_TYPE(T) LAUNCHABLE(mma_forward<T>); LAUNCHABLE(mma_grad_queries<T>); LAUNCHABLE(mma_grad_keys<T>);
EACH_TYPE(bf16)
EACH_TYPE(f16)

bool attention_has_mma(Backend *be, const OpDesc *op, const AttentionShape *s)
{
    return op->in[0].dtype != DTYPE_F32 && s->size % 8 == 0 && s->size <= SIZE && cuda_of(be)->capability >= 80;
}

template <class T> static Status forward(Backend *be, const AttentionShape *s, void *const *buf)
{
    void *const *out = buf + s->inputs;
    return cuda_launch(be, mma_forward<T>, attention_grid(s, ROWS), THREADS, 2 * FORWARD_KEYS * PITCH * sizeof(T), *s,
                       (const T *)buf[0], (const int32_t *)buf[1], (const int32_t *)buf[2], (T *)out[0], (float *)out[1]);
}

template <class T> static Status backward(Backend *be, const AttentionShape *s, void *const *buf, const float *delta)
{
    const T *qkv = (const T *)buf[0], *dy = (const T *)buf[2];
    const float *lse = (const float *)buf[3];
    const int32_t *spans = (const int32_t *)buf[4], *rng = (const int32_t *)buf[5];
    T *dqkv = (T *)buf[s->inputs];
    const size_t tile = BACKWARD_TILE * PITCH * sizeof(T), own = ROWS * PITCH * sizeof(T);
    TRY(cuda_launch(be, mma_grad_queries<T>, attention_grid(s, ROWS), THREADS, 2 * tile, *s, qkv, dy, lse, delta, spans, rng, dqkv));
    return cuda_launch(be, mma_grad_keys<T>, attention_grid(s, ROWS), THREADS, 2 * own + 2 * tile, *s, qkv, dy, lse, delta, spans, rng,
                       dqkv);
}

Status attention_forward_mma(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf)
{
    return op->in[0].dtype == DTYPE_BF16 ? forward<bf16>(be, s, buf) : forward<f16>(be, s, buf);
}

Status attention_backward_mma(Backend *be, const OpDesc *op, const AttentionShape *s, void *const *buf, const float *delta)
{
    return op->in[0].dtype == DTYPE_BF16 ? backward<bf16>(be, s, buf, delta) : backward<f16>(be, s, buf, delta);
}
