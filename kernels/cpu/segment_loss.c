/* segment_loss.c - the losses of segmentation, with gradient and metrics: cross-entropy of each pixel, and binary
 * cross-entropy + soft Dice of each image.
 *
 * Sixteen pixels at a time, classes one after the other, all in fp32 and so that nothing small is lost beside 1: log(1 + r)
 * with r the exponentials without the largest one, 1 - p as its own quotient. A tile of pixels is added up in fp32, tiles in
 * double and in their order: the bits do not depend on the number of threads (tests/CASES.md D10). The gradient is written
 * where the logits were read, sixteen pixels later at the earliest. */
#include "cpu.h"
#include "vec_math.h"

#include <omp.h>

enum { TILE_PIXELS = 1024, MAX_CLASSES = 64, IGNORED = 255, SHARED_METRICS = 5 };

/* Sums over some pixels that count. Foreground: any class above 0. */
typedef struct Sums {
    double  loss;             /* of pixel_xent; of bce_dice the cross-entropy */
    double  p, missed;        /* bce_dice: sum p, sum |p - t| */
    int64_t counted, hits;
    int64_t both, predicted, truth; /* foreground pixels */
} Sums;

typedef struct PixelJob {
    const OpDesc  *op;
    ActView        v;
    const void    *x;
    const uint8_t *labels;
    void          *dx;        /* may be x; NULL: not wanted */
    float          scale;
    int64_t        tiles;     /* of one image */
    Sums          *sums;      /* [images][tiles] */
    int64_t       *counts;    /* pixel_xent: [threads][classes]{both, predicted, truth} */
} PixelJob;

/* One lane a pixel; -1 is true. */
typedef struct LaneSums { VecF loss, p, missed; VecI counted, hits, both, predicted, truth; } LaneSums;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static PixelJob job_make(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    PixelJob j = { .op = op, .v = act_view(be, &op->in[0]), .x = buf[0], .labels = buf[1], .scale = *(const float *)buf[2],
                   .dx = op->n_out == 2 ? buf[4] : NULL, .sums = scratch };
    j.tiles = ceil_div(j.v.image, TILE_PIXELS);
    j.counts = (int64_t *)(j.sums + j.v.n * j.tiles);
    return j;
}

static Status segment_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    const CpuBackend *be = cpu_of(base);
    const Dtype       t = op->in[0].dtype;
    const int64_t     tiles = op->in[0].dim[0] * ceil_div(op->in[0].dim[1] * op->in[0].dim[2], TILE_PIXELS);
    if (t != DTYPE_F32 && t != DTYPE_BF16)
        return cpu_unsupported(op_names[op->kind], t);
    needs->scratch = (size_t)tiles * sizeof(Sums) + (size_t)(be->threads * 3 * op->in[0].dim[3]) * sizeof(int64_t);
    return status_ok();
}

/* Labels are 0 .. classes - 1 or IGNORED; the first that is not ends the step. */
static Status check_labels(const PixelJob *j, int threads, int classes)
{
    const int64_t pixels = j->v.rows, none = INT64_MAX;
    int64_t       bad = none;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : bad)
    for (int64_t start = 0; start < pixels; start += TILE_PIXELS) {
        const int64_t end = start + TILE_PIXELS < pixels ? start + TILE_PIXELS : pixels;
        unsigned      any = 0;
        for (int64_t i = start; i < end; i++)
            any |= (unsigned)(j->labels[i] >= classes) & (unsigned)(j->labels[i] != IGNORED);
        for (int64_t i = start; any && i < end && bad > i; i++)
            if (j->labels[i] >= classes && j->labels[i] != IGNORED)
                bad = i;
    }
    if (bad == none)
        return status_ok();
    const int64_t image = bad / j->v.image, within = bad % j->v.image;
    return status_error(STATUS_NUMERIC, "%s: label %d of image %lld at row %lld, column %lld is outside 0..%d (255 = ignore)",
                        op_names[j->op->kind], j->labels[bad], (long long)image, (long long)(within / j->v.w),
                        (long long)(within % j->v.w), classes - 1);
}

