#!/bin/sh
# seed_idx.sh DIR - writes small whole IDX files for fuzz_idx: a byte that says how to read it, then the file.
set -eu
zeros() { head -c "$1" /dev/zero; }
images() { printf '\000\000\010\003\000\000\000\001\000\000\000\034\000\000\000\034'; zeros 784; }
labels() { printf '\000\000\010\001\000\000\000\003\001\002\011'; }
for kind in images labels; do
    { printf '\001'; $kind; } >"$1/$kind"
    { printf '\000'; $kind | gzip -n; } >"$1/$kind.gz"
done
