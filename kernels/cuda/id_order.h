/* id_order.h - sorts positions by the id that stands there, those of one id in their order: what gradients of picked rows need to
 * add up in a fixed order without waiting for each other. */
#ifndef BATCHMARK_KERNELS_CUDA_ID_ORDER_H
#define BATCHMARK_KERNELS_CUDA_ID_ORDER_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory, in scratch. What picks no row (-1, or out of range) has the id `none` and comes last. */
typedef struct IdOrder {
    int64_t         count;
    uint32_t        none;
    const uint32_t *id;    /* [count] ascending */
    const int32_t  *at;    /* [count] position of each */
    const int32_t  *first; /* [rows] where an id begins in id[]; -1 if it is not there */
} IdOrder;

size_t id_order_bytes(int64_t count, int64_t rows);

/* Enqueues the sort of ids[count] of a table of so many rows. Ids out of range are reported as of this op. */
Status id_order_make(Backend *be, OpKind op, const int32_t *ids, int64_t count, int64_t rows, void *scratch, IdOrder *out);

#ifdef __cplusplus
}
#endif
#endif
