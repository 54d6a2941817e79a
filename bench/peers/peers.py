#!/usr/bin/env python3
"""peers.py - training steps in batchmark against PyTorch, on the same machine at the same time.

For each cell (net, input size, batch, amp; see cells.py) both programs are started once and hold their net in memory. Then
they take turns in short blocks of steps, A B, B A, A B, ...: what slows the machine down hits both, and the order favours
neither. The one that waits is blocked on its standard input, its OpenMP threads sleep and its part of the GPU is idle. Medians, the ratio with its interval, and the
peak memory of both go to a Markdown table on stdout and to results/<run>/peers.json. Progress goes to stderr.

Plain Python, no packages; only the peer needs torch. Exit codes: 0 all cells ran, 1 failed, 2 wrong usage, 3 some cells
did not run.
"""
import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import sys
import time

import cells
import summary
import torch_venv
from peer_process import Peer, PeerError, PeerUnsupported

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_PARTIAL = 0, 1, 2, 3
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

WARMUP_STEPS = 3
STEPS_MIN, STEPS_MAX = 2, 200  # timed steps of one block, where not given
PATIENCE, PATIENCE_COMPILING = 300, 1800  # seconds to wait for an answer, where not given

# glibc's malloc without mmap and trimming, on transparent huge pages: 10-15 % for PyTorch, whose tensors come and go in
# every step. batchmark takes its memory once and runs with malloc as it is.
TORCH_ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"
                      "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1",
}


def threads_environment(threads):
    """The same for both: so many threads, which sleep rather than spin when there is nothing to do. (A waiting peer that
    spins, or a busy core of another process, would slow both down several times.)"""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false"}


class UsageError(Exception):
    """Wrong arguments: one line, exit code 2."""


class Failure(Exception):
    """Nothing can be measured: one line, exit code 1."""


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


# ---- arguments ----

class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{message}: --help lists the options")


def parse_arguments(argv):
    cores = len(os.sched_getaffinity(0))
    parser = Parser(description="A training step of ResNet-50, UNet and BERT: batchmark against PyTorch, taking turns in one run.")
    add = parser.add_argument
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where both run [%(default)s]")
    add("--nets", default=",".join(cells.NETS), help="the nets whose usual cells to run [%(default)s]")
    add("--full", action="store_true", help="every cell that has a goal in bench/targets.py, not just some (of the CPU)")
    add("--cells", help="instead: [NET/]SIZE/BATCH[/AMP], separated by commas; NET is resnet50, unet, bert-all, bert-masked "
        "(predicting all tokens or the masked ones) or bert (both); AMP is off, tf32, bf16 or fp16, without it both off and bf16")
    add("--rounds", type=int, default=6, help="turns of both per cell; 6 give a 97 %% interval [%(default)s]")
    add("--steps", type=int, default=0, help="timed steps in one block; 0 = as many as fit into --seconds [%(default)s]")
    add("--seconds", type=float, default=28, help="time to aim at for the rounds of one cell, where --steps is 0 [%(default)s]")
    add("--threads", type=int, default=cores, help="threads of each peer [%(default)s, the cores this process may use]")
    add("--timeout", type=float, help="seconds to wait for any one answer of a peer [300, of a compiling one 1800]")
    add("--compile", choices=["auto", "on", "off", "both"], default="auto",
        help="PyTorch with torch.compile (needs a C++ compiler, and minutes); auto: in the cells that it makes faster, on a GPU all "
        "but batch 1; both: each cell without it and again with it [%(default)s]")
    add("--budget", type=float, help="begin no cell after so many seconds, and leave the rest out [no limit]")
    add("--python", help="a Python that has torch [this one, or the one of --setup]")
    add("--setup", metavar="DIR", default=os.path.join(ROOT, "build", "peers-venv"),
        help="where to install torch if no Python has it: a throw-away environment, about 6 GB [build/peers-venv]")
    add("--binary", default=os.path.join(ROOT, "build", "batchmark"), help="[build/batchmark]")
    add("--out", metavar="DIR", help="folder for peers.json [results/<time>-<host>]")
    args = parser.parse_args(argv)
    try:
        args.cells = cells.parse(args.cells) if args.cells is not None else \
            cells.listed(args.nets.split(","), cells.GPU if args.device == "cuda" else cells.FULL if args.full else cells.DEFAULT)
    except cells.CellError as error:
        raise UsageError(f"{'--nets' if args.cells is None else '--cells'}: {error}") from error
    for name, low, high in (("rounds", 1, 1000), ("steps", 0, 1000), ("threads", 1, 4096), ("seconds", 0.1, 86400), ("timeout", 0.1, 86400),
                            ("budget", 0, 86400)):
        if getattr(args, name) is not None and not low <= getattr(args, name) <= high:
            raise UsageError(f"--{name} {getattr(args, name)}: must be from {low} to {high}")
    return args


