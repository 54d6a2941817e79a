#!/bin/sh
# seed_nifti.sh DIR - writes small whole NIfTI-1 files for fuzz_nifti: 2 x 3 x 4 voxels of 8 bits and of float32, plain and packed.
set -eu
zeros() { head -c "$1" /dev/zero; }
header() { # datatype and bitpix as four escaped bytes
    printf '\134\001\000\000'; zeros 36
    printf '\003\000\002\000\003\000\004\000\001\000\001\000\001\000\001\000'; zeros 14
    printf "$1"; zeros 34
    printf '\000\000\260\103\000\000\200\077\000\000\000\000' # vox_offset 352, slope 1, intercept 0
    zeros 224; printf 'n+1\000'; zeros 4
}
{ header '\002\000\010\000'; zeros 24; } >"$1/bytes.nii"
{ header '\020\000\040\000'; zeros 96; } >"$1/floats.nii"
for file in bytes floats; do
    gzip -nc "$1/$file.nii" >"$1/$file.nii.gz"
done
