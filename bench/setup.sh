#!/bin/sh
# setup.sh - installs the Debian packages that batchmark needs and that are missing; says which and why.
# usage: bench/setup.sh [extra-package:reason ...]
# Called by the Makefile before it builds; DEPS=0 skips it, and then CMake names what is missing.
set -eu

needed='
cmake:builds the suite
make:builds the suite
gcc:C compiler
g++:C++ compiler, for the Google Benchmark shim
git:stamps the revision into records
pkg-config:finds libraries
libdnnl-dev:oneDNN, the CPU kernels
libbenchmark-dev:Google Benchmark, drives the sweeps
libjansson-dev:JSON records
zlib1g-dev:reads gzipped data sets
libpng-dev:reads PNG images
libjpeg-dev:reads JPEG images
libcmocka-dev:unit tests
cmark-gfm:Markdown to HTML, for the report
gnuplot-nox:charts
fonts-dejavu-core:letters on PNG charts
fontconfig:finds fonts for the charts
dataset-fashion-mnist:training data, classification (31 MB)
mricron-data:training data, segmentation: a head and its brain mask (16 MB)
sword-text-web:the World English Bible, text for BERT (4 MB)
wordnet-base:WordNet glosses, text and classes for BERT (28 MB)
'

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this is not a Debian system; install what CMake names, by your own package manager" >&2
    exit 0
fi

missing=''
IFS='
'
for line in $needed "$@"; do
    package=${line%%:*}
    installed "$package" && continue
    [ -n "$missing" ] || echo "setup: installing what is missing:" >&2
    printf 'setup:   %-30s %s\n' "$package" "${line#*:}" >&2
    missing="$missing$package
"
done
[ -n "$missing" ] || exit 0

run=''
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup: not root and no sudo: run 'apt-get install" $missing "' as root, or use DEPS=0" | tr '\n' ' ' >&2
        echo >&2
        exit 1
    fi
    run=sudo
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { $run apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1; }
# shellcheck disable=SC2086  # one word a package
if ! { apt install --no-install-recommends $missing || { apt update && apt install --no-install-recommends $missing; }; }; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install the packages above; the lines before say why. DEPS=0 skips this step." >&2
    exit 1
fi
