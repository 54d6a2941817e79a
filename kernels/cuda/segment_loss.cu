/* segment_loss.cu - the losses of segmentation, with gradient and metrics: cross-entropy of each pixel, and binary cross-entropy +
 * soft Dice of each image.
 *
 * Sums go up in three steps, each in an order that depends on the shape alone: a block adds a tile of pixels of one image (f32, a
 * few terms a thread, then a tree), a block an image's tiles (double), one block the images. So large images lose
 * nothing (tests/CASES.md D10). Nothing small is lost beside 1 either: log(1 + r) with r the exponentials without the largest one,
 * 1 - p as its own quotient. Counts are integers.
 *
 * Bytes, for p pixels of C classes of s bytes and m metrics: p C s logits, p labels, 4 scale, 8 m metrics, p C s dlogits.
 * bce_dice needs an image's sums before its gradient and so reads logits and labels a second time, from the cache where they
 * have room. On top come the scratch's 32 bytes a tile and 104 an image. */
#include "launch.cuh"

enum { THREADS = 256, TILE_PIXELS = 2048, MAX_CLASSES = 64, IGNORED = 255, SHARED_METRICS = 5, MOST_BLOCKS = 2048 };

/* Over pixels that count. Foreground: any class above 0. */
template <class Float, class Count> struct Sums {
    Float loss;                     /* of pixel_xent; of bce_dice the cross-entropy */
    Float p, missed;                /* bce_dice: sum p, sum |p - t| */
    Count counted, hits;
    Count both, predicted, truth;   /* foreground pixels */

    template <class Other> __device__ void add(const Other &o)
    {
        loss += o.loss;
        p += o.p;
        missed += o.missed;
        counted += o.counted;
        hits += o.hits;
        both += o.both;
        predicted += o.predicted;
        truth += o.truth;
    }
};
typedef Sums<float, int>     TileSums;
typedef Sums<double, double> ImageSums; /* counts are exact up to 2^53 */

/* What an image's pixels are multiplied with in the gradient of bce_dice, scale included. */
typedef struct DiceFactors { float entropy, at_zero, at_one, unused; } DiceFactors;

/* What one image adds to the metrics, in their order: 5 of all ops, then the counts of the one class of bce_dice, or of the background
 * and the foreground of pixel_xent. An image without a pixel that counts adds nothing. */
enum { IMAGE_METRICS = SHARED_METRICS + 6 };
typedef struct ImageMetrics { double at[IMAGE_METRICS]; } ImageMetrics;

template <class T> struct PixelJob {
    const T       *x;
    const uint8_t *labels;
    const float   *scale;
    T             *dx;           /* may be x; NULL: not wanted */
    int64_t        images, image; /* image: pixels of one */
    int64_t        tiles;        /* of one image */
    int            classes;
    TileSums      *tile_sums;    /* [images][tiles] */
    ImageMetrics  *image_metrics; /* [images] */
    DiceFactors   *factors;      /* [images] */
    int           *counts;       /* pixel_xent of more than two classes: [images][tiles][classes]{both, predicted, truth} */
    CudaFault     *fault;
};

/* ---- adding up */

template <class S> static __device__ __forceinline__ void warp_total(S *s)
{
    s->loss = warp_sum(s->loss);
    s->p = warp_sum(s->p);
    s->missed = warp_sum(s->missed);
    s->counted = warp_sum(s->counted);
    s->hits = warp_sum(s->hits);
    s->both = warp_sum(s->both);
    s->predicted = warp_sum(s->predicted);
    s->truth = warp_sum(s->truth);
}

/* The block's sum, in thread 0 only. room: THREADS / 32 of shared memory, which may be used again at once. */
template <class S> static __device__ __forceinline__ S block_total(S s, S *room)
{
    warp_total(&s);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < THREADS / 32; warp++)
            s.add(room[warp]);
    return s;
}

static __device__ __forceinline__ ImageMetrics image_metrics(const ImageSums &s, int classes)
{
    const double dice = s.predicted + s.truth > 0 ? 2 * s.both / (s.predicted + s.truth) : 1; /* 2 |P n T| / (|P| + |T|) */
    if (s.counted == 0)
        return {};
    if (classes == 1)
        return { { s.loss / s.counted + s.missed / (s.p + s.truth + 1), s.hits / s.counted, 1, dice, 1, s.both, s.predicted, s.truth } };
    return { { s.loss, s.hits, s.counted, dice, 1, s.counted - s.predicted - s.truth + s.both, s.counted - s.predicted,
               s.counted - s.truth, s.both, s.predicted, s.truth } };
}

