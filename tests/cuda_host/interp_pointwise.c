/* interp_pointwise.c - pointwise ops with broadcasting, reductions, reshape. See interp.h. */
#include "interp.h"

#include <math.h>
#include <string.h>

int interp_pointwise_inputs(cudnnPointwiseMode_t mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: case CUDNN_POINTWISE_ADD_SQUARE: case CUDNN_POINTWISE_DIV: case CUDNN_POINTWISE_MAX:
    case CUDNN_POINTWISE_MIN: case CUDNN_POINTWISE_MOD: case CUDNN_POINTWISE_MUL: case CUDNN_POINTWISE_POW:
    case CUDNN_POINTWISE_SUB: case CUDNN_POINTWISE_CMP_EQ: case CUDNN_POINTWISE_CMP_NEQ: case CUDNN_POINTWISE_CMP_GT:
    case CUDNN_POINTWISE_CMP_GE: case CUDNN_POINTWISE_CMP_LT: case CUDNN_POINTWISE_CMP_LE: case CUDNN_POINTWISE_LOGICAL_AND:
    case CUDNN_POINTWISE_LOGICAL_OR:
        return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    case CUDNN_POINTWISE_ABS: case CUDNN_POINTWISE_CEIL: case CUDNN_POINTWISE_COS: case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_FLOOR: case CUDNN_POINTWISE_LOG: case CUDNN_POINTWISE_NEG: case CUDNN_POINTWISE_RSQRT:
    case CUDNN_POINTWISE_SIN: case CUDNN_POINTWISE_SQRT: case CUDNN_POINTWISE_TAN: case CUDNN_POINTWISE_ERF:
    case CUDNN_POINTWISE_IDENTITY: case CUDNN_POINTWISE_RECIPROCAL: case CUDNN_POINTWISE_RELU_FWD: case CUDNN_POINTWISE_TANH_FWD:
    case CUDNN_POINTWISE_SIGMOID_FWD:
    case CUDNN_POINTWISE_ELU_FWD:
    case CUDNN_POINTWISE_GELU_FWD:
    case CUDNN_POINTWISE_SOFTPLUS_FWD:
    case CUDNN_POINTWISE_SWISH_FWD: case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: case CUDNN_POINTWISE_LOGICAL_NOT:
    case CUDNN_POINTWISE_GEN_INDEX: case CUDNN_POINTWISE_RELU_BWD: case CUDNN_POINTWISE_TANH_BWD: case CUDNN_POINTWISE_SIGMOID_BWD:
    case CUDNN_POINTWISE_GELU_BWD: case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD: case CUDNN_POINTWISE_SWISH_BWD:
        return 1;
    default:
        return -1;
    }
}

