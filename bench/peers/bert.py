"""bert.py - BERT-base with its masked language model in PyTorch, for torch_server.py: Devlin et al. 2019, and the published
weights' shapes. All sequences are full, so there is no mask; dropout 0.1 is on, as in training."""
import math

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, POSITIONS, TYPES, LAYERS, WIDTH, HEADS = 30522, 512, 2, 12, 768, 12
DROPOUT, EPS = 0.1, 1e-12
TARGET_SHARE = 0.15  # of the tokens: those that are to be predicted
NO_LABEL = -100  # of the others, with --head all: as F.cross_entropy has it


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm1 = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, EPS)
        self.ffn1, self.ffn2, self.norm2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH, EPS)

    def forward(self, x):
        n, s, _ = x.shape
        q, k, v = self.qkv(x).view(n, s, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT).transpose(1, 2).reshape(n, s, WIDTH)
        x = self.norm1(F.dropout(self.out(y), DROPOUT) + x)
        return self.norm2(F.dropout(self.ffn2(F.gelu(self.ffn1(x))), DROPOUT) + x)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.types, self.norm = nn.Embedding(TYPES, WIDTH), nn.LayerNorm(WIDTH, EPS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.dense, self.dense_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, EPS)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)

    def embed(self, ids, types):
        """(N,S) twice -> (N,S,W)."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)) + self.types(types)
        return F.dropout(self.norm(x), DROPOUT)

    def loss(self, x, rows, labels):
        """Of predictions at these rows, None for everywhere, by a decoder that is tied to the tokens."""
        x = x.reshape(-1, WIDTH)
        x = self.dense_norm(F.gelu(self.dense(x if rows is None else x[rows])))
        return F.cross_entropy(F.linear(x, self.tokens.weight, self.bias).float(), labels)


class Workload:
    parameters = 109_514_298

    def __init__(self, args):
        self.net = Bert().to(args.device).train()
        decay = [p for p in self.net.parameters() if p.dim() > 1]
        plain = [p for p in self.net.parameters() if p.dim() == 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-5, betas=(0.9, 0.999), eps=1e-8, fused=True)
        # As batchmark's generated batches: random tokens, the same number of targets in each sequence.
        shape, each = (args.batch, args.size), max(1, math.ceil(TARGET_SHARE * args.size))
        ids, types = torch.randint(0, VOCABULARY, shape), torch.zeros(shape, dtype=torch.long)
        rows = torch.arange(args.batch * each) // each * args.size + torch.arange(args.batch * each) % each * args.size // each
        labels = torch.randint(0, VOCABULARY, (len(rows),))
        if args.head == "all":
            labels = torch.full((args.batch * args.size,), NO_LABEL).index_copy(0, rows, labels)
            rows = None
        self.inputs = ids, types, rows, labels
        if args.compile:
            # In parts: a layer is compiled once for all twelve. The whole at once takes minutes and is no faster.
            for layer in self.net.layers:
                layer.compile()
            self.net.embed, self.net.loss = torch.compile(self.net.embed), torch.compile(self.net.loss)

    def forward(self, ids, types, rows, labels):
        x = self.net.embed(ids, types)
        for layer in self.net.layers:
            x = layer(x)
        return self.net.loss(x, rows, labels)
