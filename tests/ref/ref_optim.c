/* ref_optim.c - what is done once an update: norms, the loss scale, the optimisers. */
#include "ref_ops.h"

#include <math.h>

/* Gradients are read unscaled and clipped; false if this update does nothing. */
static bool gradient_scale(const double *control, double *scale)
{
    *scale = control[0] * control[1];
    return control[2] == 0;
}

void ref_sqnorm(const OpDesc *op, const double *const *in, double *const *out)
{
    const double scale = op->n_in == 2 ? in[1][3] : 1;
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        sum += in[0][i] / scale * (in[0][i] / scale);
    out[0][0] += sum;
}

void ref_window_scale(const OpDesc *op, const double *const *in, double *const *out)
{
    (void)op;
    out[0][0] = in[0][0] * in[1][3];
}

/* torch.amp.GradScaler.step and .update around torch.nn.utils.clip_grad_norm_. */
void ref_step_control(const OpDesc *op, const double *const *in, double *const *out)
{
    (void)op;
    const double *hyper = in[0], sum = in[1][0], max_norm = hyper[1], interval = hyper[2];
    double *control = out[0];
    const bool skip = interval > 0 && !isfinite(sum);

    control[0] = 1 / control[3];
    control[1] = 1;
    if (max_norm > 0 && !skip) {
        double clip = max_norm / (sqrt(sum) + 1e-6);
        control[1] = clip > 1 ? 1 : clip;
    }
    control[2] = skip;
    if (skip) {
        control[3] = fmax(control[3] * hyper[4], hyper[5]);
        control[5] += 1;
        control[7] += 1;
    } else {
        control[6] += 1;
        control[7] = 0;
    }
    control[4] = isfinite(sum) ? control[4] + 1 : 0;
    if (interval > 0 && control[4] >= interval) {
        control[3] = fmin(control[3] * hyper[3], hyper[6]);
        control[4] = 0;
    }
}

/* torch.optim.SGD with dampening 0; hyper[0] is the learning rate. */
void ref_sgd(const OpDesc *op, const double *const *in, double *const *out)
{
    const double lr = in[1][0], momentum = (double)op->attr.momentum, decay = (double)op->attr.weight_decay;
    double *w = out[0], *velocity = out[1], scale;
    if (!gradient_scale(in[2], &scale))
        return;
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++) {
        double g = in[0][i] * scale + decay * w[i];
        velocity[i] = momentum * velocity[i] + g;
        w[i] -= lr * (op->attr.nesterov ? g + momentum * velocity[i] : velocity[i]);
    }
}

/* Element i of the averages m and v takes the gradient in. */
static void adam_average(const OpDesc *op, const double *const *in, double *const *out, int64_t i)
{
    const double beta1 = (double)op->attr.beta1, beta2 = (double)op->attr.beta2, g = in[0][i] * in[2][0] * in[2][1];
    out[1][i] = beta1 * out[1][i] + (1 - beta1) * g;
    out[2][i] = beta2 * out[2][i] + (1 - beta2) * g * g;
}

/* Element i of m^ / (sqrt(v^) + eps). */
static double adam_direction(const OpDesc *op, const double *const *in, double *const *out, int64_t i)
{
    const double beta1 = (double)op->attr.beta1, beta2 = (double)op->attr.beta2, t = in[2][6];
    return out[1][i] / (1 - pow(beta1, t)) / (sqrt(out[2][i] / (1 - pow(beta2, t))) + (double)op->attr.eps);
}

void ref_adamw(const OpDesc *op, const double *const *in, double *const *out)
{
    const double lr = in[1][0], decay = (double)op->attr.weight_decay;
    double *w = out[0], scale;
    if (!gradient_scale(in[2], &scale))
        return;
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++) {
        adam_average(op, in, out, i);
        w[i] -= lr * decay * w[i];
        w[i] -= lr * adam_direction(op, in, out, i);
    }
}

static int64_t tensor_begin(const OpDesc *op, const double *const *in, int64_t tensor)
{
    int64_t begin = (int64_t)in[3][tensor];
    CHECK(begin >= 0 && begin <= tensor_count(&op->in[0]) && (tensor == 0 || begin >= (int64_t)in[3][tensor - 1]));
    return begin;
}

void ref_lamb(const OpDesc *op, const double *const *in, double *const *out)
{
    const double lr = in[1][0], decay = (double)op->attr.weight_decay;
    double *w = out[0], scale;
    if (!gradient_scale(in[2], &scale))
        return;
    for (int64_t k = 0; k + 1 < op->in[3].dim[0]; k++) {
        const int64_t begin = tensor_begin(op, in, k), end = tensor_begin(op, in, k + 1);
        double w2 = 0, u2 = 0;
        for (int64_t i = begin; i < end; i++) {
            adam_average(op, in, out, i);
            const double u = adam_direction(op, in, out, i) + decay * w[i];
            w2 += w[i] * w[i];
            u2 += u * u;
        }
        const double r = op->attr.adapt && w2 > 0 && u2 > 0 ? sqrt(w2) / sqrt(u2) : 1;
        for (int64_t i = begin; i < end; i++)
            w[i] -= lr * r * (adam_direction(op, in, out, i) + decay * w[i]);
    }
}

void ref_lars(const OpDesc *op, const double *const *in, double *const *out)
{
    const double lr = in[1][0], momentum = (double)op->attr.momentum, decay = (double)op->attr.weight_decay;
    double *w = out[0], *m = out[1], scale;
    if (!gradient_scale(in[2], &scale))
        return;
    for (int64_t k = 0; k + 1 < op->in[3].dim[0]; k++) {
        const int64_t begin = tensor_begin(op, in, k), end = tensor_begin(op, in, k + 1);
        double w2 = 0, g2 = 0, r = 1;
        for (int64_t i = begin; i < end; i++) {
            w2 += w[i] * w[i];
            g2 += in[0][i] * scale * in[0][i] * scale;
        }
        if (op->attr.adapt && w2 > 0 && g2 > 0)
            r = (double)op->attr.trust * sqrt(w2) / (sqrt(g2) + decay * sqrt(w2));
        for (int64_t i = begin; i < end; i++) {
            m[i] = momentum * m[i] + lr * r * (in[0][i] * scale + decay * w[i]);
            w[i] -= m[i];
        }
    }
}

void ref_restore(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]) && in[1][2] != 0; i++)
        out[0][i] = in[0][i];
}
