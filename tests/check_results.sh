#!/bin/sh
# check_results.sh RUN - is what `batchmark bench` wrote whole? The record parses everywhere, every cell has a status, the
# tables, charts and the page exist, are not empty and show no NaN. Used by .ci/run on the smoke preset.
set -eu
run=${1:?usage: tests/check_results.sh results/RUN}
bad=0
fail() { echo "check_results: $*" >&2; bad=1; }

python3 - "$run/record.json" <<'PY' || bad=1
import json, math, sys

def strict(text):
    raise ValueError("not JSON: " + text)

with open(sys.argv[1], encoding="utf-8") as f:
    record = json.load(f, parse_constant=strict)
problems = []
if record["run"]["finished"] is None:
    problems.append("the run is not finished")
if not record["cells"]:
    problems.append("no cells")
for cell in record["cells"]:
    ok = cell["status"] == "ok"
    if not ok and not cell["reason"]:
        problems.append(f"{cell['name']}: {cell['status']} without a reason")
    if ok and not (cell["throughput"] > 0 and len(cell["samples"]) >= 2 and cell["verified"]):
        problems.append(f"{cell['name']}: ok without throughput, samples or verification")
    if ok:
        planned, measured = cell["memory"]["planned"]["total"], cell["memory"]["measured_peak"]
        if not (0.98 * planned <= measured <= planned):
            problems.append(f"{cell['name']}: measured peak {measured} against a plan of {planned}")
if not any(cell["status"] == "ok" for cell in record["cells"]):
    problems.append("no cell ran")
nets = {cell["axes"]["net"] for cell in record["cells"]}
if record["run"]["preset"] and nets != {"resnet50", "unet", "bert"}:
    problems.append(f"a preset measured {sorted(nets)}")
for item in record["cells"] + record["trainings"]:
    axes = item["axes"]
    if axes["effective_batch"] != axes["batch"] * axes["accum"]:
        problems.append(f"{item['name']}: effective batch {axes['effective_batch']}")
for training in record["trainings"]:
    if training["status"] == "failed":
        problems.append(f"{training['name']}: failed, {training['reason']}")
    if training["status"] != "ok":
        continue
    last = training["epochs"][-1]
    if (training["axes"]["net"] == "unet") != (last["test_dice"] is not None):
        problems.append(f"{training['name']}: test_dice is {last['test_dice']}")
    if ("vocab" in training["axes"]) != (training["padding"] is not None):
        problems.append(f"{training['name']}: padding is {training['padding']}")
    if (training["axes"]["amp"] == "fp16") != (training["loss_scale"] is not None):
        problems.append(f"{training['name']}: loss_scale is {training['loss_scale']}")
for claim in record["claims"]:
    if claim["verdict"] == "not run" and not claim["waits_for"]:
        problems.append(f"claim {claim['id']} did not run: {claim['summary']}")
if len(record["claims"]) != 24:
    problems.append(f"{len(record['claims'])} claims instead of 24")
for problem in problems:
    print("check_results: " + problem, file=sys.stderr)
sys.exit(1 if problems else 0)
PY

for f in report.html report.md; do
    [ -s "$run/$f" ] || fail "$f is missing or empty"
done
ls "$run"/tables/*.csv "$run"/tables/*.md >/dev/null 2>&1 || fail "no tables"
for net in $(python3 -c 'import json, sys; print(*sorted({c["axes"]["net"] for c in json.load(open(sys.argv[1]))["cells"]}))' "$run/record.json"); do
    grep -q "^## Results: $net," "$run/report.md" || fail "no results of $net on the page"
    for kind in throughput step-time memory ops split; do
        ls "$run/charts/$kind-$net-"*.svg >/dev/null 2>&1 || fail "no chart $kind of $net"
    done
done
grep -q 'effective\\*_batch' "$run/report.md" && fail "an axis that has no words in a heading"
charts=0
for f in "$run"/charts/*.svg; do
    [ -s "$f" ] || fail "$f is missing or empty"
    grep -q '</svg>' "$f" || fail "$f is cut"
    charts=$((charts + 1))
done
[ "$charts" -ge 3 ] || fail "only $charts charts"
if grep -nE '(^|[|, ])-?(nan|inf|null)([|, ]|$)' "$run/report.md" "$run"/tables/*.csv; then
    fail "NaN, inf or null is printed"
fi
[ "$bad" = 0 ] && echo "check_results: $run is whole ($charts charts)"
exit "$bad"
