/* base.h - what every layer stands on: Status, CHECK, log lines, the clock, the counter-based generator.
 *
 * Everything fallible returns a Status by value: a code and one line of text that says what was wrong, where,
 * and what would be right. Nothing is allocated for it, so it also carries "out of memory". Callers pass it
 * on with TRY; only main() turns it into an exit code. */
#ifndef BATCHMARK_KERNELS_BASE_H
#define BATCHMARK_KERNELS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

typedef enum StatusCode {
    STATUS_OK,
    STATUS_USAGE,       /* the caller's arguments are wrong: exit 2 */
    STATUS_INPUT,       /* a file or data set is missing, cut or wrong */
    STATUS_IO,          /* the system refused to read or write */
    STATUS_OOM,         /* does not fit in memory, or an allocation failed */
    STATUS_UNSUPPORTED, /* deliberately not available here: a skipped cell, never a pass */
    STATUS_BACKEND,     /* a library reported an error; its own words are in the text */
    STATUS_NUMERIC,     /* NaN, infinity, or a result that failed verification */
    STATUS_INTERRUPTED, /* Ctrl-C or SIGTERM */
    STATUS_CODE_COUNT
} StatusCode;

enum { STATUS_TEXT_BYTES = 504 };

typedef struct Status {
    StatusCode code;
    char       text[STATUS_TEXT_BYTES]; /* one line, no newline; "" when code is STATUS_OK */
} Status;

static inline Status status_ok(void)
{
    Status s;
    s.code = STATUS_OK;
    s.text[0] = '\0';
    return s;
}

/* An error with a formatted text, cut to fit. */
Status status_error(StatusCode code, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same error with "context: " put before its text; a status that is OK passes unchanged. */
Status status_context(Status s, const char *format, ...) PRINTF_LIKE(2, 3);

/* "ok", "usage", "input", ... as written into records. */
const char *status_code_name(StatusCode code);

/* Return from the caller with the error, if there is one. */
#define TRY(expression)                  \
    do {                                 \
        Status try_status_ = (expression); \
        if (try_status_.code != STATUS_OK) \
            return try_status_;          \
    } while (0)

/* Store the status and jump forward to a clean-up label, if it is an error. */
#define TRY_GOTO(status, expression, label) \
    do {                                    \
        (status) = (expression);            \
        if ((status).code != STATUS_OK)     \
            goto label;                     \
    } while (0)

/* A programmer's error, never the user's: prints and aborts; stays on in release builds. */
#define CHECK(condition) \
    ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))
void check_failed(const char *condition, const char *file, int line)
#if defined(__GNUC__)
    __attribute__((noreturn))
#endif
    ;

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* One line on stderr, prefixed "batchmark: " / "batchmark: warning: ". stdout is for results only. */
void log_info(const char *format, ...) PRINTF_LIKE(1, 2);
void log_warn(const char *format, ...) PRINTF_LIKE(1, 2);

/* Monotonic time in seconds, from an arbitrary start. */
double clock_seconds(void);

/* Counter-based random numbers: Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
 * 1, 2, 3"). A number is a pure function of (seed, stream, counter), so the order of drawing does not matter and
 * both backends draw the same. */
typedef struct RngBlock { uint32_t word[4]; } RngBlock;
RngBlock rng_block(uint64_t seed, uint64_t stream, uint64_t counter);

/* Uniform in [0, 1) with 24 random bits. */
static inline float rng_uniform(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* Standard normal (Box-Muller) from the block of this counter. */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);

/* Uniform integer in [0, n), n >= 1, without modulo bias that could be seen (64-bit multiply-shift). */
int64_t rng_below(uint64_t seed, uint64_t stream, uint64_t counter, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
