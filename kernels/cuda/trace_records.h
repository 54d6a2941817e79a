/* trace_records.h - CUPTI's activity records, read out of its buffers into plain events: which kernel, copy or set ran when, for
 * which tag. No session and no device here: trace.c runs those, and tests feed buffers by hand.
 *
 * A tag finds its events in one of two ways ("CUPTI User's Guide", external correlation; cupti_callbacks.h, graph nodes):
 *   work that is enqueued has a correlation id, which an external correlation record ties to the tag that was pushed;
 *   work that a graph replays has the id of its graph node, which was tied to a tag when the node was captured, or cloned from
 *   such a node when the graph was instantiated.
 *
 * One thread may read buffers while another names nodes; each of the two by itself is for one thread at a time. */
#ifndef BATCHMARK_KERNELS_CUDA_TRACE_RECORDS_H
#define BATCHMARK_KERNELS_CUDA_TRACE_RECORDS_H

#include "../backend.h"
#include "libs.h"

typedef struct TraceRecords TraceRecords;

/* One moment on both clocks. */
typedef struct ClockPair { double seconds; uint64_t ns; } ClockPair;

Status trace_records_create(const CuptiApi *cupti, TraceRecords **out);
void   trace_records_destroy(TraceRecords *r); /* NULL is fine */

/* Reads the records of a buffer. What does not fit in memory, has no times or is not whole is counted as dropped. */
void trace_records_read(TraceRecords *r, uint8_t *buffer, size_t valid_bytes);

/* A graph node that was made while `tag` was current; and one that is the copy of another. Without memory the node stays untagged
 * and is counted, see trace_records_untagged. */
void trace_records_tag_node(TraceRecords *r, uint64_t node, int tag);
void trace_records_clone_node(TraceRecords *r, uint64_t original, uint64_t clone);

/* Tags that were lost for want of memory. */
int64_t trace_records_untagged(const TraceRecords *r);

/* Everything that began at `first.ns` or later, in order, on the host's clock: the two pairs, taken at both ends, tie the clocks.
 * dropped: what CUPTI says that it lost, added to what was lost here. */
Status trace_records_finish(TraceRecords *r, ClockPair first, ClockPair last, size_t dropped, DeviceTrace *out);

#endif
