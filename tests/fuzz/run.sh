#!/usr/bin/env bash
# run.sh SECONDS BUILD-FOLDER - builds every fuzz target of this folder with clang and runs each for so many seconds, two at a
# time. Fails on a crash, a leak, a hang or undefined behaviour, and then shows the report and where the input is.
#
# fuzz_<x>.c is a target; seed_<x>.sh DIR, where there is one, writes its first inputs, fuzz_<x>.dict is its dictionary. The
# corpus stays in the build folder, so that the next run goes on from it.
set -euo pipefail
[ $# = 2 ] || { echo "usage: tests/fuzz/run.sh SECONDS BUILD-FOLDER" >&2; exit 2; }
seconds=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

cmake -S "$root" -B "$build" -DBATCHMARK_FUZZ=ON -DBATCHMARK_TESTS=OFF -DBATCHMARK_CUDA_WANTED=OFF -DBATCHMARK_WERROR=ON -DCMAKE_C_COMPILER=clang \
      -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
make -C "$build" -j"$(nproc)" --no-print-directory fuzz >"$build/fuzz-build.log" 2>&1 || { tail -n 40 "$build/fuzz-build.log" >&2; exit 1; }
build=$(cd "$build" && pwd)

fuzz() { # <x>
    local work=$build/fuzz/$1 options=() log=$build/fuzz/$1.log
    mkdir -p "$work/corpus" "$work/seeds" "$work/found"
    [ ! -f "$here/seed_$1.sh" ] || sh "$here/seed_$1.sh" "$work/seeds" || return 1
    [ ! -f "$here/fuzz_$1.dict" ] || options+=("-dict=$here/fuzz_$1.dict")
    # what was found before must stay fixed; then new inputs
    if "$build/tests/fuzz/fuzz_$1" -timeout=10 -rss_limit_mb=1024 -runs=0 "$work/found" >"$log" 2>&1 &&
       "$build/tests/fuzz/fuzz_$1" "${options[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=16384 \
           -print_final_stats=1 -artifact_prefix="$work/found/" "$work/corpus" "$work/seeds" >"$log" 2>&1; then
        printf 'fuzz %-12s %s executions, %s inputs in the corpus\n' "$1" \
               "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(find "$work/corpus" -type f | wc -l)"
    else
        tail -n 60 "$log" >&2
        printf 'fuzz %-12s FAILED; its input is in %s\n' "$1" "$work/found" >&2
        return 1
    fi
}

failed=0 running=0
for source in "$here"/fuzz_*.c; do
    name=$(basename "$source" .c)
    if [ "$running" = 2 ]; then
        wait -n || failed=1
        running=1
    fi
    fuzz "${name#fuzz_}" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
