#!/usr/bin/env python3
"""Makes resnet50_tiny.json: ten training steps of a small ResNet-50 in PyTorch, for tests/test_golden.c.

No weights or images are stored: both sides draw them from the same counter-based generator (Philox-4x32-10, the
rng_block of kernels/base.h, written again here in numpy). Run: python3 make_golden.py > resnet50_tiny.json
"""
import json
import math

import numpy as np
import torch
import torch.nn.functional as F

CONFIG = dict(width=0.25, size=32, batch=8, classes=10, steps=10, learning_rate=0.02, momentum=0.9, weight_decay=1e-4,
              param_seed=1, data_seed=2)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STAGES = ((64, 256, 3, 1), (128, 512, 4, 2), (256, 1024, 6, 2), (512, 2048, 3, 2))  # mid, out, blocks, stride


def philox(seed, stream, count):
    """Words of the blocks with counters 0..count-1: uint32 (count, 4)."""
    mask = np.uint64(0xFFFFFFFF)
    counter = np.arange(count, dtype=np.uint64)
    c = [counter & mask, counter >> np.uint64(32), np.full(count, stream & 0xFFFFFFFF, np.uint64),
         np.full(count, stream >> 32, np.uint64)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1).astype(np.uint32)


def normal(seed, stream, count):
    """rng_normal for counters 0..count-1."""
    w = philox(seed, stream, count).astype(np.float64)
    return np.sqrt(-2 * np.log((w[:, 0] + 0.5) * 2.0**-32)) * np.cos(6.283185307179586 * (w[:, 1] * 2.0**-32))


def uniform(seed, stream, count):
    """2 rng_uniform - 1 of the first word."""
    return 2 * (philox(seed, stream, count)[:, 0] >> 8).astype(np.float64) * 2.0**-24 - 1


class Params:
    """The parameters in the order in which nets/resnet50.c makes them; stream = place in that order."""

    def __init__(self, dtype):
        self.all, self.decay, self.dtype = [], [], dtype

    def _add(self, values, shape, decay):
        t = torch.tensor(np.asarray(values, np.float32).reshape(shape)).to(self.dtype)
        self.all.append(t)
        self.decay.append(decay)
        return len(self.all) - 1

    def conv(self, out, kernel, inp):
        n = out * kernel * kernel * inp
        scale = np.float32(math.sqrt(2.0 / (out * kernel * kernel)))
        i = self._add(scale * normal(CONFIG["param_seed"], len(self.all), n).astype(np.float32),
                      (out, kernel, kernel, inp), True)
        self.all[i] = self.all[i].permute(0, 3, 1, 2).contiguous()
        return i

    def near(self, centre, count):
        """Batch norm: not 1 and 0, so that every term of the gradient counts."""
        return self._add(centre + np.float32(0.1) * normal(CONFIG["param_seed"], len(self.all), count).astype(np.float32),
                         (count,), False)

    def uniform(self, shape, fan_in, decay):
        scale = np.float32(1.0 / math.sqrt(fan_in))
        return self._add(scale * uniform(CONFIG["param_seed"], len(self.all), int(np.prod(shape))).astype(np.float32),
                         shape, decay)


class BatchNorm:
    def __init__(self, params, channels, gamma=1):
        self.gamma, self.beta = params.near(gamma, channels), params.near(0, channels)
        self.mean, self.var = torch.zeros(channels, dtype=params.dtype), torch.ones(channels, dtype=params.dtype)

    def __call__(self, p, x, train):
        return F.batch_norm(x, self.mean, self.var, p[self.gamma], p[self.beta], train, 0.1, 1e-5)


def scaled(channels):
    return max(16, 16 * math.floor(channels * CONFIG["width"] / 16 + 0.5))


