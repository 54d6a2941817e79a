/* trace_records.c - the bodies of trace_records.h: lists that grow, and a map from ids to tags. */
#include "trace_records.h"

#include "kernel_names.h"

#include <stdlib.h>
#include <string.h>

enum { RECORD_LIMIT = 1 << 23, NO_NAME = -1, NO_TAG = -1 };

/* ---- a map from ids to small numbers: open addressing, linear probing, at most half full; id 0 is no id ---- */

typedef struct IdEntry { uint64_t id; int value; } IdEntry;
typedef struct IdMap { IdEntry *at; size_t capacity, count; } IdMap;

static IdEntry *id_slot(const IdMap *m, uint64_t id)
{
    size_t i = (size_t)((id * 0x9E3779B97F4A7C15u) >> 20) & (m->capacity - 1);
    while (m->at[i].id && m->at[i].id != id)
        i = (i + 1) & (m->capacity - 1);
    return &m->at[i];
}

static int id_get(const IdMap *m, uint64_t id, int missing)
{
    const IdEntry *e = m->capacity && id ? id_slot(m, id) : NULL;
    return e && e->id ? e->value : missing;
}

static bool id_grow(IdMap *m)
{
    IdMap wider = { .capacity = m->capacity ? 2 * m->capacity : 1024, .count = m->count };
    wider.at = calloc(wider.capacity, sizeof *wider.at);
    if (!wider.at)
        return false;
    for (size_t i = 0; i < m->capacity; i++)
        if (m->at[i].id)
            *id_slot(&wider, m->at[i].id) = m->at[i];
    free(m->at);
    *m = wider;
    return true;
}

/* False if there is no memory. */
static bool id_put(IdMap *m, uint64_t id, int value)
{
    if (2 * (m->count + 1) > m->capacity && !id_grow(m))
        return false;
    IdEntry *e = id_slot(m, id);
    m->count += !e->id;
    *e = (IdEntry){ id, value };
    return true;
}

/* ---- records ---- */

typedef struct PlainRecord {
    TraceKind kind;
    int       name;                /* in TraceRecords.names */
    uint32_t  stream, correlation, correlation2; /* of copies also that of the runtime's call */
    uint64_t  start, end, node, bytes;
} PlainRecord;

typedef struct KernelName { char *text; bool tensor_cores; } KernelName;

struct TraceRecords {
    const CuptiApi *cupti;
    PlainRecord    *records;
    size_t          count, capacity;
    KernelName     *names;
    int             name_count, name_capacity;
    size_t          name_bytes;    /* of all, each with its end */
    IdMap           name_of;       /* by address: CUPTI gives all records of a kernel the same one */
    IdMap           tag_of_call;   /* by correlation id */
    IdMap           tag_of_node;   /* by graph node id */
    int64_t         dropped, untagged_calls, untagged_nodes;
};

Status trace_records_create(const CuptiApi *cupti, TraceRecords **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return status_error(STATUS_OOM, "out of memory for a trace of the device");
    (*out)->cupti = cupti;
    return status_ok();
}

void trace_records_destroy(TraceRecords *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->name_count; i++)
        free(r->names[i].text);
    free(r->names);
    free(r->records);
    free(r->name_of.at);
    free(r->tag_of_call.at);
    free(r->tag_of_node.at);
    free(r);
}

/* The number of a name, NO_NAME if there is no memory for it. */
static int keep_name(TraceRecords *r, const char *name)
{
    char text[KERNEL_NAME_BYTES];
    int  known = id_get(&r->name_of, (uint64_t)(uintptr_t)name, NO_NAME);
    if (known != NO_NAME)
        return known;
    if (r->name_count == r->name_capacity) {
        int         capacity = r->name_capacity ? 2 * r->name_capacity : 64;
        KernelName *names = realloc(r->names, (size_t)capacity * sizeof *names);
        if (!names)
            return NO_NAME;
        r->names = names;
        r->name_capacity = capacity;
    }
    size_t bytes = strlen(kernel_short_name(name, text, sizeof text)) + 1;
    char  *copy = malloc(bytes);
    if (!copy || !id_put(&r->name_of, (uint64_t)(uintptr_t)name, r->name_count)) {
        free(copy);
        return NO_NAME;
    }
    memcpy(copy, text, bytes);
    r->name_bytes += bytes;
    r->names[r->name_count] = (KernelName){ copy, kernel_uses_tensor_cores(name) };
    return r->name_count++;
}

