/* compare.c - the comparator and its table of tolerances. */
#include "compare.h"

#include "ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* How far from the reference a result may be:
 *
 *   |got - want| <= c eps(f32) sqrt(K) scale  +  r eps(type) |want|  +  inner eps(type) scale
 *
 * The first term is what adding in float costs. K is the number of terms of one output (sum_length). Rounding errors of
 * K additions, each at most eps/2 of the partial sum, add up like a random walk: sqrt(K) eps/2 times the size of the
 * sums, for which scale, the largest |want|, stands (Higham 2002, "Accuracy and stability", section 2.8). So c = 1 is
 * twice the typical error of adding one by one, and three times the most that the CPU backend was seen to need (0.33);
 * the table says where more is due, and why.
 * The second term is the rounding to the result's type: once for most ops. It has to be separate, since a kernel that
 * adds up in bf16 must not pass: eps(bf16) sqrt(K) would let it. want is already rounded, so both ends may sit
 * on either side of a tie: one eps, which is one to two units in the last place.
 * The third is for ops that round to the type on the way: a sum of many rounded terms, whose errors mostly cancel. */
typedef struct Tolerance { double c, r; } Tolerance;

static const Tolerance tolerances[OP_COUNT] = {
    [OP_normalize_u8]    = { 2, 1 }, /* a quotient and a difference, each rounded, then divided: errors grow by 1/deviation */
    [OP_conv2d]          = { 1, 1 },
    [OP_conv2d_dgrad]    = { 1, 1 },
    [OP_conv2d_wgrad]    = { 1, 1 },
    [OP_relu_grad]       = { 0, 0 }, /* copies or zeros */
    [OP_batchnorm]       = { 2, 1 }, /* two dependent sums (mean, then variance), a root, then five operations */
    [OP_batchnorm_grad]  = { 2, 1 }, /* two sums, then three terms that cancel */
    [OP_batchnorm_infer] = { 2, 1 },
    [OP_maxpool]         = { 0, 0 }, /* picks an element */
    [OP_maxpool_grad]    = { 1, 1 }, /* adds where windows overlap */
    [OP_avgpool]         = { 1, 1 },
    [OP_avgpool_grad]    = { 1, 1 },
    [OP_linear]          = { 1, 1 },
    [OP_linear_dgrad]    = { 1, 1 },
    [OP_linear_wgrad]    = { 1, 1 },
    [OP_attention]       = { 2, 1 }, /* exp of a difference of sums */
    [OP_attention_grad]  = { 4, 1 }, /* five such products, two of them of the others' results */
    [OP_softmax_xent]    = { 2, 1 }, /* exp and log approximated to a few units */
    [OP_pixel_xent]      = { 2, 1 },
    [OP_bce_dice]        = { 2, 1 }, /* the sums that the gradient divides by are of fp32 sigmoids */
    [OP_concat]          = { 0, 0 }, /* copies */
    [OP_concat_grad]     = { 0, 0 },
    [OP_embedding]       = { 1, 1 },
    [OP_embedding_grad]  = { 1, 1 },
    [OP_gather_rows]     = { 0, 0 }, /* copies or zeros */
    [OP_gather_rows_grad] = { 1, 1 },
    [OP_layernorm]       = { 2, 1 }, /* as batch norm */
    [OP_layernorm_grad]  = { 2, 1 },
    [OP_gelu]            = { 2, 1 }, /* the distribution function is good to 2^-22 */
    [OP_gelu_grad]       = { 2, 1 },
    [OP_tanh]            = { 0, 2 }, /* one and a half units, and rounding */
    [OP_tanh_grad]       = { 2, 1 }, /* 1 - y^2 cancels near 1 */
    [OP_dropout]         = { 0, 1 },
    [OP_add]             = { 0, 1 },
    [OP_cast]            = { 0, 0 }, /* correctly rounded: nothing to forgive */
    [OP_repack]          = { 0, 0 },
    [OP_zero]            = { 0, 0 },
    [OP_sqnorm]          = { 0, 1 }, /* sums in double */
    [OP_window_scale]    = { 0, 1 },
    [OP_step_control]    = { 0, 1 }, /* of eight numbers that have nothing to do with each other */
    [OP_sgd]             = { 1, 1 }, /* up to six roundings, terms cancel */
    [OP_adamw]           = { 1, 1 },
    [OP_lamb]            = { 1, 1 },
    [OP_lars]            = { 1, 1 },
    [OP_restore]         = { 0, 0 },
};

/* Attention's weights and the gradient of its scores are factors of further products, in bf16 as everything else there: in the gradient of
 * another product of the kind, where one element in tens of thousands is four deviations off. A bias of a linear layer may be rounded
 * before it is added: half an eps of it. */
static double inner(const OpDesc *op)
{
    if (op->kind == OP_linear && op->n_in == 3 && op->in[0].dtype != DTYPE_F32)
        return 0.5;
    return op->kind == OP_attention ? 0.25 : op->kind == OP_attention_grad ? 0.5 : 0;
}

