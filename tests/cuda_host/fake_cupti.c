/* fake_cupti.c - the bodies of fake_cupti.h. */
#include "fake_cupti.h"

#include "fake.h"
#include "kernels/cuda/libs.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS = 64, STACK = 16, RECORD_ALIGN = 8 };
#define CLOCK_OFFSET 5000000000000u /* its clock is not the host's */

static struct {
    bool        enabled[KINDS];
    CUpti_CallbackFunc callback;
    void       *callback_data;
    bool        callback_on[64];
    CUpti_BuffersCallbackRequestFunc  request;
    CUpti_BuffersCallbackCompleteFunc complete;
    uint8_t    *buffer;
    size_t      size, used, records, most;
    size_t      dropped;
    int64_t     to_drop;
    uint64_t    pushed[STACK];
    int         depth;
    uint32_t    last_call;
    bool        times_given;
    uint64_t    start, end;
} fake;

/* The struct's size with which records follow each other. */
static size_t record_bytes(const CUpti_Activity *record)
{
    size_t bytes = 0;
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: bytes = sizeof(CUpti_ActivityKernel9); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: bytes = sizeof(CUpti_ActivityMemcpy5); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: bytes = sizeof(CUpti_ActivityMemset4); break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: bytes = sizeof(CUpti_ActivityExternalCorrelation); break;
    case CUPTI_ACTIVITY_KIND_RUNTIME: bytes = sizeof(CUpti_ActivityAPI); break;
    default: check_failed("a kind that is made here", __FILE__, __LINE__);
    }
    return (bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

#define ENTER() do { int error_ = fake_enter(FAKE_CUPTI, __func__ + strlen("fake_")); if (error_) return (CUptiResult)error_; } while (0)

/* ---- records ---- */

static void hand_back(void)
{
    uint8_t *buffer = fake.buffer;
    fake.buffer = NULL;
    if (buffer)
        fake.complete(NULL, 0, buffer, fake.size, fake.used);
}

static void keep(const void *record, size_t bytes)
{
    CUpti_Activity head;
    memcpy(&head, record, sizeof head);
    if (!fake.enabled[head.kind])
        return;
    const size_t stride = record_bytes(&head);
    if (fake.buffer && (fake.used + stride > fake.size || (fake.most && fake.records == fake.most)))
        hand_back();
    if (!fake.buffer && fake.request) {
        size_t most = 0;
        fake.request(&fake.buffer, &fake.size, &most);
        fake.used = fake.records = 0;
        CHECK((uintptr_t)fake.buffer % RECORD_ALIGN == 0);
    }
    if (!fake.buffer || fake.to_drop > 0) {
        fake.to_drop -= fake.to_drop > 0;
        fake.dropped++;
        return;
    }
    memset(fake.buffer + fake.used, 0, stride);
    memcpy(fake.buffer + fake.used, record, bytes);
    fake.used += stride;
    fake.records++;
}

static uint64_t now(void)
{
    return (uint64_t)(clock_seconds() * 1e9) + CLOCK_OFFSET;
}

uint32_t fake_cupti_call(void)
{
    fake.last_call++;
    if (fake.enabled[CUPTI_ACTIVITY_KIND_RUNTIME] && fake.depth > 0) {
        CUpti_ActivityExternalCorrelation e = { .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, .externalId = fake.pushed[fake.depth - 1],
            .correlationId = fake.last_call };
        keep(&e, sizeof e);
    }
    CUpti_ActivityAPI api = { .kind = CUPTI_ACTIVITY_KIND_RUNTIME, .start = now(), .end = now(), .correlationId = fake.last_call };
    keep(&api, sizeof api);
    return fake.last_call;
}

void fake_cupti_ran(FakeWork kind, const char *name, size_t bytes, int stream, uint32_t call, const void *node)
{
    const uint8_t copy_kinds[] = { [FAKE_COPY_IN] = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, [FAKE_COPY_OUT] = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                                   [FAKE_COPY_WITHIN] = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD };
    const uint64_t start = fake.times_given ? fake.start : now(), end = fake.times_given ? fake.end : start + 1000;
    const uint64_t id = (uint64_t)(uintptr_t)node;
    fake.times_given = false;
    if (kind == FAKE_KERNEL) {
        CUpti_ActivityKernel9 k = { .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .start = start, .end = end, .streamId = (uint32_t)stream,
                                    .correlationId = call, .name = name, .graphNodeId = id };
        keep(&k, sizeof k);
    } else if (kind == FAKE_SET) {
        CUpti_ActivityMemset4 m = { .kind = CUPTI_ACTIVITY_KIND_MEMSET, .bytes = bytes, .start = start, .end = end,
                                    .streamId = (uint32_t)stream, .correlationId = call, .graphNodeId = id };
        keep(&m, sizeof m);
    } else {
        CUpti_ActivityMemcpy5 c = { .kind = CUPTI_ACTIVITY_KIND_MEMCPY, .copyKind = copy_kinds[kind], .bytes = bytes, .start = start,
                                    .end = end, .streamId = (uint32_t)stream, .correlationId = call, .graphNodeId = id };
        keep(&c, sizeof c);
    }
}

static void tell_node(CUpti_CallbackId id, const void *original, const void *node)
{
    if (!fake.callback || !fake.callback_on[id])
        return;
    CUpti_GraphData graph = { .node = (CUgraphNode)(uintptr_t)node, .originalNode = (CUgraphNode)(uintptr_t)original };
    CUpti_ResourceData data = { .resourceDescriptor = &graph };
    fake.callback(fake.callback_data, CUPTI_CB_DOMAIN_RESOURCE, id, &data);
}

void fake_cupti_node_created(const void *node)
{
    tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, NULL, node);
}

