/* test_interp_attention.c - attention as a composite graph of cuDNN's ops, forward and backward, through the interpreter: packed rows
 * of q, k, v, ragged offsets, lengths as overrides of the products, a mask of padding made of indices, reshapes as transposes.
 * Against softmax(q k^T / sqrt(D)) v in plain loops, and its derivatives by central differences. */
#include "raw_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define F CUDNN_DATA_FLOAT
#define I32 CUDNN_DATA_INT32

/* Two sequences of 5 and 3 rows, in a tensor with room for 5 each; T rows lie back to back, each q, k, v of W = heads D. */
enum { SEQUENCES = 2, HEADS = 2, S = 5, D = 4, W = HEADS * D, T = 8, QKV = T * 3 * W };
static const int first_row[SEQUENCES] = { 0, 5 }, length[SEQUENCES] = { 5, 3 };
static const double factor = 0.5; /* 1 / sqrt(D) */

/* ---- the definition */

/* y (T,W) and, if not NULL, lse (B,H,S). */
static void attention(const double *qkv, double *y, double *lse)
{
    for (int b = 0; b < SEQUENCES; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < length[b]; i++) {
                const double *q = qkv + (first_row[b] + i) * 3 * W + h * D;
                double score[S], sum = 0;
                for (int j = 0; j < length[b]; j++) {
                    const double *k = qkv + (first_row[b] + j) * 3 * W + W + h * D;
                    score[j] = 0;
                    for (int d = 0; d < D; d++)
                        score[j] += q[d] * k[d] * factor;
                    sum += exp(score[j]);
                }
                for (int d = 0; d < D; d++) {
                    double *out = y + (first_row[b] + i) * W + h * D + d;
                    *out = 0;
                    for (int j = 0; j < length[b]; j++)
                        *out += exp(score[j]) / sum * qkv[(first_row[b] + j) * 3 * W + 2 * W + h * D + d];
                }
                if (lse)
                    lse[(b * HEADS + h) * S + i] = log(sum);
            }
}

/* ---- the graph's tensors: ids by what they are */

enum { Q = 1, K, V, O, STATS, LENGTH, OFFSET_QKV, OFFSET_O, SCALE, LOW, DOUT, DQ, DK, DV, FIRST_VIRTUAL = 100 };

typedef struct Attention { RawGraph g; int64_t next; Desc q, k, v, o, stats, length, scale, low; Desc rows_qkv, rows_o; } Attention;

static Desc tensor(Attention *a, int64_t uid, cudnnDataType_t type, int64_t m, int64_t n, bool is_virtual)
{
    return raw_tensor(
        &a->g, (RawTensor){ .uid = uid, .type = type, .rank = 4, .dim = { SEQUENCES, HEADS, m, n }, .is_virtual = is_virtual });
}

static Desc between(Attention *a, cudnnDataType_t type, int64_t m, int64_t n) { return tensor(a, a->next++, type, m, n, true); }

/* (B,H,S,D), or with the last two turned round (B,H,D,S), in rows of `pitch` elements. */
static Desc packed(Attention *a, int64_t uid, int64_t pitch, Desc offsets, bool turned)
{
    RawTensor t = {
        .uid = uid, .type = F, .rank = 4, .dim = { SEQUENCES, HEADS, S, D }, .stride = { S * pitch, D, pitch, 1 }, .ragged = offsets
    };
    if (turned) {
        t.dim[2] = D;
        t.dim[3] = S;
        t.stride[2] = 1;
        t.stride[3] = pitch;
    }
    return raw_tensor(&a->g, t);
}

static Desc numbers(Attention *a, int64_t uid, int64_t n)
{
    return raw_tensor(&a->g, (RawTensor){ .uid = uid, .type = I32, .rank = 4, .dim = { n, 1, 1, 1 } });
}

static Attention begin(const CudnnApi *api, bool turned_v)
{
    Attention a = { .g = raw_begin(api), .next = FIRST_VIRTUAL };
    a.length = numbers(&a, LENGTH, SEQUENCES);
    a.rows_qkv = numbers(&a, OFFSET_QKV, SEQUENCES + 1);
    a.rows_o = numbers(&a, OFFSET_O, SEQUENCES + 1);
    a.q = packed(&a, Q, 3 * W, a.rows_qkv, false);
    a.k = packed(&a, K, 3 * W, a.rows_qkv, true);
    a.v = packed(&a, V, 3 * W, a.rows_qkv, turned_v);
    a.o = packed(&a, O, W, a.rows_o, false);
    a.stats = tensor(&a, STATS, F, S, 1, false);
    a.scale = raw_scalar(&a.g, SCALE, F);
    a.low = raw_scalar(&a.g, LOW, F);
    return a;
}

