/* ref_missing.c - reference ops that are not written yet. Empties as they come. */
#include "ref_ops.h"

void ref_concat(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_concat_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_pixel_xent(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_bce_dice(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_embedding(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_embedding_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_gather_rows(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_gather_rows_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_layernorm(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_layernorm_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_gelu(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_gelu_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_tanh(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_tanh_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_dropout(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_attention(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
void ref_attention_grad(const OpDesc *op, const double *const *in, double *const *out) { (void)op, (void)in, (void)out; CHECK(!"written"); }
