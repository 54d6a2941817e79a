/* block.cpp - the scheduler of block.h. */
#include "block.h"

#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

Here here;

namespace {

struct Thread {
    Fiber      *fiber = nullptr;    /* NULL before its beginning and after its end */
    const char *waits = nullptr;    /* in this call; NULL = it does not wait */
};

struct Warp {
    std::vector<Meeting *> open;    /* of those not all lanes have come */
    unsigned               alive = 0; /* lanes that have not ended */
};

enum { BLOCK_MOST = 1024 }; /* threads */

/* Threads that were released: in the order in which they came, in a ring, or, for the greedy schedules, as bits. */
struct Ready {
    int      ring[BLOCK_MOST];
    uint64_t bit[BLOCK_MOST / 64] = {};
    size_t   first = 0, count = 0;

    int &at(size_t place) { return ring[(first + place) % BLOCK_MOST]; }

    void add(int t, bool greedy)
    {
        if (greedy)
            bit[t / 64] |= uint64_t(1) << t % 64;
        else
            at(count) = t;
        count++;
    }

    int take(size_t place)
    {
        std::swap(at(0), at(place));
        count--;
        return ring[first++ % BLOCK_MOST];
    }

    int take_end(bool highest)
    {
        int w = highest ? BLOCK_MOST / 64 - 1 : 0;
        while (bit[w] == 0)
            w += highest ? -1 : 1;
        const int b = highest ? 63 - __builtin_clzll(bit[w]) : __builtin_ctzll(bit[w]);
        bit[w] &= ~(uint64_t(1) << b);
        count--;
        return 64 * w + b;
    }
};

struct Scheduler {
    int      schedule = block_first_schedule();
    uint64_t random = 1;
    Fiber   *caller = nullptr, *current = nullptr;
    std::vector<Fiber *>   spare;   /* have no thread to run */
    std::vector<Meeting *> meetings, unused;

    /* of the block that runs */
    const std::function<void()> *body = nullptr;
    std::vector<Thread> thread;
    std::vector<Warp>   warp;
    std::vector<int>    order;      /* in which threads begin */
    size_t              next = 0;   /* in it */
    size_t              alive = 0;  /* threads that have not ended */
    int                 running = 0;
    Ready               ready;
    std::vector<int>    at_barrier;
    int                 sum = 0, sum_ready = 0; /* of the barrier that gathers, and of the last one */
    char                broken[160] = ""; /* the rule that the kernel broke */
};

Scheduler &s = *new Scheduler; /* never destroyed: its stacks are in use to the end of the program */

Thread &thread_at(int t) { return s.thread[static_cast<size_t>(t)]; }
Warp   &warp_of(int t) { return s.warp[static_cast<size_t>(t / WARP)]; }

size_t random_below(size_t n)
{
    s.random = s.random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(s.random >> 33) % n;
}

std::vector<int> make_order(size_t count)
{
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = 0; s.schedule == 1 && i < count; i++)
        order[i] = static_cast<int>(count - 1 - i);
    for (size_t i = count; s.schedule == 2 && i > 1; i--)
        std::swap(order[i - 1], order[random_below(i)]);
    return order;
}

bool is_greedy() { return s.schedule >= 3; }

int take_ready()
{
    return is_greedy() ? s.ready.take_end(s.schedule == 4) : s.ready.take(s.schedule == 2 ? random_below(s.ready.count) : 0);
}

uint3 place_of(int thread)
{
    const unsigned t = static_cast<unsigned>(thread), x = here.block_size.x, y = here.block_size.y;
    return uint3{ t % x, t / x % y, t / x / y };
}

void switch_to(Fiber *to)
{
    Fiber *from = s.current;
    s.current = to;
    fiber_switch(from, to);
}

void fiber_body();

/* To the fiber that is to run next: of a thread that was released, else for one that has not begun, else the caller's. */
void hand_over()
{
    const bool more = s.next < s.order.size();
    if (s.broken[0] || (s.ready.count == 0 && !more))
        switch_to(s.caller);
    else if (more && (s.ready.count == 0 || (s.schedule == 2 && random_below(2)))) {
        Fiber *to = s.spare.empty() ? fiber_create(fiber_body) : s.spare.back();
        if (!s.spare.empty())
            s.spare.pop_back();
        switch_to(to);
    } else {
        s.running = take_ready();
        switch_to(thread_at(s.running).fiber);
    }
}

/* The running thread waits until somebody has put it into ready and its turn has come. */
void wait_in(const char *what)
{
    const int me = s.running;
    thread_at(me).waits = what;
    hand_over();
    thread_at(me).waits = nullptr;
    here.thread = place_of(me);
}

void release_barrier()
{
    for (int t : s.at_barrier)
        s.ready.add(t, is_greedy());
    s.at_barrier.clear();
    s.sum_ready = std::exchange(s.sum, 0);
}

/* Ends the meetings of the running thread's warp to which all have come: those who wait there may go on. */
void close_meetings()
{
    Warp     &w = warp_of(s.running);
    const int first = s.running / WARP * WARP;
    for (size_t i = 0; i < w.open.size();) {
        Meeting *m = w.open[i];
        if (m->mask & w.alive & ~m->come) {
            i++;
            continue;
        }
        w.open.erase(w.open.begin() + static_cast<std::ptrdiff_t>(i));
        for (int lane = 0; lane < WARP; lane++)
            if ((m->come >> lane & 1) && first + lane != s.running)
                s.ready.add(first + lane, is_greedy());
    }
}

