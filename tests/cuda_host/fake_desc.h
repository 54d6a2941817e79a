/* fake_desc.h - descriptors of the stand-in for cuDNN: a type, attributes, a finalised flag. Inside of fake_cudnn.h's parts only.
 *
 * A descriptor holds references to those set in it, so that the order of destruction does not matter (cuDNN copies what it needs). */
#ifndef BATCHMARK_TESTS_FAKE_DESC_H
#define BATCHMARK_TESTS_FAKE_DESC_H

#include "fake_cudnn.h"
#include "interp.h"

typedef struct FakeDesc FakeDesc;

typedef struct FakeAttr {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void   *data; /* for descriptors: FakeDesc * */
} FakeAttr;

enum { FAKE_ATTRS = 24 };

struct FakeDesc {
    uint64_t magic;
    cudnnBackendDescriptorType_t type;
    int      references; /* the owner's, and one for each descriptor or job that needs it */
    bool     finalized;
    int      attrs;
    FakeAttr attr[FAKE_ATTRS];
    InterpGraph   *graph;  /* of an operation graph */
    FakeCudnnEngine engine; /* of an engine, its configuration, its plan */
};

/* What an attribute may be. */
typedef struct FakeRule {
    cudnnBackendDescriptorType_t owner;
    cudnnBackendAttributeName_t  name;
    cudnnBackendAttributeType_t  type, other; /* `other`: a second type that is taken, or the same */
    int64_t least, most;                      /* elements */
    bool    needed;                           /* to finalise */
    bool    answer;                           /* can be read, not set */
} FakeRule;

/* ---- errors: keeps the words for cudnnGetLastErrorString and returns the status (fake_cudnn.c) */
cudnnStatus_t fake_error(cudnnStatus_t status, const char *format, ...) PRINTF_LIKE(2, 3);
#define FAKE_TRY(expression)                      \
    do {                                          \
        cudnnStatus_t fake_try_ = (expression);   \
        if (fake_try_ != CUDNN_STATUS_SUCCESS)    \
            return fake_try_;                     \
    } while (0)
#define FAKE_REQUIRE(condition, status, ...) \
    do {                                     \
        if (!(condition))                    \
            return fake_error((status), __VA_ARGS__); \
    } while (0)

/* ---- descriptors (fake_desc.c) */
FakeDesc *fake_desc_of(cudnnBackendDescriptor_t d); /* NULL if it is none, or destroyed */
FakeDesc *fake_desc_create(cudnnBackendDescriptorType_t type);
void      fake_desc_release(FakeDesc *d);
bool      fake_desc_is_known(cudnnBackendDescriptorType_t type);
const char *fake_desc_name(cudnnBackendDescriptorType_t type);
cudnnStatus_t fake_desc_set(FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void *data);
cudnnStatus_t fake_desc_get(const FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
                            int64_t *count, void *data);
cudnnStatus_t fake_desc_check_needed(const FakeDesc *d);
/* Keeps an answer for fake_desc_get, without the checks of setting. */
cudnnStatus_t fake_desc_keep(FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                             const void *data);

const FakeAttr *fake_attr(const FakeDesc *d, cudnnBackendAttributeName_t name); /* NULL if it was not set */
int64_t   fake_int(const FakeDesc *d, cudnnBackendAttributeName_t name, int64_t otherwise); /* INT64, enums, booleans */
double    fake_number(const FakeDesc *d, cudnnBackendAttributeName_t name, double otherwise); /* FLOAT or DOUBLE */
FakeDesc *fake_child(const FakeDesc *d, cudnnBackendAttributeName_t name);                    /* NULL if it was not set */

/* fake_attrs.c; NULL: not its attribute */
const FakeRule *fake_rule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);
const FakeRule *fake_rules(int *count);

/* ---- what finalising means for each type */
cudnnStatus_t fake_check(FakeDesc *d);            /* fake_check.c: tensors, and what ops are described by */
cudnnStatus_t fake_check_op(FakeDesc *d);         /* fake_op.c: shapes of operations */
cudnnStatus_t fake_graph_compile(FakeDesc *d);    /* fake_graph.c */
void          fake_graph_free(InterpGraph *g);    /* NULL is fine */
cudnnStatus_t fake_engine_finalize(FakeDesc *d);  /* fake_engine.c: heuristics, engine, configuration, plan, device */
cudnnStatus_t fake_engine_results(const FakeDesc *heuristics, int64_t room, int64_t *count, FakeDesc *const *configs);
cudnnStatus_t fake_plan_execute(cudnnHandle_t handle, cudaStream_t stream, FakeDesc *plan, const FakeDesc *pack);
bool          fake_is_op(cudnnBackendDescriptorType_t type);

/* The tensors of an op by interp.h's slots: the attribute, and whether it is needed. Name < 0 ends a list. */
typedef struct FakeSlot { int name; bool needed; } FakeSlot;
const FakeSlot *fake_op_slots(const FakeDesc *op, InterpKind *kind); /* NULL: an op that is known but not interpreted */

/* An op's tensor as interp.h sees it. */
void fake_tensor_read(const FakeDesc *d, InterpTensor *out);

/* The engines that tests set (fake_cudnn.c). */
const FakeCudnnEngine *fake_engines(int *count);
void fake_count_execution(int64_t engine);

#endif
