#!/bin/bash
# run.sh - everything that only a GPU can show, in one go and in under 8 minutes on one H100 or H200: the tests with the label gpu, a short
# sweep of the three nets, one trace of each, and PyTorch (eager and compiled) on the same cells in turns. Ends with a short table.
#
# For a machine with a driver, nvcc, cmake and PyTorch, and nothing else: what it lacks comes in build-gpu-carry/carry.tar.gz, packed by
# carry.sh on a machine that can build. Without that file, or if it does not run here or is of another tree, the tree is built here.
#
# usage: tests/gpu/run.sh [folder] [--steps LIST] [--minutes N] [--device cuda[:n]] [--build auto|carried|source]
#   folder     for the records; default results/<time>-gpu. A second run with the same folder adds to it. It gets at most eight
#              files: table.txt, notes.txt, tests.log, resnet50.json, bert.json, unet.json, peers.json, and the rest in rest.tar.gz
#   --steps    some of build,test,info,sweep,peers,trace, in that order; default all. build comes anyway, if nothing is built
#   --minutes  begin nothing new after so long; default 8
# Environment: PYTHON, a Python with torch; else python3. Nothing is installed, nothing outside the tree and the folder is written
# but the cache of choices.
#
# Exit codes: 0 everything ran, 1 a test failed or a step did, 3 something was left out (no time), 77 there is no GPU.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
begin=$(date +%s)
steps=build,test,info,sweep,peers,trace
minutes=8
device=cuda
how=auto
out=
python=${PYTHON:-python3}
carried=$root/build-gpu-carry/carry.tar.gz
unpacked=$root/build-gpu-carry/unpacked
build=$root/build-gpu

say() { echo "gpu: $(($(date +%s) - begin)) s: $*" >&2; }
usage() { sed -n '/^# usage/,/^# Environment/p' "$0" | sed '$d; s/^# \?//' >&2; exit 2; }
value() { [ $# -ge 2 ] || usage; echo "$2"; }

while [ $# -gt 0 ]; do
    case $1 in
    --steps)   steps=$(value "$@") || exit 2; shift ;;
    --minutes) minutes=$(value "$@") || exit 2; shift ;;
    --device)  device=$(value "$@") || exit 2; shift ;;
    --build)   how=$(value "$@") || exit 2; shift ;;
    --help)    usage ;;
    -*)        say "unknown option $1"; usage ;;
    *)         [ -z "$out" ] || usage; out=$1 ;;
    esac
    shift
done
for step in ${steps//,/ }; do
    case $step in build | test | info | sweep | trace | peers) ;; *) say "no step is called '$step'"; usage ;; esac
done
case $minutes in '' | *[!0-9]*) say "--minutes wants a whole number"; usage ;; esac
case $how in auto | carried | source) ;; *) say "--build is auto, carried or source"; usage ;; esac
case $device in cuda | cuda:[0-9]*) ;; *) say "--device is cuda or cuda:<number>"; usage ;; esac

out=${out:-results/$(date -u +%Y-%m-%dT%H-%M-%S)-gpu}
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
deadline=$((begin + 60 * minutes))
left() { echo $((deadline - $(date +%s))); }
wanted() { case ,$steps, in *,$1,*) return 0 ;; *) return 1 ;; esac; }

failed=
partial=
note() { printf '%s\n' "$*" >>"$out/notes.txt"; say "$*"; }
fail() { note "FAILED: $*"; failed=1; }
skip() { note "left out: $*"; partial=1; }
# Whether a step may begin that takes so many seconds at least.
time_for() { [ "$(left)" -ge "$2" ] || { skip "$1: only $(left) s of $minutes minutes are left"; return 1; }; }

# ---- the libraries: NVIDIA's may be the toolkit's or come with PyTorch

library_folders() {
    "$python" - <<'PY' 2>/dev/null
import glob, os, sysconfig
folders = []
for base in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
    for name in ("libcudnn.so.9", "libcublasLt.so.1[23]", "libcupti.so.1[23]", "libnvrtc.so.1[23]", "libnvJitLink.so.1[23]"):
        for path in sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib", name))):
            if os.path.dirname(path) not in folders:
                folders.append(os.path.dirname(path))
print(":".join(folders))
PY
}
torch_libraries=$(library_folders)
# What was carried is found by the programs themselves: PyTorch must not meet it.
export LD_LIBRARY_PATH="$torch_libraries:/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export BATCHMARK_TEST_FILES=$root/tests

# ---- build

