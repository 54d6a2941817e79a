/* gpus.c - the table of GPU models, and a model as cuDNN wants a device described.
 *
 * memory_bytes is the total that the driver reports (cudaMemGetInfo, cudaDeviceProp.totalGlobalMem), as seen in logs that people
 * published; it is 1 to 8 % less than the number on the box, since the driver and ECC keep some. Where several drivers report
 * different totals the smaller one of recent drivers stands here. Rates are the dense ones of the data sheets: many sheets print
 * the doubled rate of sparse matrices. A rate of 16-bit products is the one with f32 accumulation, which is what this suite uses;
 * gaming models do that at half their advertised rate. */
#include "gpus.h"

#include <stdio.h>
#include <string.h>

#define KIB(x) ((x) * 1024)
#define MIB(x) ((double)(x) * 1048576.0)
#define GIB(x) ((double)(x) * 1073741824.0)

const GpuModel gpu_models[] = {
    { "gtx1080ti-11g", "NVIDIA GeForce GTX 1080 Ti", 61, 28, GIB(10.91), 484e9, 11.3e12, 0, 0, 0,
      KIB(96), KIB(48), KIB(2816), 1582000, 5505000,
      "GeForce GTX 1080 Ti specifications page; 'CUDA C Programming Guide', technical specifications per compute capability; memory: "
      "10.92 GiB in PyTorch's messages (pytorch issue 16417)" },
    { "p100-16g", "Tesla P100-PCIE-16GB", 60, 56, MIB(16280), 732e9, 9.3e12, 0, 18.7e12, 0,
      KIB(64), KIB(48), KIB(4096), 1328500, 715000,
      "Tesla P100 PCIe data sheet (16-bit: packed arithmetic, no tensor cores); memory: total_memory=16280MB from PyTorch" },
    { "v100-16g", "Tesla V100-SXM2-16GB", 70, 80, MIB(16130), 900e9, 15.7e12, 0, 125e12, 0,
      KIB(96), KIB(96), KIB(6144), 1530000, 877000,
      "'NVIDIA Tesla V100 GPU Architecture' WP-08608-001, table 1; memory: 16160MB, older drivers 16130MB, from PyTorch" },
    { "v100-32g", "Tesla V100-SXM2-32GB", 70, 80, MIB(32480), 900e9, 15.7e12, 0, 125e12, 0,
      KIB(96), KIB(96), KIB(6144), 1530000, 877000,
      "'NVIDIA Tesla V100 GPU Architecture' WP-08608-001, table 1; memory: 32480MiB from nvidia-smi, 31.74 GiB from PyTorch" },
    { "t4-16g", "Tesla T4", 75, 40, MIB(14930), 320e9, 8.1e12, 0, 65e12, 0,
      KIB(64), KIB(64), KIB(4096), 1590000, 5001000,
      "T4 data sheet; 'NVIDIA Turing GPU Architecture' WP-09183-001; memory: 14930MB to 15109MB by driver, from PyTorch" },
    { "rtx3090-24g", "NVIDIA GeForce RTX 3090", 86, 82, MIB(24259), 936e9, 35.6e12, 35.6e12, 71e12, 71e12,
      KIB(100), KIB(99), KIB(6144), 1695000, 9751000,
      "'NVIDIA Ampere GA102 GPU Architecture', appendix A, table 9; memory: total_memory=24259MB to 24268MB from PyTorch" },
    { "rtx4090-24g", "NVIDIA GeForce RTX 4090", 89, 128, GIB(23.64), 1008e9, 82.6e12, 82.6e12, 165.2e12, 165.2e12,
      KIB(100), KIB(99), KIB(73728), 2520000, 10501000,
      "'NVIDIA Ada GPU Architecture' v2.02, appendix A, table 2; memory: 23.64 GiB in PyTorch's messages on Linux" },
    { "l4-24g", "NVIDIA L4", 89, 58, GIB(22.03), 300e9, 30.3e12, 60e12, 121e12, 121e12,
      KIB(100), KIB(99), KIB(49152), 2040000, 6251000,
      "L4 data sheet (its tensor rates are sparse: halved); memory: 22.03 to 22.15 GiB in PyTorch's messages" },
    { "l40s-48g", "NVIDIA L40S", 89, 142, GIB(44.42), 864e9, 91.6e12, 183e12, 362e12, 362e12,
      KIB(100), KIB(99), KIB(98304), 2520000, 9001000,
      "L40S data sheet; memory: 44.42 to 44.53 GiB in PyTorch's messages" },
    { "a100-40g", "NVIDIA A100-SXM4-40GB", 80, 108, 42298834944.0, 1555e9, 19.5e12, 156e12, 312e12, 312e12,
      KIB(164), KIB(163), KIB(40960), 1410000, 1215000,
      "'NVIDIA A100 Tensor Core GPU Architecture' v1.0, table 1; memory: deviceQuery, 42298834944 bytes" },
    { "a100-80g", "NVIDIA A100-SXM4-80GB", 80, 108, GIB(79.14), 2039e9, 19.5e12, 156e12, 312e12, 312e12,
      KIB(164), KIB(163), KIB(40960), 1410000, 1593000,
      "A100 80GB data sheet; memory: 79.14 to 79.35 GiB in PyTorch's messages" },
    { "h100-pcie-80g", "NVIDIA H100 PCIe", 90, 114, MIB(81008), 2000e9, 51e12, 378e12, 756e12, 756e12,
      KIB(228), KIB(227), KIB(51200), 1755000, 1593000,
      "'NVIDIA H100 Tensor Core GPU Architecture' v1.04, table 2; memory: total_memory=81008MB from PyTorch" },
    { "h100-80g", "NVIDIA H100 80GB HBM3", 90, 132, MIB(81082), 3350e9, 67e12, 494.7e12, 989.4e12, 989.4e12,
      KIB(228), KIB(227), KIB(51200), 1980000, 2619000,
      "'NVIDIA H100 Tensor Core GPU Architecture' v1.04, table 2 (SXM5); memory: total_memory=81082MB to 81090MB from PyTorch" },
    { "h200-141g", "NVIDIA H200", 90, 132, MIB(143156), 4800e9, 67e12, 494.7e12, 989.4e12, 989.4e12,
      KIB(228), KIB(227), KIB(61440), 1980000, 3201000,
      "H200 data sheet (SXM; its tensor rates are sparse: halved); memory: total_memory=143156MB from PyTorch" },
    { "b200-180g", "NVIDIA B200", 100, 148, MIB(182631), 7700e9, 75e12, 1100e12, 2250e12, 2250e12,
      KIB(228), KIB(227), KIB(129024), 1965000, 3996000,
      "HGX B200 data sheet, a GPU's share (its tensor rates are sparse: halved); memory: total_memory=182631MB to 182642MB from PyTorch" },
    { 0 },
};

