/* unit.h - one op of the reference with arrays for its slots, and its gradient against the central difference
 *   (L(x + h) - L(x - h)) / 2h,   L = sum of weight[i] y[i] with fixed random weights,
 * in double. Failures end the cmocka test. */
#ifndef BATCHMARK_TESTS_UNIT_H
#define BATCHMARK_TESTS_UNIT_H

#include "ref/ref.h"

typedef struct Unit {
    OpDesc  op;
    double *in[OP_MAX_IN], *out[OP_MAX_OUT];
} Unit;

/* Infers, allocates, fills the inputs: standard normals (stream = slot + 10 seed), integers count from 3. Outputs start at
 * zero. */
Unit unit_create(OpDesc op, uint64_t seed);
void unit_destroy(Unit *u);
void unit_run(Unit *u);

/* Copies `from` over input `slot`. */
void unit_set_input(Unit *u, int slot, const double *from);

/* L for output `slot`; read-and-written outputs start at zero each time. */
double unit_loss(Unit *u, int slot, const double *weight);

/* dL/d in[input] by central differences, L from output 0, against the gradient op's answer. */
void unit_check_gradient(Unit *u, int input, const double *weight, const double *gradient);

/* Standard normals for such a tensor, to be freed. */
double *unit_normals(const Tensor *t, uint64_t stream);

#endif
