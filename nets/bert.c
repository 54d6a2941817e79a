/* bert.c - Devlin et al. 2018, "BERT: pre-training of deep bidirectional transformers for language understanding", arXiv
 * 1810.04805: BERT-base has 12 layers of 768 features and 12 heads, 3,072 in between, 30,522 entries, 512 positions.
 *
 * A layer is that of Vaswani et al. 2017 (arXiv 1706.03762, section 3) with GELU by erf, normalised after each sum. The
 * masked-LM head's last matrix is the token table: 109,514,298 parameters with it, 109,482,240 + the classifier with the other.
 * Only the rows whose token is to be guessed go through the head, unless it is asked for all of them. */
#include "bert.h"

#include "layers_text.h"

#include <inttypes.h>

enum { SPREAD = 4 }; /* features inside the feed-forward part, in multiples of the width */

/* LayerNorm(x + attention(x)), then LayerNorm(x + feed-forward(x)). */
static Value encoder_layer(Graph *g, const Net *net, Value x)
{
    const NetConfig *c = &net->config;
    const Dropout    dropout = { c->dropout, net->rng };

    Value qkv = layer_dense(g, "qkv", x, 3 * c->hidden);
    Value y = layer_attention(g, "attention", qkv, net->spans, (int)c->heads, c->size, dropout);
    x = layer_add_layernorm(g, "ln1", layer_dense(g, "out", y, c->hidden), x, dropout);

    y = layer_gelu(g, "gelu", layer_dense(g, "ffn1", x, SPREAD * c->hidden));
    return layer_add_layernorm(g, "ln2", layer_dense(g, "ffn2", y, c->hidden), x, dropout);
}

/* Section 3.1, task 1, as in the published code: a dense layer, GELU, layer norm, then the token table. */
static Value masked_lm(Graph *g, const Net *net, Value x)
{
    graph_scope(g, "mlm");
    if (net->config.head == HEAD_MASKED)
        x = layer_gather(g, "targets", x, net->rows);
    x = layer_gelu(g, "gelu", layer_dense(g, "dense", x, net->config.hidden));
    return layer_tied_dense(g, "decoder", layer_layernorm(g, "ln", x), "embed.tokens");
}

/* From the row of each sequence's first token, [CLS]. */
static Value classifier(Graph *g, const Net *net, Value x)
{
    const Dropout dropout = { net->config.dropout, net->rng };
    graph_scope(g, "%s", "");
    x = layer_gather(g, "first", x, net->rows);
    x = layer_tanh(g, "tanh", layer_dense(g, "pooler", x, net->config.hidden));
    return layer_dense(g, "classifier", layer_dropout(g, "drop", x, dropout), net->config.classes);
}

Value bert_logits(Graph *g, const Net *net)
{
    const NetConfig *c = &net->config;
    const Dropout    dropout = { c->dropout, net->rng };

    graph_scope(g, "%s", "");
    Value x = layer_embedding(g, "embed", c->vocab, c->positions, c->hidden, net->tokens, net->positions, net->types);
    graph_scope(g, "embed");
    x = layer_dropout(g, "drop", layer_layernorm(g, "ln", x), dropout);

    for (int64_t i = 0; i < c->layers; i++) {
        graph_scope(g, "layer%" PRId64, i);
        x = encoder_layer(g, net, x);
    }
    return c->head == HEAD_CLASSIFY ? classifier(g, net, x) : masked_lm(g, net, x);
}

Status bert_check(const NetConfig *c)
{
    if (c->size > c->positions)
        return status_error(STATUS_USAGE, "bert: a sequence of %" PRId64 " tokens is longer than the %" PRId64 " positions",
                            c->size, c->positions);
    if (c->hidden % c->heads)
        return status_error(STATUS_USAGE, "bert: %" PRId64 " features cannot be split among %" PRId64 " heads: the heads must "
                            "divide the hidden size", c->hidden, c->heads);
    if (c->width != 1.0)
        return status_error(STATUS_USAGE, "bert has no width multiplier: use --hidden, --heads and --layers");
    return status_ok();
}
