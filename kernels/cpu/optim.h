/* optim.h - what the optimisers of the CPU backend share: the gradient's scale, Adam's direction. */
#ifndef BATCHMARK_KERNELS_CPU_OPTIM_H
#define BATCHMARK_KERNELS_CPU_OPTIM_H

#include "../control.h"
#include "cpu.h"

#include <math.h>

/* What a gradient is multiplied by before it is used. */
static inline float gradient_scale(const float *control)
{
    return control[CONTROL_UNSCALE] * control[CONTROL_CLIP];
}

/* The constants of m^ / (sqrt(v^) + eps) at update t, m^ = m / (1 - beta1^t), v^ = v / (1 - beta2^t). */
typedef struct Adam {
    float scale;          /* of the gradient */
    float take1, take2;   /* 1 - beta */
    float m_up, v_up;     /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float eps, weight_decay;
} Adam;

static inline Adam adam_of(const OpAttr *a, const float *control)
{
    const double t = (double)control[CONTROL_DONE];
    return (Adam){
        .scale = gradient_scale(control),
        .take1 = (float)(1 - (double)a->beta1),
        .take2 = (float)(1 - (double)a->beta2),
        .m_up = (float)(1 / (1 - pow((double)a->beta1, t))),
        .v_up = (float)(1 / sqrt(1 - pow((double)a->beta2, t))),
        .eps = a->eps,
        .weight_decay = a->weight_decay,
    };
}

/* The direction of given averages. */
static inline float adam_ratio(const Adam *a, float m, float v)
{
    return m * a->m_up / (sqrtf(v) * a->v_up + a->eps);
}

/* Takes the gradient into both averages; the direction after that. */
static inline float adam_direction(const Adam *a, float g, float *m, float *v)
{
    g *= a->scale;
    *m += a->take1 * (g - *m);
    *v += a->take2 * (g * g - *v);
    return adam_ratio(a, *m, *v);
}

#endif
