/* fault_alloc.h - makes single allocations fail, and counts blocks that were not freed.
 *
 * Works in programs registered with WRAP_ALLOC (see CMakeLists.txt), on the calls that the program and the static
 * libraries in it make to malloc, calloc, realloc, aligned_alloc and posix_memalign; those inside shared libraries
 * (libc, libjpeg, ...) pass by unseen. May be called from several threads. */
#ifndef BATCHMARK_TESTS_FAULT_ALLOC_H
#define BATCHMARK_TESTS_FAULT_ALLOC_H

#include "../kernels/base.h"

/* From now on, count allocations from 1 and let the n-th one, and only that, fail. n = 0: only count. */
void fault_alloc_arm(int64_t n);
void fault_alloc_disarm(void);

/* Allocations asked for since the last arming. */
int64_t fault_alloc_count(void);

/* Blocks that were allocated and not yet freed. */
int64_t fault_alloc_live(void);

/* Runs `attempt` with its first allocation failing, then its second, ... until it runs through without reaching the
 * one that would fail. The cmocka test fails unless every failed allocation ends in STATUS_OOM with a text, the last
 * run in success, and all runs leave as many live blocks as they found. `attempt` must free what it makes. Returns
 * the number of allocations of the successful run; a test should expect more than 0. */
int64_t fault_alloc_sweep(Status (*attempt)(void *context), void *context);

#endif