const GpuModel *gpu_find(const char *name)
{
    for (const GpuModel *m = gpu_models; m->name; m++)
        if (!strcmp(m->name, name))
            return m;
    return NULL;
}

const char *gpu_names(char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (const GpuModel *m = gpu_models; m->name && at < size; m++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", m->name);
    return text;
}

/* What the table has no column for, since it follows from the capability: "CUDA C++ Programming Guide", technical specifications
 * per compute capability. */
static int threads_per_sm(int capability)
{
    return capability == 75 ? 1024 : capability == 86 || capability == 89 || capability >= 110 ? 1536 : 2048;
}

static int blocks_per_sm(int capability)
{
    return capability == 75 || capability == 86 ? 16 : capability == 89 || capability >= 110 ? 24 : 32;
}

/* Of each block's shared memory the system keeps this for itself. */
static int reserved_shared(int capability) { return capability >= 80 ? KIB(1) : 0; }

const char *gpu_describe_json(const GpuModel *gpu, char *text, size_t size)
{
    enum { SHARED_WITHOUT_OPT_IN = KIB(48), REGISTERS = 65536, DRIVER = 13000 };
    snprintf(text, size,
             "{\"deviceVer\":%d,\"multiProcessorCount\":%d,\"warpSize\":32,\"maxSharedMemoryPerBlock\":%d,"
             "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":%d,\"maxCtasPerSM\":%d,"
             "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"regsPerBlock\":%d,\"totalGlobalMem\":%.0f,\"smClockRateKHz\":%d,"
             "\"memClockRateKHz\":%d,\"l2CacheSize\":%d,\"maxBlockSize\":[1024,1024,64],\"maxGridSize\":[2147483647,65535,65535],"
             "\"supportCoopLaunch\":1,\"pciDeviceId\":0,\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":%d,\"deviceName\":\"%s\"}",
             10 * gpu->capability, gpu->sms, SHARED_WITHOUT_OPT_IN, gpu->shared_bytes_block, reserved_shared(gpu->capability),
             REGISTERS, blocks_per_sm(gpu->capability), threads_per_sm(gpu->capability), REGISTERS, gpu->memory_bytes, gpu->sm_clock_khz,
             gpu->memory_clock_khz, gpu->l2_bytes, DRIVER, gpu->title);
    return text;
}
