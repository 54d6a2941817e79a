/* block.h - runs a grid of blocks of threads on one OS thread: the part of the shim that knows no CUDA but its rules.
 *
 * Each thread of a block is a fiber that runs until it has to wait for others: at a barrier of the block, or in a
 * collective of its warp (shuffle, ballot). Which of those that may go on does so is the schedule. Blocks run one after the other.
 *   0  in order; those released go on in the order in which they came
 *   1  the last thread and the last block first
 *   2  shuffled, the same on every run
 *   3  greedy: the lowest thread that can run does, so that low warps run ahead as far as barriers let them
 *   4  greedy, the highest
 * A missing barrier before a read shows in all, one before a write only under the greedy ones. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_BLOCK_H
#define BATCHMARK_TESTS_CUDA_HOST_BLOCK_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector_types.h>

enum { WARP = 32, BLOCK_SCHEDULES = 5 };

/* The place of the thread that is running. */
struct Here {
    uint3 thread, block;
    dim3  block_size, grid_size;
    unsigned char *shared; /* the block's dynamic shared memory */
};
extern Here here;

/* A meeting of lanes of one warp: each brings a value and sees all of them. */
struct Meeting {
    unsigned    mask;          /* lanes that must come */
    unsigned    come, gone;    /* lanes that came, and went on again */
    const char *what;
    uint64_t    value[WARP];   /* all bits 1, which is NaN, where no lane brought one */
};

int block_lane();

/* Waits for the lanes of the mask that have not ended; block_part when the values have been looked at. A lane that meets
 * others in another call than theirs, or that is not in its own mask, is an error of the kernel. */
Meeting *block_meet(unsigned mask, const char *what, uint64_t value);
void     block_part(Meeting *m);

/* Waits for all threads of the block that have not ended; gives the sum of what they bring. */
int block_barrier(int value);

int  block_first_schedule(); /* from the environment: CUDA_HOST_SCHEDULE, else 0 */
void block_set_schedule(int schedule);

/* Runs `thread` once for each thread of the grid. False, with a line on stderr, if threads wait for each other for ever or
 * the kernel broke a rule. Dynamic shared memory begins as NaN bytes in each block. */
bool block_run_grid(const char *kernel, dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread);

#endif
