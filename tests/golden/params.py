"""params.py - the parameters of a golden net, by the names and in the order and layout of nets/.

Parameter number n of a net is centre + scale * (element i of stream n), where the stream is normal or uniform in -1..1; the
golden file holds centre and scale, so tests/golden_file.c needs no rules of its own.
"""
import math

import numpy as np
import torch

import philox

PARAM_SEED = 1


class Params:
    """all: the leaves, in creation order; torch layouts are views of them, so that gradients come in our layout."""

    def __init__(self, dtype):
        self.all, self.decay, self.drawn, self.dtype = [], [], [], dtype

    def _add(self, name, shape, draw, centre, scale, decay):
        scale = np.float32(scale)
        values = np.float32(centre) + scale * draw(PARAM_SEED, len(self.all), int(np.prod(shape)))
        leaf = torch.tensor(values.reshape(shape)).to(self.dtype).requires_grad_(True)
        self.all.append(leaf)
        self.decay.append(decay)
        self.drawn.append(dict(name=name, shape=list(shape), draw=draw.__name__, centre=centre, scale=float(scale)))
        return leaf

    def matrix(self, name, shape, deviation):
        """Weights that decay."""
        return self._add(name, shape, philox.normal, 0, deviation, True)

    def conv(self, name, out, kernel, inputs):
        """Ours (K,R,R,C); returned as torch's (K,C,R,R)."""
        return self.matrix(name, (out, kernel, kernel, inputs), math.sqrt(2.0 / (out * kernel * kernel))).permute(0, 3, 1, 2)

    def vector(self, name, count, centre=0):
        """Biases, and the gains of norms: not 0 and 1, so that every term of the gradient counts."""
        return self._add(name, (count,), philox.normal, centre, 0.1, False)

    def uniform(self, name, shape, fan_in, decay):
        """As torch.nn.Linear starts."""
        return self._add(name, shape, philox.uniform, 0, 1.0 / math.sqrt(fan_in), decay)

    def start_norm2(self):
        return sum(float((p.detach().double() ** 2).sum()) for p in self.all)

    def grad_norm(self):
        return math.sqrt(float(sum((p.grad.double() ** 2).sum() for p in self.all)))
