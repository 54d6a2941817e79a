/* layers_text.h - the building blocks of transformers; names and scopes as in layers.h.
 *
 * A batch of text is T rows (tokens) of W features; which rows make up a sequence is said by spans i32 (B,2) = {first row,
 * rows} (ops.h, attention). Dropout needs the generator's numbers, rng i32 (4); in EVAL, or with p = 0, it is left out. */
#ifndef BATCHMARK_NETS_LAYERS_TEXT_H
#define BATCHMARK_NETS_LAYERS_TEXT_H

#include "graph.h"

/* What every place with dropout is told. */
typedef struct Dropout { float p; Value rng; } Dropout;

/* Sum of the rows tokens[t], positions[t], types[t] of three tables (vocab,W), (longest,W), (2,W): -> (T,W). Tables start
 * normal with deviation 0.02 and decay, as every matrix here does. Devlin et al. 2018, section 3. */
Value layer_embedding(Graph *g, const char *name, int64_t vocab, int64_t longest, int64_t width, Value tokens,
                      Value positions, Value types);

/* (M,K) -> (M,outputs); weights normal with deviation 0.02, bias 0. */
Value layer_dense(Graph *g, const char *name, Value x, int64_t outputs);

/* (M,K) -> (M,V) by a table (V,K) that is there already, its full name given, and a bias of its own: the tied output layer. */
Value layer_tied_dense(Graph *g, const char *name, Value x, const char *table);

/* Layer norm over each row (Ba et al. 2016), eps 1e-12 as in BERT; gamma starts at 1, beta at 0; neither decays. */
Value layer_layernorm(Graph *g, const char *name, Value x);

/* layernorm(dropout(x) + residual): the end of a sub-layer, post-norm. */
Value layer_add_layernorm(Graph *g, const char *name, Value x, Value residual, Dropout dropout);

Value layer_gelu(Graph *g, const char *name, Value x); /* by erf */
Value layer_tanh(Graph *g, const char *name, Value x);
Value layer_dropout(Graph *g, const char *name, Value x, Dropout dropout);

/* Rows of x: (T,W), rows i32 (P) -> (P,W). */
Value layer_gather(Graph *g, const char *name, Value x, Value rows);

/* qkv (T,3W) -> (T,W), within each span of at most `seq` rows. */
Value layer_attention(Graph *g, const char *name, Value qkv, Value spans, int heads, int64_t seq, Dropout dropout);

#endif
