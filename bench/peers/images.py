"""images.py - what the nets for images share in PyTorch: random pixels, their normalisation, SGD."""
import torch
from torch import nn

LEARNING_RATE = 1e-3  # as batchmark's: real updates, small enough for random labels
MEAN = (0.485, 0.456, 0.406)  # of ImageNet, for pixels in [0, 1]
DEVIATION = (0.229, 0.224, 0.225)


def random_pixels(size, batch):
    """uint8 (N,H,W,C)."""
    return torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8)


class Normalize(nn.Module):
    """(N,H,W,C) bytes seen as (N,C,H,W) are channels-last already: nothing is transposed."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", (1 / (255 * torch.tensor(DEVIATION))).view(1, 3, 1, 1))
        self.register_buffer("shift", (-torch.tensor(MEAN) / torch.tensor(DEVIATION)).view(1, 3, 1, 1))

    def forward(self, pixels):
        return pixels.permute(0, 3, 1, 2).float().mul_(self.scale).add_(self.shift)


def prepared(net, device):
    """On the device, channels-last, and convolutions started as batchmark does."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net.to(device, memory_format=torch.channels_last).train()


def sgd(net):
    """Weight decay for weights alone, not for batch norm and biases, as in batchmark."""
    decay = [p for p in net.parameters() if p.dim() > 1]
    plain = [p for p in net.parameters() if p.dim() == 1]
    groups = [{"params": decay, "weight_decay": 1e-4}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=LEARNING_RATE, momentum=0.9, fused=True)