/* ---- sixteen pixels */

ALWAYS_INLINE VecF keep(VecI where, VecF a) { return (VecF)((VecI)a & where); }

/* log(1 + x) for x >= 0. 1 + x is rounded to u; log u x / (u - 1) makes up for it (Higham 2002, section 1.14.1). */
ALWAYS_INLINE VecF vec_log1p(VecF x)
{
    const VecF u = 1.0f + x, y = vec_log(u) * (x / (u - 1.0f));
    return vec_select((u == 1.0f) | (x == INFINITY), x, y);
}

/* Missing pixels are ignored ones. */
ALWAYS_INLINE VecI load_labels(const uint8_t *labels, int pixels)
{
    VecB b = (VecB){ 0 } + IGNORED;
    memcpy(&b, labels, (size_t)pixels);
    return __builtin_convertvector(b, VecI);
}

/* Two classes side by side, sixteen pixels: evens and odds. */
ALWAYS_INLINE void split_pairs(VecF a, VecF b, VecF *x)
{
#ifdef __AVX512F__
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    x[0] = (VecF)_mm512_permutex2var_ps((__m512)a, even, (__m512)b);
    x[1] = (VecF)_mm512_permutex2var_ps((__m512)a, odd, (__m512)b);
#else
    for (int i = 0; i < LANES / 2; i++) {
        x[0][i] = a[2 * i], x[0][LANES / 2 + i] = b[2 * i];
        x[1][i] = a[2 * i + 1], x[1][LANES / 2 + i] = b[2 * i + 1];
    }
#endif
}

ALWAYS_INLINE void join_pairs(const VecF *x, VecF *a, VecF *b)
{
#ifdef __AVX512F__
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    *a = (VecF)_mm512_permutex2var_ps((__m512)x[0], low, (__m512)x[1]);
    *b = (VecF)_mm512_permutex2var_ps((__m512)x[0], high, (__m512)x[1]);
#else
    for (int i = 0; i < LANES / 2; i++) {
        (*a)[2 * i] = x[0][i], (*b)[2 * i] = x[0][LANES / 2 + i];
        (*a)[2 * i + 1] = x[1][i], (*b)[2 * i + 1] = x[1][LANES / 2 + i];
    }
#endif
}

/* Class c of the pixels from (image, row) on into x[c]; lanes without a pixel are 0. */
ALWAYS_INLINE void load_pixels(Dtype t, const PixelJob *j, int64_t image, int64_t row, int pixels, int classes, VecF *x)
{
    const int64_t e = act_index(&j->v, image, row, 0);
    if (classes <= 2 && pixels == LANES) { /* so few are nhwc */
        if (classes == 1)
            x[0] = vec_load(t, j->x, e);
        else
            split_pairs(vec_load(t, j->x, e), vec_load(t, j->x, e + LANES), x);
        return;
    }
    for (int c = 0; c < classes; c++) {
        float         f[LANES] = { 0 };
        const int64_t first = e + c / 16 * j->v.block_stride + c % 16;
        for (int i = 0; i < pixels; i++) {
            const int64_t k = first + i * j->v.row_stride;
            f[i] = t == DTYPE_F32 ? ((const float *)j->x)[k] : bf16_to_f32(((const uint16_t *)j->x)[k]);
        }
        x[c] = vec_load_f32(f);
    }
}

ALWAYS_INLINE void store_pixels(Dtype t, const PixelJob *j, int64_t image, int64_t row, int pixels, int classes, const VecF *d)
{
    const int64_t e = act_index(&j->v, image, row, 0);
    if (classes <= 2 && pixels == LANES) {
        VecF a = d[0], b = a;
        if (classes == 2)
            join_pairs(d, &a, &b);
        vec_store(t, j->dx, e, a);
        if (classes == 2)
            vec_store(t, j->dx, e + LANES, b);
        return;
    }
    for (int c = 0; c < classes; c++) {
        const int64_t first = e + c / 16 * j->v.block_stride + c % 16;
        for (int i = 0; i < pixels; i++) {
            const int64_t k = first + i * j->v.row_stride;
            if (t == DTYPE_F32)
                ((float *)j->dx)[k] = d[c][i];
            else
                ((uint16_t *)j->dx)[k] = bf16_from_f32(d[c][i]);
        }
    }
}

