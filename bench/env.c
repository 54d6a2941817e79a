/* env.c - the bodies of env.h. Reads /proc, /sys and uname; whatever a machine does not tell is null in the record.
 *
 * Nothing here that changes from boot to boot (clock readings, uptimes, boot ids): records of one machine must be
 * recognisable as such. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "env.h"

#include "generated/version.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { TEXT_BYTES = 256 };

/* ---- texts and numbers as JSON ---- */

/* Adds a member; what jansson cannot allocate shows in *ok at the end. The value is taken over. */
static void put(json_t *object, const char *name, json_t *value, bool *ok)
{
    if (json_object_set_new(object, name, value) != 0)
        *ok = false;
}

/* null for "" and NULL; bytes that are not UTF-8 (a host name may hold any) become '?'. */
static json_t *text_or_null(const char *text)
{
    if (!text || !*text)
        return json_null();
    json_t *value = json_string(text);
    char    plain[TEXT_BYTES];
    bool    ascii = true;
    snprintf(plain, sizeof plain, "%s", text);
    for (char *c = plain; *c; c++)
        if ((unsigned char)*c >= 0x80) {
            *c = '?';
            ascii = false;
        }
    return value || ascii ? value : json_string(plain); /* for ASCII only memory can have been the reason */
}

static json_t *size_or_null(long long n) { return n > 0 ? json_integer(n) : json_null(); }

/* ---- small system files ---- */

/* First line of a file without its end; false if it cannot be read or is empty. */
static bool read_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");
    text[0] = '\0';
    if (!f)
        return false;
    if (fgets(text, (int)size, f))
        text[strcspn(text, "\n")] = '\0';
    fclose(f);
    return text[0] != '\0';
}

/* The rest of the first line that begins with `name`, past blanks and `separator`. */
static bool read_field(const char *path, const char *name, char separator, char *text, size_t size)
{
    char  line[1024];
    bool  found = false;
    FILE *f = fopen(path, "re");
    text[0] = '\0';
    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        const char *at = line + strlen(name);
        at += strspn(at, " \t");
        if (*at++ != separator)
            continue;
        at += strspn(at, " \t\"");
        snprintf(text, size, "%.*s", (int)strcspn(at, "\"\n"), at);
        found = true;
    }
    fclose(f);
    return found && text[0] != '\0';
}

/* "512K" as bytes; 0 if it is none. */
static long long parse_size(const char *text)
{
    long long n = 0;
    char      unit = '\0';
    if (sscanf(text, "%9lld%c", &n, &unit) < 1 || n < 0)
        return 0;
    return n * (unit == 'K' ? 1024LL : unit == 'M' ? 1024LL * 1024 : unit == 'G' ? 1024LL * 1024 * 1024 : 1);
}

/* ---- the processor ---- */

static int count_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
}

/* A data or unified cache of cpu0 by level, from sysfs. */
static long long sysfs_cache(int level)
{
    for (int i = 0; i < 8; i++) {
        char path[96], text[TEXT_BYTES];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!read_line(path, text, sizeof text))
            return 0;
        if (text[0] != '0' + level || text[1])
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!read_line(path, text, sizeof text) || strcmp(text, "Instruction") == 0)
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (read_line(path, text, sizeof text))
            return parse_size(text);
    }
    return 0;
}

static json_t *capture_caches(bool *ok)
{
    static const struct { const char *name; int level, fallback; } caches[] = {
        { "l1d", 1, _SC_LEVEL1_DCACHE_SIZE }, { "l2", 2, _SC_LEVEL2_CACHE_SIZE }, { "l3", 3, _SC_LEVEL3_CACHE_SIZE },
    };
    json_t *object = json_object();
    for (size_t i = 0; i < COUNT_OF(caches); i++) {
        long long bytes = sysfs_cache(caches[i].level);
        put(object, caches[i].name, size_or_null(bytes > 0 ? bytes : sysconf(caches[i].fallback)), ok);
    }
    return object;
}

