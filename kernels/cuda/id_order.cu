/* id_order.cu - a stable sort of positions by id; see id_order.h.
 *
 * Few ids: each counts those that come before it, in one launch. Many: a radix sort by the 8 bits of a digit at a time, least
 * first. For each digit, tiles of ids count their digits; one block adds the counts up in the order of digit and tile; then a
 * thread for each digit walks through the tile in its order and moves what has its digit. Counts are integers and places follow
 * from them alone, so the result is always the same. */
#include "id_order.h"
#include "launch.cuh"

enum { RANKED = 2048, RANK_THREADS = 64, TILE = 512, DIGITS = 256, SCAN_THREADS = 1024, THREADS = 256 };

static __device__ __forceinline__ uint32_t key_of(uint32_t id, uint32_t none) { return id < none ? id : none; }

static __device__ __forceinline__ void check_id(OpKind op, int32_t id, uint32_t none, int64_t place, CudaFault *fault)
{
    if ((uint32_t)id >= none && id != -1)
        report_fault(fault, op, id, none, place);
}

/* The place of each position is the number of those before it. */
static __global__ void __launch_bounds__(RANK_THREADS)
rank_ids(OpKind op, const int32_t *ids, int64_t count, uint32_t none, uint32_t *sorted, int32_t *at, CudaFault *fault)
{
    __shared__ uint32_t others[RANK_THREADS];
    for (int64_t begin = (int64_t)blockIdx.x * RANK_THREADS; begin < count; begin += (int64_t)gridDim.x * RANK_THREADS) {
        const int64_t  t = begin + threadIdx.x;
        const uint32_t mine = t < count ? key_of((uint32_t)ids[t], none) : 0;
        int place = 0;
        for (int64_t first = 0; first < count; first += RANK_THREADS) {
            const int64_t other = first + threadIdx.x;
            __syncthreads();
            others[threadIdx.x] = other < count ? key_of((uint32_t)ids[other], none) : UINT32_MAX;
            __syncthreads();
            for (int j = 0; j < RANK_THREADS; j++)
                place += others[j] < mine + (first + j < t); /* of equal ids the first comes first */
        }
        if (t < count) {
            check_id(op, ids[t], none, t, fault);
            sorted[place] = mine;
            at[place] = (int32_t)t;
        }
    }
}
LAUNCHABLE(rank_ids);

/* One pass over one digit: (key, from) in, (sorted, at) out. from NULL: each stands at its position, and key is the ids themselves. */
struct Pass {
    int64_t         count, tiles;
    uint32_t        none;
    int             shift;
    const uint32_t *key;
    const int32_t  *from;
    uint32_t       *sorted;
    int32_t        *at;
    int32_t        *counts; /* [DIGITS][tiles]; then where the first of them goes */
};

static __global__ void __launch_bounds__(DIGITS) count_digits(Pass p, OpKind op, CudaFault *fault)
{
    __shared__ int found[DIGITS];
    for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        found[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = tile * TILE + threadIdx.x; i < (tile + 1) * TILE && i < p.count; i += DIGITS) {
            if (!p.from)
                check_id(op, (int32_t)p.key[i], p.none, i, fault);
            atomicAdd(&found[key_of(p.key[i], p.none) >> p.shift & (DIGITS - 1)], 1);
        }
        __syncthreads();
        p.counts[threadIdx.x * p.tiles + tile] = found[threadIdx.x];
        __syncthreads();
    }
}
LAUNCHABLE(count_digits);

/* counts[i] becomes the sum of those before it. A thread has neighbouring ones. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_counts(int64_t n, int32_t *counts)
{
    __shared__ int room[SCAN_THREADS];
    const int64_t each = (n + SCAN_THREADS - 1) / SCAN_THREADS, first = threadIdx.x * each, last = first + each < n ? first + each : n;
    int sum = 0, total;
    for (int64_t i = first; i < last; i++)
        sum += counts[i];
    int before = block_scan(sum, room, &total);
    for (int64_t i = first; i < last; i++) {
        const int found = counts[i];
        counts[i] = before;
        before += found;
    }
}
LAUNCHABLE(scan_counts);

static __global__ void __launch_bounds__(DIGITS) move_ids(Pass p)
{
    __shared__ uint32_t key[TILE];
    for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const int64_t left = p.count - tile * TILE;
        const int     n = left < TILE ? (int)left : (int)TILE;
        for (int i = threadIdx.x; i < n; i += DIGITS)
            key[i] = key_of(p.key[tile * TILE + i], p.none);
        __syncthreads();
        int place = p.counts[threadIdx.x * p.tiles + tile];
        for (int i = 0; i < n; i++)
            if ((key[i] >> p.shift & (DIGITS - 1)) == threadIdx.x) {
                p.sorted[place] = key[i];
                p.at[place++] = p.from ? p.from[tile * TILE + i] : (int32_t)(tile * TILE + i);
            }
        __syncthreads();
    }
}
LAUNCHABLE(move_ids);

/* first[] arrives as -1. */
static __global__ void __launch_bounds__(THREADS) mark_first(int64_t count, uint32_t none, const uint32_t *id, int32_t *first)
{
    for (int64_t i = grid_thread(); i < count; i += grid_threads())
        if (id[i] < none && (i == 0 || id[i - 1] != id[i]))
            first[id[i]] = (int32_t)i;
}
LAUNCHABLE(mark_first);

