#!/bin/sh
# seed_record.sh DIR - records for fuzz_record: the smallest that is valid, one with a cell and a training, and the tests' own.
set -eu
start='{"format": 1, "tool": {"name": "batchmark"}, "environment": {},
"run": {"id": "r", "started": "s", "command": ["batchmark"], "options": {}},'
printf '%s "cells": [], "trainings": [], "claims": []}\n' "$start" >"$1/empty.json"
axes='"axes": {"net": "resnet50", "size": 32, "batch": 4, "amp": "off", "accum": 1, "width": 0.25, "classes": 10}'
printf '%s "cells": [{"name": "a", "status": "ok", %s, "floor_seconds": 0.1, "step_seconds": {"median": 0.2}}],
"trainings": [{"name": "b", "status": "failed", %s}], "claims": [{"id": "A1", "verdict": "holds"}]}\n' "$start" "$axes" "$axes" >"$1/small.json"
cp "$(dirname "$0")/../data/record_small.json" "$1/"
