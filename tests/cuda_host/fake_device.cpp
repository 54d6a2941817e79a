/* fake_device.cpp - the fake runtime: devices, errors, faults, counts. */
#include "block.h"
#include "fake_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

FakeCounts fake_tally;

namespace {

struct State {
    FakeDevice  devices[2] = { fake_default_device(), fake_default_device() };
    int         count = 1, driver = CUDART_VERSION, current = 0;
    cudaError_t last = cudaSuccess, broken = cudaSuccess;
    FakeFault   fault = {};
    std::vector<const char *> calls; /* that counted for the fault */
    bool        met = false;
    const char *met_in = "";
};

State state;

/* What is tuned on this device must not be found by one that has the same name: there is no folder to keep it in. */
struct NoHome {
    NoHome()
    {
        unsetenv("XDG_CACHE_HOME");
        unsetenv("HOME");
    }
} no_home;

/* After these the context is lost: "this leaves the process in an inconsistent state" in driver_types.h. */
bool ends_context(cudaError_t e)
{
    switch (e) {
    case cudaErrorECCUncorrectable: case cudaErrorNvlinkUncorrectable: case cudaErrorIllegalAddress: case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed: case cudaErrorAssert: case cudaErrorHardwareStackError: case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress: case cudaErrorInvalidAddressSpace: case cudaErrorInvalidPc: case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

const struct { cudaError_t error; const char *name, *words; } error_names[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device" },
    { cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing" },
    { cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture" },
    { cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream" },
    { cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream" },
    { cudaErrorUnknown, "cudaErrorUnknown", "unknown error" },
};

} // namespace

FakeDevice fake_default_device()
{
    return FakeDevice{ "NVIDIA H100 80GB HBM3", 90, 132, size_t(1) << 30, size_t(16) << 20,
                       { 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef } };
}

void fake_reset()
{
    state = State();
    fake_set_order(fake_first_order());
    block_set_schedule(block_first_schedule());
}

void fake_set_schedule(int schedule)
{
    if (schedule < 0 || schedule >= FAKE_SCHEDULES) {
        fprintf(stderr, "cuda_host: schedule %d is not one of 0..%d\n", schedule, FAKE_SCHEDULES - 1);
        abort();
    }
    block_set_schedule(schedule);
}

void fake_set_devices(int count, const FakeDevice *devices, int driver)
{
    state.count = count;
    for (int i = 0; i < count; i++)
        state.devices[i] = devices[i];
    state.driver = driver;
    state.current = 0;
}

/* ---- faults */

void fake_set_fault(const FakeFault *fault)
{
    state.fault = fault ? *fault : FakeFault{};
    state.calls.clear();
    state.met = false;
    state.met_in = "";
}

bool fake_fault_met() { return state.met; }
int64_t fake_fault_calls() { return static_cast<int64_t>(state.calls.size()); }
const char *fake_fault_name(int64_t n) { return state.calls.at(static_cast<size_t>(n - 1)); }
const char *fake_fault_call() { return state.met_in; }

void fake_break_device(cudaError_t error)
{
    state.broken = error;
}

int fake_enter(FakeLibrary library, const char *call)
{
    const FakeFault &f = state.fault;
    if (!f.error[library] || (f.call && strcmp(f.call, call)))
        return 0;
    state.calls.push_back(call);
    if (fake_fault_calls() != f.at)
        return 0;
    state.met = true;
    state.met_in = call;
    if (f.later) {
        state.broken = static_cast<cudaError_t>(f.error[FAKE_RUNTIME]);
        return 0;
    }
    if (f.inside)
        state.last = static_cast<cudaError_t>(f.error[FAKE_RUNTIME]);
    return f.error[library];
}

cudaError_t fake_begin(const char *call)
{
    fake_tally.calls++;
    if (state.broken != cudaSuccess)
        return state.broken;
    const cudaError_t e = static_cast<cudaError_t>(fake_enter(FAKE_RUNTIME, call));
    if (ends_context(e))
        state.broken = e;
    return e;
}

cudaError_t fake_end(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        state.last = error;
    return error;
}

cudaError_t fake_broken()
{
    return state.broken;
}

cudaError_t fake_last_error()
{
    return state.broken != cudaSuccess ? state.broken : state.last;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t e = fake_last_error();
    state.last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError()
{
    return fake_last_error();
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &known : error_names)
        if (known.error == error)
            return known.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &known : error_names)
        if (known.error == error)
            return known.words;
    return "unrecognized error code";
}

/* ---- devices */

static cudaError_t find_devices()
{
    if (state.driver / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return state.count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t fake_need_context()
{
    return find_devices();
}

const FakeDevice *fake_current_device()
{
    return &state.devices[state.current];
}

cudaError_t cudaDriverGetVersion(int *version)
{
    FAKE_BEGIN;
    *version = state.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    FAKE_BEGIN;
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    FAKE_BEGIN;
    const cudaError_t e = find_devices();
    *count = e == cudaSuccess ? state.count : 0;
    return fake_end(e);
}

cudaError_t cudaSetDevice(int device)
{
    FAKE_BEGIN_CONTEXT;
    if (device < 0 || device >= state.count)
        return fake_end(cudaErrorInvalidDevice);
    state.current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    FAKE_BEGIN_CONTEXT;
    *device = state.current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    FAKE_BEGIN_CONTEXT;
    if (device < 0 || device >= state.count)
        return fake_end(cudaErrorInvalidDevice);
    const FakeDevice &d = state.devices[device];
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", d.name);
    memcpy(p->uuid.bytes, d.uuid, sizeof d.uuid);
    p->totalGlobalMem = d.memory;
    p->major = d.capability / 10;
    p->minor = d.capability % 10;
    p->multiProcessorCount = d.sms;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->l2CacheSize = 50 << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    FAKE_BEGIN_CONTEXT;
    const cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess)
        return e;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:       *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor:    *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor:    *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrClockRate:                 *value = 1980000; break; /* kHz */
    case cudaDevAttrMemoryClockRate:           *value = 2619000; break;
    default:                                   return fake_end(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    FAKE_BEGIN_CONTEXT;
    if (device < 0 || device >= state.count)
        return fake_end(cudaErrorInvalidDevice);
    snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", 0x17 + device);
    return cudaSuccess;
}

FakeCounts fake_counts()
{
    return fake_tally;
}

bool fake_nothing_leaked(const FakeCounts *b)
{
    const FakeCounts &n = fake_tally;
    return n.device_blocks == b->device_blocks && n.pinned_blocks == b->pinned_blocks && n.streams == b->streams &&
           n.events == b->events && n.graphs == b->graphs && n.graph_execs == b->graph_execs && n.overruns == b->overruns;
}