class Net:
    """ResNet-50 v1.5 with the small stem (3x3, stride 1, no pool). The last gamma of each block starts near 0: without
    that, float32 and float64 part after two steps, and nothing could be compared."""

    def __init__(self, dtype):
        self.params = Params(dtype)
        p, inp = self.params, scaled(64)
        self.stem = (p.conv(inp, 3, 3), BatchNorm(p, inp))
        self.blocks = []
        for mid, out, blocks, stride in STAGES:
            mid, out = scaled(mid), scaled(out)
            for b in range(blocks):
                s = 1 if b else stride
                project = (p.conv(out, 1, inp), BatchNorm(p, out)) if s != 1 or inp != out else None
                self.blocks.append((project, s, p.conv(mid, 1, inp), BatchNorm(p, mid), p.conv(mid, 3, mid),
                                    BatchNorm(p, mid), p.conv(out, 1, mid), BatchNorm(p, out, 0)))
                inp = out
        self.fc = (p.uniform((CONFIG["classes"], inp), inp, True), p.uniform((CONFIG["classes"],), inp, False))
        for t in p.all:
            t.requires_grad_(True)

    def __call__(self, x, train):
        p = self.params.all
        y = F.relu(self.stem[1](p, F.conv2d(x, p[self.stem[0]], padding=1), train))
        for project, stride, c1, b1, c2, b2, c3, b3 in self.blocks:
            shortcut = project[1](p, F.conv2d(y, p[project[0]], stride=stride), train) if project else y
            y = F.relu(b1(p, F.conv2d(y, p[c1]), train))
            y = F.relu(b2(p, F.conv2d(y, p[c2], padding=1, stride=stride), train))
            y = F.relu(b3(p, F.conv2d(y, p[c3]), train) + shortcut)
        return F.linear(y.mean(dim=(2, 3)), p[self.fc[0]], p[self.fc[1]])


def batch(step, dtype):
    """Images (batch,3,size,size) and labels of a step. Sample n has label n mod classes; its pixels are three quarters a
    pattern of 4 x 4 coloured squares that belongs to the label, one quarter noise of its own."""
    n, size, classes = CONFIG["batch"], CONFIG["size"], CONFIG["classes"]
    labels = np.arange(n) % classes
    squares = philox(CONFIG["data_seed"], 1 << 32, classes * 4 * 4 * 3)[:, 0].reshape(classes, 4, 4, 3) & 255
    noise = philox(CONFIG["data_seed"], step, n * size * size * 3)[:, 0].reshape(n, size, size, 3) & 255
    place = np.arange(size) * 4 // size
    pixels = (3 * squares[labels][:, place][:, :, place] + noise) // 4
    x = (pixels.astype(np.float64) / 255 - np.array(MEAN)) / np.array(DEVIATION)
    return torch.tensor(x).permute(0, 3, 1, 2).contiguous().to(dtype), torch.tensor(labels)


def train(dtype, accum):
    net = Net(dtype)
    p = net.params
    start = sum(float((t.detach().double() ** 2).sum()) for t in p.all)
    sgd = torch.optim.SGD([dict(params=[t for t, d in zip(p.all, p.decay) if d], weight_decay=CONFIG["weight_decay"]),
                           dict(params=[t for t, d in zip(p.all, p.decay) if not d], weight_decay=0)],
                          lr=CONFIG["learning_rate"], momentum=CONFIG["momentum"])
    losses, norms = [], []
    for step in range(CONFIG["steps"]):
        x, labels = batch(step, dtype)
        sgd.zero_grad()
        total = 0.0
        for xs, ls in zip(x.chunk(accum), labels.chunk(accum)):
            loss = F.cross_entropy(net(xs, True), ls, reduction="sum") / CONFIG["batch"]
            loss.backward()
            total += float(loss.detach())
        norms.append(math.sqrt(float(sum((t.grad.double() ** 2).sum() for t in p.all))))
        losses.append(total)
        sgd.step()
    with torch.no_grad():
        x, labels = batch(0, dtype)
        after = float(F.cross_entropy(net(x, False), labels))
    return dict(params=sum(t.numel() for t in p.all), start_norm2=start, loss=losses, grad_norm=norms, eval_loss=after)


torch.set_num_threads(1)
print(json.dumps(dict(source=f"PyTorch {torch.__version__}, make_golden.py", config=CONFIG,
                      f32_accum1=train(torch.float32, 1), f32_accum2=train(torch.float32, 2),
                      f64_accum1=train(torch.float64, 1), f64_accum2=train(torch.float64, 2)), indent=1))
