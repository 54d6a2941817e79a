/* fault_alloc.c - the linker (--wrap=malloc ...) sends the program's allocations here.
 *
 * The one place with mutable globals: an allocator has no context argument to carry them. The set of live blocks is an
 * open-addressing hash table of addresses (Knuth vol. 3, 6.4, algorithms L and R). */
#include "fault_alloc.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t items, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int   __real_posix_memalign(void **block, size_t alignment, size_t bytes);
void  __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t items, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int   __wrap_posix_memalign(void **block, size_t alignment, size_t bytes);
void  __wrap_free(void *block);

enum { TABLE = 1 << 18 }; /* places, a power of two; at most half of them are used */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t table[TABLE]; /* 0 = empty */
static int64_t live, count, fail_at;

static size_t home(uintptr_t address)
{
    return (size_t)(((uint64_t)address * UINT64_C(0x9E3779B97F4A7C15)) >> 46); /* the top 18 bits */
}

/* Where the address is, or the empty place where it would go. */
static size_t find(uintptr_t address)
{
    size_t i = home(address);
    while (table[i] != 0 && table[i] != address)
        i = (i + 1) % TABLE;
    return i;
}

static void *remember(void *block)
{
    if (!block)
        return NULL;
    pthread_mutex_lock(&lock);
    CHECK(live < TABLE / 2);
    size_t i = find((uintptr_t)block);
    CHECK(table[i] == 0);
    table[i] = (uintptr_t)block;
    live++;
    pthread_mutex_unlock(&lock);
    return block;
}

/* Was it known? A block from inside a shared library (strdup, getline) is not. */
static bool forget(void *block)
{
    pthread_mutex_lock(&lock);
    size_t hole = find((uintptr_t)block);
    bool known = block && table[hole] != 0;
    if (known) {
        live--;
        table[hole] = 0;
        /* Move back those that had been pushed past the hole. */
        for (size_t i = (hole + 1) % TABLE; table[i] != 0; i = (i + 1) % TABLE) {
            size_t wanted = home(table[i]);
            if ((i - wanted) % TABLE >= (i - hole) % TABLE) {
                table[hole] = table[i];
                table[i] = 0;
                hole = i;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return known;
}

static bool must_fail(void)
{
    pthread_mutex_lock(&lock);
    bool fails = ++count == fail_at;
    pthread_mutex_unlock(&lock);
    if (fails)
        errno = ENOMEM;
    return fails;
}

void *__wrap_malloc(size_t bytes)
{
    return must_fail() ? NULL : remember(__real_malloc(bytes));
}

void *__wrap_calloc(size_t items, size_t bytes)
{
    return must_fail() ? NULL : remember(__real_calloc(items, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return must_fail() ? NULL : remember(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes)
{
    if (must_fail())
        return ENOMEM;
    int error = __real_posix_memalign(block, alignment, bytes);
    if (error == 0)
        remember(*block);
    return error;
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (must_fail())
        return NULL;
    bool known = forget(block); /* before the call: afterwards another thread may own the address */
    void *moved = __real_realloc(block, bytes);
    if (moved)
        return remember(moved);
    if (known && bytes > 0)
        remember(block);
    return NULL;
}

void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

void fault_alloc_arm(int64_t n)
{
    pthread_mutex_lock(&lock);
    count = 0;
    fail_at = n;
    pthread_mutex_unlock(&lock);
}

void fault_alloc_disarm(void)
{
    pthread_mutex_lock(&lock);
    fail_at = 0;
    pthread_mutex_unlock(&lock);
}

int64_t fault_alloc_count(void)
{
    pthread_mutex_lock(&lock);
    int64_t n = count;
    pthread_mutex_unlock(&lock);
    return n;
}

int64_t fault_alloc_live(void)
{
    pthread_mutex_lock(&lock);
    int64_t n = live;
    pthread_mutex_unlock(&lock);
    return n;
}

int64_t fault_alloc_sweep(Status (*attempt)(void *context), void *context)
{
    for (int64_t n = 1;; n++) {
        int64_t before = fault_alloc_live();
        fault_alloc_arm(n);
        Status status = attempt(context);
        int64_t asked = fault_alloc_count();
        fault_alloc_disarm();
        if (fault_alloc_live() != before)
            fail_msg("allocation %lld failing leaks %lld blocks", (long long)n,
                     (long long)(fault_alloc_live() - before));
        if (asked < n) {
            if (status.code != STATUS_OK)
                fail_msg("with no allocation failing: %s", status.text);
            return asked;
        }
        if (status.code != STATUS_OOM || status.text[0] == '\0')
            fail_msg("allocation %lld failing ends in status %s '%s', expected oom", (long long)n,
                     status_code_name(status.code), status.text);
    }
}
