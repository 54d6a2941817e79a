/* ref_segment.c - concatenation of channels and the losses of segmentation. */
#include "ref_ops.h"

#include <math.h>

enum { IGNORED = 255, SHARED_METRICS = 5 };

void ref_concat(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t pixels = op->out[0].dim[0] * op->out[0].dim[1] * op->out[0].dim[2];
    const int64_t a = op->in[0].dim[3], c = op->out[0].dim[3];
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t k = 0; k < c; k++)
            out[0][i * c + k] = k < a ? in[0][i * a + k] : in[1][i * (c - a) + k - a];
}

void ref_concat_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t pixels = op->in[0].dim[0] * op->in[0].dim[1] * op->in[0].dim[2];
    const int64_t a = op->out[0].dim[3], c = op->in[0].dim[3];
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t k = 0; k < c; k++)
            *(k < a ? &out[0][i * a + k] : &out[1][i * (c - a) + k - a]) = in[0][i * c + k];
}

/* What an image's hard Dice is made of: pixels in both, predicted, true. */
typedef struct Overlap { double both, predicted, truth; } Overlap;

static void overlap_add(Overlap *o, bool predicted, bool truth)
{
    o->both += predicted && truth;
    o->predicted += predicted;
    o->truth += truth;
}

/* 1 where both are empty: nothing was there and nothing was found. */
static double dice(const Overlap *o)
{
    return o->predicted + o->truth > 0 ? 2 * o->both / (o->predicted + o->truth) : 1;
}

/* One pixel as one row of softmax_xent. */
static void xent_pixel(const OpDesc *op, const double *x, int64_t label, double scale, double *metrics, double *dx, Overlap *image)
{
    const int64_t classes = op->in[0].dim[3];
    int64_t top = 0;
    double  sum = 0;
    for (int64_t c = 1; c < classes; c++)
        top = x[c] > x[top] ? c : top;
    for (int64_t c = 0; c < classes; c++)
        sum += exp(x[c] - x[top]);
    for (int64_t c = 0; c < classes && dx; c++)
        dx[c] = label == IGNORED ? 0 : scale * (exp(x[c] - x[top]) / sum - (c == label));
    if (label == IGNORED)
        return;
    metrics[0] -= x[label] - x[top] - log(sum);
    metrics[1] += top == label;
    metrics[2] += 1;
    metrics[SHARED_METRICS + 3 * label] += top == label;
    metrics[SHARED_METRICS + 3 * top + 1] += 1;
    metrics[SHARED_METRICS + 3 * label + 2] += 1;
    overlap_add(image, top > 0, label > 0);
}

void ref_pixel_xent(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t images = op->in[0].dim[0], pixels = op->in[0].dim[1] * op->in[0].dim[2], classes = op->in[0].dim[3];
    for (int64_t n = 0; n < images; n++) {
        const double counted = out[0][2];
        Overlap image = { 0 };
        for (int64_t i = n * pixels; i < (n + 1) * pixels; i++) {
            const int64_t label = (int64_t)in[1][i];
            CHECK(label == IGNORED || (label >= 0 && label < classes));
            xent_pixel(op, in[0] + i * classes, label, in[2][0], out[0], op->n_out == 2 ? out[1] + i * classes : NULL, &image);
        }
        if (out[0][2] > counted) {
            out[0][3] += dice(&image);
            out[0][4] += 1;
        }
    }
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* -log sigmoid(x) for t = 1, -log(1 - sigmoid(x)) for t = 0, written so that neither overflows. */
static double cross_entropy(double x, bool t)
{
    const double z = t ? -x : x;
    return (z > 0 ? z : 0) + log1p(exp(-fabs(z)));
}

/* The gradient of mean cross-entropy + 1 - (2 pt + 1) / (p + t + 1) for one image; p, t, pt are its sums. */
static void dice_gradient(const double *x, const double *mask, int64_t pixels, double n, double p, double t, double pt, double scale,
                          double *dx)
{
    const double size = p + t + 1;
    for (int64_t i = 0; i < pixels; i++) {
        const double s = sigmoid(x[i]), truth = mask[i];
        const double d = (s - truth) / n - s * (1 - s) * (2 * truth * size - (2 * pt + 1)) / (size * size);
        dx[i] = truth == IGNORED ? 0 : scale * d;
    }
}

void ref_bce_dice(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t images = op->in[0].dim[0], pixels = op->in[0].dim[1] * op->in[0].dim[2];
    double *metrics = out[0];
    for (int64_t n = 0; n < images; n++) {
        const double *x = in[0] + n * pixels, *mask = in[1] + n * pixels;
        double  entropy = 0, p = 0, pt = 0, counted = 0, hits = 0;
        Overlap image = { 0 };
        for (int64_t i = 0; i < pixels; i++) {
            CHECK(mask[i] == 0 || mask[i] == 1 || mask[i] == IGNORED);
            if (mask[i] == IGNORED)
                continue;
            const bool t = mask[i] == 1, predicted = x[i] >= 0; /* p >= 1/2 */
            entropy += cross_entropy(x[i], t);
            p += sigmoid(x[i]);
            pt += t ? sigmoid(x[i]) : 0;
            counted += 1;
            hits += predicted == t;
            overlap_add(&image, predicted, t);
        }
        if (op->n_out == 2)
            dice_gradient(x, mask, pixels, counted, p, image.truth, pt, in[2][0], out[1] + n * pixels);
        if (counted == 0)
            continue;
        metrics[0] += entropy / counted + 1 - (2 * pt + 1) / (p + image.truth + 1);
        metrics[1] += hits / counted;
        metrics[2] += 1;
        metrics[3] += dice(&image);
        metrics[4] += 1;
        metrics[5] += image.both;
        metrics[6] += image.predicted;
        metrics[7] += image.truth;
    }
}
