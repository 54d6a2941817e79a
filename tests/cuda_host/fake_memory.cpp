/* fake_memory.cpp - the fake runtime: memory, copies, launches.
 *
 * Each block is one of malloc's, so that AddressSanitizer sees what a kernel does next to it; without it, guards of known bytes
 * around the block are looked at when it is freed. Fresh memory is full of NaN. */
#include "block.h"
#include "fake_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEMORY_ASAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define MEMORY_ASAN
#endif

namespace {

#ifdef MEMORY_ASAN
enum : size_t { GUARD = 0 };
#else
enum : size_t { GUARD = 256 };
#endif
enum : unsigned char { GUARD_BYTE = 0x5a, FRESH_BYTE = 0xff };
enum : size_t { ALIGN = 256, SHARED_WITHOUT_ASKING = 48 << 10, SHARED_MOST = 227 << 10 };
enum { FIRST_CAPABILITY = 75 }; /* that the kernels are built for */

struct Kernel {
    const char *name;
    std::function<void()> (*bind)(void **arguments);
    size_t      shared = SHARED_WITHOUT_ASKING;
};

/* Static objects of .cu files use it before main. */
std::map<const void *, Kernel> &kernels()
{
    static std::map<const void *, Kernel> known;
    return known;
}

typedef std::map<const unsigned char *, size_t> Blocks; /* by address: bytes */
Blocks device_blocks, pinned_blocks;

bool is_within(const Blocks &blocks, const void *address, size_t bytes)
{
    const unsigned char *at = static_cast<const unsigned char *>(address);
    Blocks::const_iterator next = blocks.upper_bound(at);
    if (next == blocks.begin())
        return false;
    --next;
    return static_cast<size_t>(at - next->first) <= next->second && bytes <= next->second - static_cast<size_t>(at - next->first);
}

/* Any byte of it in a block. */
bool touches(const Blocks &blocks, const void *address)
{
    return is_within(blocks, address, 1);
}

void *take(Blocks *blocks, size_t bytes)
{
    void *room = nullptr;
    if (posix_memalign(&room, ALIGN, bytes + 2 * GUARD))
        return nullptr;
    unsigned char *block = static_cast<unsigned char *>(room) + GUARD;
    memset(block - GUARD, GUARD_BYTE, GUARD);
    memset(block, FRESH_BYTE, bytes);
    memset(block + bytes, GUARD_BYTE, GUARD);
    (*blocks)[block] = bytes;
    return block;
}

/* False if it is no block. */
bool give_back(Blocks *blocks, void *address, size_t *bytes)
{
    unsigned char   *block = static_cast<unsigned char *>(address);
    Blocks::iterator found = blocks->find(block);
    if (found == blocks->end())
        return false;
    *bytes = found->second;
    blocks->erase(found);
    for (size_t i = 0; i < GUARD; i++)
        if (block[i - GUARD] != GUARD_BYTE || block[*bytes + i] != GUARD_BYTE) {
            fprintf(stderr, "cuda_host: bytes %s a block of %zu bytes were written\n", block[i - GUARD] != GUARD_BYTE ? "before" : "behind",
                    *bytes);
            fake_tally.overruns++;
            break;
        }
    free(block - GUARD);
    return true;
}

} // namespace

void shim_register(const void *kernel, const char *name, std::function<void()> (*bind)(void **arguments))
{
    kernels()[kernel] = Kernel{ name, bind };
}

bool fake_is_device(const void *address, size_t bytes) { return is_within(device_blocks, address, bytes); }
bool fake_is_pinned(const void *address, size_t bytes) { return is_within(pinned_blocks, address, bytes); }

