/* resume.h - going on with a record: with the options it was begun with, so that its cells belong together. */
#ifndef BATCHMARK_BENCH_RESUME_H
#define BATCHMARK_BENCH_RESUME_H

#include "options.h"

/* The options that the record in now->out was begun with, but for those of output, which are now's. They point into *root, which
 * the caller keeps as long and then gives up (json_decref). STATUS_USAGE if `now` names an option that the record has
 * otherwise, or if it is not the record of a bench; STATUS_INPUT if there is no good record. */
Status resume_options(const Options *now, json_t **root, Options *out);

#endif
