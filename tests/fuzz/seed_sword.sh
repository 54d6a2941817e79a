#!/bin/sh
# seed_sword.sh DIR - writes small inputs for fuzz_sword: a byte that says how long the index is, then OSIS or glosses.
set -eu
printf '\000<chapter sID="1"/>a <w lemma="x>y">b</w><note n="1">c</note> &amp; &#x41;<!-- d --><l/>e' >"$1/osis"
printf '\00000000000 03 n 01 x | a gloss\n00000029 05 n 02 y | another; "one"\n' >"$1/glosses"
printf '\001\000\000\000\000\013\000\000\000\003\000\000\000\170\234\113\114\112\006\000\002\115\001\047' >"$1/block"