/* q k^T scale, -1e9 in the padding. */
static Desc scores(Attention *a)
{
    Desc p = between(a, F, S, S), scaled = between(a, F, S, S), row = between(a, I32, S, S), column = between(a, I32, S, S),
         in_row = between(a, CUDNN_DATA_BOOLEAN, S, S), in_column = between(a, CUDNN_DATA_BOOLEAN, S, S),
         in = between(a, CUDNN_DATA_BOOLEAN, S, S), masked = between(a, F, S, S);
    raw_matmul(&a->g, a->q, a->k, p, a->length, a->length, NULL);
    raw_point(&a->g, CUDNN_POINTWISE_MUL, p, a->scale, NULL, scaled);
    raw_point_as(&a->g, CUDNN_POINTWISE_GEN_INDEX, scaled, NULL, NULL, row, (RawPoint){ .compute = I32, .axis = 2 });
    raw_point_as(&a->g, CUDNN_POINTWISE_GEN_INDEX, scaled, NULL, NULL, column, (RawPoint){ .compute = I32, .axis = 3 });
    raw_point_as(&a->g, CUDNN_POINTWISE_CMP_LT, row, a->length, NULL, in_row, (RawPoint){ .compute = CUDNN_DATA_BOOLEAN });
    raw_point_as(&a->g, CUDNN_POINTWISE_CMP_LT, column, a->length, NULL, in_column, (RawPoint){ .compute = CUDNN_DATA_BOOLEAN });
    raw_point_as(&a->g, CUDNN_POINTWISE_LOGICAL_AND, in_row, in_column, NULL, in, (RawPoint){ .compute = CUDNN_DATA_BOOLEAN });
    raw_point(&a->g, CUDNN_POINTWISE_BINARY_SELECT, scaled, a->low, in, masked);
    return masked;
}

static void build_forward(Attention *a)
{
    Desc p = scores(a), top = between(a, F, S, 1), shifted = between(a, F, S, S), power = between(a, F, S, S),
         sum = between(a, F, S, 1), log_sum = between(a, F, S, 1), y = between(a, F, S, S);
    raw_reduce(&a->g, CUDNN_REDUCE_TENSOR_MAX, p, top);
    raw_point(&a->g, CUDNN_POINTWISE_SUB, p, top, NULL, shifted);
    raw_point(&a->g, CUDNN_POINTWISE_EXP, shifted, NULL, NULL, power);
    raw_reduce(&a->g, CUDNN_REDUCE_TENSOR_ADD, power, sum);
    raw_point(&a->g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, log_sum);
    raw_point(&a->g, CUDNN_POINTWISE_ADD, top, log_sum, NULL, a->stats);
    raw_point(&a->g, CUDNN_POINTWISE_DIV, power, sum, NULL, y);
    raw_matmul(&a->g, y, a->v, a->o, a->length, NULL, a->length);
}

/* x with its last two dimensions turned round: the same memory. */
static Desc turn(Attention *a, Desc x)
{
    Desc y = raw_tensor(&a->g, (RawTensor){ .uid = a->next++,
                                            .type = F,
                                            .rank = 4,
                                            .dim = { SEQUENCES, HEADS, S, S },
                                            .stride = { HEADS * S * S, S * S, 1, S },
                                            .is_virtual = true });
    raw_reshape(&a->g, x, y);
    return y;
}

/* P = exp(scores - lse); dV = P^T dO; dS = P (dO V^T - rowsum(dO O)) scale; dQ = dS K; dK = dS^T Q. */
static void build_backward(Attention *a)
{
    Desc grad = packed(a, DOUT, W, a->rows_o, false);
    Desc product = raw_tensor(
        &a->g, (RawTensor){ .uid = a->next++, .type = F, .rank = 4, .dim = { SEQUENCES, HEADS, S, D }, .is_virtual = true });
    Desc row_sum = between(a, F, S, 1), p = scores(a), shifted = between(a, F, S, S), power = between(a, F, S, S),
         dp = between(a, F, S, S), less = between(a, F, S, S), times = between(a, F, S, S), ds = between(a, F, S, S);
    raw_point(&a->g, CUDNN_POINTWISE_MUL, grad, a->o, NULL, product);
    raw_reduce(&a->g, CUDNN_REDUCE_TENSOR_ADD, product, row_sum);
    raw_point(&a->g, CUDNN_POINTWISE_SUB, p, a->stats, NULL, shifted);
    raw_point(&a->g, CUDNN_POINTWISE_EXP, shifted, NULL, NULL, power);
    raw_matmul(&a->g, turn(a, power), grad, packed(a, DV, 3 * W, a->rows_qkv, false), a->length, NULL, a->length);
    raw_matmul(&a->g, grad, a->v, dp, a->length, a->length, NULL);
    raw_point(&a->g, CUDNN_POINTWISE_SUB, dp, row_sum, NULL, less);
    raw_point(&a->g, CUDNN_POINTWISE_MUL, less, power, NULL, times);
    raw_point(&a->g, CUDNN_POINTWISE_MUL, times, a->scale, NULL, ds);
    raw_matmul(&a->g, turn(a, ds), a->q, packed(a, DK, 3 * W, a->rows_qkv, false), a->length, NULL, a->length);
    Desc k = raw_tensor(&a->g, (RawTensor){ .uid = a->next++,
                                            .type = F,
                                            .rank = 4,
                                            .dim = { SEQUENCES, HEADS, S, D },
                                            .stride = { S * 3 * W, D, 3 * W, 1 },
                                            .is_virtual = true,
                                            .ragged = a->rows_qkv });
    raw_reshape(&a->g, a->k, k);
    raw_matmul(&a->g, ds, k, packed(a, DQ, 3 * W, a->rows_qkv, false), a->length, NULL, a->length);
}

