/* launch.cuh - what every .cu file here begins with: launching, conversions, 16-byte access, reductions, random numbers.
 *
 * The same source builds with nvcc and, for tests, with g++ through tests/cuda_host/shim.h, which runs the threads of a block on
 * the CPU. So: kernels are launched with cuda_launch, never with <<<>>>; every kernel that is launched is named once in
 * LAUNCHABLE(...), template arguments included; dynamic shared memory is declared with SHARED_DYNAMIC. Kernels keep no state. */
#ifndef BATCHMARK_KERNELS_CUDA_LAUNCH_CUH
#define BATCHMARK_KERNELS_CUDA_LAUNCH_CUH

#include "cuda.h"

#include <initializer_list>
#include <tuple>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define LAUNCHABLE(...) static_assert(true, "")
#define SHARED_DYNAMIC(T, name) \
    extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    T *name = reinterpret_cast<T *>(name##_bytes)
#endif

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* Enqueues; arguments are converted to the kernel's parameter types. An empty grid is nothing to do. */
template <class... P, class... A>
static inline Status cuda_launch(Backend *be, void (*kernel)(P...), dim3 grid, int block, size_t shared, A... arguments)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return status_ok();
    std::tuple<P...> values(static_cast<P>(arguments)...);
    cudaError_t e = std::apply([&](auto &...value) {
        void *pointers[] = { (void *)&value..., nullptr };
        return cudaLaunchKernel((const void *)kernel, grid, dim3((unsigned)block), pointers, shared, cuda_of(be)->stream);
    }, values);
    return cuda_status(e, "cudaLaunchKernel");
}

/* Blocks of a loop over n items with `each` items a block, at most `most`: kernels stride over the rest, so any n works. */
static inline unsigned cuda_blocks(int64_t n, int64_t each, int64_t most = 16384)
{
    int64_t blocks = (n + each - 1) / each;
    return (unsigned)(blocks < most ? blocks : most);
}

/* This thread's number in the grid and the number of threads: for (i = grid_thread(); i < n; i += grid_threads()). */
static __device__ __forceinline__ int64_t grid_thread() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ int64_t grid_threads() { return (int64_t)gridDim.x * blockDim.x; }

/* f<float>(...), f<bf16>(...) or f<f16>(...) by the element type, which is one of these three. */
#define CUDA_BY_TYPE(dtype, f, ...) \
    ((dtype) == DTYPE_F32 ? f<float>(__VA_ARGS__) : (dtype) == DTYPE_BF16 ? f<bf16>(__VA_ARGS__) : f<f16>(__VA_ARGS__))

/* The kernel for a float type. */
template <class K> static inline K *cuda_of_type(Dtype dtype, K *of_f32, K *of_bf16, K *of_f16)
{
    return dtype == DTYPE_F32 ? of_f32 : dtype == DTYPE_BF16 ? of_bf16 : of_f16;
}

/* Whether all of these may be accessed 16 bytes at a time. NULL may. */
static inline bool cuda_is_aligned(std::initializer_list<const void *> addresses)
{
    uintptr_t bits = 0;
    for (const void *address : addresses)
        bits |= (uintptr_t)address;
    return bits % 16 == 0;
}

/* Cuts scratch into pieces, one a call: where the next one of so many bytes begins. *at starts at 0 and ends as the whole size. */
static inline size_t cuda_place(size_t *at, size_t bytes)
{
    const size_t begin = *at;
    *at += (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    return begin;
}

/* ---- values */
static __device__ __forceinline__ float widen(float x) { return x; }
static __device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
template <class T> static __device__ __forceinline__ T narrow(float x);
template <> __device__ __forceinline__ float narrow<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 narrow<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ f16 narrow<f16>(float x) { return __float2half_rn(x); }

/* N consecutive values moved at once; N sizeof(T) = 16 is the widest access there is. The address is a multiple of that. */
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
template <class T> struct Wide { enum { N = 16 / sizeof(T) }; typedef Pack<T, 16 / sizeof(T)> Type; };

/* N values as floats, by accesses of at most 16 bytes; the address is a multiple of the smaller of 16 and N sizeof(T). */
template <int N, class T> static __device__ __forceinline__ void load_floats(const T *from, float (&to)[N])
{
    constexpr int each = N * (int)sizeof(T) < 16 ? N : 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < N; i += each) {
        const Pack<T, each> p = *reinterpret_cast<const Pack<T, each> *>(from + i);
#pragma unroll
        for (int k = 0; k < each; k++)
            to[i + k] = widen(p.at[k]);
    }
}