/* What lies where in scratch. */
typedef struct Places { size_t key[2], at[2], counts, first, bytes; } Places;

static int64_t tile_count(int64_t count) { return (count + TILE - 1) / TILE; }

static Places places_of(int64_t count, int64_t rows)
{
    Places p;
    p.bytes = 0;
    for (int k = 0; k < 2; k++) {
        p.key[k] = cuda_place(&p.bytes, (size_t)count * sizeof(uint32_t));
        p.at[k] = cuda_place(&p.bytes, (size_t)count * sizeof(int32_t));
    }
    p.counts = cuda_place(&p.bytes, (size_t)(DIGITS * tile_count(count)) * sizeof(int32_t));
    p.first = cuda_place(&p.bytes, (size_t)rows * sizeof(int32_t));
    return p;
}

size_t id_order_bytes(int64_t count, int64_t rows) { return places_of(count, rows).bytes; }

/* The passes over all digits that numbers up to `none` have; *last is the buffer of the two that then holds the result. */
static Status sort_by_digits(Backend *be, OpKind op, const int32_t *ids, Pass pass, const Places *places, char *scratch, int *last)
{
    int to = 0;
    pass.key = (const uint32_t *)ids;
    pass.from = nullptr;
    for (pass.shift = 0; pass.shift == 0 || (pass.shift < 32 && pass.none >> pass.shift); pass.shift += 8, to = !to) {
        pass.sorted = (uint32_t *)(scratch + places->key[to]);
        pass.at = (int32_t *)(scratch + places->at[to]);
        TRY(cuda_launch(be, count_digits, cuda_blocks(pass.tiles, 1), DIGITS, 0, pass, op, cuda_of(be)->fault));
        TRY(cuda_launch(be, scan_counts, 1, SCAN_THREADS, 0, DIGITS * pass.tiles, pass.counts));
        TRY(cuda_launch(be, move_ids, cuda_blocks(pass.tiles, 1), DIGITS, 0, pass));
        pass.key = pass.sorted;
        pass.from = pass.at;
        *last = to;
    }
    return status_ok();
}

Status id_order_make(Backend *be, OpKind op, const int32_t *ids, int64_t count, int64_t rows, void *scratch, IdOrder *out)
{
    char          *base = (char *)scratch;
    const Places   places = places_of(count, rows);
    const uint32_t none = rows < INT32_MAX ? (uint32_t)rows : (uint32_t)INT32_MAX + 1; /* above every id */
    int32_t       *first = (int32_t *)(base + places.first);
    int            last = 0;
    if (count <= RANKED)
        TRY(cuda_launch(be, rank_ids, cuda_blocks(count, RANK_THREADS), RANK_THREADS, 0, op, ids, count, none,
                        (uint32_t *)(base + places.key[0]), (int32_t *)(base + places.at[0]), cuda_of(be)->fault));
    else {
        Pass pass = {};
        pass.count = count;
        pass.tiles = tile_count(count);
        pass.none = none;
        pass.counts = (int32_t *)(base + places.counts);
        TRY(sort_by_digits(be, op, ids, pass, &places, base, &last));
    }
    *out = IdOrder{ count, none, (const uint32_t *)(base + places.key[last]), (const int32_t *)(base + places.at[last]), first };
    TRY(cuda_status(cudaMemsetAsync(first, 0xff, (size_t)rows * sizeof *first, cuda_of(be)->stream), "cudaMemsetAsync"));
    return cuda_launch(be, mark_first, cuda_blocks(count, THREADS), THREADS, 0, count, none, out->id, first);
}