static Sums sums_of(const LaneSums *l)
{
    Sums s = { 0 };
    for (int i = 0; i < LANES; i++) {
        s.loss += (double)l->loss[i];
        s.p += (double)l->p[i];
        s.missed += (double)l->missed[i];
        s.counted -= l->counted[i];
        s.hits -= l->hits[i];
        s.both -= l->both[i];
        s.predicted -= l->predicted[i];
        s.truth -= l->truth[i];
    }
    return s;
}

/* All of an image's tiles, in their order. */
static Sums image_sums(const PixelJob *j, int64_t image)
{
    Sums all = { 0 };
    for (const Sums *s = j->sums + image * j->tiles, *end = s + j->tiles; s < end; s++) {
        all.loss += s->loss;
        all.p += s->p;
        all.missed += s->missed;
        all.counted += s->counted;
        all.hits += s->hits;
        all.both += s->both;
        all.predicted += s->predicted;
        all.truth += s->truth;
    }
    return all;
}

/* Hard Dice 2 |P n T| / (|P| + |T|), 1 where both are empty. */
static double dice_of(const Sums *s)
{
    return s->predicted + s->truth ? 2.0 * (double)s->both / (double)(s->predicted + s->truth) : 1;
}

/* Two classes; true lanes are -1. */
ALWAYS_INLINE void count_pixels(VecI predicted, VecI truth, VecI valid, LaneSums *l)
{
    l->predicted += predicted & valid;
    l->truth += truth & valid;
    l->both += predicted & truth & valid;
    l->counted += valid;
    l->hits += valid & ~(predicted ^ truth);
}

/* Runs tile(type, classes, job, image, first row, last row) for all tiles, with type and a small number of classes constant. */
#define FOR_TILES(be, j, tile, t, classes)                                                              \
    _Pragma("omp parallel for num_threads((be)->threads) schedule(static)")                             \
    for (int64_t i_ = 0; i_ < (j).v.n * (j).tiles; i_++) {                                              \
        const int64_t image_ = i_ / (j).tiles, first_ = i_ % (j).tiles * TILE_PIXELS;                   \
        const int64_t last_ = first_ + TILE_PIXELS < (j).v.image ? first_ + TILE_PIXELS : (j).v.image;  \
        if ((t) == DTYPE_F32)                                                                           \
            tile(DTYPE_F32, classes, &(j), image_, first_, last_);                                      \
        else                                                                                            \
            tile(DTYPE_BF16, classes, &(j), image_, first_, last_);                                     \
    }

/* ---- pixel_xent */

/* From the logits x of sixteen pixels: the loss into l, the gradient into x; the class predicted. */
ALWAYS_INLINE VecI xent_pixels(VecF *x, int classes, VecI label, float scale, LaneSums *l)
{
    const VecI valid = label != IGNORED;
    VecF best = x[0], at_label = x[0], rest = { 0 };
    VecI top = { 0 };
    for (int c = 1; c < classes; c++) {
        const VecI better = x[c] > best;
        best = vec_select(better, x[c], best);
        top = (better & c) | (top & ~better);
        at_label = vec_select(label == c, x[c], at_label);
    }
    for (int c = 0; c < classes; c++) {
        x[c] = vec_exp(x[c] - best);
        rest += keep(top != c, x[c]);
    }
    l->loss += keep(valid, vec_log1p(rest) + (best - at_label));
    const VecF inverse = 1.0f / (1.0f + rest);
    for (int c = 0; c < classes; c++) {
        const VecF p = x[c] * inverse;
        const VecF at_own = vec_select(top == c, -rest * inverse, p - 1.0f);
        x[c] = keep(valid, scale * vec_select(label == c, at_own, p));
    }
    l->counted += valid;
    l->hits += valid & (top == label);
    l->predicted += valid & (top > 0);
    l->truth += valid & (label > 0);
    l->both += valid & (top > 0) & (label > 0);
    return top;
}