unpack() {
    [ -f "$carried" ] || return 1
    [ -f "$unpacked/tree" ] && [ "$unpacked/tree" -nt "$carried" ] && return 0
    rm -rf "$unpacked"
    mkdir -p "$unpacked" && tar -C "$unpacked" -xzmf "$carried"
}

carried_is_good() {
    unpack || { say "nothing was carried along"; return 1; }
    if [ "$(cat "$unpacked/tree")" != "$(tests/gpu/tree_hash.sh "$root")" ]; then
        say "what was carried is of another tree"
        return 1
    fi
    "$unpacked/bin/batchmark" --version >"$out/rest/version.txt" 2>&1 && return 0
    say "what was carried does not run here: $(tail -1 "$out/rest/version.txt")"
    return 1
}

# Compute capability as CMake wants it: "9.0" is 90-real.
architecture() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d ' .' | sed 's/$/-real/' | grep -E '^[0-9]+-real$' ||
        cat "$unpacked/architectures" 2>/dev/null || echo 90-real
}

# A header of NVIDIA's that the toolkit may lack: with PyTorch's packages.
header_folder() {
    "$python" -c 'import glob, sys, sysconfig
for path in glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/include/" + sys.argv[1]): print(path.rsplit("/", 1)[0]); break' "$1" 2>/dev/null
}

