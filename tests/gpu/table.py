#!/usr/bin/env python3
"""table.py - the short table at the end of run.sh: what is in its folder, and the goals of the CUDA backend beside it.

usage: table.py FOLDER. Plain Python; whatever is missing is left out, or said to be.
"""
import json
import os
import sys

NETS = ("resnet50", "bert", "unet")
DASH = "-"

# Of the issue that asked for the backend: PyTorch's step / ours.
GOALS = [("resnet50", 224, 256, True, 1.2), ("bert", 128, 128, True, 1.2), ("unet", 572, 8, True, 1.2),
         ("resnet50", 224, 1, False, 3.0), ("bert", 128, 1, False, 3.0), ("unet", 572, 1, False, 3.0)]
IDLE_GOAL, PEAK_GOAL, PLAN_GOAL = 0.02, 0.7, 0.02


def load(folder, name):
    try:
        with open(os.path.join(folder, name)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def at(value, *path):
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number(value, form="{:.3g}", scale=1.0):
    return DASH if not isinstance(value, (int, float)) else form.format(value * scale)


def columns(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


# ---- sweeps

HEAD = ("cell", "samples/s", "step ms", "idle %", "tensor %", "GiB", "of plan", "profiling")


def idle(cell):
    window = at(cell, "profile", "window_seconds")
    return at(cell, "profile", "idle_seconds") / window if window else None


def of_plan(cell):
    measured, planned = at(cell, "memory", "measured_peak"), at(cell, "memory", "planned", "total")
    return measured / planned if measured and planned else None


def cell_row(cell):
    if cell["status"] != "ok":
        return [cell["name"], cell["status"]] + [DASH] * (len(HEAD) - 2)
    return [cell["name"], number(cell["throughput"], "{:.0f}"), number(at(cell, "step_seconds", "median"), "{:.3f}", 1e3), number(idle(cell), "{:.1f}", 100),
            number(at(cell, "profile", "tensor_core_share"), "{:.0f}", 100), number(at(cell, "memory", "measured_peak"), "{:.2f}", 2.0**-30),
            number(of_plan(cell), "{:.3f}"), number(at(cell, "profile", "overhead", "ratio"), "{:.2f} x")]


def sweep(cells):
    yield from columns([list(HEAD)] + [cell_row(cell) for cell in cells])
    for cell in cells:
        if cell["status"] != "ok":
            yield f"{cell['name']}: {cell['status']}: {cell['reason']}"
    for reason in sorted({c["profile_reason"] for c in cells if c.get("profile_reason")}):
        yield f"no profile: {reason}"


# ---- peers

def pair(cell):
    return f"{cell['net']}/{cell['size']}/{cell['batch']}/{cell['amp']} against {'torch.compile' if cell['compile'] else 'eager'}"


def peer_rows(cells):
    yield ["peers", "PyTorch ms", "ours ms", "speed-up", "interval", "peak ratio"]
    for cell in cells:
        if cell["status"] == "ok":
            ratio, peaks = cell["ratio"], cell["peak_bytes"]
            share = peaks["batchmark"] / peaks["torch"] if peaks["torch"] and peaks["batchmark"] else None
            yield [pair(cell), number(cell["torch_step_seconds"]["median"], "{:.3f}", 1e3), number(cell["batchmark_step_seconds"]["median"], "{:.3f}", 1e3),
                   number(ratio["median"], "{:.2f} x"), f"{ratio['low']:.2f}-{ratio['high']:.2f}", number(share, "{:.2f} x")]


def peers(cells):
    if any(cell["status"] == "ok" for cell in cells):
        yield from columns(list(peer_rows(cells)))
    for cell in cells:
        if cell["status"] != "ok":
            yield f"{pair(cell)}: {cell['status']}: {cell['reason']}"


# ---- goals

def verdict(value, good):
    return "not measured" if value is None else "reached" if good else "MISSED"


def goals(cells, compared):
    for net, size, batch, compiled, goal in GOALS:
        found = [c for c in compared if (c["net"], c["size"], c["batch"], c["compile"]) == (net, size, batch, compiled) and c["status"] == "ok"]
        value = found[0]["ratio"]["median"] if found else None
        yield (f"{net} batch {batch}: at least {goal:g} x PyTorch {'compiled' if compiled else 'eager'}: "
               f"{number(value, '{:.2f} x')}, {verdict(value, value is not None and value >= goal)}")
    shares = [c["peak_bytes"]["batchmark"] / c["peak_bytes"]["torch"] for c in compared
              if c["status"] == "ok" and all(c["peak_bytes"].get(side) for side in ("batchmark", "torch"))]
    worst = max(shares, default=None)
    yield f"peak memory at most {PEAK_GOAL} x PyTorch's: worst {number(worst, '{:.2f} x')}, {verdict(worst, worst is not None and worst <= PEAK_GOAL)}"
    worst = max((idle(c) for c in cells if idle(c) is not None), default=None)
    yield f"device idle under {100 * IDLE_GOAL:g} %: worst {number(worst, '{:.1f} %', 100)}, {verdict(worst, worst is not None and worst < IDLE_GOAL)}"
    worst = max((abs(of_plan(c) - 1) for c in cells if of_plan(c) is not None), default=None)
    yield f"plan within {100 * PLAN_GOAL:g} %: worst {number(worst, '{:.2f} %', 100)}, {verdict(worst, worst is not None and worst <= PLAN_GOAL)}"


def table(folder):
    cells = [cell for net in NETS for cell in at(load(folder, f"{net}.json"), "cells") or []]
    compared = at(load(folder, "peers.json"), "cells") or []
    if cells:
        yield from sweep(cells)
        yield ""
    if compared:
        yield from peers(compared)
        yield ""
    if cells or compared:
        yield from goals(cells, compared)
        yield ""
    try:
        with open(os.path.join(folder, "tests.log")) as log:
            yield from (line.strip("= \n") for line in log if line.startswith("==== ") and ": " in line)
    except OSError:
        pass
    try:
        with open(os.path.join(folder, "notes.txt")) as notes:
            yield from (line.rstrip() for line in notes)
    except OSError:
        pass


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: table.py FOLDER")
    print("\n".join(table(sys.argv[1])))


if __name__ == "__main__":
    main()
