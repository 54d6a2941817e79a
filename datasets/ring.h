/* ring.h - private to datasets/: the threads that fill a loader's ring of slots ahead of its one consumer.
 *
 * Batches are numbered through all epochs; batch n lies in slot n % slots. The loader owns the slots and what a piece of
 * work is; the ring owns the threads, the lock and the counts of batches. In its work function a loader claims a piece
 * under the lock, in order, makes it with the lock open, and says under the lock again that it is done. A claim is
 * refused while its slot is still taken: that bounds the queue. With no threads the consumer does the work itself. */
#ifndef BATCHMARK_DATASETS_RING_H
#define BATCHMARK_DATASETS_RING_H

#include "../kernels/base.h"

#include <pthread.h>

enum { RING_THREADS_MAX = 256, RING_QUEUE_MAX = 4096, RING_HOLD_MAX = 4096 };

/* Claims, makes and finishes one piece of work; false where nothing can be claimed. The lock is held before and after.
 * worker: 0..threads - 1, or 0 for the consumer. */
typedef bool RingWork(void *loader, int worker);

typedef struct RingThread {
    struct Ring *ring;
    int          worker;
    pthread_t    thread;
} RingThread;

typedef struct Ring {
    int64_t    slots, hold; /* hold: of the slots, those that the consumer keeps */
    RingWork  *work;
    void      *loader;
    RingThread thread[RING_THREADS_MAX];
    int        running;     /* threads that were started */

    pthread_mutex_t lock;   /* guards everything below, and the loader's claims and slots */
    pthread_cond_t  space, ready;
    bool            stop;
    bool            ended;  /* the loader will never claim another batch */
    int64_t         claimed; /* batches of which all the work is claimed */
    int64_t         given;   /* batches handed to the consumer */
    int64_t         released; /* of these, the ones it is done with: all but the last `hold` */
    double          start, waited; /* seconds: when the consumer came; in all that it spent here */
} Ring;

/* STATUS_USAGE for numbers out of range. */
Status ring_check(int threads, int queue);

/* ring_close is due afterwards; hold + queue slots, without threads hold alone. */
void ring_open(Ring *ring, int64_t hold, int threads, int queue);
/* Starts the threads; *loader must be whole. STATUS_OOM where the system refuses one. */
Status ring_start(Ring *ring, int threads, RingWork *work, void *loader);
/* Ends the threads and waits for them. */
void ring_close(Ring *ring);

/* The consumer comes for batch number `given`, and goes: the lock is held between the two. Coming releases the oldest
 * batch that it held, to make room for the one that follows. */
void ring_enter(Ring *ring);
void ring_leave(Ring *ring);

/* ---- under the lock ---- */

/* The slot of the batch to claim from; -1 while it is taken. */
int64_t ring_claim_slot(const Ring *ring);
/* The slot of the batch to hand out; -1 where that slot still holds the batch before it. */
int64_t ring_next_slot(const Ring *ring);
/* Returns after something happened: a batch was finished, or, without threads, a piece of work was done. */
void ring_wait(Ring *ring);
/* The threads finish what they have claimed and claim no more. */
void ring_stop(Ring *ring);

#endif
