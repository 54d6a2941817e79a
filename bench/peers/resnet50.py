"""resnet50.py - the peer: one training step of ResNet-50 in PyTorch on the CPU, with the settings that make it fastest.

A server with a line protocol, so that the driver (peers.py) can take turns between it and batchmark:
  on start    {"ready": true, ...}        what runs here
  "run N"     {"seconds": [...], "loss": x}   N steps, the seconds of each
  "peak"      {"peak_bytes": n}           highest resident memory so far
  "quit", or the end of the input, ends it.
Anything else is answered with {"error": "..."}.

What is timed is what batchmark times: uint8 images (N,H,W,C) normalised on the fly, forward, loss, backward, SGD with
momentum. Neither side reads the loss back inside a step. batchmark also computes accuracy and gradient norm; PyTorch is
spared that.

The malloc settings (no mmap, no trimming, transparent huge pages: 10-15 % on this net) must be in the environment
before the process starts; peers.py sets them.
"""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 1000
LEARNING_RATE = 1e-3  # as batchmark's: real updates, small enough for random labels
MEAN = (0.485, 0.456, 0.406)  # of ImageNet, for pixels in [0, 1]
DEVIATION = (0.229, 0.224, 0.225)

# He et al. 2015, table 1, "50-layer": width of the 3x3, blocks, stride of the first block.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
PARAMETERS = 25_557_032


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut; the stride is on the 3x3 (v1.5)."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.shortcut is None else self.shortcut(x)
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        y += shortcut
        return F.relu(y, inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = convolution(3, 64, 7, 2), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for width, count, stride in STAGES:
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x)), inplace=True), 3, 2, 1)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.blocks(x), 1), 1))


class Training:
    """A net, its optimiser and one micro-batch of random data."""

    def __init__(self, size, batch, amp, compiled):
        generator = torch.Generator().manual_seed(1)
        torch.manual_seed(1)
        self.pixels = torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)
        self.labels = torch.randint(0, CLASSES, (batch,), generator=generator)
        self.scale = (1 / (255 * torch.tensor(DEVIATION))).view(1, 3, 1, 1)
        self.shift = (-torch.tensor(MEAN) / torch.tensor(DEVIATION)).view(1, 3, 1, 1)
        self.amp = amp
        self.net = ResNet50().to(memory_format=torch.channels_last).train()
        count = sum(p.numel() for p in self.net.parameters())
        assert count == PARAMETERS, f"ResNet-50 has {PARAMETERS} parameters, this one {count}"
        self.optimizer = torch.optim.SGD(self.parameter_groups(), lr=LEARNING_RATE, momentum=0.9, fused=True)
        self.loss_of = torch.compile(self.forward) if compiled else self.forward

    def parameter_groups(self):
        """Weight decay for the weights of convolutions and the last layer alone, as in batchmark."""
        decay = [p for p in self.net.parameters() if p.dim() > 1]
        plain = [p for p in self.net.parameters() if p.dim() == 1]
        return [{"params": decay, "weight_decay": 1e-4}, {"params": plain, "weight_decay": 0.0}]

    def forward(self, pixels, labels):
        # (N,H,W,C) seen as (N,C,H,W) is channels-last already: nothing is transposed.
        images = pixels.permute(0, 3, 1, 2).float().mul_(self.scale).add_(self.shift)
        cast = torch.autocast("cpu", dtype=torch.bfloat16) if self.amp == "bf16" else contextlib.nullcontext()
        with cast:
            logits = self.net(images)
        return F.cross_entropy(logits.float(), labels)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.pixels, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, count):
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            loss = self.step()
            seconds.append(time.perf_counter() - start)
        return seconds, loss.item()


def status_bytes(field):
    """A size from /proc/self/status: VmHWM, the peak resident set, or VmRSS, the present one; None if unknown.
    (getrusage would carry over the peak of the process that started this one.)"""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def answer(training, line):
    words = line.split()
    if words == ["peak"]:
        return {"peak_bytes": status_bytes("VmHWM")}
    if len(words) == 2 and words[0] == "run" and words[1].isascii() and words[1].isdigit() and 0 < int(words[1]) <= 100000:
        seconds, loss = training.run(int(words[1]))
        return {"seconds": seconds, "loss": loss}
    return {"error": f"'{line.strip()[:60]}' is not a command: write run N (1 to 100000), peak or quit"}


def serve(training, hello, replies):
    def reply(message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    reply(hello)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        reply(answer(training, line))


def main():
    parser = argparse.ArgumentParser(description="Serves training steps of ResNet-50 in PyTorch to peers.py.")
    parser.add_argument("--size", type=int, default=224, help="input height = width in pixels")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--amp", choices=["off", "bf16"], default="off")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
    args = parser.parse_args()

    # Replies go to the real standard output; whatever libraries print there goes to standard error.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    idle = status_bytes("VmRSS")
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    training = Training(args.size, args.batch, args.amp, args.compile)
    hello = {
        "ready": True, "name": "PyTorch", "version": torch.__version__, "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(), "compile": args.compile,
        "rss_after_import_bytes": idle, "onednn": torch.backends.mkldnn.is_available(),
    }
    serve(training, hello, replies)


if __name__ == "__main__":
    main()