/* ---- the test */

static void expect_near(const float *got, const double *want, int64_t n, double limit)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= limit))
            fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)got[i], want[i]);
}

static double loss(const double *qkv, const float *grad)
{
    double y[T * W], sum = 0;
    attention(qkv, y, NULL);
    for (int i = 0; i < T * W; i++)
        sum += (double)grad[i] * y[i];
    return sum;
}

static void composite_attention_is_attention(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    float *qkv = raw_floats(QKV, NULL), *o = raw_floats(T * W, NULL), *stats = raw_floats(SEQUENCES * HEADS * S, NULL),
          *grad = raw_floats(T * W, NULL), *dqkv = raw_floats(QKV, NULL), scale = (float)factor, low = -1e9f;
    int32_t *rows = raw_alloc(8), *offset_qkv = raw_alloc(12), *offset_o = raw_alloc(12);
    double wide[QKV], y[T * W], lse[SEQUENCES * HEADS * S], slope[QKV];
    for (int i = 0; i < QKV; i++)
        wide[i] = (double)(qkv[i] = (float)rng_normal(5, 1, (uint64_t)i));
    for (int i = 0; i < T * W; i++)
        grad[i] = (float)rng_normal(5, 2, (uint64_t)i);
    for (int b = 0; b <= SEQUENCES; b++) {
        const int row = b < SEQUENCES ? first_row[b] : T;
        offset_qkv[b] = row * 3 * W;
        offset_o[b] = row * W;
        if (b < SEQUENCES)
            rows[b] = length[b];
    }
    attention(wide, y, lse);
    Attention a = begin(d.api, false);
    build_forward(&a);
    RAW_RUN(&a.g, &d, { Q, qkv }, { K, qkv + W }, { V, qkv + 2 * W }, { O, o }, { STATS, stats }, { LENGTH, rows },
            { OFFSET_QKV, offset_qkv }, { OFFSET_O, offset_o }, { SCALE, &scale }, { LOW, &low });
    expect_near(o, y, T * W, 1e-6);
    for (int b = 0; b < SEQUENCES; b++)
        for (int h = 0; h < HEADS; h++)
            expect_near(stats + (b * HEADS + h) * S, lse + (b * HEADS + h) * S, length[b], 1e-6);
    raw_end(&a.g);

    for (int i = 0; i < QKV; i++) {
        const double kept = wide[i];
        wide[i] = kept + 1e-5;
        const double above = loss(wide, grad);
        wide[i] = kept - 1e-5;
        slope[i] = (above - loss(wide, grad)) / 2e-5;
        wide[i] = kept;
    }
    a = begin(d.api, true);
    build_backward(&a);
    RAW_RUN(&a.g, &d, { Q, qkv }, { K, qkv + W }, { V, qkv + 2 * W }, { O, o }, { STATS, stats }, { LENGTH, rows },
            { OFFSET_QKV, offset_qkv }, { OFFSET_O, offset_o }, { SCALE, &scale }, { LOW, &low }, { DOUT, grad }, { DQ, dqkv },
            { DK, dqkv + W }, { DV, dqkv + 2 * W });
    expect_near(dqkv, slope, QKV, 5e-6);
    raw_end(&a.g);
    void *const all[] = { qkv, o, stats, grad, dqkv, rows, offset_qkv, offset_o };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        assert_int_equal(cudaFree(all[i]), cudaSuccess);
    raw_device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(composite_attention_is_attention) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