void run_thread(int me)
{
    s.running = me;
    thread_at(me).fiber = s.current;
    here.thread = place_of(me);
    (*s.body)();
    thread_at(me).fiber = nullptr;
    s.alive--;
    warp_of(me).alive &= ~(1u << me % WARP);
    s.running = me; /* others have run meanwhile */
    close_meetings();
    if (s.alive > 0 && s.at_barrier.size() == s.alive)
        release_barrier();
}

/* Runs threads one after the other as long as there are any to begin, in every block. */
void fiber_body()
{
    for (;;) {
        while (s.next < s.order.size() && !s.broken[0])
            run_thread(s.order[s.next++]);
        s.spare.push_back(s.current);
        hand_over();
    }
}

/* The running thread never goes on. */
void break_off(const char *format, const char *a, const char *b)
{
    snprintf(s.broken, sizeof s.broken, format, a, b);
    hand_over();
}

void report(const char *kernel, uint3 block)
{
    fprintf(stderr, "cuda_host: %s: block (%u,%u,%u): ", kernel, block.x, block.y, block.z);
    if (s.broken[0]) {
        fprintf(stderr, "%s\n", s.broken);
        return;
    }
    fprintf(stderr, "%zu of %zu threads wait for ever:", s.alive, s.thread.size());
    for (size_t t = 0, told = 0; t < s.thread.size() && told < 4; t++)
        if (s.thread[t].waits && (t == 0 || !s.thread[t - 1].waits || strcmp(s.thread[t].waits, s.thread[t - 1].waits))) {
            fprintf(stderr, " thread %zu in %s", t, s.thread[t].waits);
            told++;
        }
    fprintf(stderr, "\n");
}

/* Forgets threads that will not go on, with their stacks. */
void drop_block()
{
    for (Thread &t : s.thread)
        if (t.fiber)
            fiber_destroy(t.fiber);
    s.unused = s.meetings;
    s.ready = Ready();
    s.at_barrier.clear();
    s.broken[0] = '\0';
}

bool run_block(const char *kernel)
{
    const size_t count = static_cast<size_t>(here.block_size.x) * here.block_size.y * here.block_size.z;
    s.thread.assign(count, Thread());
    s.warp.assign((count + WARP - 1) / WARP, Warp());
    for (size_t t = 0; t < count; t++)
        s.warp[t / WARP].alive |= 1u << t % WARP;
    s.order = make_order(count);
    s.next = 0;
    s.alive = count;
    s.sum = 0;
    s.current = s.caller;
    hand_over();
    if (s.alive == 0 && !s.broken[0])
        return true;
    report(kernel, here.block);
    drop_block();
    return false;
}

} // namespace

int block_first_schedule()
{
    const char *text = getenv("CUDA_HOST_SCHEDULE");
    const int   n = text ? atoi(text) : 0;
    return n >= 0 && n < BLOCK_SCHEDULES ? n : 0;
}

void block_set_schedule(int schedule)
{
    s.schedule = schedule;
}

int block_lane()
{
    return s.running % WARP;
}

Meeting *block_meet(unsigned mask, const char *what, uint64_t value)
{
    const int lane = block_lane();
    Warp     &w = warp_of(s.running);
    Meeting  *m = nullptr;
    if (!(mask >> lane & 1))
        break_off("%s by a lane that is not in its own mask%s", what, "");
    for (Meeting *open : w.open)
        if (open->mask == mask)
            m = open;
    if (m && m->what != what && strcmp(m->what, what))
        break_off("lanes of one warp meet in %s and in %s", m->what, what);
    if (!m) {
        if (s.unused.empty()) {
            s.meetings.push_back(new Meeting);
            s.unused.push_back(s.meetings.back());
        }
        m = s.unused.back();
        s.unused.pop_back();
        m->mask = mask;
        m->come = m->gone = 0;
        m->what = what;
        memset(m->value, 0xff, sizeof m->value);
        w.open.push_back(m);
    }
    m->come |= 1u << lane;
    m->value[lane] = value;
    if (m->mask & w.alive & ~m->come)
        wait_in(what);
    else
        close_meetings();
    return m;
}

void block_part(Meeting *m)
{
    m->gone |= 1u << block_lane();
    if (m->gone == m->come)
        s.unused.push_back(m);
}

int block_barrier(int value)
{
    s.sum += value;
    if (s.at_barrier.size() + 1 == s.alive)
        release_barrier();
    else {
        s.at_barrier.push_back(s.running);
        wait_in("__syncthreads");
    }
    return s.sum_ready;
}

bool block_run_grid(const char *kernel, dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread)
{
    const size_t count = static_cast<size_t>(grid.x) * grid.y * grid.z;
    void        *room = nullptr;
    bool         whole = true;
    if (!s.caller)
        s.caller = fiber_of_caller();
    if (shared && posix_memalign(&room, 16, shared)) {
        fprintf(stderr, "cuda_host: no memory for shared memory\n");
        abort();
    }
    s.body = &thread;
    here.block_size = block;
    here.grid_size = grid;
    here.shared = static_cast<unsigned char *>(room);
    for (size_t n = 0; n < count && whole; n++) {
        const size_t i = s.schedule == 1 ? count - 1 - n : n;
        here.block = uint3{ static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                            static_cast<unsigned>(i / grid.x / grid.y) };
        if (shared)
            memset(room, 0xff, shared);
        whole = run_block(kernel);
    }
    free(room);
    return whole;
}
