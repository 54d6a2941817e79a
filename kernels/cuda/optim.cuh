/* optim.cuh - what the optimisers share: the gradient's scale, Adam's constants, a pass over vectors in packs of 16 bytes.
 *
 * What the host changes from step to step (hyper) and what step_control decided (control) is read on the device, so that a
 * recorded update can be replayed and nothing waits for the host. */
#ifndef BATCHMARK_KERNELS_CUDA_OPTIM_CUH
#define BATCHMARK_KERNELS_CUDA_OPTIM_CUH

#include "launch.cuh"

#include "../control.h"

enum { OPTIM_THREADS = 256 };

/* What a gradient is multiplied by before it is used. */
static __device__ __forceinline__ float gradient_scale(const float *control)
{
    return control[CONTROL_UNSCALE] * control[CONTROL_CLIP];
}

/* The constants of m^ / (sqrt(v^) + eps) at update t, m^ = m / (1 - beta1^t), v^ = v / (1 - beta2^t). */
struct Adam {
    float scale;          /* of the gradient */
    float take1, take2;   /* 1 - beta */
    float m_up, v_up;     /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float eps, weight_decay;
};

struct AdamAttr { float beta1, beta2, eps, weight_decay; };

static inline AdamAttr adam_attr(const OpAttr *a) { return AdamAttr{ a->beta1, a->beta2, a->eps, a->weight_decay }; }

/* Powers in double take long: for one thread of a block. */
static __device__ __forceinline__ Adam adam_of(const AdamAttr &a, const float *control)
{
    const double t = (double)control[CONTROL_DONE];
    return Adam{ gradient_scale(control), (float)(1 - (double)a.beta1), (float)(1 - (double)a.beta2),
                 (float)(1 / (1 - pow((double)a.beta1, t))), (float)(1 / sqrt(1 - pow((double)a.beta2, t))), a.eps, a.weight_decay };
}

/* The direction of given averages. */
static __device__ __forceinline__ float adam_ratio(const Adam &a, float m, float v)
{
    return m * a.m_up / (sqrtf(v) * a.v_up + a.eps);
}

/* Takes the gradient into both averages; the direction after that. */
static __device__ __forceinline__ float adam_direction(const Adam &a, float g, float *m, float *v)
{
    g *= a.scale;
    *m += a.take1 * (g - *m);
    *v += a.take2 * (g * g - *v);
    return adam_ratio(a, *m, *v);
}

/* One element of each vector. */
struct Element { float g, w, m, v; };

/* The vectors; those that a pass neither reads nor writes may be NULL. */
struct Vectors {
    const float *g;
    float       *w, *m, *v;
};

enum { VEC_G = 1, VEC_W = 2, VEC_M = 4, VEC_V = 8 };

typedef Pack<float, 4> Four;

static __device__ __forceinline__ Four load_four(const float *p) { return *reinterpret_cast<const Four *>(p); }
static __device__ __forceinline__ void store_four(float *p, const Four &v) { *reinterpret_cast<Four *>(p) = v; }

/* Hands elements begin .. end - 1 to step.one(Element *), each once: those of Step::READS are loaded, those of Step::WRITES stored.
 * Thread `me` of `threads` takes every threads-th pack of four from begin on, then of what is left over at the end. `wide`: the
 * vectors are aligned at element 0. */
template <class Step> static __device__ __forceinline__ void pass_over(Step &step, const Vectors &x, int64_t begin, int64_t end,
                                                                       bool wide, int64_t me, int64_t threads)
{
    const int64_t packs = wide && begin % 4 == 0 ? (end - begin) / 4 : 0;
    for (int64_t i = begin + 4 * me; i < begin + 4 * packs; i += 4 * threads) {
        Four g = {}, w = {}, m = {}, v = {};
        if (Step::READS & VEC_G) g = load_four(x.g + i);
        if (Step::READS & VEC_W) w = load_four(x.w + i);
        if (Step::READS & VEC_M) m = load_four(x.m + i);
        if (Step::READS & VEC_V) v = load_four(x.v + i);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            Element e = { g.at[k], w.at[k], m.at[k], v.at[k] };
            step.one(&e);
            w.at[k] = e.w;
            m.at[k] = e.m;
            v.at[k] = e.v;
        }
        if (Step::WRITES & VEC_W) store_four(x.w + i, w);
        if (Step::WRITES & VEC_M) store_four(x.m + i, m);
        if (Step::WRITES & VEC_V) store_four(x.v + i, v);
    }
    for (int64_t i = begin + 4 * packs + me; i < end; i += threads) {
        Element e = {};
        if (Step::READS & VEC_G) e.g = x.g[i];
        if (Step::READS & VEC_W) e.w = x.w[i];
        if (Step::READS & VEC_M) e.m = x.m[i];
        if (Step::READS & VEC_V) e.v = x.v[i];
        step.one(&e);
        if (Step::WRITES & VEC_W) x.w[i] = e.w;
        if (Step::WRITES & VEC_M) x.m[i] = e.m;
        if (Step::WRITES & VEC_V) x.v[i] = e.v;
    }
}

/* Elements of a tensor of f32, padding of its layout included. */
static inline int64_t physical_count(const Tensor *t) { return (int64_t)(cuda_tensor_bytes(t) / sizeof(float)); }

#endif
