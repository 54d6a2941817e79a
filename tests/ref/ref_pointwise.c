/* ref_pointwise.c - ops in which each output element depends on the input elements of the same place. */
#include "ref_ops.h"

void ref_normalize_u8(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t channels = op->in[0].dim[3];
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++) {
        int64_t c = i % channels;
        out[0][i] = (in[0][i] / 255 - (double)op->attr.mean[c]) / (double)op->attr.deviation[c];
    }
}

void ref_relu_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = in[1][i] > 0 ? in[0][i] : 0;
}

void ref_add(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = in[0][i] + in[1][i];
}

/* The types are the wrapper's business: rounding happens when the result is stored. */
void ref_cast(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = in[0][i];
}

/* The reference knows row-major only, so a change of layout changes nothing. */
void ref_repack(const OpDesc *op, const double *const *in, double *const *out)
{
    ref_cast(op, in, out);
}

void ref_zero(const OpDesc *op, const double *const *in, double *const *out)
{
    (void)in;
    for (int64_t i = 0; i < tensor_count(&op->out[0]); i++)
        out[0][i] = 0;
}
