#!/bin/sh
# tree_hash.sh - one hash over everything that a build is made of, to tell whether a build that was carried along is of this tree.
# usage: tests/gpu/tree_hash.sh <root>
set -eu
cd "$1"
find CMakeLists.txt kernels nets datasets bench tests -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \
     -o -name '*.def' -o -name 'CMakeLists.txt' -o -name '*.cmake' -o -name '*.json' \) -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