/* With S = sum p + sum t + 1 and M = sum |p - t| the soft Dice term is 1 - (S - M) / S = M / S, and
 * d loss / d x = (p - t) / n + p (1 - p) ((1 - 2 t) / S - M / S^2). */
static __device__ __forceinline__ DiceFactors dice_factors(const ImageSums &s, double scale)
{
    const double size = s.p + s.truth + 1, slope = s.missed / (size * size);
    const float  entropy = s.counted > 0 ? (float)(scale / s.counted) : 0.0f;
    return { entropy, (float)(scale * (1 / size - slope)), (float)(scale * (-1 / size - slope)), 0 };
}

/* A block an image. */
static __global__ void __launch_bounds__(THREADS) image_kernel(const TileSums *tile_sums, int64_t images, int64_t tiles, int classes,
                                                               const float *scale, ImageMetrics *image, DiceFactors *factors)
{
    __shared__ ImageSums room[THREADS / 32];
    for (int64_t n = blockIdx.x; n < images; n += gridDim.x) {
        ImageSums s = {};
        for (int64_t t = threadIdx.x; t < tiles; t += THREADS)
            s.add(tile_sums[n * tiles + t]);
        s = block_total(s, room);
        if (threadIdx.x == 0) {
            image[n] = image_metrics(s, classes);
            factors[n] = dice_factors(s, *scale);
        }
    }
}
LAUNCHABLE(image_kernel);

/* A warp a metric: one block adds up the images. */
static __global__ void total_kernel(const ImageMetrics *image, int64_t images, float *metrics)
{
    const int which = threadIdx.x / 32, lane = threadIdx.x % 32;
    double    sum = 0;
    for (int64_t n = lane; n < images; n += 32)
        sum += image[n].at[which];
    sum = warp_sum(sum);
    if (lane == 0)
        metrics[which] += (float)sum;
}
LAUNCHABLE(total_kernel);

/* A block a count of the classes above 0, of more than one. */
static __global__ void __launch_bounds__(THREADS) class_kernel(const int *counts, int64_t tiles, int classes, float *metrics)
{
    __shared__ double room[32];
    const int which = 3 + blockIdx.x;
    double    sum = 0;
    for (int64_t t = threadIdx.x; t < tiles; t += THREADS)
        sum += counts[t * 3 * classes + which];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        metrics[SHARED_METRICS + which] += (float)sum;
}
LAUNCHABLE(class_kernel);

/* Label of a pixel, checked: one that does not exist is reported and then ignored. */
template <class T>
static __device__ __forceinline__ int checked_label(const PixelJob<T> &j, OpKind op, int label, int limit, int64_t pixel)
{
    if (label >= limit && label != IGNORED) {
        report_fault(j.fault, op, label, limit, pixel);
        return IGNORED;
    }
    return label;
}

/* Runs body(constant N, tile, image's number, first pixel of N within all images) for this block's tiles, THREADS pixels or packs
 * at a time, and done(tile) by all threads after each. */
template <int N, class T, class Body, class Done>
static __device__ __forceinline__ void for_tiles(const PixelJob<T> &j, Body body, Done done)
{
    for (int64_t tile = blockIdx.x; tile < j.images * j.tiles; tile += gridDim.x) {
        const int64_t n = tile / j.tiles, start = tile % j.tiles * TILE_PIXELS;
        const int64_t end = start + TILE_PIXELS < j.image ? start + TILE_PIXELS : j.image;
        for (int64_t i = start + (int64_t)threadIdx.x * N; i < end; i += THREADS * N)
            body(n, n * j.image + i);
        done(tile);
    }
}

/* ---- pixel_xent */

/* A pixel's classes so far: the largest and the sum of the others' e^(x - best), in one go. */
typedef struct PixelSoftmax {
    float best, at_label, rest;
    int   top;
} PixelSoftmax;

/* Before the first class: as if the largest, which counts 1, were minus infinity and had not been counted. */
static __device__ __forceinline__ PixelSoftmax softmax_begin() { return { -INFINITY, 0.0f, -1.0f, 0 }; }

static __device__ __forceinline__ void softmax_next(PixelSoftmax *s, float x, int c, int label)
{
    const float e = x == s->best ? 1.0f : expf(-fabsf(x - s->best)); /* two infinities of one sign are equal too */
    const bool  better = x > s->best;
    s->rest = better ? (s->rest + 1.0f) * e : s->rest + e;
    s->best = better ? x : s->best;
    s->top = better ? c : s->top;
    s->at_label = c == label ? x : s->at_label;
}

