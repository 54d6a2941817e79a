/* fake_cupti.h - a stand-in for CUPTI: keeps what the fake runtime tells it as activity records in the buffers of its client, in
 * the layout of the real ones. It fails where a test says (fake.h, FAKE_CUPTI).
 *
 * It is as strict as the real one where that has caught people: records exist only of kinds that are enabled, external
 * correlation only of calls made between push and pop, a buffer arrives when it is full or flushed, and a buffer that is not to be had
 * loses records. One thread. */
#ifndef BATCHMARK_TESTS_FAKE_CUPTI_H
#define BATCHMARK_TESTS_FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For fake_set_library. */
const struct CuptiApi *fake_cupti_api(void);

/* ---- what the fake runtime tells */

/* A call that enqueues was made (launch, copy, set, graph launch); the id of its work. */
uint32_t fake_cupti_call(void);

typedef enum FakeWork { FAKE_KERNEL, FAKE_COPY_IN, FAKE_COPY_OUT, FAKE_COPY_WITHIN, FAKE_SET } FakeWork;

/* Work of that call has run. name: of a kernel, else NULL. node: what was given to node_cloned if a graph replays it, else NULL. */
void fake_cupti_ran(FakeWork kind, const char *name, size_t bytes, int stream, uint32_t call, const void *node);

/* Capturing made a node; instantiating cloned one. */
void fake_cupti_node_created(const void *node);
void fake_cupti_node_cloned(const void *original, const void *clone);

/* ---- what a test says; reset undoes all of it, and whatever a client left */
void fake_cupti_reset(void);
void fake_cupti_set_buffer_records(size_t most);                /* a buffer is handed back when it holds this many */
void fake_cupti_drop(int64_t n);                                /* the next n records are lost */
void fake_cupti_set_times(uint64_t start, uint64_t end);        /* of the next work alone, as given: 0 = unknown */
int  fake_cupti_open(void);                                     /* subscribers, pushed ids, enabled kinds and buffers out */

#ifdef __cplusplus
}
#endif
#endif