static void keep_record(TraceRecords *r, PlainRecord record)
{
    if (r->count == r->capacity) {
        size_t       capacity = r->capacity ? 2 * r->capacity : 4096;
        PlainRecord *records = capacity <= RECORD_LIMIT ? realloc(r->records, capacity * sizeof *records) : NULL;
        if (!records) {
            r->dropped++;
            return;
        }
        r->records = records;
        r->capacity = capacity;
    }
    if (record.start == 0 || record.end < record.start) /* no device memory for its times, or it was still running */
        r->dropped++;
    else
        r->records[r->count++] = record;
}

/* The records' structs grow from version to version at their ends; what is read here is where it was in CUDA 12.0. */
static void read_kernel(TraceRecords *r, const CUpti_ActivityKernel9 *k)
{
    int name = keep_name(r, k->name ? k->name : "unnamed");
    if (name == NO_NAME) {
        r->dropped++;
        return;
    }
    keep_record(r, (PlainRecord){ .kind = TRACE_KERNEL, .name = name, .stream = k->streamId, .correlation = k->correlationId,
                                  .start = k->start, .end = k->end, .node = k->graphNodeId });
}

static TraceKind copy_kind(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA: return TRACE_COPY_IN;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH: return TRACE_COPY_OUT;
    default: return TRACE_COPY_WITHIN;
    }
}

static void read_copy(TraceRecords *r, const CUpti_ActivityMemcpy5 *c)
{
    keep_record(r, (PlainRecord){ .kind = copy_kind(c->copyKind), .name = NO_NAME, .stream = c->streamId,
                                  .correlation = c->correlationId, .correlation2 = c->runtimeCorrelationId, .start = c->start,
                                  .end = c->end, .node = c->graphNodeId, .bytes = c->bytes });
}

static void read_set(TraceRecords *r, const CUpti_ActivityMemset4 *m)
{
    keep_record(r, (PlainRecord){ .kind = TRACE_SET, .name = NO_NAME, .stream = m->streamId, .correlation = m->correlationId,
                                  .start = m->start, .end = m->end, .node = m->graphNodeId, .bytes = m->bytes });
}

static void read_external(TraceRecords *r, const CUpti_ActivityExternalCorrelation *e)
{
    if (e->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 && e->correlationId)
        r->untagged_calls += !id_put(&r->tag_of_call, e->correlationId, (int)e->externalId);
}

void trace_records_read(TraceRecords *r, uint8_t *buffer, size_t valid_bytes)
{
    CUpti_Activity *record = NULL;
    if (!valid_bytes)
        return;
    for (;;) {
        CUptiResult e = r->cupti->cuptiActivityGetNextRecord(buffer, valid_bytes, &record);
        if (e == CUPTI_ERROR_MAX_LIMIT_REACHED)
            return;
        if (e != CUPTI_SUCCESS) { /* a record that is not whole: nothing behind it can be found */
            r->dropped++;
            return;
        }
        switch (record->kind) {
        case CUPTI_ACTIVITY_KIND_KERNEL:
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: read_kernel(r, (const CUpti_ActivityKernel9 *)(const void *)record); break;
        case CUPTI_ACTIVITY_KIND_MEMCPY: read_copy(r, (const CUpti_ActivityMemcpy5 *)(const void *)record); break;
        case CUPTI_ACTIVITY_KIND_MEMSET: read_set(r, (const CUpti_ActivityMemset4 *)(const void *)record); break;
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
            read_external(r, (const CUpti_ActivityExternalCorrelation *)(const void *)record);
            break;
        default: break; /* calls of the API, which carry the correlations */
        }
    }
}

