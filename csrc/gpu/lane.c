#define _GNU_SOURCE /* syscall */

#include "gpu/lane.h"

#include <sched.h>
#include <time.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* From linux/membarrier.h, which old systems lack. */
enum { MEMBARRIER = 1 << 3, MEMBARRIER_REGISTER = 1 << 4 };

/* Returns 0 on success. */
static int
membarrier(int what)
{
#ifdef SYS_membarrier
    return (int)syscall(SYS_membarrier, what, 0, 0);
#else
    (void)what;
    return -1;
#endif
}

void
fp_lanes_init(fp_lanes *all, const fp_alloc *a)
{
    *all = (fp_lanes){.alloc = *a};
    atomic_store(&all->barrier, membarrier(MEMBARRIER_REGISTER) == 0 &&
                                    membarrier(MEMBARRIER) == 0);
}

static fp_chunk *
take_chunk(fp_lanes *all)
{
    if (atomic_fetch_add(&all->chunks, 1) >= FP_LANE_CHUNKS) {
        atomic_fetch_sub(&all->chunks, 1);
        return NULL;
    }
    fp_chunk *c = all->alloc.take(all->alloc.ctx, sizeof(*c));
    if (c == NULL) {
        atomic_fetch_sub(&all->chunks, 1);
        return NULL;
    }
    atomic_init(&c->next, NULL);
    atomic_init(&c->filled, 0);
    return c;
}

static void
give_chunk(fp_lanes *all, fp_chunk *c)
{
    fp_alloc_give(&all->alloc, c, 1, sizeof(*c));
    atomic_fetch_sub(&all->chunks, 1);
}

static void
free_lane(fp_lane *lane)
{
    fp_chunk *c = lane->head;
    while (c != NULL) {
        fp_chunk *next = atomic_load_explicit(&c->next, memory_order_acquire);
        give_chunk(lane->all, c);
        c = next;
    }
    fp_alloc_give(&lane->all->alloc, lane, 1, sizeof(*lane));
}

void
fp_lanes_fini(fp_lanes *all)
{
    fp_lane *lane = atomic_load(&all->first);
    atomic_store(&all->first, NULL);
    while (lane != NULL) {
        fp_lane *next = lane->next;
        free_lane(lane);
        lane = next;
    }
}

fp_lane *
fp_lane_create(fp_lanes *all)
{
    fp_lane *lane = fp_alloc_zeroed(&all->alloc, 1, sizeof(*lane));
    if (lane == NULL) {
        return NULL;
    }
    lane->all = all;
    lane->owner = -1;
    lane->head = lane->tail = take_chunk(all);
    if (lane->head == NULL) {
        fp_alloc_give(&all->alloc, lane, 1, sizeof(*lane));
        return NULL;
    }
    lane->next = atomic_load(&all->first);
    while (!atomic_compare_exchange_weak(&all->first, &lane->next, lane)) {
    }
    return lane;
}

fp_event *
fp_lane_add_chunk(fp_lane *lane)
{
    fp_chunk *more = take_chunk(lane->all);
    if (more == NULL) {
        atomic_fetch_add_explicit(&lane->all->lost, 1, memory_order_relaxed);
        return NULL;
    }
    fp_chunk *full = lane->tail;
    lane->tail = more;
    atomic_store_explicit(&full->next, more, memory_order_release);
    return more->event;
}

int
fp_lane_write(fp_lane *lane, const fp_event *e)
{
    uint32_t n =
        atomic_load_explicit(&lane->tail->filled, memory_order_relaxed);
    fp_event *at =
        n < FP_LANE_CHUNK ? &lane->tail->event[n] : fp_lane_add_chunk(lane);
    if (at == NULL) {
        return 1;
    }
    *at = *e;
    n = n % FP_LANE_CHUNK + 1;
    atomic_store_explicit(&lane->tail->filled, n, memory_order_release);
    return n == FP_LANE_CHUNK;
}

const fp_event *
fp_lane_read(fp_lane *lane)
{
    fp_chunk *c = lane->head;
    if (lane->read == FP_LANE_CHUNK) {
        fp_chunk *next = atomic_load_explicit(&c->next, memory_order_acquire);
        if (next == NULL) {
            return NULL;
        }
        /* The writer left this chunk when it linked the next one. */
        give_chunk(lane->all, c);
        lane->head = c = next;
        lane->read = 0;
    }
    uint32_t filled = atomic_load_explicit(&c->filled, memory_order_acquire);
    return lane->read < filled ? &c->event[lane->read++] : NULL;
}

static int
is_empty(const fp_lane *lane)
{
    const fp_chunk *c = lane->head;
    return lane->read ==
               atomic_load_explicit(&c->filled, memory_order_acquire) &&
           atomic_load_explicit(&c->next, memory_order_acquire) == NULL;
}

void
fp_lanes_sweep(fp_lanes *all)
{
    /* Keep the first lane: new lanes are linked before it. */
    fp_lane *before = atomic_load(&all->first);
    while (before != NULL && before->next != NULL) {
        fp_lane *lane = before->next;
        if (atomic_load(&lane->ended) && is_empty(lane)) {
            before->next = lane->next;
            free_lane(lane);
        }
        else {
            before = lane;
        }
    }
}

void
fp_lanes_quiesce(fp_lanes *all, const fp_lane *self)
{
    if (atomic_load(&all->barrier) && membarrier(MEMBARRIER) != 0) {
        /* The program has forbidden the call meanwhile (seccomp).  From now on
         * launches have their fences; a store of an earlier one reaches the
         * other processors long before this wait ends. */
        atomic_store(&all->barrier, 0);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    for (fp_lane *lane = atomic_load(&all->first); lane != NULL;
         lane = lane->next) {
        while (lane != self && atomic_load(&lane->busy)) {
            sched_yield();
        }
    }
}