static __device__ __forceinline__ float softmax_gradient(const PixelSoftmax &s, float x, int c, int label, float scale)
{
    const float inverse = 1.0f / (1.0f + s.rest), p = c == s.top ? inverse : expf(x - s.best) * inverse;
    const float at_own = c == s.top ? -s.rest * inverse : p - 1.0f;
    return label == IGNORED ? 0.0f : scale * (c == label ? at_own : p);
}

static __device__ __forceinline__ void count_pixel(TileSums *sums, const PixelSoftmax &s, int label)
{
    if (label == IGNORED)
        return;
    sums->loss += log1pf(s.rest) + (s.best - s.at_label);
    sums->counted += 1;
    sums->hits += s.top == label;
    sums->predicted += s.top > 0;
    sums->truth += label > 0;
    sums->both += s.top > 0 && label > 0;
}

/* Two classes, N pixels a thread: 16 bytes of logits. */
template <class T> static __global__ void __launch_bounds__(THREADS) pair_kernel(PixelJob<T> j)
{
    constexpr int N = Wide<T>::N / 2;
    __shared__ TileSums room[THREADS / 32];
    const float scale = *j.scale;
    TileSums    sums = {};
    for_tiles<N>(j, [&](int64_t, int64_t pixel) {
        const Pack<uint8_t, N> labels = *reinterpret_cast<const Pack<uint8_t, N> *>(j.labels + pixel);
        float x[2 * N];
        load_floats(j.x + 2 * pixel, x);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int    label = checked_label(j, OP_pixel_xent, labels.at[i], 2, pixel + i);
            PixelSoftmax s = softmax_begin();
            softmax_next(&s, x[2 * i], 0, label);
            softmax_next(&s, x[2 * i + 1], 1, label);
            count_pixel(&sums, s, label);
            x[2 * i] = softmax_gradient(s, x[2 * i], 0, label, scale);
            x[2 * i + 1] = softmax_gradient(s, x[2 * i + 1], 1, label, scale);
        }
        if (j.dx)
            store_floats(j.dx + 2 * pixel, x);
    }, [&](int64_t tile) {
        sums = block_total(sums, room);
        if (threadIdx.x == 0)
            j.tile_sums[tile] = sums;
        sums = {};
    });
}
LAUNCHABLE(pair_kernel<float>);
LAUNCHABLE(pair_kernel<bf16>);
LAUNCHABLE(pair_kernel<f16>);

/* Any number of classes, a pixel a thread, V of its logits at a time; the gradient reads them again, from the first cache. */
template <class T, int V> static __global__ void __launch_bounds__(THREADS) pixel_kernel(PixelJob<T> j)
{
    __shared__ TileSums room[THREADS / 32];
    __shared__ int      counts[3 * MAX_CLASSES];
    const int   classes = j.classes;
    const float scale = *j.scale;
    TileSums    sums = {};
    for (int i = threadIdx.x; i < 3 * classes; i += THREADS)
        counts[i] = 0;
    __syncthreads();
    for_tiles<1>(j, [&](int64_t, int64_t pixel) {
        const T     *x = j.x + pixel * classes;
        const int    label = checked_label(j, OP_pixel_xent, j.labels[pixel], classes, pixel);
        PixelSoftmax s = softmax_begin();
        float        v[V];
        for (int c = 0; c < classes; c += V) {
            load_floats(x + c, v);
#pragma unroll
            for (int k = 0; k < V; k++)
                softmax_next(&s, v[k], c + k, label);
        }
        count_pixel(&sums, s, label);
        if (j.counts && label != IGNORED) {
            if (s.top > 0)
                atomicAdd(&counts[3 * s.top + 1], 1);
            if (label > 0)
                atomicAdd(&counts[3 * label + 2], 1);
            if (label > 0 && s.top == label)
                atomicAdd(&counts[3 * label], 1);
        }
        for (int c = 0; j.dx && c < classes; c += V) {
            load_floats(x + c, v);
#pragma unroll
            for (int k = 0; k < V; k++)
                v[k] = softmax_gradient(s, v[k], c + k, label, scale);
            store_floats(j.dx + pixel * classes + c, v);
        }
    }, [&](int64_t tile) {
        sums = block_total(sums, room); /* its barriers also end the counting */
        if (threadIdx.x == 0)
            j.tile_sums[tile] = sums;
        sums = {};
        for (int i = threadIdx.x; j.counts && i < 3 * classes; i += THREADS) {
            j.counts[tile * 3 * classes + i] = counts[i];
            counts[i] = 0;
        }
        __syncthreads();
    });
}
LAUNCHABLE(pixel_kernel<float, 1>);
LAUNCHABLE(pixel_kernel<bf16, 1>);
LAUNCHABLE(pixel_kernel<f16, 1>);
LAUNCHABLE(pixel_kernel<float, 4>);
LAUNCHABLE(pixel_kernel<bf16, 8>);
LAUNCHABLE(pixel_kernel<f16, 8>);

