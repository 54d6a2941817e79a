/* ring.c - the bodies of ring.h. */
#include "ring.h"

Status ring_check(int threads, int queue)
{
    if (threads < 0 || threads > RING_THREADS_MAX)
        return status_error(STATUS_USAGE, "%d loader threads, expected 0..%d", threads, RING_THREADS_MAX);
    if (queue < 1 || queue > RING_QUEUE_MAX)
        return status_error(STATUS_USAGE, "loader queue of %d batches, expected 1..%d", queue, RING_QUEUE_MAX);
    return status_ok();
}

static void *run_thread(void *argument)
{
    const RingThread *self = argument;
    Ring *ring = self->ring;
    pthread_mutex_lock(&ring->lock);
    while (!ring->stop)
        if (!ring->work(ring->loader, self->worker))
            pthread_cond_wait(&ring->space, &ring->lock);
    pthread_mutex_unlock(&ring->lock);
    return NULL;
}

void ring_open(Ring *ring, int64_t hold, int threads, int queue)
{
    *ring = (Ring){ .slots = hold + (threads ? queue : 0), .hold = hold };
    pthread_mutex_init(&ring->lock, NULL); /* these three cannot fail with default attributes on Linux */
    pthread_cond_init(&ring->space, NULL);
    pthread_cond_init(&ring->ready, NULL);
}

Status ring_start(Ring *ring, int threads, RingWork *work, void *loader)
{
    ring->work = work;
    ring->loader = loader;
    for (int i = 0; i < threads; i++) {
        RingThread *self = &ring->thread[i];
        self->ring = ring;
        self->worker = i;
        int error = pthread_create(&self->thread, NULL, run_thread, self);
        if (error != 0)
            return status_error(STATUS_OOM, "the system refuses loader thread %d of %d (error %d)", i + 1, threads,
                                error);
        ring->running++;
    }
    return status_ok();
}

void ring_close(Ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring_stop(ring);
    pthread_mutex_unlock(&ring->lock);
    for (int i = 0; i < ring->running; i++)
        pthread_join(ring->thread[i].thread, NULL);
    pthread_cond_destroy(&ring->ready);
    pthread_cond_destroy(&ring->space);
    pthread_mutex_destroy(&ring->lock);
}

void ring_enter(Ring *ring)
{
    double start = clock_seconds();
    pthread_mutex_lock(&ring->lock);
    ring->start = start;
    int64_t released = ring->given - ring->hold + 1; /* one place is needed for the batch to come */
    if (released > ring->released) {
        ring->released = released;
        pthread_cond_broadcast(&ring->space);
    }
}

void ring_leave(Ring *ring)
{
    ring->waited += clock_seconds() - ring->start;
    pthread_mutex_unlock(&ring->lock);
}

int64_t ring_claim_slot(const Ring *ring)
{
    return ring->ended || ring->claimed >= ring->released + ring->slots ? -1 : ring->claimed % ring->slots;
}

int64_t ring_next_slot(const Ring *ring)
{
    return ring->given < ring->claimed ? ring->given % ring->slots : -1;
}

void ring_wait(Ring *ring)
{
    if (ring->running > 0)
        pthread_cond_wait(&ring->ready, &ring->lock);
    else
        CHECK(ring->work(ring->loader, 0) || ring->ended);
}

void ring_stop(Ring *ring)
{
    ring->stop = true;
    pthread_cond_broadcast(&ring->space);
}
