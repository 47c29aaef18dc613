/* lane: the events that one thread sends to the drain thread, in order:
 * launches, waits, and changes of its section.
 *
 * A lane is a queue with one writer (the thread, inside a CUPTI callback or at
 * the boundary of a section) and one reader (the drain thread).  It has no
 * lock: a callback may run while the program holds any lock, so it must never
 * wait.  The queue is a chain of chunks; the reader frees a chunk after its
 * last event.  The number of chunks is limited for all lanes together; beyond
 * it events are lost and counted. */
#ifndef FP_GPU_LANE_H
#define FP_GPU_LANE_H

#include "core/alloc.h"
#include "gpu/site.h"

#include <stdatomic.h>

typedef enum fp_event_kind {
    FP_EVENT_LAUNCH,       /* corr, site, ticks */
    FP_EVENT_GRAPH_LAUNCH, /* the same, with many activities */
    FP_EVENT_SYNC,         /* site, from ticks until */
    FP_EVENT_SECTION,      /* stepping thread: its outermost section */
    /* ... ended step number `id`; section: 1 if measured */
    FP_EVENT_STEP,
    FP_EVENT_OWNER, /* the thread's section, see owners.h */
    /* graph node `id` made at site; section: 1 if by the launch `corr` */
    FP_EVENT_CAPTURE,
    FP_EVENT_CLONE, /* graph node `id` copies node `until` */
    FP_EVENT_CALL,  /* trace: a launch, from ticks until */
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

/* Shared by all lanes of a collector. */
typedef struct fp_lanes {
    _Atomic(struct fp_lane *) first; /* owned; newest first */
    _Atomic uint32_t chunks;
    _Atomic uint64_t lost; /* events lost: no room */
    _Atomic int barrier;   /* membarrier works, see fp_lane_enter */
    fp_alloc alloc;        /* any thread may use it */
} fp_lanes;

typedef struct fp_lane {
    _Atomic uint32_t busy;  /* the thread is inside a callback */
    _Atomic uint32_t ended; /* it writes no more events */
    fp_lanes *all;
    struct fp_lane *next;
    /* used by the writer */
    fp_chunk *tail;
    uint32_t attachment; /* attachment to CUPTI of the next fields */
    uint64_t last_call;  /* last launching call, or UINT64_MAX */
    int64_t called;      /* ... its time in ticks */
    uint32_t caller;     /* ... its thread's serial, or 0 */
    uint8_t call_is_graph;
    uint8_t call_domain;
    uint8_t calls;         /* nested launching calls now open */
    uint8_t driver_inside; /* ... one of them is the driver's */
    uint32_t sync_depth;
    int64_t sync_since;
    int owner;               /* its slot in fp_owners, or -1 */
    int has_sections;        /* has opened a section: owns its work */
    uint64_t recording;      /* recording of these fields; 0: none */
    uint16_t outermost;      /* section id + 1, as last sent */
    uint32_t pushed;         /* external correlation ids on CUPTI's stack */
    _Atomic uint64_t pushes; /* ... pushed ever; the reader reads it */
    /* used by the reader */
    fp_chunk *head;
    uint32_t read;
    uint64_t ident;
} fp_lane;

/* Allocates nothing yet. */
void
fp_lanes_init(fp_lanes *all, const fp_alloc *a);
/* Frees all lanes; no thread may write to one any more. */
void
fp_lanes_fini(fp_lanes *all);

/* Creates a lane for the calling thread.  NULL: no memory. */
fp_lane *
fp_lane_create(fp_lanes *all);

/* Continues the calling thread's lane in a further chunk.  NULL: no room
 * (counted). */
fp_event *
fp_lane_add_chunk(fp_lane *lane);

/* Writes to the calling thread's lane.  Returns 1 if the reader should be
 * woken. */
int
fp_lane_write(fp_lane *lane, const fp_event *e);

/* For the reader: the next event, valid until the next call; NULL if none. */
const fp_event *
fp_lane_read(fp_lane *lane);

/* For the reader: frees empty lanes whose thread has ended. */
void
fp_lanes_sweep(fp_lanes *all);

/* Between fp_lane_enter and fp_lane_exit a thread may follow pointers into
 * trees.  To free a tree, first make it unreachable, then wait until no lane
 * is busy.  Other threads must see the store before this one reads a pointer.
 * Launches are frequent and such waits are rare.  So the waiting thread calls
 * membarrier(2), if the kernel has it, and a launch saves the fence, half of
 * its cost. */
static inline void
fp_lane_enter(fp_lane *lane)
{
    if (FP_LIKELY(
            atomic_load_explicit(&lane->all->barrier, memory_order_relaxed))) {
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

/* Spins until no lane but [self] (or NULL) is busy: a callback takes
 * microseconds. */
void
fp_lanes_quiesce(fp_lanes *all, const fp_lane *self);

#endif
