/* ref_missing.c - reference ops that are not written yet. Empties as they come. */
#include "ref_ops.h"

void ref_concat(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_concat_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_pixel_xent(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_bce_dice(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_attention(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_attention_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_window_scale(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_step_control(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_adamw(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_lamb(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_lars(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_restore(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