/* "avx2 avx512f" as an array. */
static json_t *split_words(const char *words, bool *ok)
{
    json_t *array = json_array();
    while (*(words += strspn(words, " "))) {
        size_t n = strcspn(words, " ");
        if (json_array_append_new(array, json_stringn(words, n)) != 0)
            *ok = false;
        words += n;
    }
    return array;
}

static json_t *capture_cpu(const BackendInfo *device, bool *ok)
{
    char    text[TEXT_BYTES];
    json_t *cpu = json_object();
    read_field("/proc/cpuinfo", "model name", ':', text, sizeof text);
    put(cpu, "model", text_or_null(text[0] || device->is_gpu ? text : device->name), ok); /* ARM's cpuinfo has no such line */
    put(cpu, "cores", json_integer(count_cores()), ok);
    put(cpu, "threads_used", size_or_null(device->threads), ok);
    put(cpu, "isa", split_words(device->isa, ok), ok);
    read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text);
    put(cpu, "governor", text_or_null(text), ok);
    put(cpu, "caches", capture_caches(ok), ok);
    return cpu;
}

/* ---- libraries, device, the whole ---- */

/* "oneDNN 2.6.3, other 1" as "onednn": "2.6.3", "other": "1". */
static void put_libraries(json_t *libraries, const char *text, bool *ok)
{
    while (*(text += strspn(text, ", "))) {
        char         name[64], version[64];
        const size_t n = strcspn(text, " ,"), whole = strcspn(text, ","), space = n < whole;
        if (n >= sizeof name)
            return;
        for (size_t i = 0; i < n; i++)
            name[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
        name[n] = '\0';
        snprintf(version, sizeof version, "%.*s", (int)(whole - n - space), text + n + space);
        put(libraries, name, text_or_null(version), ok);
        text += whole;
    }
}

static json_t *capture_libraries(const BackendInfo *device, bool *ok)
{
    json_t *libraries = json_object();
    put_libraries(libraries, device->library, ok);
    put(libraries, "benchmark", text_or_null(BATCHMARK_BENCHMARK_VERSION), ok);
    put(libraries, "jansson", text_or_null(jansson_version_str()), ok);
    put(libraries, "zlib", text_or_null(zlibVersion()), ok);
    return libraries;
}

static json_t *capture_device(const BackendInfo *device, bool *ok)
{
    json_t *object = json_object();
    put(object, "backend", json_string(device->is_gpu ? "cuda" : "cpu"), ok);
    put(object, "name", text_or_null(device->name), ok);
    put(object, "memory_bytes", size_or_null((long long)device->memory_bytes), ok);
    return object;
}

/* 13000 as "13.0"; null for 0. */
static json_t *cuda_version(int version)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    return version ? json_string(text) : json_null();
}

/* The GPU that is used, or none. */
static json_t *capture_gpus(const BackendInfo *device, bool *ok)
{
    char    capability[16];
    json_t *list = json_array();
    if (!device->is_gpu)
        return list;
    json_t *gpu = json_object();
    snprintf(capability, sizeof capability, "%d.%d", device->gpu_capability / 10, device->gpu_capability % 10);
    put(gpu, "name", text_or_null(device->name), ok);
    put(gpu, "uuid", text_or_null(device->gpu_uuid), ok);
    put(gpu, "capability", json_string(capability), ok);
    put(gpu, "memory_bytes", size_or_null((long long)device->memory_bytes), ok);
    put(gpu, "driver", cuda_version(device->driver_version), ok);
    put(gpu, "runtime", cuda_version(device->runtime_version), ok);
    put(gpu, "note", text_or_null(device->note), ok);
    if (json_array_append_new(list, gpu) != 0)
        *ok = false;
    return list;
}

static json_t *unknown_peaks(bool *ok)
{
    json_t *peaks = json_object();
    put(peaks, "f32_flops", json_null(), ok);
    put(peaks, "bf16_flops", json_null(), ok);
    put(peaks, "f16_flops", json_null(), ok);
    put(peaks, "tf32_flops", json_null(), ok);
    put(peaks, "copy_bytes_per_s", json_null(), ok);
    return peaks;
}

