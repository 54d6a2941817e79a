/* base.c - the bodies of base.h. */
#include "base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

Status status_error(StatusCode code, const char *format, ...)
{
    CHECK(code != STATUS_OK);
    Status s;
    s.code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(s.text, sizeof s.text, format, args);
    va_end(args);
    return s;
}

Status status_context(Status s, const char *format, ...)
{
    if (s.code == STATUS_OK)
        return s;
    char context[STATUS_TEXT_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    return status_error(s.code, "%s: %s", context, s.text);
}

const char *status_code_name(StatusCode code)
{
    static const char *const names[STATUS_CODE_COUNT] = {
        "ok", "usage", "input", "io", "oom", "unsupported", "backend", "numeric", "interrupted",
    };
    return code >= 0 && code < STATUS_CODE_COUNT ? names[code] : "unknown";
}

void check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "batchmark: internal error: %s:%d: CHECK(%s) failed\n", file, line, condition);
    abort();
}

static void log_line(const char *prefix, const char *format, va_list args)
{
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    fprintf(stderr, "%s%s\n", prefix, line);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line("batchmark: ", format, args);
    va_end(args);
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line("batchmark: warning: ", format, args);
    va_end(args);
}

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

RngBlock rng_block(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t c[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32) };
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t hi0 = (uint32_t)(p0 >> 32), hi1 = (uint32_t)(p1 >> 32);
        c[0] = hi1 ^ c[1] ^ k0;
        c[2] = hi0 ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (RngBlock){ { c[0], c[1], c[2], c[3] } };
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    RngBlock b = rng_block(seed, stream, counter);
    double u = ((double)b.word[0] + 0.5) * 0x1p-32; /* (0, 1): its logarithm is finite */
    double v = (double)b.word[1] * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

int64_t rng_below(uint64_t seed, uint64_t stream, uint64_t counter, int64_t n)
{
    CHECK(n >= 1 && n <= INT32_MAX);
    RngBlock b = rng_block(seed, stream, counter);
    return (int64_t)(((uint64_t)b.word[0] * (uint64_t)n) >> 32);
}
