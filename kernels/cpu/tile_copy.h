/* tile_copy.h - one tile of weights from f32 in one order into another order or type; see struct Relayout in layout.c. */
#ifndef BATCHMARK_KERNELS_CPU_TILE_COPY_H
#define BATCHMARK_KERNELS_CPU_TILE_COPY_H

#include "../tensor.h"

/* How the tile's elements move; the named ones have vector code. */
typedef enum TileOrder {
    TILE_GATHER,          /* any */
    TILE_TRANSPOSE,       /* f32 -> f32, 16 x 16 */
    TILE_ROW_PAIRS,       /* f32 -> bf16, rows of 16 interleaved two by two: OIhw16i16o -> OIhw16i16o2i and their like */
    TILE_COLUMN_PAIRS     /* f32 -> bf16, 16 rows of 32 columns, columns two by two: OIhw16i16o -> OIhw16o16i2o */
} TileOrder;

/* Which of them a table is: element i of the contiguous destination comes from element place[i] of the source. */
TileOrder tile_order(Dtype to, const int *place, int size);

/* One tile; `from` and `to` point at its first element. `to` is f32 or bf16. */
void tile_copy(TileOrder order, Dtype type, const int *restrict place, int size, const float *restrict from, void *restrict to);

#endif
