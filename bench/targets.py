#!/usr/bin/env python3
"""targets.py - how a run stands against the suite's own goals for ResNet-50 on a CPU; ratios within one run only.

usage: bench/targets.py results/RUN [results/RUN/peers.json]

Needs cells at 224 px, batch 8, fp32 and bf16, measured with `batchmark bench --size 224 --batch 8 --amp off,bf16
--primitives`. Prints a Markdown table; exits 1 if a goal is missed, 2 if the record has not what it needs.
"""
import json
import sys

LIBRARY_OPS = {"conv2d", "conv2d_dgrad", "conv2d_wgrad", "linear", "linear_dgrad", "linear_wgrad", "batchnorm", "batchnorm_grad"}
OUTSIDE_LIMIT = {"off": 0.10, "bf16": 0.15}
PEER_GOALS = {(224, 8, "off"): 1.08, (224, 8, "bf16"): 1.15}  # others: 1.2 at batch 1 and 2, 1.3 at 64 px
PEER_MEMORY_LIMIT = 0.7


def cell_of(record, amp):
    for cell in record["cells"]:
        axes = cell["axes"]
        if axes["net"] != "resnet50" or axes.get("optimizer", "sgd") != "sgd" or axes["width"] != 1:
            continue
        if cell["status"] == "ok" and (axes["size"], axes["batch"], axes["accum"], axes["amp"]) == (224, 8, 1, amp):
            return cell
    return None


def rows_of_record(record):
    cells = {amp: cell_of(record, amp) for amp in ("off", "bf16")}
    for amp, cell in cells.items():
        if cell is None:
            continue
        name = "fp32" if amp == "off" else amp
        profile = cell["profile"]
        if profile:
            ops = sum(op["seconds"] for op in profile["ops"] if op["op"] in LIBRARY_OPS)
            total = profile["compute_seconds"] + profile["copy_seconds"] + profile["wait_seconds"] + profile["other_seconds"]
            yield f"{name}: share of a step outside convolutions, matrix products, batch norms", 1 - ops / total, "<=", OUTSIDE_LIMIT[amp]
        if cell.get("primitives"):
            yield f"{name}: step / sum of its ops timed alone", cell["primitives"]["ratio"], "<=", 1.12
        memory = cell["memory"]
        yield f"{name}: measured / planned memory", memory["measured_peak"] / memory["planned"]["total"], "<=", 1.0
    if all(cells.values()):
        yield "bf16 / fp32 throughput", cells["bf16"]["throughput"] / cells["off"]["throughput"], ">=", 1.6


def rows_of_peers(peers):
    for cell in peers["cells"]:
        if cell.get("ratio") is None:
            continue
        size, batch, amp = cell["size"], cell["batch"], cell["amp"]
        goal = PEER_GOALS.get((size, batch, amp), 1.2 if size == 224 else 1.3)
        name = f"PyTorch / batchmark step, {size} px, batch {batch}, {'fp32' if amp == 'off' else amp}"
        yield name, cell["ratio"]["median"], ">=", goal
        peak = cell["peak_bytes"]
        if peak["torch"] and peak["batchmark"]:
            name = name.replace("PyTorch / batchmark step", "batchmark / PyTorch peak memory")
            yield name, peak["batchmark"] / peak["torch"], "<=", PEER_MEMORY_LIMIT


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    path = sys.argv[1]
    with open(path if path.endswith(".json") else path + "/record.json", encoding="utf-8") as f:
        rows = list(rows_of_record(json.load(f)))
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding="utf-8") as f:
            rows += rows_of_peers(json.load(f))
    if not rows:
        print("targets: no finished cell at 224 px, batch 8", file=sys.stderr)
        return 2
    print("| what | measured | goal | |\n| --- | ---: | ---: | --- |")
    missed = 0
    for name, value, relation, goal in rows:
        good = value <= goal if relation == "<=" else value >= goal
        missed += not good
        print(f"| {name} | {value:.3f} | {relation} {goal:g} | {'reached' if good else 'missed'} |")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
