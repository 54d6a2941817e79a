/* fake_cudnn.c - the functions of the stand-in for cuDNN; see fake_cudnn.h. */
#include "fake_cudnn.h"

#include "fake.h"
#include "fake_desc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudnnContext { cudaStream_t stream; }; /* what a handle points to */

static const FakeCudnnEngine default_engines[] = {
    { .index = 7, .workspace = 131, .microseconds = 4, .knob = 3,
      .notes = 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS },
    { .index = 12, .workspace = 1024, .microseconds = 8 },
    { .index = 15, .workspace = 0, .microseconds = 2, .behaviour = 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, .refuses = true },
    { .index = 0, .workspace = 4096, .microseconds = 16, .fallback = true },
};

/* What a process that loaded the library has of it. */
static struct Library {
    FakeCudnnEngine engine[FAKE_CUDNN_ENGINES];
    int             engines;
    size_t          version;
    int64_t         last_engine;
    FakeCudnnCounts counts;
    char            words[512]; /* of the last error */
} library;

void fake_cudnn_set_engines(const FakeCudnnEngine *engine, int count)
{
    CHECK(count >= 0 && count <= FAKE_CUDNN_ENGINES);
    library.engines = count;
    for (int i = 0; i < count; i++)
        library.engine[i] = engine[i];
}

void fake_cudnn_reset(void)
{
    fake_cudnn_set_engines(default_engines, COUNT_OF(default_engines));
    library.version = CUDNN_VERSION;
    library.last_engine = -1;
    library.counts.executed = 0;
    library.words[0] = '\0';
}

void fake_cudnn_set_version(size_t version) { library.version = version; }
FakeCudnnCounts fake_cudnn_counts(void) { return library.counts; }
int64_t fake_cudnn_last_engine(void) { return library.last_engine; }

const FakeCudnnEngine *fake_engines(int *count)
{
    *count = library.engines;
    return library.engine;
}

void fake_count_execution(int64_t engine)
{
    library.counts.executed++;
    library.last_engine = engine;
}

cudnnStatus_t fake_error(cudnnStatus_t status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(library.words, sizeof library.words, format, arguments);
    va_end(arguments);
    return status;
}

/* The fault that a test has set for this call. */
#define FAKE_ENTER                                                                   \
    do {                                                                             \
        int fault_ = fake_enter(FAKE_CUDNN, __func__);                               \
        if (fault_ != 0)                                                             \
            return fake_error((cudnnStatus_t)fault_, "%s failed in a test", __func__); \
    } while (0)

/* ---- the library's functions */

size_t CUDNNWINAPI cudnnGetVersion(void) { return library.version; }

const char *CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status)
{
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case 1000: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2000: return "CUDNN_STATUS_BAD_PARAM";
    case 3000: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4000: return "CUDNN_STATUS_INTERNAL_ERROR";
    case 5000: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_UNKNOWN_STATUS";
    }
}

/* Reading the words forgets them. */
void CUDNNWINAPI cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (max_size > 0)
        snprintf(message, max_size, "%s", library.words);
    library.words[0] = '\0';
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t *handle)
{
    FAKE_ENTER;
    FAKE_REQUIRE(handle, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "create: handle is NULL");
    *handle = calloc(1, sizeof **handle);
    FAKE_REQUIRE(*handle, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for a handle");
    library.counts.handles++;
    return CUDNN_STATUS_SUCCESS;
}

/* The handle is gone whatever the call returns. */
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    library.counts.handles -= handle != NULL;
    FAKE_ENTER;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    FAKE_ENTER;
    FAKE_REQUIRE(handle, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "set stream: handle is NULL");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor)
{
    FAKE_ENTER;
    FAKE_REQUIRE(descriptor, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "create descriptor: into NULL");
    FAKE_REQUIRE(fake_desc_is_known(type), CUDNN_STATUS_NOT_SUPPORTED,
                 "create descriptor: type %d is not in this stand-in for cuDNN", (int)type);
    *descriptor = fake_desc_create(type);
    FAKE_REQUIRE(*descriptor, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for a descriptor");
    library.counts.descriptors++;
    return CUDNN_STATUS_SUCCESS;
}

/* The descriptor is gone whatever the call returns. */
cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    FakeDesc *d = fake_desc_of(descriptor);
    if (d) {
        fake_desc_release(d);
        library.counts.descriptors--;
    }
    FAKE_ENTER;
    FAKE_REQUIRE(d, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "destroy descriptor: it is none");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    FakeDesc *d = fake_desc_of(descriptor);
    FAKE_ENTER;
    FAKE_REQUIRE(d, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "set attribute: no descriptor");
    return fake_desc_set(d, name, type, count, elements);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t requested, int64_t *count,
                                                   void *elements)
{
    const FakeDesc *d = fake_desc_of(descriptor);
    FAKE_ENTER;
    FAKE_REQUIRE(d, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "get attribute: no descriptor");
    return fake_desc_get(d, name, type, requested, count, elements);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    FakeDesc *d = fake_desc_of(descriptor);
    FAKE_ENTER;
    FAKE_REQUIRE(d, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "finalize: no descriptor");
    FAKE_REQUIRE(!d->finalized, CUDNN_STATUS_BAD_PARAM, "%s: finalized twice", fake_desc_name(d->type));
    FAKE_TRY(fake_desc_check_needed(d));
    if (fake_is_op(d->type))
        FAKE_TRY(fake_check_op(d));
    else if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        FAKE_TRY(fake_graph_compile(d));
    else {
        FAKE_TRY(fake_check(d));
        FAKE_TRY(fake_engine_finalize(d));
    }
    d->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    FAKE_ENTER;
    return fake_plan_execute(handle, handle ? handle->stream : NULL, fake_desc_of(plan), fake_desc_of(pack));
}

const CudnnApi *fake_cudnn_api(void)
{
#define FUNCTION(name) .name = name,
    static const CudnnApi api = { CUDNN_FUNCTIONS(FUNCTION) };
#undef FUNCTION
    if (library.version == 0)
        fake_cudnn_reset();
    return &api;
}