# ---- the machine ----

def cpu_model():
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def busy_seconds():
    """CPU seconds that all processes, the kernel and the hypervisor's other guests have used since the start; None if
    unknown."""
    try:
        with open("/proc/stat") as stat:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class LoadMeter:
    """What one peer and all others used of the CPU since the meter was made."""

    def __init__(self, peer):
        self.peer, self.start = peer, self.now(peer)

    @staticmethod
    def now(peer):
        return time.monotonic(), busy_seconds(), peer.cpu_seconds()

    def read(self):
        """(cores that others kept busy, CPU seconds of the peer); None for what is unknown."""
        wall, busy, own = (None if b is None or a is None else b - a for a, b in zip(self.start, self.now(self.peer)))
        return None if busy is None or own is None or wall <= 0 else max(0.0, (busy - own) / wall), own


# ---- one cell ----

def compiles(args, cell):
    """Whether PyTorch runs this cell compiled."""
    if args.compile == "auto" and args.device == "cuda":
        return cell.batch > 1
    if args.compile == "auto":
        return cells.faster_compiled(cell) and shutil.which(os.environ.get("CXX", "g++")) is not None
    return args.compile == "on"


def planned(args):
    """What to run: (cell, whether PyTorch is compiled), in order. Of both, on a GPU, what it is better at comes first."""
    if args.compile == "both":
        pairs = [(cell, compiled) for cell in args.cells for compiled in (False, True)]
        return sorted(pairs, key=lambda p: (p[0].batch > 1) != p[1]) if args.device == "cuda" else pairs
    return [(cell, compiles(args, cell)) for cell in args.cells]


def commands(args, cell, compiled):
    """The command lines of both peers for one cell."""
    words = [*cells.options(cell), "--threads", str(args.threads), "--device", args.device]
    torch = [args.python, os.path.join(HERE, "torch_server.py"), *words] + (["--compile"] if compiled else [])
    return {"torch": torch, "batchmark": [args.binary, "serve", *words]}


def block_steps(args, seconds_each):
    """Timed steps of one block, given the step time of both: each block has one step more, which only warms up the caches."""
    if args.steps:
        return args.steps
    fitting = int(args.seconds / args.rounds / sum(seconds_each)) - 1
    return min(max(fitting, STEPS_MIN), STEPS_MAX)


def run_block(peer, steps):
    """One turn of one peer. Its first step is not counted: it fills the caches and wakes the threads."""
    meter = LoadMeter(peer)
    seconds = peer.run(steps + 1)[1:]
    load, cpu = meter.read()
    return {"seconds": seconds, "load": load, "cpu_seconds": cpu}


def measure(peers, args, progress):
    """Warms both up, then lets them take turns; peers: {"torch": Peer, "batchmark": Peer}."""
    warm = {name: peer.run(WARMUP_STEPS)[-1] for name, peer in peers.items()}
    steps = block_steps(args, list(warm.values()))
    rounds = []
    for i in range(args.rounds):
        progress(i)
        order = list(peers) if i % 2 == 0 else list(reversed(peers))
        rounds.append({name: run_block(peers[name], steps) for name in order})
    known = [block["load"] for blocks in rounds for block in blocks.values() if block["load"] is not None]
    return {
        **summary.compare([{name: block["seconds"] for name, block in blocks.items()} for blocks in rounds]),
        "rounds": [{"order": list(blocks), **blocks} for blocks in rounds],
        "load": {"median": statistics.median(known) if known else None, "max": max(known) if known else None},
        "peak_bytes": {name: peer.peak_bytes() for name, peer in peers.items()},
    }


def run_cell(args, cell, compiled, environment, progress):
    """The record of one cell; a peer that fails makes it a failed one. Fills in what the peers say of themselves."""
    result = {**cell._asdict(), "compile": compiled, "status": "ok", "reason": None}
    words = commands(args, cell, compiled)
    same = threads_environment(args.threads)
    patience = args.timeout or (PATIENCE_COMPILING if compiled else PATIENCE)
    try:
        # batchmark first: it says at once whether the cell can run.
        with Peer("batchmark", words["batchmark"], same, args.timeout or PATIENCE) as ours:
            environment["batchmark"] = ours.wait_ready()
            with Peer("PyTorch", words["torch"], {**same, **TORCH_ENVIRONMENT}, patience) as torch:
                environment["torch"] = torch.wait_ready()
                result.update(measure({"torch": torch, "batchmark": ours}, args, progress))
    except PeerUnsupported as error:
        result.update(status="skipped", reason=str(error))
    except PeerError as error:
        result.update(status="failed", reason=str(error))
    return result


