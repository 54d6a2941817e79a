/* layers_private.h - inside layers.c and layers_text.c: the scope around a layer, and its parameters. */
#ifndef BATCHMARK_NETS_LAYERS_PRIVATE_H
#define BATCHMARK_NETS_LAYERS_PRIVATE_H

#include "graph.h"

/* The scope around a layer: entered with its name, left again at its end. */
typedef struct Scope { char outer[GRAPH_NAME_BYTES]; } Scope;
Scope scope_enter(Graph *g, const char *name);
void  scope_leave(Graph *g, const Scope *s);

/* In EVAL the value that the training layer of this name made, if there is one. */
Value layer_find_shared(const Graph *g, const char *leaf);

/* The parameter "<scope>.<leaf>": in EVAL the one that is there already, if there is one. */
Value layer_parameter(Graph *g, const char *leaf, Tensor tensor, Init init, bool decay);

#endif
