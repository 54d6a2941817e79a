/* ref_linear.c - the fully connected layer y = x w^T + bias and its gradients; x (M,K), w (O,K), y (M,O). */
#include "ref_ops.h"

void ref_linear(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t rows = op->in[0].dim[0], depth = op->in[0].dim[1], outputs = op->in[1].dim[0];
#pragma omp parallel for
    for (int64_t m = 0; m < rows; m++)
        for (int64_t o = 0; o < outputs; o++) {
            double sum = op->n_in == 3 ? in[2][o] : 0;
            for (int64_t k = 0; k < depth; k++)
                sum += in[0][m * depth + k] * in[1][o * depth + k];
            out[0][m * outputs + o] = sum;
        }
}

/* dx = dy w */
void ref_linear_dgrad(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t rows = op->in[0].dim[0], outputs = op->in[0].dim[1], depth = op->in[1].dim[1];
#pragma omp parallel for
    for (int64_t m = 0; m < rows; m++)
        for (int64_t k = 0; k < depth; k++) {
            double sum = 0;
            for (int64_t o = 0; o < outputs; o++)
                sum += in[0][m * outputs + o] * in[1][o * depth + k];
            out[0][m * depth + k] = sum;
        }
}

/* dw = dy^T x, dbias = column sums of dy */
void ref_linear_wgrad(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t rows = op->in[0].dim[0], depth = op->in[0].dim[1], outputs = op->in[1].dim[1];
#pragma omp parallel for
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t k = 0; k < depth; k++) {
            double sum = op->attr.accumulate ? out[0][o * depth + k] : 0;
            for (int64_t m = 0; m < rows; m++)
                sum += in[1][m * outputs + o] * in[0][m * depth + k];
            out[0][o * depth + k] = sum;
        }
        if (op->n_out < 2)
            continue;
        double sum = op->attr.accumulate ? out[1][o] : 0;
        for (int64_t m = 0; m < rows; m++)
            sum += in[1][m * outputs + o];
        out[1][o] = sum;
    }
}
