/* fiber.h - stacks that one OS thread goes to and fro between: what the threads of a block run on.
 *
 * Switching costs some ten nanoseconds (a few registers), and AddressSanitizer is told of it. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_FIBER_H
#define BATCHMARK_TESTS_CUDA_HOST_FIBER_H

#include <cstddef>

struct Fiber;

/* The stack that calls this, as a fiber to come back to. */
Fiber *fiber_of_caller();

/* A stack on which `body` begins when it is first switched to; body must never return. Ends the program without memory. */
Fiber *fiber_create(void (*body)());

/* Of a fiber that is not running. What lives on its stack is forgotten, without destructors. */
void fiber_destroy(Fiber *fiber);

/* Leaves `from`, which is running, and goes on in `to`; returns when somebody switches back. */
void fiber_switch(Fiber *from, Fiber *to);

#endif
