/* layout.h - which physical layout every value has: settled between what the kernels of its nodes wish. Part of exec. */
#ifndef BATCHMARK_NETS_LAYOUT_H
#define BATCHMARK_NETS_LAYOUT_H

#include "../kernels/backend.h"
#include "graph.h"

typedef struct Layout {
    Tensor  *tensor;  /* [values] the graph's tensor with its final layout, spans with their final length */
    size_t  *bytes;   /* [values] physical size */
    int     *same_as; /* [values] whose memory it uses: itself, or for a copy that would be equal, the other value */
    OpDesc  *op;      /* [nodes] with final tensors */
    OpNeeds *needs;   /* [nodes] */
    bool    *idle;    /* [nodes] nothing to do: a repack whose result is there already */
} Layout;

/* Asks every node's kernel. Errors: two nodes that wish different layouts of one value, named both; a backend that does
 * not have an op; STATUS_OOM. The caller frees with layout_free, also after an error. */
Status layout_settle(const Graph *g, Backend *be, Layout *out);
void   layout_free(Layout *l);

/* Bytes of the block of a value: padded so that the next one is aligned. */
size_t layout_padded(size_t bytes);

#endif
