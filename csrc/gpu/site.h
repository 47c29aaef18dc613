/* site: the place in a calling-context tree that launched work.
 *
 * A place consists of a thread's serial number and a node's index in its tree.
 * It is never a pointer, so it may outlive the tree.
 *
 *   63           32 31           0
 *   +--------------+--------------+
 *   | serial >= 1  | node index   |       0: no place
 *   +--------------+--------------+ */
#ifndef FP_GPU_SITE_H
#define FP_GPU_SITE_H

#include "core/thread.h"

typedef uint64_t fp_place;

/* How an activity's place was found. */
typedef enum fp_how {
    FP_HOW_OWN,       /* the launching thread was there */
    FP_HOW_INHERITED, /* ... had no section; `via` is its owner's place */
    FP_HOW_CAPTURED,  /* replay of a graph; `via`: place of capture */
    FP_HOW_OTHER,     /* an unknown thread */
    FP_HOW_UNKNOWN,   /* no launch was found */
} fp_how;

typedef struct fp_site {
    fp_place place;
    fp_place via;
    fp_how how;
} fp_site;

static inline fp_place
fp_place_of(const fp_thread *t, const fp_node *n)
{
    return (fp_place)t->serial << 32 | n->index;
}

static inline uint32_t
fp_place_thread(fp_place p)
{
    return (uint32_t)(p >> 32);
}

static inline uint32_t
fp_place_node(fp_place p)
{
    return (uint32_t)p;
}

/* The place [p] after the nodes of thread [from] became nodes of thread [to]:
 * node i is became[i]. */
static inline fp_place
fp_place_renamed(fp_place p, uint32_t from, uint32_t to,
                 const uint32_t *became, uint32_t nodes)
{
    if (fp_place_thread(p) != from) {
        return p;
    }
    uint32_t node = fp_place_node(p);
    return (fp_place)to << 32 | (node < nodes ? became[node] : 0);
}

#endif
