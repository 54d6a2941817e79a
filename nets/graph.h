/* graph.h - a net as data: values (tensors with a name and a purpose) and nodes (ops on them) in execution order.
 *
 * A net is built once by the functions of layers.h; passes (amp.h, grad.h, optim.h) rewrite or append; plan.h gives the
 * values addresses; exec.h runs the nodes. Nodes run in the order in which they stand, one segment at a time:
 *   BEGIN   once per update: zero what is accumulated        MICRO   once per micro-batch: forward and backward
 *   UPDATE  once per update: norm, optimiser, compute copies EVAL    forward only, for evaluation
 *
 * The builder has a sticky error: the first mistake is kept with its scope and op, later calls do nothing, and
 * graph_status tells at the end. */
#ifndef BATCHMARK_NETS_GRAPH_H
#define BATCHMARK_NETS_GRAPH_H

#include "../kernels/ops.h"

#include <stdio.h>

typedef struct Value { int id; } Value; /* id < 0: no value */
#define NO_VALUE ((Value){ -1 })

typedef enum Segment { SEG_BEGIN, SEG_MICRO, SEG_UPDATE, SEG_EVAL, SEG_COUNT } Segment;

/* What memory is for; the categories of `batchmark plan` and of the record. */
typedef enum MemKind {
    MEM_WEIGHT,     /* master weights (fp32) and batch-norm running statistics */
    MEM_COPY,       /* compute copies of weights, in the type and layout a kernel wants */
    MEM_GRAD,       /* parameter gradients (fp32) */
    MEM_OPTIM,      /* optimiser state */
    MEM_ACT,        /* activations and their gradients: the arena */
    MEM_WORKSPACE,  /* scratch of single nodes: also in the arena */
    MEM_INPUT,      /* what the host writes or reads: images, labels, scalars, metrics */
    MEM_KIND_COUNT
} MemKind;

extern const char *const segment_names[SEG_COUNT];       /* "begin", "micro", "update", "eval" */
extern const char *const mem_kind_names[MEM_KIND_COUNT]; /* "weights", "copies", "gradients", "optimizer", ... */

typedef enum InitKind { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_UNIFORM, INIT_LIST } InitKind;

/* How a persistent value starts: INIT_NORMAL: deviation = scale; INIT_UNIFORM: in [-scale, scale]; INIT_LIST: the numbers in
 * GraphValue.start. */
typedef struct Init { InitKind kind; float scale; } Init;

enum { GRAPH_NAME_BYTES = 64, GRAPH_START_COUNT = 8, GROUP_NONE = 0 };

typedef struct GraphValue {
    char    name[GRAPH_NAME_BYTES]; /* unique: "conv3.0.bn2.gamma" */
    Tensor  tensor;
    MemKind kind;       /* all but MEM_ACT and MEM_WORKSPACE are persistent: they have memory of their own for the whole run */
    int     group;      /* persistent values of one group (> 0) lie side by side in order of id, see graph_span */
    int     span_group; /* > 0: this value is not stored itself, it is that whole group seen as one f32 vector */
    int     table_group; /* > 0: i32 (n+1), where the n values of that group begin in its span and where the last ends */
    int     layout_of;  /* >= 0: has the physical layout of that value (weight and momentum of their gradient) */
    bool    is_param;   /* counted by graph_param_count, initialised by init, gets a gradient */
    bool    decay;      /* weight decay applies (not for batch norm and biases, Goyal et al. 2017) */
    Init    init;
    float   start[GRAPH_START_COUNT];
    int     producer;   /* node that writes it first, -1 if none */
} GraphValue;

typedef struct GraphNode {
    OpDesc  op;
    int     in[OP_MAX_IN], out[OP_MAX_OUT]; /* value ids */
    Segment segment;
    char    scope[GRAPH_NAME_BYTES];        /* where in the net: "conv3.0.conv2" */
} GraphNode;

typedef struct Graph {
    GraphValue *values;
    GraphNode  *nodes;
    int         value_count, node_count, value_capacity, node_capacity;
    char        scope[GRAPH_NAME_BYTES];
    Segment     segment; /* of the nodes being appended */
    Status      status;  /* the first error */
} Graph;

/* An empty graph; STATUS_OOM. The caller frees it with graph_destroy. */
Status graph_create(Graph **out);
void   graph_destroy(Graph *g); /* NULL is fine */

/* Sets the scope of what is appended next, printf-style. */
void graph_scope(Graph *g, const char *format, ...) PRINTF_LIKE(2, 3);

/* A value that no node of the graph makes. The name is "<scope>.<leaf>", or leaf alone if the scope is empty. */
Value graph_value(Graph *g, const char *leaf, Tensor tensor, MemKind kind);

/* A trainable parameter: f32, MEM_WEIGHT. */
Value graph_param(Graph *g, const char *leaf, Tensor tensor, Init init, bool decay);

/* A vector over all values of a group, in their physical order (padding of layouts included, it is zero). Its length is
 * set when the plan is made; the op that takes it works on all of them in one call. */
Value graph_span(Graph *g, const char *name, int group);

/* The table of a group's values within its span, in elements: i32 (n+1), filled when parameters are initialised. To be made
 * when the group is complete. Padding belongs to the value before it. */
Value graph_span_table(Graph *g, const char *name, int group);

/* Appends an op to the current segment: fills in[] from the values, calls op_infer, makes the outputs as MEM_ACT values
 * named after scope, op and slot. Returns the node's index or -1 after an error. graph_emit returns output 0. */
int   graph_append(Graph *g, OpDesc op, int n_in, const Value *in);
Value graph_emit(Graph *g, OpDesc op, int n_in, const Value *in);

/* The same with given output values (in-out and persistent outputs) instead of new ones; where out[i] is NO_VALUE a new
 * one is made. */
int graph_append_to(Graph *g, OpDesc op, int n_in, const Value *in, int n_out, const Value *out);

Value graph_output(const Graph *g, int node, int slot);

/* Shape and type; of NO_VALUE, after an error, an empty tensor. Valid until the next value is made. */
const Tensor *graph_tensor(const Graph *g, Value v);

/* The value of that full name, or NO_VALUE. */
Value graph_find(const Graph *g, const char *name);

/* The input slot in which an op takes the weights it multiplies by, -1 if it has none. An appended op sees a parameter
 * there in the type of slot 0, its activation; copies_append (optim.h) makes the copy that has this type. */
int graph_weight_slot(OpKind kind);

/* Records an error if there is none yet, as STATUS_USAGE or with its own code; graph_status returns it. */
void   graph_fail(Graph *g, const char *format, ...) PRINTF_LIKE(2, 3);
void   graph_fail_status(Graph *g, Status s);
Status graph_status(const Graph *g);

bool graph_is_persistent(const GraphValue *v);

/* Trainable parameters, in elements. */
int64_t graph_param_count(const Graph *g);

/* Work of one run of a segment. */
OpCost graph_cost(const Graph *g, Segment segment);

/* One line a node, one a parameter, with shapes: --print-graph. */
void graph_print(const Graph *g, FILE *to);

#endif
