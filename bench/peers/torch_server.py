"""torch_server.py - the peer: training steps of one net in PyTorch on the CPU, with the settings that make it fastest.

A server with a line protocol, so that the driver (peers.py) can take turns between it and batchmark:
  on start    {"ready": true, ...}        what runs here
  "run N"     {"seconds": [...], "loss": x}   N steps, the seconds of each
  "peak"      {"peak_bytes": n}           highest resident memory so far
  "quit", or the end of the input, ends it.
Anything else is answered with {"error": "..."}.

What is timed is what batchmark times: the step from the data as they are loaded (bytes of pixels, token numbers) to the
updated weights. Neither side reads the loss back inside a step. batchmark also computes its metrics and the gradient norm;
PyTorch is spared that. The nets are resnet50.py, unet.py and bert.py: a workload has

  parameters   how many the net is known to have
  net          the module
  optimizer    of its parameters
  inputs       one micro-batch of random data
  forward      (*inputs) -> loss, compiled where that was asked for

The malloc settings (no mmap, no trimming, transparent huge pages: 10-15 %) must be in the environment before the process
starts; peers.py sets them.
"""
import argparse
import contextlib
import json
import os
import sys
import time

import torch

import bert
import resnet50
import unet

WORKLOADS = {"resnet50": resnet50.Workload, "unet": unet.Workload, "bert": bert.Workload}


class Training:
    """Steps of a workload."""

    def __init__(self, workload, amp):
        self.workload, self.amp = workload, amp
        count = sum(p.numel() for p in workload.net.parameters())
        assert count == workload.parameters, f"the net has {workload.parameters} parameters, this one {count}"

    def step(self):
        self.workload.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.amp == "bf16" else contextlib.nullcontext():
            loss = self.workload.forward(*self.workload.inputs)
        loss.backward()
        self.workload.optimizer.step()
        return loss.detach()

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
    parser = argparse.ArgumentParser(description="Serves training steps of a net in PyTorch to peers.py.")
    parser.add_argument("--net", choices=WORKLOADS, required=True)
    parser.add_argument("--size", type=int, required=True, help="input height = width in pixels; tokens of a sequence")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--amp", choices=["off", "bf16"], default="off")
    parser.add_argument("--head", choices=["all", "masked"], default="all", help="of bert: where it predicts tokens")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
    args = parser.parse_args()

    # Replies go to the real standard output; whatever libraries print there goes to standard error.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    idle = status_bytes("VmRSS")
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    training = Training(WORKLOADS[args.net](args), args.amp)
    hello = {
        "ready": True, "name": "PyTorch", "version": torch.__version__, "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(), "compile": args.compile,
        "rss_after_import_bytes": idle, "onednn": torch.backends.mkldnn.is_available(),
    }
    serve(training, hello, replies)


if __name__ == "__main__":
    main()