/* ---- bce_dice */

/* e = exp(-|x|); p = sigmoid(x), q = 1 - p. */
typedef struct Sigmoid { float e, p, q; } Sigmoid;

static __device__ __forceinline__ Sigmoid sigmoid(float x)
{
    const float e = expf(-fabsf(x)), large = 1.0f / (1.0f + e), small = e * large;
    return { e, x < 0.0f ? small : large, x < 0.0f ? large : small };
}

/* N pixels a thread: 16 bytes of logits, or one where an image is no multiple of those. */
template <class T, int N> static __global__ void __launch_bounds__(THREADS) dice_kernel(PixelJob<T> j)
{
    __shared__ TileSums room[THREADS / 32];
    TileSums sums = {};
    for_tiles<N>(j, [&](int64_t, int64_t pixel) {
        const Pack<uint8_t, N> labels = *reinterpret_cast<const Pack<uint8_t, N> *>(j.labels + pixel);
        float x[N];
        load_floats(j.x + pixel, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int label = checked_label(j, OP_bce_dice, labels.at[k], 2, pixel + k);
            if (label == IGNORED)
                continue;
            const Sigmoid s = sigmoid(x[k]);
            const bool    t = label == 1, predicted = x[k] >= 0.0f;
            sums.loss += log1pf(s.e) + fmaxf(t ? -x[k] : x[k], 0.0f);
            sums.p += s.p;
            sums.missed += t ? s.q : s.p;
            sums.counted += 1;
            sums.hits += predicted == t;
            sums.both += predicted && t;
            sums.predicted += predicted;
            sums.truth += t;
        }
    }, [&](int64_t tile) {
        sums = block_total(sums, room);
        if (threadIdx.x == 0)
            j.tile_sums[tile] = sums;
        sums = {};
    });
}
LAUNCHABLE(dice_kernel<float, 1>);
LAUNCHABLE(dice_kernel<bf16, 1>);
LAUNCHABLE(dice_kernel<f16, 1>);
LAUNCHABLE(dice_kernel<float, 4>);
LAUNCHABLE(dice_kernel<bf16, 8>);
LAUNCHABLE(dice_kernel<f16, 8>);

template <class T, int N> static __global__ void __launch_bounds__(THREADS) dice_grad_kernel(PixelJob<T> j)
{
    for_tiles<N>(j, [&](int64_t n, int64_t pixel) {
        const Pack<uint8_t, N> labels = *reinterpret_cast<const Pack<uint8_t, N> *>(j.labels + pixel);
        const DiceFactors f = j.factors[n];
        float x[N];
        load_floats(j.x + pixel, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const Sigmoid s = sigmoid(x[k]);
            const bool    t = labels.at[k] == 1;
            const float   d = f.entropy * (t ? -s.q : s.p) + s.p * s.q * (t ? f.at_one : f.at_zero);
            x[k] = labels.at[k] > 1 ? 0.0f : d;
        }
        store_floats(j.dx + pixel, x);
    }, [](int64_t) {});
}
LAUNCHABLE(dice_grad_kernel<float, 1>);
LAUNCHABLE(dice_grad_kernel<bf16, 1>);
LAUNCHABLE(dice_grad_kernel<f16, 1>);
LAUNCHABLE(dice_grad_kernel<float, 4>);
LAUNCHABLE(dice_grad_kernel<bf16, 8>);
LAUNCHABLE(dice_grad_kernel<f16, 8>);

/* ---- launching */

static int64_t tiles_of(const OpDesc *op) { return (op->in[0].dim[1] * op->in[0].dim[2] + TILE_PIXELS - 1) / TILE_PIXELS; }