# ---- the run ----

def write_atomically(path, text):
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise Failure(f"{path} cannot be written: {error.strerror}") from error


def timestamp(form="%Y-%m-%dT%H:%M:%SZ"):
    return time.strftime(form, time.gmtime())


def new_record(args, argv):
    return {
        "format": 1, "started": timestamp(), "finished": None, "command": argv,
        "options": {"rounds": args.rounds, "steps": args.steps, "seconds": args.seconds, "threads": args.threads, "compile": args.compile,
                    "device": args.device},
        "environment": {
            "hostname": socket.gethostname(), "kernel": platform.release(), "cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)),
            "threads": args.threads, "python": platform.python_version(),
            "variables": {"both": threads_environment(args.threads), "torch": TORCH_ENVIRONMENT}, "torch": {}, "batchmark": {},
        },
        "cells": [],
    }


def disturbance(cell):
    load = cell["load"]["median"]
    return "" if load is None or load <= summary.LOAD_DISTURBS else f"; disturbed: others kept {load:.1f} cores busy"


def outcome(cell):
    if cell["status"] != "ok":
        return f"{cell['status']}: {cell['reason']}"
    torch, ours, ratio = (cell[key] for key in ("torch_step_seconds", "batchmark_step_seconds", "ratio"))
    return (f"PyTorch {summary.milliseconds(torch)} ms, batchmark {summary.milliseconds(ours)} ms, "
            f"speed-up {ratio['median']:.2f} x ({ratio['low']:.2f}-{ratio['high']:.2f}){disturbance(cell)}")


def run_cells(args, record, path):
    """Cell by cell, the record rewritten after each. True if it was interrupted."""
    todo, begin = planned(args), time.monotonic()
    for number, (cell, compiled) in enumerate(todo, 1):
        label = f"cell {number}/{len(todo)}, {cells.name(cell)}{' compiled' if compiled else ''}"

        def progress(done):
            if sys.stderr.isatty():
                print(f"\rpeers: {label}: round {done + 1}/{args.rounds} ", end="", file=sys.stderr, flush=True)

        try:
            if args.budget is not None and time.monotonic() - begin > args.budget:
                result = {**cell._asdict(), "compile": compiled, "status": "skipped", "reason": f"the budget of {args.budget:g} s was spent"}
            else:
                result = run_cell(args, cell, compiled, record["environment"], progress)
        except KeyboardInterrupt:
            say("interrupted" if not record["cells"] else f"interrupted; what was finished is in {path}")
            return True
        record["cells"].append(result)
        if sys.stderr.isatty():
            print("\r", end="", file=sys.stderr)
        say(f"{label}: {outcome(result)}")
        write_atomically(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    record["finished"] = timestamp()
    write_atomically(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return False


def prepare(args):
    """Everything that can be wrong before the first cell; settles args.python and args.out."""
    if not os.path.isfile(args.binary) or not os.access(args.binary, os.X_OK):
        raise Failure(f"{args.binary} is not there or not a program: build it first with make, or name it with --binary")
    args.out = args.out or os.path.join("results", timestamp("%Y-%m-%dT%H-%M-%S") + "-" + socket.gethostname())
    made = not os.path.exists(args.out)
    try:
        os.makedirs(args.out, exist_ok=True)
    except OSError as error:
        raise Failure(f"{args.out} cannot be made: {error.strerror}") from error
    if not os.access(args.out, os.W_OK):
        raise Failure(f"{args.out} is not writable")
    try:
        args.python = torch_venv.find_python(args.python, args.setup) or torch_venv.create(args.setup, say)
    except torch_venv.TorchMissing as error:
        if made:
            os.rmdir(args.out)
        raise Failure(str(error)) from error


def run(argv):
    args = parse_arguments(argv[1:])
    prepare(args)
    record = new_record(args, argv)
    path = os.path.join(args.out, "peers.json")
    interrupted = run_cells(args, record, path)
    results = record["cells"]
    if results:
        print(summary.legend(args.rounds, record["environment"], args.device))
        print(summary.markdown_table(results), end="")
        say(f"record: {path}")
    done = [result for result in results if result["status"] == "ok"]
    if len(done) == len(planned(args)):
        return EXIT_OK
    skipped = results and all(result["status"] == "skipped" for result in results)
    return EXIT_PARTIAL if done or (skipped and not interrupted) else EXIT_FAILED


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the peers are ended, what was finished is shown
    try:
        return run(sys.argv)
    except UsageError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except Failure as error:
        say(f"error: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