bool interp_pointwise_is_backward(cudnnPointwiseMode_t mode)
{
    return mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Clipped below and above; a NaN becomes the lower limit unless NaN is to be kept, as max(x, limit) of the device does. */
static double relu(const InterpOp *op, double x)
{
    if (isnan(x))
        return op->as.point.keeps_nan ? x : op->as.point.lower;
    return x > op->as.point.lower ? fmin(x, op->as.point.upper)
                                  : op->as.point.lower + op->as.point.slope * (x - op->as.point.lower);
}

static double relu_slope(const InterpOp *op, double x)
{
    return x > op->as.point.lower ? (x < op->as.point.upper ? 1 : 0) : op->as.point.slope;
}

static double larger(const InterpOp *op, double x, double b, bool smaller)
{
    if (op->as.point.keeps_nan && (isnan(x) || isnan(b)))
        return NAN;
    return smaller ? fmin(x, b) : fmax(x, b);
}

static double point_arithmetic(const InterpOp *op, double x, double b)
{
    switch (op->as.point.mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_ADD_SQUARE: return x + b * b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_MAX: return larger(op, x, b, false);
    case CUDNN_POINTWISE_MIN: return larger(op, x, b, true);
    case CUDNN_POINTWISE_MOD: return fmod(x, b);
    case CUDNN_POINTWISE_POW: return pow(x, b);
    case CUDNN_POINTWISE_CMP_EQ: return x == b;
    case CUDNN_POINTWISE_CMP_NEQ: return x != b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_LT: return x < b;
    case CUDNN_POINTWISE_CMP_LE: return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
    case CUDNN_POINTWISE_LOGICAL_OR: return x != 0 || b != 0;
    default: CHECK(!"a mode that compile lets through"); return 0;
    }
}

static double point_function(const InterpOp *op, double x)
{
    switch (op->as.point.mode) {
    case CUDNN_POINTWISE_ABS: return fabs(x);
    case CUDNN_POINTWISE_CEIL: return ceil(x);
    case CUDNN_POINTWISE_FLOOR: return floor(x);
    case CUDNN_POINTWISE_COS: return cos(x);
    case CUDNN_POINTWISE_SIN: return sin(x);
    case CUDNN_POINTWISE_TAN: return tan(x);
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_NEG: return -x;
    case CUDNN_POINTWISE_SQRT: return sqrt(x);
    case CUDNN_POINTWISE_RSQRT: return 1 / sqrt(x);
    case CUDNN_POINTWISE_RECIPROCAL: return 1 / x;
    case CUDNN_POINTWISE_ERF: return erf(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_LOGICAL_NOT: return x == 0;
    case CUDNN_POINTWISE_RELU_FWD: return relu(op, x);
    case CUDNN_POINTWISE_TANH_FWD: return tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD: return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD: return x > 0 ? x : op->as.point.elu * expm1(x);
    case CUDNN_POINTWISE_SOFTPLUS_FWD: return log1p(exp(op->as.point.softplus * x)) / op->as.point.softplus;
    case CUDNN_POINTWISE_SWISH_FWD: return x * sigmoid(op->as.point.swish * x);
    case CUDNN_POINTWISE_GELU_FWD: return x * 0.5 * erfc(-x * sqrt(0.5));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    default: CHECK(!"a mode that compile lets through"); return 0;
    }
}

/* dx = dy f'(x) */
static double point_backward(const InterpOp *op, double dy, double x)
{
    const double root = sqrt(2 / acos(-1)), beta = op->as.point.swish;
    double t;
    switch (op->as.point.mode) {
    case CUDNN_POINTWISE_RELU_BWD: return dy * relu_slope(op, x);
    case CUDNN_POINTWISE_TANH_BWD: t = tanh(x); return dy * (1 - t * t);
    case CUDNN_POINTWISE_SIGMOID_BWD: t = sigmoid(x); return dy * t * (1 - t);
    case CUDNN_POINTWISE_SWISH_BWD: t = sigmoid(beta * x); return dy * (t + beta * x * t * (1 - t));
    case CUDNN_POINTWISE_GELU_BWD: return dy * (0.5 * erfc(-x * sqrt(0.5)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1)));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD:
        t = tanh(root * (x + 0.044715 * x * x * x));
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x));
    default: CHECK(!"a mode that compile lets through"); return 0;
    }
}

/* An input as a row of y needs it: its first value and whether it steps along the row. */
typedef struct PointRow { const double *v; int64_t step; } PointRow;

static PointRow point_row(const InterpJob *job, const InterpOp *op, int slot, const InterpTensor *y, const int64_t *at)
{
    const InterpTensor *t = interp_tensor(job, op, slot);
    if (!t)
        return (PointRow){ NULL, 0 };
    return (PointRow){ interp_value(job, op, slot) + interp_broadcast(t, at, y->rank), t->dim[t->rank - 1] > 1 };
}

static double point_one(const InterpOp *op, const int64_t *at, double x, double b, double t, double dy)
{
    const int inputs = interp_pointwise_inputs(op->as.point.mode);
    if (op->as.point.mode == CUDNN_POINTWISE_GEN_INDEX)
        return (double)at[op->as.point.axis];
    if (interp_is_hole(x) || (inputs == 2 && interp_is_hole(b)) || (inputs == 3 && interp_is_hole(t != 0 ? x : b)))
        return interp_hole();
    if (interp_pointwise_is_backward(op->as.point.mode))
        return point_backward(op, dy, x);
    if (inputs == 3)
        return t != 0 ? x : b;
    x *= op->as.point.alpha1;
    return inputs == 2 ? point_arithmetic(op, x, b * op->as.point.alpha2) : point_function(op, x);
}

/* Rounded to the compute type; a hole stays one. */
static double point_compute(const InterpOp *op, double v)
{
    return interp_is_hole(v) ? v : interp_round(op->compute, v);
}

