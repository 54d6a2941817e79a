#!/bin/sh
# seed_wordpiece.sh DIR - writes a small vocabulary for fuzz_wordpiece, a NUL, and a text.
set -eu
printf '\020[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n\000Unaffable, un\303\251 [CLS] \344\270\255\n' >"$1/whole"
printf '\021un\n##aff\n##able\n\000unaffable low lower newest widest\n' >"$1/pieces"
