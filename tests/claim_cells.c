/* claim_cells.c - see claim_cells.h. */
#include "claim_cells.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void assert_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s: %s", status_code_name(s.code), s.text);
}

void assert_close(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* ---- fixtures ---- */

/* FIXTURE: a cell as the schema has it. Negative numbers become null. */
json_t *fixture_cell(const char *amp, int64_t size, int64_t batch, int64_t accum, double peak, double throughput)
{
    return json_pack("{s:s,s:s,s:n,s:{s:s,s:I,s:I,s:s,s:I,s:f,s:I,s:s},s:o,s:{s:o,s:o,s:{s:f,s:f,s:f,s:f,s:f}}}", "name", "FIXTURE",
                     "status", "ok", "reason", "axes", "net", "resnet50", "size", (json_int_t)size, "batch", (json_int_t)batch, "amp", amp,
                     "accum", (json_int_t)accum, "width", 1.0, "classes", (json_int_t)1000, "stem", "standard", "throughput",
                     throughput < 0 ? json_null() : json_real(throughput), "memory", "measured_peak", peak < 0 ? json_null() : json_real(peak),
                     "process_peak", peak < 0 ? json_null() : json_real(peak + 100 * MIB), "planned", "weights", 100 * MIB, "gradients", 100 * MIB,
                     "optimizer", 100 * MIB, "copies", 100 * MIB, "total", peak);
}

/* FIXTURE: the same for a net of text, with the axes it has. */
json_t *fixture_text_cell(const char *amp, int64_t size, int64_t batch, double peak, double throughput)
{
    json_t *cell = fixture_cell(amp, size, batch, 1, peak, throughput), *axes = json_object_get(cell, "axes");
    json_t *own = json_pack("{s:s,s:I,s:I,s:I,s:I,s:s,s:s,s:f,s:f}", "net", "bert", "classes", (json_int_t)2, "layers", (json_int_t)2, "hidden",
                            (json_int_t)128, "vocab", (json_int_t)1000, "head", "masked", "optimizer", "adamw", "dropout", 0.1, "momentum", 0.9);
    assert_true(own && json_object_update(axes, own) == 0);
    json_object_set_new(axes, "heads", json_integer(2));
    json_decref(own);
    return cell;
}

void add(CellPoints *p, json_t *cell)
{
    assert_ok(points_add(p, cell, 0.9));
    json_decref(cell);
}

double straight(int64_t b) { return 400 * MIB + 80 * MIB * (double)b; }
double bent(int64_t b) { return 400 * MIB + 8 * MIB * (double)(b * b); }
double level(int64_t b) { (void)b; return 400 * MIB; }
double rising(int64_t b) { return 10 * (double)b; }               /* throughput still growing at 512 */
double saturating(int64_t b) { return 100 * (double)b / (1 + (double)b); }
double falling(int64_t b) { return 100 / (double)b; }

/* FIXTURE: the curve over these batches (0 ends). */
Curve fixture_curve(const int64_t *batches, Shape *peak, Shape *throughput)
{
    CellPoints p = { 0 };
    Curves *curves;
    for (; *batches; batches++)
        add(&p, fixture_cell("off", 224, *batches, 1, peak(*batches), throughput(*batches)));
    assert_ok(curves_collect(&p, &curves));
    assert_int_equal(curves->count, 1);
    Curve c = curves->list[0];
    free(curves);
    points_free(&p);
    return c;
}