void interp_pointwise(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *ty = interp_tensor(job, op, POINT_Y);
    const int64_t n = ty->dim[ty->rank - 1];
    double *y = interp_value(job, op, POINT_Y);
    int64_t at[INTERP_RANK] = { 0 };
    for (int64_t row = 0; row < ty->count; row += n) {
        PointRow x = point_row(job, op, POINT_X, ty, at), b = point_row(job, op, POINT_B, ty, at),
                 t = point_row(job, op, POINT_T, ty, at), dy = point_row(job, op, POINT_DY, ty, at);
        for (int64_t i = 0; i < n; i++) {
            at[ty->rank - 1] = i;
            double v = point_one(op, at, x.v[i * x.step], b.v ? b.v[i * b.step] : 0, t.v ? t.v[i * t.step] : 0,
                                 dy.v ? dy.v[i * dy.step] : 0);
            y[row + i] = interp_round(ty->type, point_compute(op, v));
        }
        interp_next(ty, at);
    }
}

/* ---- reduction over the dimensions in which y has 1 and x more */

static double reduce_start(cudnnReduceTensorOp_t mode)
{
    switch (mode) {
    case CUDNN_REDUCE_TENSOR_MUL: return 1;
    case CUDNN_REDUCE_TENSOR_MIN: return INFINITY;
    case CUDNN_REDUCE_TENSOR_MAX: return -INFINITY;
    default: return 0;
    }
}

static double reduce_step(cudnnReduceTensorOp_t mode, double sum, double x)
{
    switch (mode) {
    case CUDNN_REDUCE_TENSOR_MUL: return sum * x;
    case CUDNN_REDUCE_TENSOR_MIN: return isnan(x) ? x : x < sum ? x : sum;
    case CUDNN_REDUCE_TENSOR_MAX: return isnan(x) ? x : x > sum ? x : sum;
    case CUDNN_REDUCE_TENSOR_AMAX: return isnan(x) ? x : fabs(x) > sum ? fabs(x) : sum;
    case CUDNN_REDUCE_TENSOR_NORM1: return sum + fabs(x);
    case CUDNN_REDUCE_TENSOR_NORM2: return sum + x * x;
    default: return sum + x; /* ADD, AVG */
    }
}

void interp_reduce(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *tx = interp_tensor(job, op, 0), *ty = interp_tensor(job, op, 1);
    const double *x = interp_value(job, op, 0);
    const cudnnReduceTensorOp_t mode = op->as.reduce.mode;
    double *y = interp_value(job, op, 1);
    int64_t at[INTERP_RANK] = { 0 };
    for (int64_t i = 0; i < ty->count; i++)
        y[i] = reduce_start(mode);
    for (int64_t i = 0; i < tx->count; i++) {
        double *sum = &y[interp_broadcast(ty, at, tx->rank)];
        *sum = interp_is_hole(x[i]) || interp_is_hole(*sum) ? interp_hole() : reduce_step(mode, *sum, x[i]);
        interp_next(tx, at);
    }
    for (int64_t i = 0; i < ty->count; i++) {
        if (interp_is_hole(y[i]))
            continue;
        double v = mode == CUDNN_REDUCE_TENSOR_AVG     ? y[i] * (double)ty->count / (double)tx->count
                   : mode == CUDNN_REDUCE_TENSOR_NORM2 ? sqrt(y[i])
                                                       : y[i];
        y[i] = interp_round(ty->type, interp_compute(op, v));
    }
}

/* ---- reshape: y is the memory of x seen with other dimensions and strides, virtual or not; both have the same elements. */

static int64_t place_of(const InterpTensor *t, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = t->ragged >= 0 ? 1 : 0; d < t->rank; d++)
        offset += at[d] * t->stride[d];
    if (t->ragged >= 0) { /* sequences lie anywhere, but an element keeps its place in its sequence */
        InterpTensor one = *t;
        one.dim[0] = 1;
        offset += at[0] * interp_extent(&one);
    }
    return offset;
}

void interp_reshape(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *tx = interp_tensor(job, op, 0), *ty = interp_tensor(job, op, 1);
    const double *x = interp_value(job, op, 0);
    double *y = interp_value(job, op, 1), *memory = job->scratch;
    int64_t at[INTERP_RANK] = { 0 };
    for (int64_t i = 0; i < tx->count; i++, interp_next(tx, at))
        memory[place_of(tx, at)] = x[i];
    for (int64_t i = 0; i < ty->count; i++, interp_next(ty, at))
        y[i] = interp_round(ty->type, memory[place_of(ty, at)]);
}