build_here() {
    local arguments=() name folder
    unpack || true
    for name in "$unpacked"/lib/*.so.*; do # by the names under which they are linked
        [ -e "$name" ] && ln -sf "$(basename "$name")" "${name%%.so.*}.so"
    done
    rm -f "$unpacked/lib/libgomp.so" # the compiler's own
    [ -e "$unpacked/lib/libpng16.so" ] && ln -sf libpng16.so "$unpacked/lib/libpng.so"
    [ -e /usr/include/cudnn.h ] || [ -e /usr/local/cuda/include/cudnn.h ] || { folder=$(header_folder cudnn.h); [ -n "$folder" ] && arguments+=("-DCUDNN_INCLUDE=$folder"); }
    [ -e /usr/local/cuda/include/cupti.h ] || { folder=$(header_folder cupti.h); [ -n "$folder" ] && arguments+=("-DCUPTI_INCLUDE=$folder"); }
    for name in GNUPLOT CMARK FC_MATCH; do arguments+=("-D${name}_PROGRAM=/bin/false"); done # the report is not made here
    PATH=$PATH:/usr/local/cuda/bin cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$unpacked" -DBATCHMARK_CUDA_WANTED=ON \
        -DCMAKE_EXE_LINKER_FLAGS="-Wl,--disable-new-dtags,-rpath-link,$unpacked/lib" -DBATCHMARK_CUDA_ARCHITECTURES="$(architecture)" "${arguments[@]}" >"$out/rest/build.log" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target batchmark gpu_tests >>"$out/rest/build.log" 2>&1
}

settle_build() {
    if [ "$how" != source ] && carried_is_good; then
        bin=$unpacked/bin
        say "using what was carried"
        return 0
    fi
    [ "$how" != carried ] || { fail "build: what was carried cannot be used"; return 1; }
    say "building here"
    if ! build_here; then
        fail "build: $(grep -m1 -E 'error|Error|missing' "$out/rest/build.log" || tail -1 "$out/rest/build.log"); see $out/rest/build.log"
        return 1
    fi
    mkdir -p "$build/bin"
    ln -sf "$build/batchmark" "$build"/tests/gpu/gpu_* "$build/bin/"
    bin=$build/bin
}

# ---- steps

run_tests() {
    local test code line
    : >"$out/tests.log"
    for test in "$bin"/gpu_*; do
        [ -f "$test" ] && [ -x "$test" ] || continue
        time_for "$(basename "$test")" 10 || return
        say "$(basename "$test")"
        echo "==== $(basename "$test")" >>"$out/tests.log"
        timeout -k 5 "$(($(left) < 90 ? $(left) : 90))" "$test" "$device" >>"$out/tests.log" 2>&1
        code=$?
        line="$(basename "$test"): $(case $code in 0) echo passed ;; 77) echo skipped ;; 124 | 137) echo "out of time" ;; *) echo "FAILED ($code)" ;; esac)"
        echo "==== $line" >>"$out/tests.log"
        case $code in
        0) ;;
        77) skip "$line" ;;
        *) fail "$line"; grep -E '^\[  (FAILED|ERROR)|error: ' "$out/tests.log" | tail -5 >&2 ;;
        esac
    done
    grep -c '^==== .*: passed' "$out/tests.log" >/dev/null || fail "no test passed"
}

run_info() {
    nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,temperature.gpu,power.draw,mig.mode.current --format=csv \
        >"$out/rest/gpu.csv" 2>&1
    timeout -k 5 60 "$bin/batchmark" info --device "$device" --json >"$out/rest/info.json" 2>"$out/rest/info.err" ||
        fail "info: $(tail -1 "$out/rest/info.err")"
}

# bench <name> <seconds it may take> <seconds a cell> <arguments>: a record of its own, results in $out/<name>.json
bench() {
    local name=$1 most=$2 each=$3 code
    shift 3
    time_for "sweep $name" 15 || return
    [ "$most" -le "$(left)" ] || most=$(left)
    say "sweep $name"
    mkdir -p "$out/rest"
    # an interrupted sweep keeps its finished cells
    timeout --foreground -s INT -k 20 "$most" "$bin/batchmark" bench --device "$device" --out "$out/rest/$name" --cell-seconds "$each" --precision 0.005 --no-peaks \
        --no-report --quiet "$@" >"$out/rest/$name.log" 2>&1
    code=$?
    cp "$out/rest/$name/record.json" "$out/$name.json" 2>/dev/null || true
    case $code in
    0) ;;
    3 | 124) skip "sweep $name: some cells did not run" ;;
    *) fail "sweep $name: $(tail -1 "$out/rest/$name.log")" ;;
    esac
}

run_sweep() {
    bench resnet50 70 1 --net resnet50 --size 224 --batch 1,8,32,128,256,512 --amp off,tf32,fp16,bf16 --accum 1,4 --benchmark_filter='amp:bf16/accum:1|batch:(1|256)/amp:(off|tf32|fp16)/accum:1|batch:256/amp:bf16/accum:4'
    bench bert 50 1 --net bert --size 128 --batch 1,32,128,512 --amp off,tf32,fp16,bf16 --accum 1,4 --benchmark_filter='amp:bf16/accum:1|batch:128/amp:(off|tf32|fp16)/accum:1|batch:128/amp:bf16/accum:4'
    bench unet 50 1 --net unet --size 572 --batch 1,8,32 --amp off,tf32,fp16,bf16 --accum 1,4 --benchmark_filter='amp:bf16/accum:1|batch:8/amp:(off|tf32|fp16)/accum:1|batch:8/amp:bf16/accum:4'
}

run_traces() {
    local net
    bench trace-resnet50 20 0.2 --trace --net resnet50 --size 224 --batch 256 --amp bf16
    bench trace-bert 20 0.2 --trace --net bert --size 128 --batch 128 --amp bf16
    bench trace-unet 20 0.2 --trace --net unet --size 572 --batch 8 --amp bf16
    for net in resnet50 bert unet; do
        rm -f "$out/trace-$net.json" # its cell is also in the sweep
        gzip -f "$out/rest/trace-$net"/trace-*.json 2>/dev/null || true
    done
}

# The cells of the goals first: PyTorch compiled where the GPU is full, as it is where launching takes the time.
run_peers() {
    time_for peers 30 || return
    "$python" bench/peers/peers.py --device cuda --binary "$bin/batchmark" --python "$(command -v "$python")" --rounds 4 --seconds 4 --timeout 150 \
        --compile both --budget "$(($(left) - 30))" --out "$out/rest" >"$out/rest/peers.txt" 2>"$out/rest/peers.log"
    case $? in
    0) ;;
    3) skip "peers: some cells did not run" ;;
    *) fail "peers: $(tail -1 "$out/rest/peers.log")" ;;
    esac
    cp "$out/rest/peers.json" "$out/peers.json" 2>/dev/null || true
}

bin=
mkdir -p "$out/rest"
settle_build || exit 1
"$bin/gpu_device" --probe "$device" >"$out/rest/probe.txt" 2>&1
case $? in
0) ;;
77) note "no GPU: $(tail -1 "$out/rest/probe.txt")"; exit 77 ;;
*) note "FAILED: the GPU cannot be used: $(tail -1 "$out/rest/probe.txt")"; exit 1 ;;
esac
if wanted test; then run_tests; fi
if wanted info && time_for info 20; then run_info; fi
if wanted sweep; then run_sweep; fi
if wanted peers; then run_peers; fi
if wanted trace; then run_traces; fi

tar -C "$out" -czf "$out/rest.tar.gz" rest && rm -rf "$out/rest"
say "done; records are in $out"
"$python" tests/gpu/table.py "$out" | tee "$out/table.txt"
[ -z "$failed" ] || exit 1
[ -z "$partial" ] || exit 3
