/* op_list.h - every op in a few shapes each, of the nets and of the corners: for backends that are asked about all ops at once. */
#ifndef BATCHMARK_TESTS_OP_LIST_H
#define BATCHMARK_TESTS_OP_LIST_H

#include "op_case.h"

enum { OP_LIST_MAX = 128, OP_LIST_SPANS = 4 };

typedef struct ListedOp {
    OpDesc  op;          /* not yet inferred */
    bool    exact;       /* small integers give the same bits on every backend */
    bool    trivial;     /* see OpCase */
    int32_t spans[OP_LIST_SPANS][2]; /* of attention */
} ListedOp;

/* All ops with their float slots in this type; those that have none only for DTYPE_F32. Returns how many. */
int op_list_make(Dtype type, ListedOp list[OP_LIST_MAX]);

/* The case of a listed op: spans and dropout's numbers as they must be, what attention's gradient reads made by its forward op. */
Status op_list_case(const ListedOp *listed, CompareMode mode, uint64_t seed, Backend *ref, OpCase **out);

#endif
