/* isolate.h - runs a function in a child process, so that a crash, the kernel's out-of-memory killer or left-over memory
 * of one cell cannot touch the rest of the run. The parent must not have used OpenMP or a device before. */
#ifndef BATCHMARK_BENCH_ISOLATE_H
#define BATCHMARK_BENCH_ISOLATE_H

#include "../kernels/base.h"

#include <jansson.h>

typedef Status IsolatedFunction(void *context, json_t **result);

/* Calls function(context, result) in a fork; its status and result come back through a pipe. *result is NULL unless the
 * status is OK (then the caller owns it). A child that died is STATUS_BACKEND with the signal, or STATUS_OOM if it was
 * killed with SIGKILL. */
Status isolate_run(IsolatedFunction *function, void *context, json_t **result);

#endif