template <int N, class T> static __device__ __forceinline__ void store_floats(T *to, const float (&from)[N])
{
    constexpr int each = N * (int)sizeof(T) < 16 ? N : 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < N; i += each) {
        Pack<T, each> p;
#pragma unroll
        for (int k = 0; k < each; k++)
            p.at[k] = narrow<T>(from[i + k]);
        *reinterpret_cast<Pack<T, each> *>(to + i) = p;
    }
}

/* ---- reductions; every thread gets the result. Blocks are whole warps, at most 1024 threads. */
template <class V> static __device__ __forceinline__ V warp_sum(V v) /* float, double, int */
{
    for (int lane = 16; lane > 0; lane /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
    for (int lane = 16; lane > 0; lane /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane)); /* NaN is lost: look for it apart */
    return v;
}

/* `room`: shared memory of 32 values for this call; it may be used again at once. */
template <class V> static __device__ __forceinline__ V block_sum(V v, V *room)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    v = warp_sum(v);
    __syncthreads();
    if (lane == 0)
        room[warp] = v;
    __syncthreads();
    v = warp_sum(lane < warps ? room[lane] : V(0));
    return v;
}

static __device__ __forceinline__ float block_max(float v, float *room) /* NaN is lost */
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0)
        room[warp] = v;
    __syncthreads();
    v = warp_max(lane < warps ? room[lane] : -INFINITY);
    return v;
}

/* The sum of v over the threads below this one, and over all; `room`: shared memory of one int a thread. */
static __device__ __forceinline__ int block_scan(int v, int *room, int *total)
{
    const int me = threadIdx.x, threads = blockDim.x;
    __syncthreads();
    room[me] = v;
    __syncthreads();
    for (int reach = 1; reach < threads; reach *= 2) {
        const int below = me >= reach ? room[me - reach] : 0;
        __syncthreads();
        room[me] += below;
        __syncthreads();
    }
    *total = room[threads - 1];
    return room[me] - v;
}

/* ---- numbers out of range */
static __device__ __forceinline__ void report_fault(CudaFault *fault, OpKind op, int value, int64_t limit, int64_t place)
{
    if (atomicCAS((unsigned *)&fault->op, 0u, (unsigned)op + 1u) == 0u) {
        fault->value = value;
        fault->limit = (int)limit;
        fault->place = (int)place;
    }
}

/* ---- Philox-4x32-10, the same as rng_block of base.h (Salmon et al. 2011) */
static __device__ __forceinline__ RngBlock philox(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    RngBlock b = { { (uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32) } };
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * b.word[0], p1 = (uint64_t)0xCD9E8D57u * b.word[2];
        uint32_t w0 = (uint32_t)(p1 >> 32) ^ b.word[1] ^ key0, w2 = (uint32_t)(p0 >> 32) ^ b.word[3] ^ key1;
        b.word[0] = w0;
        b.word[1] = (uint32_t)p1;
        b.word[2] = w2;
        b.word[3] = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return b;
}

/* A file's kernels of an op, in the order of Kernel: const Kernel cuda_add = { query, prepare, run, release, tune }. */
#define CUDA_KERNEL(name, ...) \
    extern "C" { extern const Kernel cuda_##name; const Kernel cuda_##name = { __VA_ARGS__ }; }

#endif