static int64_t counts_of(const OpDesc *op)
{
    const int64_t classes = op->in[0].dim[3];
    return classes > 2 ? op->in[0].dim[0] * tiles_of(op) * 3 * classes : 0;
}

static Status segment_query(Backend *, const OpDesc *op, OpNeeds *needs)
{
    const size_t images = (size_t)op->in[0].dim[0];
    needs->scratch = images * (sizeof(ImageMetrics) + sizeof(DiceFactors)) + images * (size_t)tiles_of(op) * sizeof(TileSums)
                     + (size_t)counts_of(op) * sizeof(int);
    return cuda_query_rows(op);
}

template <class T> static PixelJob<T> job_make(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    PixelJob<T> j = {};
    j.x = (const T *)buf[0];
    j.labels = (const uint8_t *)buf[1];
    j.scale = (const float *)buf[2];
    j.dx = op->n_out == 2 ? (T *)buf[4] : nullptr;
    j.images = op->in[0].dim[0];
    j.image = op->in[0].dim[1] * op->in[0].dim[2];
    j.tiles = tiles_of(op);
    j.classes = (int)op->in[0].dim[3];
    j.image_metrics = (ImageMetrics *)scratch;
    j.factors = (DiceFactors *)(j.image_metrics + j.images);
    j.tile_sums = (TileSums *)(j.factors + j.images);
    j.counts = counts_of(op) ? (int *)(j.tile_sums + j.images * j.tiles) : nullptr;
    j.fault = cuda_of(be)->fault;
    return j;
}

/* Tiles to images to metrics. */
template <class T> static Status add_up(Backend *be, const PixelJob<T> &j, float *metrics)
{
    const int metric_count = j.classes == 2 ? IMAGE_METRICS : IMAGE_METRICS - 3; /* of more classes the foreground's are apart */
    TRY(cuda_launch(be, image_kernel, cuda_blocks(j.images, 1, MOST_BLOCKS), THREADS, 0, j.tile_sums, j.images, j.tiles, j.classes,
                    j.scale, j.image_metrics, j.factors));
    TRY(cuda_launch(be, total_kernel, 1, 32 * metric_count, 0, j.image_metrics, j.images, metrics));
    if (!j.counts)
        return status_ok();
    return cuda_launch(be, class_kernel, (unsigned)(3 * (j.classes - 1)), THREADS, 0, j.counts, j.images * j.tiles, j.classes, metrics);
}

template <class T> static Status pixel_xent_run(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const PixelJob<T> j = job_make<T>(be, op, buf, scratch);
    const unsigned    blocks = cuda_blocks(j.images * j.tiles, 1, MOST_BLOCKS);
    if (j.classes == 2 && j.image % (Wide<T>::N / 2) == 0)
        TRY(cuda_launch(be, pair_kernel<T>, blocks, THREADS, 0, j));
    else
        TRY(cuda_launch(be, j.classes % Wide<T>::N ? pixel_kernel<T, 1> : pixel_kernel<T, Wide<T>::N>, blocks, THREADS, 0, j));
    return add_up(be, j, (float *)buf[3]);
}

template <class T> static Status bce_dice_run(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const PixelJob<T> j = job_make<T>(be, op, buf, scratch);
    const unsigned    blocks = cuda_blocks(j.images * j.tiles, 1, MOST_BLOCKS);
    const bool        packs = j.image % Wide<T>::N == 0;
    TRY(cuda_launch(be, packs ? dice_kernel<T, Wide<T>::N> : dice_kernel<T, 1>, blocks, THREADS, 0, j));
    TRY(add_up(be, j, (float *)buf[3]));
    if (!j.dx)
        return status_ok();
    return cuda_launch(be, packs ? dice_grad_kernel<T, Wide<T>::N> : dice_grad_kernel<T, 1>, blocks, THREADS, 0, j);
}

static Status pixel_xent_run_any(Backend *be, const OpDesc *op, void *, void *const *buf, void *scratch)
{
    return CUDA_BY_TYPE(op->in[0].dtype, pixel_xent_run, be, op, buf, scratch);
}

static Status bce_dice_run_any(Backend *be, const OpDesc *op, void *, void *const *buf, void *scratch)
{
    return CUDA_BY_TYPE(op->in[0].dtype, bce_dice_run, be, op, buf, scratch);
}

CUDA_KERNEL(pixel_xent, segment_query, nullptr, pixel_xent_run_any, nullptr, nullptr)
CUDA_KERNEL(bce_dice, segment_query, nullptr, bce_dice_run_any, nullptr, nullptr)