void fake_cupti_node_cloned(const void *original, const void *clone)
{
    tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, original, clone);
}

/* ---- the functions of the library ---- */

static CUptiResult CUPTIAPI fake_cuptiGetTimestamp(uint64_t *ns)
{
    ENTER();
    *ns = now();
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiGetResultString(CUptiResult e, const char **text)
{
    *text = e == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_FAKE";
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityEnable(CUpti_ActivityKind kind)
{
    ENTER();
    fake.enabled[kind] = true;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityDisable(CUpti_ActivityKind kind)
{
    ENTER();
    fake.enabled[kind] = false;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                                CUpti_BuffersCallbackCompleteFunc complete)
{
    ENTER();
    fake.request = request;
    fake.complete = complete;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    ENTER();
    uint8_t *next = *record ? (uint8_t *)*record + record_bytes(*record) : buffer;
    if (next >= buffer + valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    ENTER();
    *dropped = fake.dropped;
    fake.dropped = 0;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    ENTER();
    hand_back();
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    (void)kind;
    ENTER();
    CHECK(fake.depth < STACK);
    fake.pushed[fake.depth++] = id;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last)
{
    (void)kind;
    ENTER();
    if (fake.depth == 0)
        return CUPTI_ERROR_QUEUE_EMPTY;
    *last = fake.pushed[--fake.depth];
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data)
{
    ENTER();
    if (fake.callback)
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    fake.callback = callback;
    fake.callback_data = data;
    *subscriber = (CUpti_SubscriberHandle)(void *)&fake;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    ENTER();
    CHECK(subscriber == (CUpti_SubscriberHandle)(void *)&fake);
    fake.callback = NULL;
    memset(fake.callback_on, 0, sizeof fake.callback_on);
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                                     CUpti_CallbackId id)
{
    ENTER();
    CHECK(subscriber == (CUpti_SubscriberHandle)(void *)&fake && domain == CUPTI_CB_DOMAIN_RESOURCE);
    fake.callback_on[id] = on != 0;
    return CUPTI_SUCCESS;
}

static CUptiResult CUPTIAPI fake_cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id)
{
    ENTER();
    *id = (uint64_t)(uintptr_t)node;
    return CUPTI_SUCCESS;
}

#define FAKE_POINTER(name) .name = fake_##name,
static const CuptiApi fake_api = { CUPTI_FUNCTIONS(FAKE_POINTER) };

const CuptiApi *fake_cupti_api(void) { return &fake_api; }

/* ---- what a test says ---- */

void fake_cupti_reset(void)
{
    free(fake.buffer);
    memset(&fake, 0, sizeof fake);
}

void fake_cupti_set_buffer_records(size_t most) { fake.most = most; }
void fake_cupti_drop(int64_t n) { fake.to_drop = n; }

void fake_cupti_set_times(uint64_t start, uint64_t end)
{
    fake.times_given = true;
    fake.start = start;
    fake.end = end;
}

int fake_cupti_open(void)
{
    int open = fake.callback != NULL;
    for (int k = 0; k < KINDS; k++)
        open += fake.enabled[k];
    return open + fake.depth + (fake.buffer != NULL);
}