void trace_records_tag_node(TraceRecords *r, uint64_t node, int tag)
{
    if (node)
        r->untagged_nodes += !id_put(&r->tag_of_node, node, tag);
}

void trace_records_clone_node(TraceRecords *r, uint64_t original, uint64_t clone)
{
    trace_records_tag_node(r, clone, id_get(&r->tag_of_node, original, NO_TAG));
}

int64_t trace_records_untagged(const TraceRecords *r)
{
    return r->untagged_calls + r->untagged_nodes;
}

/* ---- the trace ---- */

static int tag_of(const TraceRecords *r, const PlainRecord *p)
{
    if (p->node)
        return id_get(&r->tag_of_node, p->node, NO_TAG);
    int tag = id_get(&r->tag_of_call, p->correlation, NO_TAG);
    return tag != NO_TAG ? tag : id_get(&r->tag_of_call, p->correlation2, NO_TAG);
}

enum { KIND_NAME_BYTES = 24 };
static const char kind_names[TRACE_KIND_COUNT][KIND_NAME_BYTES] = {
    [TRACE_COPY_IN] = "copy host to device", [TRACE_COPY_OUT] = "copy device to host", [TRACE_COPY_WITHIN] = "copy on device",
    [TRACE_SET] = "set memory",
};

/* All names one after the other, those of the kinds first; offset[i]: where that of names[i] begins. */
static char *join_names(const TraceRecords *r, size_t *offset)
{
    size_t at = sizeof kind_names;
    char  *block = malloc(sizeof kind_names + r->name_bytes);
    if (!block)
        return NULL;
    memcpy(block, kind_names, sizeof kind_names);
    for (int i = 0; i < r->name_count; i++) {
        size_t bytes = strlen(r->names[i].text) + 1;
        offset[i] = at;
        memcpy(block + at, r->names[i].text, bytes);
        at += bytes;
    }
    return block;
}

static double on_host(uint64_t ns, ClockPair first, ClockPair last)
{
    const double elapsed = last.ns > first.ns ? (double)(last.ns - first.ns) : 0;
    const double rate = elapsed > 1e7 ? (last.seconds - first.seconds) / elapsed : 1e-9; /* under 10 ms the drift is below what the pairs tell */
    return first.seconds + rate * (double)(int64_t)(ns - first.ns);
}

static int by_start(const void *a, const void *b)
{
    const TraceEvent *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

Status trace_records_finish(TraceRecords *r, ClockPair first, ClockPair last, size_t dropped, DeviceTrace *out)
{
    DeviceTrace t = { .dropped = r->dropped + (int64_t)dropped };
    size_t *offset = calloc((size_t)r->name_count + 1, sizeof *offset);
    t.events = calloc(r->count + 1, sizeof *t.events);
    t.names = offset ? join_names(r, offset) : NULL;
    *out = (DeviceTrace){ 0 };
    if (!t.events || !t.names) {
        free(offset);
        device_trace_free(&t);
        return status_error(STATUS_OOM, "out of memory for a trace of %zu events", r->count);
    }
    for (size_t i = 0; i < r->count; i++) {
        const PlainRecord *p = &r->records[i];
        if (p->start < first.ns) /* of before the trace */
            continue;
        t.events[t.count++] = (TraceEvent){
            .kind = p->kind, .tag = tag_of(r, p), .stream = (int)p->stream, .start = on_host(p->start, first, last),
            .end = on_host(p->end, first, last), .bytes = (size_t)p->bytes,
            .tensor_cores = p->name != NO_NAME && r->names[p->name].tensor_cores,
            .name = t.names + (p->name != NO_NAME ? offset[p->name] : (size_t)p->kind * KIND_NAME_BYTES),
        };
    }
    qsort(t.events, t.count, sizeof *t.events, by_start);
    free(offset);
    *out = t;
    return status_ok();
}
