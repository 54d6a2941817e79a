/* nvml.c - what the driver says of a device, by NVML ("NVML API Reference Guide"): memory of this process, clock, temperature, what
 * holds the clock back. A device is found by its UUID: the driver's numbers are not CUDA's (tests/CASES.md D18). Everything here is an extra: what
 * the driver does not tell is not known, and never an error. */
#include "cuda.h"
#include "libs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CLOCK_SM = 1, TEMPERATURE_GPU = 0, PROCESSES_MOST = 256 };

/* nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3. */
typedef struct ProcessInfo { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;

/* Bits of nvmlDeviceGetCurrentClocksEventReasons that slow a device that has work; being idle and what a user set for all are not
 * among them. */
static const struct { unsigned long long bit; const char *words; } reasons[] = {
    { 0x04, "power cap" }, { 0x08, "hardware slowdown" }, { 0x10, "held to other GPUs" }, { 0x20, "thermal (software)" },
    { 0x40, "thermal (hardware)" }, { 0x80, "power brake" }, { 0x02, "application clocks" },
};

/* NVML ready for use and the device; NULL if either is not to be had. close_nvml after success. */
static const NvmlApi *open_nvml(const char *uuid, void **device)
{
    const char    *reason;
    const NvmlApi *nvml = cuda_load_nvml(&reason);
    if (!nvml || nvml->nvmlInit_v2())
        return NULL;
    if (!nvml->nvmlDeviceGetHandleByUUID(uuid, device))
        return nvml;
    nvml->nvmlShutdown();
    return NULL;
}

static void close_nvml(const NvmlApi *nvml)
{
    nvml->nvmlShutdown();
}

/* 0 also in a container whose process numbers are not the driver's. */
size_t cuda_process_bytes(const char *uuid)
{
    ProcessInfo infos[PROCESSES_MOST];
    unsigned    count = PROCESSES_MOST;
    size_t      bytes = 0;
    void       *device;
    const NvmlApi *nvml = open_nvml(uuid, &device);
    if (!nvml)
        return 0;
    if (nvml->nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos))
        count = 0;
    for (unsigned i = 0; i < count; i++)
        if (infos[i].pid == (unsigned)getpid() && infos[i].used != ~0ULL)
            bytes = (size_t)infos[i].used;
    close_nvml(nvml);
    return bytes;
}

static void name_reasons(unsigned long long bits, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < COUNT_OF(reasons) && at < size; i++)
        if (bits & reasons[i].bit)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", reasons[i].words);
}

void cuda_sensors(Backend *be, BackendSensors *out)
{
    unsigned long long bits;
    unsigned value;
    void    *device;
    *out = (BackendSensors){ .clock_mhz = -1, .temperature = -1 };
    const NvmlApi *nvml = cuda_is_planning(cuda_of(be)) ? NULL : open_nvml(cuda_of(be)->uuid, &device);
    if (!nvml)
        return;
    if (!nvml->nvmlDeviceGetClockInfo(device, CLOCK_SM, &value))
        out->clock_mhz = (int)value;
    if (!nvml->nvmlDeviceGetTemperature(device, TEMPERATURE_GPU, &value))
        out->temperature = (int)value;
    if (nvml->nvmlDeviceGetCurrentClocksEventReasons && !nvml->nvmlDeviceGetCurrentClocksEventReasons(device, &bits)) {
        out->throttle_known = true;
        name_reasons(bits, out->throttled, sizeof out->throttled);
    }
    close_nvml(nvml);
}