/* K: how many products or terms are added for one output. */
static double sum_length(const OpDesc *op)
{
    const double window = (double)op->attr.kernel * op->attr.kernel;
    const Tensor *a = &op->in[0];
    switch (op->kind) {
    case OP_conv2d: case OP_conv2d_dgrad:
        return window * (double)a->dim[3];
    case OP_conv2d_wgrad:
        return (double)tensor_count(&op->in[1]) / (double)op->in[1].dim[3];
    case OP_batchnorm: case OP_batchnorm_grad:
        return (double)tensor_count(a) / (double)a->dim[3];
    case OP_maxpool_grad:
        return window;
    case OP_avgpool:
        return (double)(a->dim[1] * a->dim[2]);
    case OP_linear: case OP_linear_dgrad:
        return (double)a->dim[1];
    case OP_linear_wgrad:
        return (double)a->dim[0];
    case OP_embedding:
        return op->n_in / 2;
    case OP_embedding_grad: case OP_gather_rows_grad: /* at most: all rows may have one number */
        return (double)a->dim[0];
    case OP_layernorm:
        return (double)a->dim[1];
    case OP_attention: case OP_attention_grad: /* of features, then of rows */
        return (double)(op->attr.seq + a->dim[1] / 3 / op->attr.heads);
    case OP_softmax_xent: case OP_layernorm_grad:
        return (double)(a->dim[0] > a->dim[1] ? a->dim[0] : a->dim[1]);
    case OP_pixel_xent: case OP_bce_dice: /* within a tile of 16 lanes; the rest is in double */
        return 64 + (double)a->dim[3];
    default:
        return 1;
    }
}

double compare_tolerance(const OpDesc *op, Dtype dtype, double scale, double want)
{
    const Tolerance *t = &tolerances[op->kind];
    const double eps_type = dtype == DTYPE_BF16 ? 0x1p-7 : dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-23;
    const double least = dtype == DTYPE_F16 ? 0x1p-24 : 0; /* below 2^-14 fp16 has steps of this size */
    return t->c * 0x1p-23 * sqrt(sum_length(op)) * scale + t->r * fmax(eps_type * fabs(want), least)
           + inner(op) * eps_type * scale;
}

static double element(const Tensor *t, const void *data, int64_t i)
{
    double v;
    Tensor one = tensor_1d(t->dtype, 1);
    ref_load(&one, (const char *)data + (size_t)i * (size_t)dtype_bits(t->dtype) / 8, &v);
    return v;
}

/* "[0,3,1,7]" */
static const char *format_index(const Tensor *t, int64_t i, char text[96])
{
    int64_t at[TENSOR_MAX_RANK];
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = i % t->dim[d];
        i /= t->dim[d];
    }
    int n = 0;
    for (int d = 0; d < t->rank; d++)
        n += snprintf(text + n, (size_t)(96 - n), "%c%" PRId64, d ? ',' : '[', at[d]);
    snprintf(text + n, (size_t)(96 - n), "]");
    return text;
}

static Status wrong(const CompareSlot *what, const char *text)
{
    char op[224];
    return status_error(STATUS_NUMERIC, "%s %s %d: %s; repro: %s seed %" PRIu64, op_names[what->op->kind],
                        what->input ? "input" : "output", what->slot, text, op_format(what->op, op, sizeof op), what->seed);
}

/* A result from which nothing can be concluded: more than nine in ten elements are zero, or four and more are all equal. */
static Status check_trust(const CompareSlot *what, const Tensor *t, const void *got)
{
    const int64_t n = tensor_count(t);
    int64_t zeros = 0, same = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = element(t, got, i);
        zeros += v == 0;
        same += v == element(t, got, 0);
    }
    char text[96];
    if (zeros * 10 > n * 9) {
        snprintf(text, sizeof text, "mistrusted: %" PRId64 " of %" PRId64 " elements are zero", zeros, n);
        return wrong(what, text);
    }
    if (n >= 4 && same == n) {
        snprintf(text, sizeof text, "mistrusted: all %" PRId64 " elements are equal", n);
        return wrong(what, text);
    }
    return status_ok();
}

typedef struct Tally { int64_t different, first, worst; double worst_ratio; } Tally;

/* Elements farther off than allowed; written so that NaN, which compares false with everything, is counted. */
static Tally tally_differences(const CompareSlot *what, CompareMode mode, const Tensor *t, const double *want, const void *got)
{
    Tally tally = { 0, -1, -1, -1 };
    const int64_t n = tensor_count(t);
    double scale = 0;
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double w = ref_round(t->dtype, want[i]), g = element(t, got, i);
        const double allowed = mode == COMPARE_EXACT ? 0 : compare_tolerance(what->op, t->dtype, scale, w);
        if (isfinite(w) && fabs(g - w) <= allowed)
            continue;
        double ratio = fabs(g - w) / (allowed > 0 ? allowed : 0x1p-23 * fmax(scale, 0x1p-126));
        if (!isfinite(ratio))
            ratio = (double)INFINITY;
        if (tally.different++ == 0)
            tally.first = i;
        if (ratio > tally.worst_ratio) {
            tally.worst = i;
            tally.worst_ratio = ratio;
        }
    }
    return tally;
}

Status compare_slot(const CompareSlot *what, CompareMode mode, const double *want, const void *got)
{
    const Tensor *t = what->input ? &what->op->in[what->slot] : &what->op->out[what->slot];
    CHECK(t->dtype != DTYPE_BIT);
    Tally tally = tally_differences(what, mode, t, want, got);
    if (tally.different) {
        char text[512], first[96], worst[96];
        snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " elements %s, first %s: got %.9g, want %.9g; worst %s: got %.9g, want %.9g",
                 tally.different, tensor_count(t), mode == COMPARE_EXACT ? "differ" : "are out of tolerance",
                 format_index(t, tally.first, first), element(t, got, tally.first), ref_round(t->dtype, want[tally.first]),
                 format_index(t, tally.worst, worst), element(t, got, tally.worst), ref_round(t->dtype, want[tally.worst]));
        return wrong(what, text);
    }
    return what->trivial ? status_ok() : check_trust(what, t, got);
}
