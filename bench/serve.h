/* serve.h - steps on demand: one cell, opened once, timed whenever a line on stdin asks for it.
 *
 * For bench/peers, which must take turns between this program and PyTorch within one run: on a machine whose speed
 * drifts only neighbouring blocks of steps can be compared. */
#ifndef BATCHMARK_BENCH_SERVE_H
#define BATCHMARK_BENCH_SERVE_H

#include "options.h"

/* Verifies the kind of net, opens the cell that the options name, then answers each line on stdin with one line of JSON
 * on stdout:
 *   on start  {"ready": true, "name": "batchmark", ...}
 *   "run N"   {"seconds": [...], "loss": x}   N updates, N from 1 to 100000, and the seconds of each
 *   "peak"    {"peak_bytes": n}               highest resident memory of this process; null if unknown
 *   "quit" or the end of the input ends it with STATUS_OK
 *   else      {"error": "..."}, and it goes on
 * A cell that cannot run is answered {"error": "...", "code": "unsupported"} (or another code) instead of ready, and its
 * status returned; so is a step that fails. */
Status serve_steps(const Options *o);

#endif
