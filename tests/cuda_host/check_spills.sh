#!/bin/sh
# check_spills.sh <nvcc> <architectures> [file.cu ...] - no kernel spills registers or keeps an array in local memory: both cost
# memory traffic that no comment states. <architectures>: "90" or "75 80 90". Without files: those of kernels/cuda.
# Looks at what ptxas says of each function.
set -eu
nvcc=$1 architectures=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -gt 0 ] || set -- "$root"/kernels/cuda/*.cu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$@"; do
    for arch in $architectures; do
        echo "$arch $file $work/$(basename "$file" .cu).$arch"
    done
done >"$work/list"
# Each line: architecture, source, where the cubin (.cubin) and the words of ptxas (.log) go.
xargs -P "$(nproc)" -L 1 sh -c '
    "$0" -std=c++17 -arch="sm_$2" -cubin -Xptxas -v -I"$1" "$3" -o "$4.cubin" >"$4.log" 2>&1 || { cat "$4.log" >&2; exit 1; }
' "$nvcc" "$root" <"$work/list"
cat "$work"/*.log >"$work/all"
kernels=$(grep -c "bytes stack frame" "$work/all" || true)
awk '/Compiling entry function/ { arch = $NF }
     /Function properties for/ { name = $NF }
     /bytes stack frame/ && !/ 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/ { print name ": " arch $0 }' "$work/all" \
    >"$work/bad"
if [ -s "$work/bad" ]; then
    if command -v c++filt >/dev/null; then c++filt <"$work/bad"; else cat "$work/bad"; fi >&2
    echo "check_spills: $(wc -l <"$work/bad") of $kernels kernels use local memory" >&2
    exit 1
fi
[ "$kernels" -gt 0 ] || { echo "check_spills: ptxas told nothing about any kernel" >&2; exit 1; }
echo "check_spills: $kernels kernels for sm_$(echo "$architectures" | sed 's/ /, sm_/g'), none uses local memory"
