/* shim.h - what makes a .cu file a C++ file whose kernels run on the CPU, for tests: g++ -x c++ -include shim.h file.cu
 *
 * Gives the names that nvcc knows by itself: threadIdx, __shared__, barriers, shuffles, atomics, intrinsics. Types and
 * conversions of half and bfloat16 come from CUDA's own headers. What is not here has not been needed yet.
 * Static shared memory keeps what the last block left in it; dynamic shared memory begins as NaN. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_SHIM_H
#define BATCHMARK_TESTS_CUDA_HOST_SHIM_H

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "block.h"

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __shared__
#undef __global__
#undef __device__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __shared__ static /* blocks run one after the other */
#define __global__
#define __device__
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (here.thread)
#define blockIdx  (here.block)
#define blockDim  (here.block_size)
#define gridDim   (here.grid_size)
enum { warpSize = WARP };

/* ---- launching: a kernel is known to cudaLaunchKernel by its address, once LAUNCHABLE has named it */

/* A kernel with its arguments, taken from what they pointed to. */
typedef std::function<void()> ShimThread;
void shim_register(const void *kernel, const char *name, ShimThread (*bind)(void **arguments));

template <auto Kernel> struct ShimLaunchable;
template <class... P, void (*Kernel)(P...)> struct ShimLaunchable<Kernel> {
    template <size_t... I> static ShimThread bind_each(void **arguments, std::index_sequence<I...>)
    {
        (void)arguments; /* of a kernel without any */
        std::tuple<P...> values(*static_cast<std::remove_reference_t<P> *>(arguments[I])...);
        return [values] { std::apply(Kernel, values); };
    }
    static ShimThread bind(void **arguments) { return bind_each(arguments, std::index_sequence_for<P...>()); }
    explicit ShimLaunchable(const char *name) { shim_register(reinterpret_cast<const void *>(Kernel), name, bind); }
};
#define SHIM_JOIN_(a, b) a##b
#define SHIM_JOIN(a, b) SHIM_JOIN_(a, b)
#define LAUNCHABLE(...) static const ShimLaunchable<&__VA_ARGS__> SHIM_JOIN(shim_launchable_, __COUNTER__)(#__VA_ARGS__)
#define SHARED_DYNAMIC(T, name) T *name = reinterpret_cast<T *>(here.shared)

/* ---- waiting for others */
static inline void __syncthreads() { block_barrier(0); }
static inline int __syncthreads_count(int p) { return block_barrier(p != 0); }
static inline int __syncthreads_or(int p) { return block_barrier(p != 0) != 0; }
static inline int __syncthreads_and(int p) { return block_barrier(p == 0) == 0; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { block_part(block_meet(mask, "__syncwarp", 0)); }

/* The value that lane `from` brought; its own where `from` is outside its group of `width` lanes. */
template <class T> T shim_shuffle(unsigned mask, const char *what, T value, int from, int width)
{
    static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
    const int lane = block_lane(), first = lane / width * width;
    uint64_t  bits = 0;
    memcpy(&bits, &value, sizeof value);
    Meeting *m = block_meet(mask, what, bits);
    bits = m->value[from < first || from >= first + width ? lane : from];
    block_part(m);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> T __shfl_sync(unsigned mask, T value, int from, int width = WARP)
{
    return shim_shuffle(mask, "__shfl_sync", value, block_lane() / width * width + (from & (width - 1)), width);
}

template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = WARP)
{
    return shim_shuffle(mask, "__shfl_xor_sync", value, block_lane() ^ bits, width);
}

template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = WARP)
{
    return shim_shuffle(mask, "__shfl_down_sync", value, block_lane() + static_cast<int>(by), width);
}

template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = WARP)
{
    return shim_shuffle(mask, "__shfl_up_sync", value, block_lane() - static_cast<int>(by), width);
}

static inline unsigned __ballot_sync(unsigned mask, int p)
{
    unsigned votes = 0;
    Meeting *m = block_meet(mask, "__ballot_sync", p != 0);
    for (int lane = 0; lane < WARP; lane++)
        if (m->come >> lane & 1)
            votes |= static_cast<unsigned>(m->value[lane]) << lane;
    block_part(m);
    return votes;
}

static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }

/* ---- atomics: there is one OS thread, and a thread of the block is never interrupted. Each gives the old value. */
template <class T> T atomicAdd(T *at, std::common_type_t<T> v) { return std::exchange(*at, static_cast<T>(*at + v)); }
template <class T> T atomicMax(T *at, std::common_type_t<T> v) { return std::exchange(*at, *at < v ? v : *at); }
template <class T> T atomicMin(T *at, std::common_type_t<T> v) { return std::exchange(*at, v < *at ? v : *at); }
template <class T> T atomicOr(T *at, std::common_type_t<T> v) { return std::exchange(*at, *at | v); }
template <class T> T atomicAnd(T *at, std::common_type_t<T> v) { return std::exchange(*at, *at & v); }
template <class T> T atomicExch(T *at, std::common_type_t<T> v) { return std::exchange(*at, v); }
template <class T> T atomicCAS(T *at, std::common_type_t<T> expected, std::common_type_t<T> v)
{
    return std::exchange(*at, *at == expected ? v : *at);
}

/* ---- memory: hints to the caches mean nothing here */
template <class T> T __ldg(const T *at) { return *at; }
template <class T> T __ldcs(const T *at) { return *at; }
template <class T> T __ldcg(const T *at) { return *at; }
template <class T> T __ldlu(const T *at) { return *at; }
template <class T> void __stcs(T *at, T v) { *at = v; }
template <class T> void __stcg(T *at, T v) { *at = v; }
template <class T> void __stwt(T *at, T v) { *at = v; }

/* ---- arithmetic; the fast forms are a few units in the last place less exact on a device */
template <class T> constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> constexpr T max(T a, T b) { return a < b ? b : a; }
#define __expf(x) expf(x) /* macros: the C library has functions of these names */
#define __exp10f(x) powf(10.0f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __saturatef(float x) { return x >= 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline int __float2int_rn(float x) { return static_cast<int>(lrintf(x)); }
static inline float __int2float_rn(int x) { return static_cast<float>(x); }

template <class To, class From> To shim_same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "only between types of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __int_as_float(int x) { return shim_same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return shim_same_bits<float>(x); }
static inline int __float_as_int(float x) { return shim_same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return shim_same_bits<unsigned>(x); }
static inline long long __double_as_longlong(double x) { return shim_same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return shim_same_bits<double>(x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }

/* ---- half and bfloat16 arithmetic that CUDA's headers give to devices only: one rounding, as there. A product of two has at
 * most 22 bits, so it is exact in f32; the sum is rounded twice only where a double rounding cannot be seen (double in between). */
static inline __half __hfma(__half a, __half b, __half c)
{
    return __double2half(static_cast<double>(__half2float(a)) * static_cast<double>(__half2float(b)) + static_cast<double>(__half2float(c)));
}

#endif
