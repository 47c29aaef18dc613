/* launches: the calls that launched work which the device has not reported
 * yet, by correlation id.
 *
 * Ids come nearly in order, so the table is indexed by the id itself: a lookup
 * touches one cache line, and neighbours share it.  (Robin Hood probing: no
 * entry is further from its first slot than the entry that it would displace,
 * so a search for a missing id ends as early as for a present one.)  One call
 * may have several activities (a graph, a copy in pieces), so the first does
 * not remove the entry; the entry expires when it was not used for some
 * generations. */
#ifndef FP_GPU_LAUNCHES_H
#define FP_GPU_LAUNCHES_H

#include "core/alloc.h"
#include "gpu/site.h"

enum {
    FP_LAUNCH_HAS_SITE = 1,
    FP_LAUNCH_HAS_TIME = 2,
    FP_LAUNCH_COUNTED = 4, /* in the host's sums */
    FP_LAUNCH_HIT = 8,     /* an activity of it came */
    FP_LAUNCH_WAITED = 16, /* the host waited in it */
    FP_LAUNCH_ALONE = 32,  /* its thread has no section: find an owner */
    FP_LAUNCH_GIVES = 64,  /* launches work: activities will come */
    FP_LAUNCH_GRAPH = 128,
};

enum { FP_LAUNCHES_MAX = 1 << 21 };

typedef struct fp_launch {
    fp_place place;
    fp_place via;
    int64_t at_ns;      /* by the device's clock */
    int64_t blocked_ns; /* valid with FP_LAUNCH_WAITED */
    uint32_t corr;
    uint32_t generation; /* of the last use */
    uint32_t host_row;   /* probable row of its site */
    uint8_t flags;
    uint8_t how;
    uint8_t occupied;
} fp_launch;

/* Is its first activity still to come? */
static inline int
fp_launch_is_outstanding(const fp_launch *e)
{
    return (e->flags & (FP_LAUNCH_GIVES | FP_LAUNCH_HIT)) == FP_LAUNCH_GIVES;
}

typedef struct fp_launches {
    fp_alloc alloc;
    fp_launch *slot;   /* owned */
    uint32_t capacity; /* power of two */
    uint32_t count;
    uint32_t generation;
    uint64_t lost; /* launches lost: no memory or too many */
} fp_launches;

void
fp_launches_init(fp_launches *l, const fp_alloc *a);

void
fp_launches_fini(fp_launches *l);

/* The entry of [corr]; NULL if there is none.  Valid until the next put,
 * remove or age. */
fp_launch *
fp_launches_find(fp_launches *l, uint32_t corr);

/* The entry of [corr], added if needed.  NULL: no room (counted). */
fp_launch *
fp_launches_put(fp_launches *l, uint32_t corr);

/* Removes [entry]; pointers to other entries become invalid. */
void
fp_launches_remove(fp_launches *l, fp_launch *entry);

/* Begins a generation.  Removes entries that have an activity, or expect none,
 * after [age] / 16 + 1 generations without use (a graph has many activities),
 * and all others after [age].  Returns the number of the latter. */
uint64_t
fp_launches_age(fp_launches *l, uint32_t age);

/* Time of the oldest call whose activities may still come; INT64_MAX if
 * none. */
int64_t
fp_launches_oldest(const fp_launches *l);

/* Time of the newest call without any activity yet; INT64_MIN if none. */
int64_t
fp_launches_newest(const fp_launches *l);

/* Nodes of thread [from] became nodes of thread [to]. */
void
fp_launches_rename(fp_launches *l, uint32_t from, uint32_t to,
                   const uint32_t *became, uint32_t nodes);

/* Forgets all launches. */
void
fp_launches_clear(fp_launches *l);

#endif
