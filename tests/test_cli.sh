#!/bin/bash
# test_cli.sh BATCHMARK - the program as a user meets it: bad input gives one clear line and the right exit code and leaves
# nothing half-written; a killed run goes on with --resume. Uses the smallest nets there are.
set -u
batchmark=$(readlink -f "${1:?usage: test_cli.sh path/to/batchmark}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
passed=0 failed=0 skipped=0
export OMP_WAIT_POLICY=passive
quick=(--cell-seconds 0.05 --no-profile --no-peaks --no-report --quiet)
small=(--size 32 --width 0.01 --classes 10 "${quick[@]}")
unet=(--net unet --size 16 --depth 1 --width 0.1)
bert=(--net bert --size 16 --layers 1 --hidden 16 --heads 2 --vocab-size 100)
tiny=(--data shapes --limit 64 --size 32 --stem small --width 0.01 --batch 16 --no-report --quiet)
brief=(--limit 16 --batch 4 --no-report --quiet)

verdict() { # name, condition's exit code, detail
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $1: $3"
    fi
}

# refuse CODE TEXT ARGS...: exit code, the text in exactly one error line, no stack of messages.
refuse() {
    local code=$1 text=$2 got lines
    shift 2
    "$batchmark" "$@" >out 2>err </dev/null
    got=$?
    lines=$(grep -c '^batchmark: error: ' err)
    [ "$got" = "$code" ] && [ "$lines" = 1 ] && grep -qF -- "$text" err
    verdict "$*" $? "exit code $got instead of $code, or no line '$text' in: $(tail -n 3 err)"
}

# accept CODE ARGS...
accept() {
    local code=$1 got
    shift
    "$batchmark" "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$code" ]
    verdict "$*" $? "exit code $got instead of $code: $(tail -n 3 err)"
}

# holds NAME EXPRESSION: what Python makes of the document on the last command's stdout, called d.
holds() {
    python3 -c "import json; d = json.load(open('out')); assert $2" 2>/dev/null
    verdict "$1" $? "$(head -c 300 out)"
}

status_of() { # record, cell number
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["cells"][int(sys.argv[2])]["status"])' "$1" "$2"
}

wait_for_cell() { # until a running bench has finished its first
    for _ in $(seq 600); do
        grep -q '"status": "ok"' "$1/record.json" 2>/dev/null && return
        sleep 0.1
    done
}

# ---- words that are wrong ----
refuse 2 "unknown command 'benhc'" benhc
refuse 2 "unknown option --bacth" bench --bacth 4
refuse 2 "--net 'resnet51': must be one of resnet50, unet, bert" bench --net resnet51 --batch 1 --out never
refuse 2 "--net 'alexnet': must be one of" plan --net alexnet
refuse 2 "--batch '0': must be a whole number from 1" bench --batch 0
refuse 2 "--batch '-2'" train --batch -2
refuse 2 "--batch 'many'" plan --batch many
refuse 2 "--accum '0': must be a whole number from 1" train --accum 0
refuse 2 "--amp 'fp8'" plan --amp fp8
refuse 2 "one value, 2 were given" plan --batch 1,2
refuse 2 "needs images of at least 32 pixels" plan --size 16
refuse 2 "multiple of 16 pixels, not 40" plan --net unet --size 40
refuse 2 "multiple of 16 pixels, not 40" train --net unet --data ellipses --size 40 --out never
refuse 2 "classes is 1" plan --classes 1
refuse 2 "classes is 1" bench --classes 1 --batch 1 --out never
refuse 2 "classes is 1" train --classes 1 --data shapes --out never
refuse 2 "bert has no width multiplier" plan --net bert --width 0.5
refuse 2 "bert has no width multiplier" bench --net bert --width 0.5 --batch 1 --out never
refuse 2 "longer than the 512 positions" plan --net bert --size 520
refuse 2 "cannot be split among 5 heads" bench --net bert --heads 5 --batch 1 --out never
refuse 2 "rows of tokens is 64" plan --net bert --tokens 64
refuse 2 "unknown claim 'Z9'" claims Z9
refuse 2 "device 'tpu' is not known: use auto, cpu, cuda" plan --device tpu
refuse 2 "device 'cuda:x' is not known" plan --device cuda:x
refuse 2 "--gpu 'v100': must be one of gtx1080ti-11g, p100-16g, v100-16g" plan --gpu v100
refuse 2 "--max-batch looks for the batch itself" plan --max-batch --batch 4
refuse 2 "--reserve '91': must be a number from 0 to 90" plan --reserve 91
refuse 2 "a plan for 'v100-16g' is made for device auto or cuda, not 'cpu'" plan --gpu v100-16g --device cpu
refuse 2 "--autotune 'maybe': must be one of off, on" bench --autotune maybe
refuse 2 "--resume needs --out" bench --resume --batch 1
refuse 2 "no cell matches" bench --batch 1 "${small[@]}" --out filtered --benchmark_filter=nothing_like_this
[ ! -e filtered ]
verdict "a filter that matches nothing leaves nothing" $? "the folder stays"
refuse 2 "a --benchmark_ flag is wrong" bench --batch 1 --benchmark_bogus=1
refuse 2 "report needs one record" report
refuse 2 "the preset 'smoke' has nets of its own, not one with width:0.5" bench --preset smoke --width 0.5 --out never
[ ! -e never ]
verdict "nothing is written for wrong words" $? "the folder was made"

