/* unit.c - the bodies of unit.h. */
#include "unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double STEP = 1e-5;  /* truncation h^2 and rounding 1e-16 / h are both far below the limit */
static const double LIMIT = 1e-6; /* of the largest gradient */

static double *new_array(const Tensor *t)
{
    double *a = calloc((size_t)tensor_count(t), sizeof *a);
    assert_non_null(a);
    return a;
}

double *unit_normals(const Tensor *t, uint64_t stream)
{
    double *a = new_array(t);
    for (int64_t i = 0; i < tensor_count(t); i++)
        a[i] = rng_normal(7, stream, (uint64_t)i);
    return a;
}

Unit unit_create(OpDesc op, uint64_t seed)
{
    Unit u = { .op = op };
    Status s = op_infer(&u.op);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    for (int i = 0; i < u.op.n_in; i++) {
        const Tensor *t = &u.op.in[i];
        u.in[i] = unit_normals(t, seed * 10 + (uint64_t)i);
        for (int64_t k = 0; k < tensor_count(t) && t->dtype == DTYPE_I32; k++)
            u.in[i][k] = (double)(k + 3);
    }
    for (int i = 0; i < u.op.n_out; i++)
        u.out[i] = new_array(&u.op.out[i]);
    return u;
}

void unit_destroy(Unit *u)
{
    for (int i = 0; i < u->op.n_in; i++)
        free(u->in[i]);
    for (int i = 0; i < u->op.n_out; i++)
        free(u->out[i]);
}

void unit_run(Unit *u) { ref_compute(&u->op, (const double *const *)u->in, u->out); }

void unit_set_input(Unit *u, int slot, const double *from)
{
    memcpy(u->in[slot], from, (size_t)tensor_count(&u->op.in[slot]) * sizeof *from);
}

double unit_loss(Unit *u, int slot, const double *weight)
{
    for (int i = 0; i < u->op.n_out; i++)
        memset(u->out[i], 0, (size_t)tensor_count(&u->op.out[i]) * sizeof(double));
    unit_run(u);
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(&u->op.out[slot]); i++)
        sum += weight[i] * u->out[slot][i];
    return sum;
}

void unit_check_gradient(Unit *u, int input, const double *weight, const double *gradient)
{
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < tensor_count(&u->op.in[input]); i++) {
        const double kept = u->in[input][i];
        u->in[input][i] = kept + STEP;
        const double above = unit_loss(u, 0, weight);
        u->in[input][i] = kept - STEP;
        const double below = unit_loss(u, 0, weight);
        u->in[input][i] = kept;
        largest = fmax(largest, fabs(gradient[i]));
        worst = fmax(worst, fabs((above - below) / (2 * STEP) - gradient[i]));
    }
    char text[256];
    if (!(largest > 0 && worst < LIMIT * largest))
        fail_msg("%s: gradient of input %d is off by %g where the largest is %g", op_format(&u->op, text, sizeof text),
                 input, worst, largest);
}
