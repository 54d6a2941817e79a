#!/bin/sh
# check_layers.sh - no file includes what its layer may not use (design: bench -> nets -> kernels; datasets beside, on
# kernels/base alone; device names of one backend stay in its folder).
set -eu
cd "$(dirname "$0")/.."
bad=0
forbid() { # folder, pattern of included paths, what is wrong
    if grep -rnE --include='*.[ch]' --include='*.cpp' --include='*.cu' "^#include ([<\"])($2)" "$1"; then
        echo "check_layers: $1 $3" >&2
        bad=1
    fi
}
forbid kernels '(\.\./)*(nets|bench|datasets)/' 'must know only kernels'
forbid nets '(\.\./)*(bench|datasets|kernels/cpu|kernels/cuda)/' 'must know only kernels/backend.h and below'
forbid datasets '(\.\./)*(bench|nets|kernels/(ops|tensor|backend|cpu|cuda))' 'must know only kernels/base.h'
forbid bench '(\.\./)*kernels/(cpu|cuda)/' 'must reach backends through kernels/backend.h'
if grep -rnE --include='*.[ch]' 'oneapi/dnnl' kernels nets datasets bench | grep -v '^kernels/cpu/'; then
    echo "check_layers: oneDNN is seen outside kernels/cpu" >&2
    bad=1
fi
exit "$bad"
