"""bert.py - a golden BERT (Devlin et al. 2019) of two layers with both heads, without dropout."""
import numpy as np
import torch
import torch.nn.functional as F

import philox
from params import Params

CONFIG = dict(layers=2, hidden=32, heads=4, vocab=64, positions=16, seq=12, batch=4, data_seed=2)
VARIANTS = {"mlm": {}, "classify": dict(classes=3)}
RECIPES = (dict(optimizer="sgd", accum=1, learning_rate=0.05, weight_decay=0.01, max_norm=0),
           dict(optimizer="sgd", accum=4, learning_rate=0.05, weight_decay=0.01, max_norm=0),
           dict(optimizer="adamw", accum=1, learning_rate=0.003, weight_decay=0.1, max_norm=0),
           dict(optimizer="adamw", accum=4, learning_rate=0.003, weight_decay=0.1, max_norm=0),
           dict(optimizer="sgd", accum=1, learning_rate=0.05, weight_decay=0.01, max_norm=0.5))

DEVIATION = 0.1  # of matrices: BERT's 0.02 would leave a net so narrow all but dead
EPS = 1e-12
CLS, MASK, FIRST_WORD = 1, 3, 4
LENGTHS, TARGETS = (12, 7, 9, 4), (2, 0, 1, 2)  # of the sequences of a batch, turned by one each step
NO_LABEL = -1


class Net:
    def __init__(self, variant, dtype):
        self.variant, self.params = variant, Params(dtype)
        c, w = CONFIG, CONFIG["hidden"]
        self.tokens = self.matrix("embed.tokens", (c["vocab"], w))
        self.positions = self.matrix("embed.positions", (c["positions"], w))
        self.types = self.matrix("embed.types", (2, w))
        self.embed_norm = self.norm("embed.ln")
        self.layers = []
        for i in range(c["layers"]):
            name = f"layer{i}."
            self.layers.append((self.linear(name + "qkv", 3 * w, w), self.linear(name + "out", w, w), self.norm(name + "ln1"),
                                self.linear(name + "ffn1", 4 * w, w), self.linear(name + "ffn2", w, 4 * w),
                                self.norm(name + "ln2")))
        if variant == "mlm":
            self.dense, self.dense_norm = self.linear("mlm.dense", w, w), self.norm("mlm.ln")
            self.bias = self.params.vector("mlm.decoder.b", c["vocab"])
        else:
            self.pooler, self.classifier = self.linear("pooler", w, w), self.linear("classifier", VARIANTS[variant]["classes"], w)

    def matrix(self, name, shape):
        return self.params.matrix(name, shape, DEVIATION)

    def linear(self, name, outputs, inputs):
        return self.matrix(name + ".w", (outputs, inputs)), self.params.vector(name + ".b", outputs)

    def norm(self, name):
        return self.params.vector(name + ".gamma", CONFIG["hidden"], 1), self.params.vector(name + ".beta", CONFIG["hidden"])

    def features(self, ids, types, lengths):
        """(N,S,W). What stands behind a sequence's end is seen by nobody."""
        n, s = ids.shape
        w, heads = CONFIG["hidden"], CONFIG["heads"]
        visible = (torch.arange(s)[None, :] < lengths[:, None])[:, None, None, :]
        x = F.layer_norm(self.tokens[ids] + self.positions[:s] + self.types[types], (w,), *self.embed_norm, EPS)
        for qkv, out, norm1, ffn1, ffn2, norm2 in self.layers:
            q, k, v = (t.view(n, s, heads, w // heads).transpose(1, 2) for t in F.linear(x, *qkv).split(w, dim=2))
            scores = (q @ k.transpose(2, 3) * (w // heads) ** -0.5).masked_fill(~visible, float("-inf"))
            y = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(n, s, w)
            x = F.layer_norm(F.linear(y, *out) + x, (w,), *norm1, EPS)
            x = F.layer_norm(F.linear(F.gelu(F.linear(x, *ffn1)), *ffn2) + x, (w,), *norm2, EPS)
        return x

    def __call__(self, samples, _train):
        """Logits of the targets in order of their place, or of the sequences, and the sum of their losses."""
        ids, types, lengths, targets, classes = samples
        x = self.features(ids, types, lengths)
        if self.variant == "mlm":
            y = F.layer_norm(F.gelu(F.linear(x[targets != NO_LABEL], *self.dense)), (CONFIG["hidden"],), *self.dense_norm, EPS)
            logits, labels = F.linear(y, self.tokens, self.bias), targets[targets != NO_LABEL]
        else:
            logits, labels = F.linear(torch.tanh(F.linear(x[:, 0], *self.pooler)), *self.classifier), classes
        return logits, F.cross_entropy(logits, labels, reduction="sum")


def batch(_variant, step, _dtype):
    """ids, types (batch,seq), lengths (batch), targets (batch,seq), classes (batch). Small words are the more frequent ones;
    the second half of a sequence has type 1; the class is the first word's; what is behind the end is 0."""
    n, s, seed = CONFIG["batch"], CONFIG["seq"], CONFIG["data_seed"]
    w = philox.words(seed, step, n * s).astype(np.int64).reshape(n, s, 4)
    ids = FIRST_WORD + (w[:, :, 0] % 60) * (w[:, :, 1] % 60) // 60
    types, targets = np.zeros((n, s), np.int64), np.full((n, s), NO_LABEL)
    lengths = np.array([LENGTHS[(b + step) % n] for b in range(n)])
    ids[:, 0] = CLS
    classes = ids[:, 1] % 3
    for b, length in enumerate(lengths):
        ids[b, length:] = 0
        types[b, (length + 1) // 2:length] = 1
        for j in range(TARGETS[(b + step) % n]):
            place = 1 + (w[b, 0, 2] + 2 * j) % (length - 1)
            targets[b, place], ids[b, place] = ids[b, place], MASK
    return tuple(torch.tensor(x) for x in (ids, types, lengths, targets, classes))


def counted(samples, variant):
    return int((samples[3] != NO_LABEL).sum()) if variant == "mlm" else len(samples[4])