/* For more than two classes: three counts a class. */
static void count_classes(VecI top, VecI label, int64_t *counts)
{
    for (int i = 0; i < LANES; i++) {
        if (label[i] == IGNORED)
            continue;
        counts[3 * top[i] + 1]++;
        counts[3 * label[i] + 2]++;
        counts[3 * top[i]] += top[i] == label[i];
    }
}

ALWAYS_INLINE void xent_tile(Dtype t, int classes, const PixelJob *j, int64_t image, int64_t first, int64_t last)
{
    LaneSums l = { 0 };
    VecF     x[MAX_CLASSES];
    for (int64_t row = first; row < last; row += LANES) {
        const int  pixels = last - row < LANES ? (int)(last - row) : LANES;
        const VecI label = load_labels(j->labels + image * j->v.image + row, pixels);
        load_pixels(t, j, image, row, pixels, classes, x);
        const VecI top = xent_pixels(x, classes, label, j->scale, &l);
        if (classes > 2)
            count_classes(top, label, j->counts + (int64_t)omp_get_thread_num() * 3 * classes);
        if (j->dx)
            store_pixels(t, j, image, row, pixels, classes, x);
    }
    j->sums[image * j->tiles + first / TILE_PIXELS] = sums_of(&l);
}

/* Of two classes the background is what the foreground leaves. */
static void class_counts(const PixelJob *j, int threads, int classes, const Sums *all, float *metrics)
{
    if (classes == 2) {
        metrics[0] += (float)(all->counted - all->predicted - all->truth + all->both);
        metrics[1] += (float)(all->counted - all->predicted);
        metrics[2] += (float)(all->counted - all->truth);
        metrics[3] += (float)all->both;
        metrics[4] += (float)all->predicted;
        metrics[5] += (float)all->truth;
        return;
    }
    for (int i = 0; i < 3 * classes; i++) {
        int64_t sum = 0;
        for (int thread = 0; thread < threads; thread++)
            sum += j->counts[thread * 3 * classes + i];
        metrics[i] += (float)sum;
    }
}

static Status pixel_xent_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    const int         classes = (int)op->in[0].dim[3];
    const PixelJob    j = job_make(be, op, buf, scratch);
    float            *metrics = buf[3];
    TRY(check_labels(&j, be->threads, classes));
    memset(j.counts, 0, (size_t)(be->threads * 3 * classes) * sizeof *j.counts);
    if (classes == 2)
        FOR_TILES(be, j, xent_tile, op->in[0].dtype, 2)
    else
        FOR_TILES(be, j, xent_tile, op->in[0].dtype, classes)

    Sums   all = { 0 };
    double dice = 0;
    int    images = 0;
    for (int64_t n = 0; n < j.v.n; n++) {
        const Sums s = image_sums(&j, n);
        all.loss += s.loss;
        all.hits += s.hits;
        all.counted += s.counted;
        all.both += s.both;
        all.predicted += s.predicted;
        all.truth += s.truth;
        dice += s.counted ? dice_of(&s) : 0;
        images += s.counted > 0;
    }
    metrics[0] += (float)all.loss;
    metrics[1] += (float)all.hits;
    metrics[2] += (float)all.counted;
    metrics[3] += (float)dice;
    metrics[4] += (float)images;
    class_counts(&j, be->threads, classes, &all, metrics + SHARED_METRICS);
    return status_ok();
}

/* ---- bce_dice */

/* e = exp(-|x|); p = sigmoid(x), q = 1 - p. */
typedef struct Sigmoid { VecF e, p, q; } Sigmoid;

ALWAYS_INLINE Sigmoid sigmoid(VecF x)
{
    const VecF e = vec_exp(-vec_abs(x)), large = 1.0f / (1.0f + e), small = e * large;
    return (Sigmoid){ e, vec_select(x < 0.0f, small, large), vec_select(x < 0.0f, large, small) };
}

