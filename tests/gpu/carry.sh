#!/bin/sh
# carry.sh - packs what run.sh needs on a machine with a GPU that has nvcc, cmake and PyTorch but none of our packages, no apt and no
# network: batchmark and the GPU tests built here for any x86-64, the shared libraries that they use, and those libraries' headers, so
# that the tree can also be built there.
#
# usage: tests/gpu/carry.sh [architectures]        as CMAKE_CUDA_ARCHITECTURES wants them; 90-real if not given
# Writes build-gpu-carry/carry.tar.gz, which git ignores: take it along with the tree.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
architectures=${1:-90-real}
out=$root/build-gpu-carry
build=$out/build
stage=$out/stage
jobs=${JOBS:-$(nproc)}

# The C runtime and the C++ library are the other machine's own.
system_libraries='linux-vdso|ld-linux|libc\.so|libm\.so|libpthread|libdl\.so|librt\.so|libstdc\+\+|libgcc_s'

say() { echo "carry: $*" >&2; }

rm -rf "$stage"
mkdir -p "$stage/bin" "$stage/lib" "$stage/include"
say "building for $architectures"
# The libraries are found beside the program, and theirs too (a run path of the old kind is handed on); no environment is needed.
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DBATCHMARK_PORTABLE=ON -DBATCHMARK_CUDA_WANTED=ON \
      -DBATCHMARK_CUDA_ARCHITECTURES="$architectures" -DCMAKE_BUILD_RPATH="\$ORIGIN/../lib" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
      ${CARRY_CMAKE_ARGS:-} >"$out/cmake.log" 2>&1 || { cat "$out/cmake.log"; exit 1; }
cmake --build "$build" -j "$jobs" --target batchmark gpu_tests >"$out/build.log" 2>&1 || { tail -40 "$out/build.log"; exit 1; }

cp "$build/batchmark" "$build"/tests/gpu/gpu_* "$stage/bin/" 2>/dev/null || cp "$build/batchmark" "$stage/bin/"
for file in "$stage"/bin/*; do
    if [ -f "$file" ] && [ -x "$file" ]; then strip --strip-debug "$file"; else rm -rf "$file"; fi
done

# By the names under which the loader looks for them.
ldd "$stage"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | grep -Ev "^($system_libraries)" |
while read -r name path; do
    cp -L "$path" "$stage/lib/$name"
done

for package in libdnnl-dev libjansson-dev zlib1g-dev libpng-dev libjpeg-dev libjpeg62-turbo-dev libbenchmark-dev libcmocka-dev; do
    dpkg-query -L "$package" 2>/dev/null | grep '^/usr/include/.*\.\(h\|hpp\)$' | while read -r header; do
        kept=${header#/usr/include/}
        kept=${kept#"$(gcc -print-multiarch 2>/dev/null)"/}
        mkdir -p "$stage/include/$(dirname "$kept")"
        cp -L "$header" "$stage/include/$kept"
    done
done

"$root/tests/gpu/tree_hash.sh" "$root" >"$stage/tree"
printf '%s\n' "$architectures" >"$stage/architectures"
tar -C "$stage" -czf "$out/carry.tar.gz" .
say "$out/carry.tar.gz: $(du -h "$out/carry.tar.gz" | cut -f1)"
