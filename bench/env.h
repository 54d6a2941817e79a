/* env.h - what the figures were taken on: machine, libraries, build, and how busy the machine is meanwhile. */
#ifndef BATCHMARK_BENCH_ENV_H
#define BATCHMARK_BENCH_ENV_H

#include "../kernels/backend.h"

#include <jansson.h>

/* The "environment" member of the schema but for peaks (null). STATUS_OOM only; what cannot be read is null. */
Status env_capture(const BackendInfo *device, json_t **out);

/* The "tool" member: name, version, git revision of the build. */
Status env_tool(json_t **out);

/* Cores that other processes kept busy since the last call (or since env_load_start): from /proc/stat less this
 * process's own time. NaN if unknown. */
typedef struct EnvLoad { double wall, busy, own; } EnvLoad;
void   env_load_start(EnvLoad *load);
double env_load_others(EnvLoad *load);

size_t env_process_peak_bytes(void); /* VmHWM; 0 if unknown */
void   env_process_peak_reset(void); /* /proc/self/clear_refs, best effort */

/* "2026-11-30T17:40:00Z" into text of at least 24 bytes. */
const char *env_timestamp(char *text, size_t size);

#endif
