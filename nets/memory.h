/* memory.h - where every value lies: an offset in the persistent block or in the arena. Part of exec. */
#ifndef BATCHMARK_NETS_MEMORY_H
#define BATCHMARK_NETS_MEMORY_H

#include "exec.h"
#include "layout.h"

typedef struct Memory {
    int    *home;            /* [values] the value in whose memory it lies: itself, or the one it replaces in place */
    size_t *offset;          /* [values] of homes: in the persistent block, or in the arena for activations */
    int    *last;            /* [values] of homes in the arena: the node after which it is free; -1: never used */
    size_t *scratch_offset;  /* [nodes] in the arena */
    size_t  persistent_bytes, arena_bytes;
    MemPlan plan;
} Memory;

/* Plans both blocks. Errors: STATUS_OOM for its own tables; STATUS_USAGE for an activation that is used in two segments,
 * where it has no value. The caller frees with memory_free, also after an error. */
Status memory_place(const Graph *g, const Layout *l, bool separate, Memory *out);
void   memory_free(Memory *m);

#endif
