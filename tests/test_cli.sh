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
small=(--size 32 --width 0.01 --classes 10 --cell-seconds 0.05 --no-profile --no-report --quiet)
tiny=(--data shapes --limit 64 --size 32 --stem small --width 0.01 --batch 16 --no-report --quiet)

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
refuse 2 "unknown claim 'Z9'" claims Z9
refuse 2 "device 'tpu' is not in this build" plan --device tpu
refuse 2 "--resume needs --out" bench --resume --batch 1
refuse 2 "no cell matches" bench --batch 1 "${small[@]}" --out filtered --benchmark_filter=nothing_like_this
[ ! -e filtered ]
verdict "a filter that matches nothing leaves nothing" $? "the folder stays"
refuse 2 "a --benchmark_ flag is wrong" bench --batch 1 --benchmark_bogus=1
refuse 2 "report needs one record" report
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
"$batchmark" bench --batch 1,2,3,4 "${small[@]}" --cell-seconds 1 --out killed >out 2>err &
pid=$!
wait_for_cell killed
kill -KILL $pid
wait $pid 2>/dev/null
python3 -m json.tool killed/record.json >/dev/null
verdict "the record of a killed run is whole" $? "it does not parse"
before=$(python3 -c 'import json; print(json.load(open("killed/record.json"))["cells"][0]["samples"][0]["seconds"])')
refuse 2 "begun with another --batch" bench --batch 8 --resume --out killed
accept 0 bench --resume --out killed
after=$(python3 -c 'import json; r = json.load(open("killed/record.json")); print(r["cells"][0]["samples"][0]["seconds"] if len(r["cells"]) == 4 else "")')
[ "$before" = "$after" ]
verdict "--resume keeps the finished cell and adds the rest" $? "first sample was $before, is '$after'"

# ---- Ctrl-C ----
"$batchmark" bench --batch 1,2,3,4 "${small[@]}" --cell-seconds 1 --out stopped >out 2>err &
pid=$!
wait_for_cell stopped
kill -TERM $pid
wait $pid
[ $? = 3 ] && grep -q -- "--resume --out stopped" err
verdict "an interrupted run ends partial and says how to go on" $? "$(tail -n 3 err)"

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
python3 -c 'import json; d = json.load(open("out")); assert d["parameters"] == 25557032 and d["fits"] is True'
verdict "plan --json is one document" $? "$(head -c 200 out)"
accept 0 --version
accept 0 bench --batch 1 "${small[@]}" --out format --benchmark_format=json
python3 -c 'import json; assert json.load(open("out"))["benchmarks"]'
verdict "--benchmark_format=json is one document" $? "$(tail -c 200 out)"
accept 0 claims --json
python3 -c 'import json; assert len(json.load(open("out"))) == 24'
verdict "claims --json lists 24" $? "$(head -c 200 out)"
accept 0 bench --batch 1 "${small[@]}" --json --out json
python3 -c 'import json; assert json.load(open("out"))["cells"][0]["status"] == "ok"'
verdict "bench --json is the record and nothing else" $? "$(head -c 200 out)"
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

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
