/* interrupt.h - Ctrl-C and SIGTERM as a question that long loops ask. */
#ifndef BATCHMARK_BENCH_INTERRUPT_H
#define BATCHMARK_BENCH_INTERRUPT_H

#include "../kernels/base.h"

/* From now on SIGINT and SIGTERM only set a flag; a second SIGINT ends the process at once. */
void interrupt_install(void);

/* STATUS_INTERRUPTED once a signal has come. */
Status interrupt_check(void);

#endif
