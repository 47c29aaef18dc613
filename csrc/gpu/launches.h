/* launches: what the device was asked to do and has not reported yet, found by
 * correlation id.
 *
 * Ids come nearly in order, so the table is indexed by the id itself: a lookup
 * touches one line, and neighbours share it.  (Robin Hood probing: no entry is
 * further from its place than the one it would push away; a lookup for an id
 * that is not there ends as early as one that is.)  One call may have several
 * activities (a graph, a copy in pieces), so an entry is not removed by the
 * first; it goes when it was not asked for over some generations. */
#ifndef FP_GPU_LAUNCHES_H
#define FP_GPU_LAUNCHES_H

#include "core/alloc.h"
#include "gpu/site.h"

enum {
    FP_LAUNCH_HAS_SITE = 1,
    FP_LAUNCH_HAS_TIME = 2,
    FP_LAUNCH_COUNTED = 4, /* is in the host's sums */
    FP_LAUNCH_HIT = 8,     /* some activity of it came */
    FP_LAUNCH_WAITED = 16, /* the host waited in it */
    FP_LAUNCH_ALONE = 32,  /* its thread has no section: look for an owner */
    FP_LAUNCH_GIVES = 64,  /* gives the device work: activities must come */
    FP_LAUNCH_GRAPH = 128,
};

enum { FP_LAUNCHES_MAX = 1 << 21 };

typedef struct fp_launch {
    fp_place place;
    fp_place via;
    int64_t at_ns;      /* device clock, as all */
    int64_t blocked_ns; /* valid if WAITED */
    uint32_t corr;
    uint32_t generation; /* when it was last used */
    uint32_t host_row;   /* of its site, most likely */
    uint8_t flags;
    uint8_t how;
    uint8_t occupied;
} fp_launch;

/* Must an activity of it come, and did none so far? */
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
    uint64_t lost; /* no memory or too many */
} fp_launches;

void
fp_launches_init(fp_launches *l, const fp_alloc *a);

void
fp_launches_fini(fp_launches *l);

/* NULL: there is none.  Valid until the next put, remove or expire. */
fp_launch *
fp_launches_find(fp_launches *l, uint32_t corr);

/* The entry of [corr], made if there is none; NULL: no room (counted). */
fp_launch *
fp_launches_put(fp_launches *l, uint32_t corr);

void
fp_launches_remove(fp_launches *l, fp_launch *entry);

/* A new generation begins.  Entries that had an activity, or have none to come, go
 * when nothing came for [age] / 16 + 1 generations (a graph's launch has many
 * activities), others after [age] generations.  How many of the latter. */
uint64_t
fp_launches_age(fp_launches *l, uint32_t age);

/* When the oldest call was made of which an activity may still come; INT64_MAX:
 * there is none. */
int64_t
fp_launches_oldest(const fp_launches *l);

/* ... and the newest of which none came; INT64_MIN. */
int64_t
fp_launches_newest(const fp_launches *l);

/* Nodes of thread [from] are now nodes of thread [to]. */
void
fp_launches_rename(fp_launches *l, uint32_t from, uint32_t to,
                   const uint32_t *became, uint32_t nodes);

/* Forgets all. */
void
fp_launches_clear(fp_launches *l);

#endif
