/* fiber.cpp - stacks, and the switch between two of them. */
#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define FIBER_ASAN
#endif
#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace {
enum : size_t { STACK_BYTES = 256 << 10, GUARD_BYTES = 4 << 10 }; /* sanitizers make frames several times larger */
}

struct Fiber {
    void  *top = nullptr;           /* stack pointer while it does not run */
    void  *room = nullptr;          /* from mmap, GUARD_BYTES that cannot be touched first; NULL for the caller's stack */
    const void *bottom = nullptr;   /* of the stack, for AddressSanitizer */
    size_t bytes = 0;
    void  *shadow = nullptr;        /* AddressSanitizer's own */
    void (*body)() = nullptr;
#ifndef __x86_64__
    ucontext_t context;
#endif
};

namespace {

Fiber *leaving, *entering; /* of the switch that is under way */

/* The first thing on either side of a switch. */
void arrive()
{
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(entering->shadow, &leaving->bottom, &leaving->bytes);
#endif
}

void begin()
{
    arrive();
    entering->body();
    abort();
}

} // namespace

#ifdef __x86_64__
/* System V ABI: the callee keeps rbx, rbp, r12 to r15 and the stack pointer. fiber_swap(save = rdi, to = rsi). */
asm(R"(
.text
.globl fiber_swap
.type fiber_swap, @function
fiber_swap:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size fiber_swap, . - fiber_swap
)");
extern "C" void fiber_swap(void **save, void *to);

static void prepare(Fiber *f)
{
    void **top = reinterpret_cast<void **>(static_cast<char *>(f->room) + GUARD_BYTES + STACK_BYTES);
    *--top = nullptr; /* begin() finds the stack as after a call: 8 below a multiple of 16 */
    *--top = reinterpret_cast<void *>(begin);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->top = top;
}

static void swap(Fiber *from, Fiber *to)
{
    fiber_swap(&from->top, to->top);
}
#else
static void prepare(Fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = static_cast<char *>(f->room) + GUARD_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, begin, 0);
}

static void swap(Fiber *from, Fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

Fiber *fiber_of_caller()
{
    return new Fiber;
}

Fiber *fiber_create(void (*body)())
{
    Fiber *f = new Fiber;
    f->room = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->room == MAP_FAILED || mprotect(f->room, GUARD_BYTES, PROT_NONE)) {
        fprintf(stderr, "cuda_host: no memory for the stack of a thread\n");
        abort();
    }
    f->bottom = static_cast<char *>(f->room) + GUARD_BYTES;
    f->bytes = STACK_BYTES;
    f->body = body;
    prepare(f);
    return f;
}

void fiber_destroy(Fiber *f)
{
    if (f->room) {
#ifdef FIBER_ASAN
        __asan_unpoison_memory_region(f->bottom, f->bytes); /* what comes to lie here next is no stack */
#endif
        munmap(f->room, GUARD_BYTES + STACK_BYTES);
    }
    delete f;
}

void fiber_switch(Fiber *from, Fiber *to)
{
    leaving = from;
    entering = to;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->shadow, to->bottom, to->bytes);
#endif
    swap(from, to);
    arrive();
}