ALWAYS_INLINE void dice_tile(Dtype t, int classes, const PixelJob *j, int64_t image, int64_t first, int64_t last)
{
    LaneSums l = { 0 };
    for (int64_t row = first; row < last; row += LANES) {
        const int  pixels = last - row < LANES ? (int)(last - row) : LANES;
        const VecI label = load_labels(j->labels + image * j->v.image + row, pixels);
        const VecI valid = label != IGNORED, truth = label == 1;
        VecF       x;
        load_pixels(t, j, image, row, pixels, classes, &x);
        const Sigmoid s = sigmoid(x);
        l.loss += keep(valid, vec_log1p(s.e) + vec_relu(vec_select(truth, -x, x)));
        l.p += keep(valid, s.p);
        l.missed += keep(valid, vec_select(truth, s.q, s.p));
        count_pixels(x >= 0.0f, truth, valid, &l);
    }
    j->sums[image * j->tiles + first / TILE_PIXELS] = sums_of(&l);
}

/* With S = sum p + sum t + 1 and M = sum |p - t| = sum p + sum t - 2 sum p t, the soft Dice term is 1 - (S - M) / S = M / S:
 * nothing cancels. d loss / d x = (p - t) / n + p q ((1 - 2 t) / S - M / S^2). */
ALWAYS_INLINE void dice_grad_tile(Dtype t, int classes, const PixelJob *j, int64_t image, int64_t first, int64_t last)
{
    const Sums  *s = &j->sums[image * j->tiles]; /* of the whole image by now */
    const double size = s->p + (double)s->truth + 1;
    const float  each = s->counted ? (float)((double)j->scale / (double)s->counted) : 0;
    const float  at_zero = (float)((double)j->scale * (1 / size - s->missed / (size * size)));
    const float  at_one = (float)((double)j->scale * (-1 / size - s->missed / (size * size)));
    for (int64_t row = first; row < last; row += LANES) {
        const int  pixels = last - row < LANES ? (int)(last - row) : LANES;
        const VecI label = load_labels(j->labels + image * j->v.image + row, pixels);
        const VecI truth = label == 1;
        VecF       x;
        load_pixels(t, j, image, row, pixels, classes, &x);
        const Sigmoid y = sigmoid(x);
        x = each * vec_select(truth, -y.q, y.p) + y.p * y.q * vec_select(truth, vec_set(at_one), vec_set(at_zero));
        x = keep(label != IGNORED, x);
        store_pixels(t, j, image, row, pixels, classes, &x);
    }
}

static Status bce_dice_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    const PixelJob    j = job_make(be, op, buf, scratch);
    float            *metrics = buf[3];
    TRY(check_labels(&j, be->threads, 2));
    FOR_TILES(be, j, dice_tile, op->in[0].dtype, 1)

    Sums   all = { 0 };
    double hits = 0, dice = 0;
    int    images = 0;
    for (int64_t n = 0; n < j.v.n; n++) {
        const Sums s = image_sums(&j, n);
        j.sums[n * j.tiles] = s;
        if (s.counted == 0)
            continue;
        all.loss += s.loss / (double)s.counted + s.missed / (s.p + (double)s.truth + 1);
        hits += (double)s.hits / (double)s.counted;
        dice += dice_of(&s);
        images++;
        all.both += s.both;
        all.predicted += s.predicted;
        all.truth += s.truth;
    }
    metrics[0] += (float)all.loss;
    metrics[1] += (float)hits;
    metrics[2] += (float)images;
    metrics[3] += (float)dice;
    metrics[4] += (float)images;
    metrics[5] += (float)all.both;
    metrics[6] += (float)all.predicted;
    metrics[7] += (float)all.truth;
    if (j.dx)
        FOR_TILES(be, j, dice_grad_tile, op->in[0].dtype, 1)
    return status_ok();
}

const Kernel cpu_pixel_xent = { .query = segment_query, .run = pixel_xent_run };
const Kernel cpu_bce_dice = { .query = segment_query, .run = bce_dice_run };
