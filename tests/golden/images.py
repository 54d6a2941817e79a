"""images.py - what the golden nets for images share: scaled widths, batch norm, the input."""
import math

import numpy as np
import torch
import torch.nn.functional as F

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def scaled(channels, width):
    return max(16, 16 * math.floor(channels * width / 16 + 0.5))


class BatchNorm:
    def __init__(self, params, name, channels, gamma=1):
        self.gamma, self.beta = params.vector(name + ".gamma", channels, gamma), params.vector(name + ".beta", channels)
        self.mean, self.var = torch.zeros(channels, dtype=params.dtype), torch.ones(channels, dtype=params.dtype)

    def __call__(self, x, train):
        return F.batch_norm(x, self.mean, self.var, self.gamma, self.beta, train, 0.1, 1e-5)


def normalized(pixels, dtype):
    """Integers (N,H,W,3) in 0..255 -> (N,3,H,W)."""
    x = (pixels.astype(np.float64) / 255 - np.array(MEAN)) / np.array(DEVIATION)
    return torch.tensor(x).permute(0, 3, 1, 2).contiguous().to(dtype)
