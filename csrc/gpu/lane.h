/* lane: what one thread tells the drain thread, in order: its launches, its
 * waits, where it stands.
 *
 * A queue with one writer (the thread, inside a CUPTI callback or at a section's
 * boundary) and one reader (the drain thread).  No lock: a callback may run
 * while the program holds any lock of its own, so it must never wait.  The queue
 * is a chain of chunks; the reader frees a chunk when it has gone beyond it.
 * How many there may be is bounded for all lanes together; beyond it events are
 * lost and counted. */
#ifndef FP_GPU_LANE_H
#define FP_GPU_LANE_H

#include "core/alloc.h"
#include "gpu/site.h"

#include <stdatomic.h>

typedef enum fp_event_kind {
    FP_EVENT_LAUNCH,       /* corr, site, ticks */
    FP_EVENT_GRAPH_LAUNCH, /* the same; many activities follow */
    FP_EVENT_SYNC,         /* site, ticks to until */
    FP_EVENT_SECTION,      /* outermost section of the stepping thread */
    FP_EVENT_STEP,         /* ... ended a step; section is 1 if it counts */
    FP_EVENT_OWNER,        /* where the thread stands, see owners.h */
    FP_EVENT_CAPTURE,      /* graph node `id` made at site; section is 1 if by
                              the launch `corr` */
    FP_EVENT_CLONE,        /* graph node `id` is a copy of `until` */
    FP_EVENT_CALL,         /* trace: a launch took from ticks to until */
} fp_event_kind;

typedef struct fp_event {
    fp_place place;
    fp_place via;
    int64_t ticks;
    int64_t until;
    uint64_t id;
    uint32_t corr;
    uint16_t section;
    uint8_t kind;
    uint8_t how;
} fp_event;

_Static_assert(sizeof(fp_event) == 48, "one and a half per two cache lines");

enum { FP_LANE_CHUNK = 255, FP_LANE_CHUNKS = 4096 };

typedef struct fp_chunk {
    _Atomic(struct fp_chunk *) next;
    _Atomic uint32_t filled;
    fp_event event[FP_LANE_CHUNK];
} fp_chunk;

/* What all lanes of a collector share. */
typedef struct fp_lanes {
    _Atomic(struct fp_lane *) first; /* owned; newest first */
    _Atomic uint32_t chunks;
    _Atomic uint64_t lost; /* events there was no room for */
    int barrier;    /* the kernel orders what others see of `busy`; below */
    fp_alloc alloc; /* any thread may use it */
} fp_lanes;

typedef struct fp_lane {
    _Atomic uint32_t busy;  /* the thread is inside a callback */
    _Atomic uint32_t ended; /* ... will write no more */
    fp_lanes *all;
    struct fp_lane *next;
    /* the writer's */
    fp_chunk *tail;
    uint32_t attachment; /* to CUPTI, that the three below belong to */
    uint64_t last_call;  /* that launched: its id, or UINT64_MAX */
    int64_t called;      /* ... when */
    uint32_t caller;     /* ... serial number of the thread, or 0 */
    uint8_t call_is_graph;
    uint8_t call_domain;
    uint8_t calls; /* launching calls that it is in, one inside another */
    uint8_t driver_inside; /* ... the driver's was seen in the runtime's */
    uint32_t sync_depth;
    int64_t sync_since;
    int owner;               /* its slot in fp_owners, or -1 */
    int has_sections;        /* it has opened one: it works for itself */
    uint64_t recording;      /* what it remembers belongs to; 0: nothing */
    uint16_t outermost;      /* section it was in when it said so last; + 1 */
    uint32_t pushed;         /* external correlation ids on CUPTI's stack */
    _Atomic uint64_t pushes; /* ... ever; the reader looks */
    /* the reader's */
    fp_chunk *head;
    uint32_t read;
    uint64_t ident;
} fp_lane;

void
fp_lanes_init(fp_lanes *all, const fp_alloc *a);

/* Frees every lane; no thread may write any more. */
void
fp_lanes_fini(fp_lanes *all);

/* A lane for the calling thread; NULL: no memory. */
fp_lane *
fp_lane_create(fp_lanes *all);

/* Any thread's own lane.  1 if a chunk was filled by it: time to look. */
int
fp_lane_write(fp_lane *lane, const fp_event *e);

/* The reader: the next event, valid until the next call; NULL: none now. */
const fp_event *
fp_lane_read(fp_lane *lane);

/* The reader: frees lanes whose thread has ended and that are empty. */
void
fp_lanes_sweep(fp_lanes *all);

/* Between these two a thread may follow pointers into trees; who frees trees
 * first makes them unreachable, then waits until no lane is busy.  The store must
 * be seen before any pointer is read.  Launches are many and those who wait few:
 * where the kernel has membarrier(2), they make every thread's stores be seen, and
 * a launch does without the fence, which is half of its cost. */
static inline void
fp_lane_enter(fp_lane *lane)
{
    if (FP_LIKELY(lane->all->barrier)) {
        atomic_store_explicit(&lane->busy, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    }
    else {
        atomic_store(&lane->busy, 1);
    }
}

static inline void
fp_lane_exit(fp_lane *lane)
{
    atomic_store_explicit(&lane->busy, 0, memory_order_release);
}

/* Waits, spinning: a callback takes microseconds and never blocks.  [self] (or
 * NULL) is not waited for. */
void
fp_lanes_quiesce(fp_lanes *all, const fp_lane *self);

#endif