# ---- data that is wrong ----
refuse 2 "unknown" train --data imagenet --out never
mkdir empty
refuse 1 "empty" train --data folder --data-dir empty --size 32 --stem small --batch 2 --out never
refuse 1 "no-such-dir" train --data folder --data-dir no-such-dir --size 32 --stem small --batch 2 --out never
mkdir -p broken/a broken/b
for i in 1 2 3 4; do echo "not an image" >broken/a/$i.jpg && cp broken/a/$i.jpg broken/b/; done
refuse 1 ".jpg" train --data folder --data-dir broken --size 32 --stem small --batch 1 --out never
fashion=/usr/share/datasets/fashion-mnist
if [ -d "$fashion" ]; then
    mkdir cut swapped
    cp "$fashion"/*.gz cut/ && cp "$fashion"/*.gz swapped/
    head -c 100000 "$fashion"/train-images-idx3-ubyte.gz >cut/train-images-idx3-ubyte.gz
    cp "$fashion"/train-labels-idx1-ubyte.gz swapped/train-images-idx3-ubyte.gz
    refuse 1 "cut/train-images-idx3-ubyte.gz" train --data-dir cut "${tiny[@]/shapes/fashion-mnist}" --out never
    refuse 1 "swapped/train-images-idx3-ubyte.gz" train --data-dir swapped "${tiny[@]/shapes/fashion-mnist}" --out never
else
    echo "skipped: cut and swapped Fashion-MNIST files: dataset-fashion-mnist is not installed"
    skipped=$((skipped + 2))
fi
refuse 2 "is more than the" train "${tiny[@]}" --batch 128 --out never
refuse 2 "unet cannot be trained on 'shapes': it needs masks" train "${unet[@]}" --data shapes --out never
refuse 2 "resnet50 cannot be trained on 'ellipses': it needs labels" train --data ellipses --size 32 --out never
refuse 2 "text set 'shapes' is unknown" train "${bert[@]}" --data shapes --out never
refuse 2 "data set 'copy' is unknown" train --data copy --out never
refuse 2 "--classes 7: the data have 10 classes" train "${tiny[@]}" --classes 7 --out never
refuse 2 "--classes 5: the data have 2 classes" train "${unet[@]}" --data ellipses --limit 16 --classes 5 --out never
refuse 2 "masks: needs the directory" train "${unet[@]}" --data masks --out never
refuse 2 "'copy' has no classes" train "${bert[@]}" --data copy --head classify --out never
refuse 2 "rows of tokens is 8: it must be 16" train "${bert[@]}" --data copy --padding budget --tokens 8 --out never
refuse 1 "no-such-dir/" train "${unet[@]}" --data mri --data-dir no-such-dir --out never
refuse 1 "no-such-dir/" train "${bert[@]}" --data bible --data-dir no-such-dir --out never
printf '[PAD]\nword\n' >cut.txt
if "$batchmark" train "${bert[@]}" --data bible "${brief[@]}" --out bible >out 2>err; then
    refuse 1 "no-such.txt" train "${bert[@]}" --data bible --vocab no-such.txt --out never
    refuse 1 "cut.txt" train "${bert[@]}" --data bible --vocab cut.txt --out never
else
    grep -q "apt install" err
    verdict "a missing package is named" $? "$(cat err)"
    skipped=$((skipped + 2))
fi
[ ! -e never ]
verdict "nothing is written for wrong data" $? "the folder was made"

# ---- folders that are wrong ----
touch file
refuse 1 "cannot make the folder file" bench --batch 1 "${small[@]}" --out file/run
refuse 1 "/proc/run" bench --batch 1 "${small[@]}" --out /proc/run
refuse 1 "there is no such record" report nowhere
echo '{"cells": [' >half.json
refuse 1 "half.json" report half.json
mkdir foreign && echo '{"context": {}, "benchmarks": []}' >foreign/record.json
refuse 1 "not a batchmark record" report foreign
refuse 1 "not a batchmark record" bench --batch 1 "${small[@]}" --resume --out foreign
refuse 1 "there is no such record" bench --batch 1 "${small[@]}" --resume --out nowhere

# ---- what does not fit becomes a row, and the exit code says partial ----
accept 3 bench --batch 1,65536 "${small[@]}" --mem-limit 64MiB --out partial
[ "$(status_of partial/record.json 0)" = ok ] && [ "$(status_of partial/record.json 1)" = oom ]
verdict "a cell larger than memory is a row with status oom" $? "$(cat partial/record.json | head -c 300)"
accept 3 plan --batch 512 --mem-limit 1GiB
grep -q "does not fit in 1.00 GiB" out
verdict "plan says that it does not fit" $? "$(cat out)"
refuse 2 "already" bench --batch 1 "${small[@]}" --out partial

# ---- a killed run goes on ----
"$batchmark" bench --batch 1,2,3,4 "${small[@]}" --cell-seconds 0.5 --out killed >out 2>err &
pid=$!
wait_for_cell killed
kill -KILL $pid
wait $pid 2>/dev/null
python3 -m json.tool killed/record.json >/dev/null
verdict "the record of a killed run is whole" $? "it does not parse"
before=$(python3 -c 'import json; print(json.load(open("killed/record.json"))["cells"][0]["samples"][0]["seconds"])')
refuse 2 "begun with another --batch" bench --batch 8 --resume --out killed
accept 0 bench --resume --out killed --no-report --quiet
after=$(python3 -c 'import json; r = json.load(open("killed/record.json")); print(r["cells"][0]["samples"][0]["seconds"] if len(r["cells"]) == 4 else "")')
[ "$before" = "$after" ]
verdict "--resume keeps the finished cell and adds the rest" $? "first sample was $before, is '$after'"

# ---- Ctrl-C ----
"$batchmark" bench --batch 1,2,3,4 "${small[@]}" --cell-seconds 0.5 --out stopped >out 2>err &
pid=$!
wait_for_cell stopped
kill -TERM $pid
wait $pid
[ $? = 3 ] && grep -q -- "--resume --out stopped" err
verdict "an interrupted run ends partial and says how to go on" $? "$(tail -n 3 err)"
"$batchmark" train "${bert[@]}" --data copy --epochs 100000 --no-report --quiet --out ended >out 2>err &
pid=$!
for _ in $(seq 600); do [ -e ended/record.json ] && break; sleep 0.1; done
sleep 1
kill -TERM $pid
wait $pid
[ $? = 3 ] && python3 -m json.tool ended/record.json >/dev/null
verdict "an interrupted training ends partial and leaves a whole record" $? "$(tail -n 3 err)"

# ---- a full disk ----
if mkdir full && mount -t tmpfs -o size=64k tmpfs full 2>/dev/null; then
    head -c 60000 /dev/zero >full/ballast
    refuse 1 "full/run/record.json" bench --batch 1 "${small[@]}" --out full/run
    umount full
else
    echo "skipped: full disk: no permission to mount a small one"
    skipped=$((skipped + 1))
fi

# ---- output for programs ----
accept 0 plan --batch 4 --json
holds "plan --json is one document" 'd["parameters"] == 25557032 and d["fits"] is True'
accept 0 plan --net unet --batch 1 --json
holds "plan --json of unet" 'd["parameters"] == 31036738 and d["axes"]["depth"] == 4'
accept 0 plan --net bert --batch 1 --json
holds "plan --json of bert" 'd["parameters"] == 109514298 and d["axes"]["vocab"] == 30522'
accept 0 --version
# ---- plans for GPUs that are not here ----
accept 0 plan --net bert --max-batch --gpu v100-16g --amp fp16 --json
holds "plan --gpu has the GPU's memory as its limit" 'd["gpu"] == "v100-16g" and 15 * 2**30 < d["limit"] < 16 * 2**30 and d["fits"] and d["limit"] == d["capacity"]'
holds "plan --max-batch fills it" '100 < d["max_batch"] == d["axes"]["batch"] and 0.9 * d["limit"] < d["memory"]["planned"]["total"] <= d["limit"]'
largest=$(python3 -c 'import json; print(json.load(open("out"))["max_batch"])')
accept 0 plan --net bert --gpu v100-16g --amp fp16 --batch "$largest"
accept 3 plan --net bert --gpu v100-16g --amp fp16 --batch $((largest + 1))
accept 0 plan --net bert --max-batch --gpu v100-16g --amp fp16 --reserve 20 --json
holds "plan --reserve leaves its share" "d['max_batch'] < $largest and abs(d['limit'] / d['capacity'] - 0.8) < 1e-6 and d['memory']['planned']['total'] <= d['limit']"
accept 3 plan --net bert --max-batch --gpu gtx1080ti-11g --mem-limit 1GiB --json
holds "plan --max-batch says 0 where nothing fits" 'd["max_batch"] == 0 and not d["fits"] and d["axes"]["batch"] == 1'
accept 0 plan --net bert --max-batch --gpu rtx3090-24g
grep -q "the largest batch that fits is" out && grep -q "of the NVIDIA GeForce RTX 3090" out
verdict "plan prints the largest batch and whose memory it fills" $? "$(cat out)"
accept 0 bench --batch 1 "${small[@]}" --out format --benchmark_format=json
holds "--benchmark_format=json is one document" 'd["benchmarks"]'
accept 0 claims --json
holds "claims --json lists 24" 'len(d) == 24'
accept 0 bench --batch 1 "${small[@]/--no-peaks/--no-png}" --json --out json
holds "bench --json is the record and nothing else" 'd["cells"][0]["status"] == "ok" and 0 < d["cells"][0]["floor_seconds"] < 1'
accept 0 bench "${unet[@]}" --batch 2 "${quick[@]}" --json --out unet
holds "bench --json of unet" 'd["cells"][0]["name"].startswith("unet/size:16/batch:2/amp:off/accum:1/width:0.1/depth:1") and d["cells"][0]["floor_seconds"] is None'
accept 0 bench "${bert[@]}" --batch 2 --accum 2 "${quick[@]}" --json --out bert
holds "bench --json of bert" 'd["cells"][0]["name"].startswith("bert/seq:16/batch:2/amp:off/accum:2/layers:1") and d["cells"][0]["status"] == "ok"'
"$batchmark" bench "${bert[@]}" --batch 2 --amp off,fp16 "${quick[@]}" --json --out half >out 2>err
code=$?
python3 - $code <<'END'
import json, sys
cells = json.load(open("out"))["cells"]
assert cells[0]["status"] == "ok"
if cells[1]["status"] != "ok":
    assert cells[1]["status"] == "skipped" and cells[1]["reason"].startswith("fp16 is not timed here: "), cells[1]
assert int(sys.argv[1]) == (0 if cells[1]["status"] == "ok" else 3)
END
verdict "fp16 that is only emulated is not timed, and the run is partial" $? "exit code $code: $(tail -n 3 err)"
accept 3 bench --batch 1 --amp off,tf32 "${small[@]}" --json --out tf32
holds "tf32 is skipped on a CPU" '[c["status"] for c in d["cells"]] == ["ok", "skipped"] and d["cells"][1]["reason"] == "this CPU has no TF32"'
"$batchmark" plan >/dev/full 2>err
[ $? = 1 ] && grep -q "cannot write to standard output" err
verdict "a full standard output is noticed" $? "$(cat err)"

# ---- training: the same seed gives the same bits ----
accept 0 train "${tiny[@]}" --seed 7 --out seven --json
accept 0 train "${tiny[@]}" --seed 7 --out again --loaders 2 --json
python3 -c '
import json
a, b = (json.load(open(d + "/record.json"))["trainings"][0] for d in ("seven", "again"))
strip = lambda t: [[e[k] for k in ("train_loss", "test_loss", "test_accuracy")] for e in t["epochs"]] + [c["loss"] for c in t["curve"]]
assert strip(a) == strip(b), (strip(a), strip(b))'
verdict "two runs with one seed give equal losses, for any number of loader threads" $? "they differ"

# ---- training: each net, and how a hopeless one ends ----
accept 0 train "${unet[@]}" --data ellipses "${brief[@]}" --amp fp16 --json --out dice
holds "train --json of unet in fp16" 'd["trainings"][0]["loss_scale"]["last"] > 0 and d["trainings"][0]["epochs"][0]["test_dice"] >= 0'
accept 0 train "${bert[@]}" --data copy "${brief[@]}" --padding budget --tokens 48 --accum 3 --json --out packed
holds "train --json of bert" 'd["trainings"][0]["padding"]["policy"] == "budget" and d["trainings"][0]["axes"]["vocab"] == 100'
refuse 1 "loss is not finite: " train "${tiny[@]}" --lr 1000 --epochs 9 --out wild
[ "$(python3 -c 'import json; print(json.load(open("wild/record.json"))["trainings"][0]["status"])')" = failed ]
verdict "a training that failed is in the record" $? "it is not"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
