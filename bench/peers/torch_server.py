"""torch_server.py - the peer: training steps of one net in PyTorch, on the CPU or a GPU, with the settings that make it fastest.

A server with a line protocol, so that the driver (peers.py) can take turns between it and batchmark:
  on start    {"ready": true, ...}        what runs here
  "run N"     {"seconds": [...], "loss": x}   N steps, the seconds of each
  "peak"      {"peak_bytes": n}           highest memory so far: on the CPU resident memory; on a GPU what its tensors took
                                          of the device, and as "reserved_bytes" what its allocator held
  "quit", or the end of the input, ends it.
Anything else is answered with {"error": "..."}.

What is timed is what batchmark times: the step from the data as they are loaded (bytes of pixels, token numbers) to the
updated weights. Neither side reads the loss back inside a step. batchmark also computes its metrics and the gradient norm;
PyTorch is spared that. The nets are resnet50.py, unet.py and bert.py: a workload has

  parameters   how many the net is known to have
  net          the module, on the device
  optimizer    of its parameters
  inputs       one micro-batch of random data, in host memory
  forward      (*inputs) -> loss, compiled where that was asked for

On a GPU a step begins with copying the micro-batch from pinned memory, and its time ends when the device is done. Convolutions
are channels-last and chosen by measurement, optimizers fused, fp16 has torch.amp's loss scaler; "off" is fp32 without TF32,
"tf32" with it.

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


AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Training:
    """Steps of a workload."""

    def __init__(self, workload, amp, device):
        self.workload, self.amp, self.device = workload, amp, device
        count = sum(p.numel() for p in workload.net.parameters())
        assert count == workload.parameters, f"the net has {workload.parameters} parameters, this one {count}"
        self.scaler = torch.amp.GradScaler(device, enabled=device == "cuda" and amp == "fp16")
        self.inputs = workload.inputs
        if device == "cuda":
            self.inputs = [t if t is None else t.pin_memory() for t in workload.inputs]

    def on_device(self):
        """The micro-batch, where the net is."""
        if self.device == "cpu":
            return self.inputs
        return [t if t is None else t.to(self.device, non_blocking=True) for t in self.inputs]

    def step(self):
        self.workload.optimizer.zero_grad(set_to_none=True)
        inputs = self.on_device()
        with torch.autocast(self.device, dtype=AUTOCAST[self.amp]) if self.amp in AUTOCAST else contextlib.nullcontext():
            loss = self.workload.forward(*inputs)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.workload.optimizer)
        self.scaler.update()
        return loss.detach()

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def run(self, count):
        seconds = []
        self.wait()
        for _ in range(count):
            start = time.perf_counter()
            loss = self.step()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return seconds, loss.item()

    def peak(self):
        if self.device == "cpu":
            return {"peak_bytes": status_bytes("VmHWM")}
        return {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}


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
        return training.peak()
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


def settle(args):
    """PyTorch's own settings for this cell. Returns what the device is called, None for a CPU."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    if args.device == "cpu":
        torch.set_flush_denormal(True)
        return None
    tf32 = args.amp == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    return torch.cuda.get_device_name()


def refusal(args):
    """Why this cell cannot run here, None if it can."""
    if args.device == "cpu" and args.amp not in ("off", "bf16"):
        return f"{args.amp} is not timed on a CPU"
    if args.device == "cuda" and not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    return None


def main():
    parser = argparse.ArgumentParser(description="Serves training steps of a net in PyTorch to peers.py.")
    parser.add_argument("--net", choices=WORKLOADS, required=True)
    parser.add_argument("--size", type=int, required=True, help="input height = width in pixels; tokens of a sequence")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--amp", choices=["off", "tf32", "bf16", "fp16"], default="off")
    parser.add_argument("--head", choices=["all", "masked"], default="all", help="of bert: where it predicts tokens")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
    args = parser.parse_args()

    # Replies go to the real standard output; whatever libraries print there goes to standard error.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    reason = refusal(args)
    if reason:
        replies.write(json.dumps({"error": reason, "code": "unsupported"}) + "\n")
        replies.flush()
        sys.exit(1)
    idle = status_bytes("VmRSS")
    gpu = settle(args)
    training = Training(WORKLOADS[args.net](args), args.amp, args.device)
    hello = {
        "ready": True, "name": "PyTorch", "version": torch.__version__, "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(), "compile": args.compile, "device": args.device, "gpu": gpu,
        "cuda": torch.version.cuda if gpu else None, "cudnn": torch.backends.cudnn.version() if gpu else None,
        "rss_after_import_bytes": idle, "onednn": torch.backends.mkldnn.is_available(),
    }
    serve(training, hello, replies)


if __name__ == "__main__":
    main()