Status env_capture(const BackendInfo *device, json_t **out)
{
    bool           ok = true;
    char           text[TEXT_BYTES];
    struct utsname system;
    bool           named = uname(&system) == 0;
    json_t        *env = json_object();
    read_field("/etc/os-release", "PRETTY_NAME", '=', text, sizeof text);
    put(env, "os", text_or_null(text[0] ? text : named ? system.sysname : NULL), &ok);
    put(env, "kernel", text_or_null(named ? system.release : NULL), &ok);
    put(env, "hostname", text_or_null(named ? system.nodename : NULL), &ok);
    put(env, "cpu", capture_cpu(device, &ok), &ok);
    put(env, "memory_bytes", size_or_null((long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)), &ok);
    put(env, "gpus", capture_gpus(device, &ok), &ok);
    put(env, "compiler", text_or_null(BATCHMARK_COMPILER), &ok);
    put(env, "flags", text_or_null(BATCHMARK_FLAGS), &ok);
    put(env, "libraries", capture_libraries(device, &ok), &ok);
    put(env, "device", capture_device(device, &ok), &ok);
    put(env, "peaks", unknown_peaks(&ok), &ok);
    if (!ok) {
        json_decref(env);
        env = NULL;
    }
    *out = env;
    return ok ? status_ok() : status_error(STATUS_OOM, "out of memory for the description of the machine");
}

Status env_tool(json_t **out)
{
    bool    ok = true;
    json_t *tool = json_object();
    put(tool, "name", json_string("batchmark"), &ok);
    put(tool, "version", json_string(BATCHMARK_VERSION), &ok);
    put(tool, "git", text_or_null(BATCHMARK_GIT), &ok);
    put(tool, "dirty", BATCHMARK_GIT[0] ? json_boolean(BATCHMARK_DIRTY) : json_null(), &ok);
    if (!ok) {
        json_decref(tool);
        tool = NULL;
    }
    *out = tool;
    return ok ? status_ok() : status_error(STATUS_OOM, "out of memory for the description of the build");
}

/* ---- load and memory of the process ---- */

/* Core-seconds since boot in which any core of the machine worked for anybody, time taken by a hypervisor included. NaN
 * if unknown. proc(5): user nice system idle iowait irq softirq steal, in clock ticks; guest time is within user. */
static double busy_seconds(void)
{
    char      line[TEXT_BYTES];
    long long user, nice, system, idle, iowait, irq, softirq, steal;
    long      ticks = sysconf(_SC_CLK_TCK);
    if (!read_line("/proc/stat", line, sizeof line) || ticks <= 0 ||
        sscanf(line, "cpu %18lld %18lld %18lld %18lld %18lld %18lld %18lld %18lld", &user, &nice, &system, &idle, &iowait, &irq,
               &softirq, &steal) != 8)
        return (double)NAN;
    return (double)(user + nice + system + irq + softirq + steal) / (double)ticks;
}

static double own_seconds(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0)
        return (double)NAN;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

void env_load_start(EnvLoad *load) { *load = (EnvLoad){ clock_seconds(), busy_seconds(), own_seconds() }; }

double env_load_others(EnvLoad *load)
{
    EnvLoad now;
    env_load_start(&now);
    double wall = now.wall - load->wall, others = (now.busy - load->busy) - (now.own - load->own);
    if (!(wall >= 0.02))
        return (double)NAN; /* within two clock ticks: nothing to be seen yet, the period goes on */
    *load = now;
    return isnan(others) ? (double)NAN : others > 0 ? others / wall : 0; /* whole ticks against microseconds: may be < 0 */
}

size_t env_process_peak_bytes(void)
{
    char      text[TEXT_BYTES];
    long long kib;
    if (!read_field("/proc/self/status", "VmHWM", ':', text, sizeof text) || sscanf(text, "%15lld", &kib) != 1)
        return 0;
    return (size_t)kib * 1024;
}

void env_process_peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f)
        return;
    fputs("5", f); /* proc(5): resets the peak resident set */
    fclose(f);
}

const char *env_timestamp(char *text, size_t size)
{
    time_t    now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(text, size, "unknown");
    return text;
}