/* ---- memory */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    FAKE_BEGIN_CONTEXT;
    const cudaError_t refused = fake_refuse_capture();
    const FakeDevice *d = fake_current_device();
    *out = nullptr;
    if (refused != cudaSuccess)
        return fake_end(refused);
    if (bytes == 0)
        return cudaSuccess;
    if (bytes > d->memory - d->context - fake_tally.device_bytes || !(*out = take(&device_blocks, bytes)))
        return fake_end(cudaErrorMemoryAllocation);
    fake_tally.device_blocks++;
    fake_tally.device_allocations++;
    fake_tally.device_bytes += bytes;
    return cudaSuccess;
}

/* Memory is taken back whatever the call returns: a lost device has lost it. */
cudaError_t cudaFree(void *address)
{
    size_t            bytes;
    const cudaError_t begun = fake_begin("cudaFree"), refused = fake_refuse_capture();
    if (!address)
        return fake_end(begun);
    if (begun == cudaSuccess && refused != cudaSuccess)
        return fake_end(refused);
    if (begun == cudaSuccess)
        fake_finish_all();
    if (!give_back(&device_blocks, address, &bytes))
        return fake_end(cudaErrorInvalidValue);
    fake_tally.device_blocks--;
    fake_tally.device_bytes -= bytes;
    return fake_end(begun);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    FAKE_BEGIN_CONTEXT;
    const cudaError_t refused = fake_refuse_capture();
    *out = nullptr;
    if (refused != cudaSuccess)
        return fake_end(refused);
    if (!(*out = take(&pinned_blocks, bytes)))
        return fake_end(cudaErrorMemoryAllocation);
    fake_tally.pinned_blocks++;
    fake_tally.pinned_allocations++;
    fake_tally.pinned_bytes += bytes;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMallocHost(out, bytes);
}

/* Does not wait: what still reads this memory will find it gone. */
cudaError_t cudaFreeHost(void *address)
{
    size_t            bytes;
    const cudaError_t begun = fake_begin("cudaFreeHost");
    if (!address)
        return fake_end(begun);
    if (!give_back(&pinned_blocks, address, &bytes))
        return fake_end(cudaErrorInvalidValue);
    fake_tally.pinned_blocks--;
    fake_tally.pinned_bytes -= bytes;
    return fake_end(begun);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    FAKE_BEGIN_CONTEXT;
    const FakeDevice *d = fake_current_device();
    *total = d->memory;
    *unused = d->memory - d->context - fake_tally.device_bytes;
    return cudaSuccess;
}

/* ---- copies */

/* Both ends are where the kind says. */
static bool fits_kind(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    const bool to_device = fake_is_device(to, bytes), from_device = fake_is_device(from, bytes);
    const bool to_host = !touches(device_blocks, to), from_host = !touches(device_blocks, from);
    switch (kind) {
    case cudaMemcpyHostToDevice:   return to_device && from_host;
    case cudaMemcpyDeviceToHost:   return to_host && from_device;
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    default:                       return false;
    }
}

static Task copy_task(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    Task task;
    task.told = { true, kind == cudaMemcpyHostToDevice ? FAKE_COPY_IN : kind == cudaMemcpyDeviceToHost ? FAKE_COPY_OUT : FAKE_COPY_WITHIN,
                  nullptr, bytes };
    task.work = [=] { memcpy(to, from, bytes); };
    task.microseconds = 1 + static_cast<double>(bytes) * 1e-4; /* 10 GB/s */
    return task;
}

/* Ordinary host memory is read at once, as the driver does, or written before the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    if (bytes == 0)
        return cudaSuccess;
    if (!fits_kind(to, from, bytes, kind))
        return fake_end(cudaErrorInvalidValue);
    fake_tally.copies++;
    const bool ordinary = (kind == cudaMemcpyHostToDevice && !fake_is_pinned(from, bytes)) ||
                          (kind == cudaMemcpyDeviceToHost && !fake_is_pinned(to, bytes));
    if (!ordinary)
        return fake_end(fake_submit(stream, copy_task(to, from, bytes, kind)));
    if (fake_is_capturing(stream))
        return fake_end(fake_refuse_capture());
    if (kind == cudaMemcpyHostToDevice) {
        const unsigned char *bytes_from = static_cast<const unsigned char *>(from);
        std::shared_ptr<std::vector<unsigned char>> kept = std::make_shared<std::vector<unsigned char>>(bytes_from, bytes_from + bytes);
        Task task = copy_task(to, kept->data(), bytes, kind);
        task.work = [=] { memcpy(to, kept->data(), bytes); };
        return fake_end(fake_submit(stream, task));
    }
    const cudaError_t e = fake_submit(stream, copy_task(to, from, bytes, kind));
    return e == cudaSuccess ? cudaStreamSynchronize(stream) : fake_end(e);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    FAKE_BEGIN_CONTEXT;
    const cudaError_t refused = fake_refuse_capture();
    if (refused != cudaSuccess)
        return fake_end(refused);
    if (bytes == 0)
        return cudaSuccess;
    if (!fits_kind(to, from, bytes, kind))
        return fake_end(cudaErrorInvalidValue);
    fake_tally.copies++;
    const cudaError_t e = fake_submit(nullptr, copy_task(to, from, bytes, kind));
    return e == cudaSuccess ? cudaStreamSynchronize(nullptr) : fake_end(e);
}

cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    if (bytes == 0)
        return cudaSuccess;
    if (!fake_is_device(address, bytes))
        return fake_end(cudaErrorInvalidValue);
    Task task;
    task.work = [=] { memset(address, value, bytes); };
    task.told = { true, FAKE_SET, nullptr, bytes };
    task.microseconds = 1;
    return fake_end(fake_submit(stream, task));
}

/* ---- launches */

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value)
{
    FAKE_BEGIN_CONTEXT;
    std::map<const void *, Kernel>::iterator k = kernels().find(function);
    if (k == kernels().end())
        return fake_end(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || static_cast<size_t>(value) > SHARED_MOST)
            return fake_end(cudaErrorInvalidValue);
        k->second.shared = static_cast<size_t>(value);
    }
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *function)
{
    FAKE_BEGIN_CONTEXT;
    if (!kernels().count(function))
        return fake_end(cudaErrorInvalidDeviceFunction);
    if (fake_current_device()->capability < FIRST_CAPABILITY)
        return fake_end(cudaErrorNoKernelImageForDevice);
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->binaryVersion = a->ptxVersion = fake_current_device()->capability;
    a->maxDynamicSharedSizeBytes = static_cast<int>(kernels()[function].shared);
    return cudaSuccess;
}

/* 2048 threads a multiprocessor, and no other limit. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared)
{
    (void)shared;
    FAKE_BEGIN_CONTEXT;
    if (!kernels().count(function) || threads < 1 || threads > 1024)
        return fake_end(cudaErrorInvalidValue);
    *blocks = 2048 / threads;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    std::map<const void *, Kernel>::const_iterator found = kernels().find(function);
    if (found == kernels().end())
        return fake_end(cudaErrorInvalidDeviceFunction); /* LAUNCHABLE is missing */
    if (fake_current_device()->capability < FIRST_CAPABILITY)
        return fake_end(cudaErrorNoKernelImageForDevice);
    const Kernel &k = found->second;
    const size_t  threads = static_cast<size_t>(block.x) * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || threads == 0 || threads > 1024 ||
        block.z > 64)
        return fake_end(cudaErrorInvalidConfiguration);
    if (shared > k.shared)
        return fake_end(cudaErrorInvalidValue);
    fake_tally.launches++;
    Task task;
    task.told = { true, FAKE_KERNEL, k.name };
    task.microseconds = 2;
    task.work = [name = k.name, grid, block, shared, thread = k.bind(arguments)] {
        if (!block_run_grid(name, grid, block, shared, thread))
            fake_break_device(cudaErrorLaunchFailure);
    };
    return fake_end(fake_submit(stream, task));
}
