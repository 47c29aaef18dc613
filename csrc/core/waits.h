/* waits: the nodes of a tree in which a thread waits.
 *
 * A node whose function waits (for a lock, a device, another process) is
 * listed once, with the kind of wait, and the node's flags store its number in
 * the list.  So entering any other node costs nothing, and entering a listed
 * node marks it for the current step.  Its wait is the growth of the node's
 * self time between the ends of two steps. */
#ifndef FP_CORE_WAITS_H
#define FP_CORE_WAITS_H

#include "core/tree.h"

/* The kinds of time besides computing; the last kind may be computing. */
typedef enum fp_kind {
    FP_KIND_NONE,
    FP_KIND_DATA,
    FP_KIND_COMMUNICATION,
    FP_KIND_LOCK,
    FP_KIND_IO,
    FP_KIND_GPU,
    FP_KIND_GC,
    FP_KIND_AUTOGRAD, /* computes, or waits for other ranks in backward */
    FP_KIND_CPU,      /* ready to run, without a CPU; also in the others */
    FP_KIND_COUNT,
} fp_kind;

enum {
    FP_WAITS_MAX = 4095, /* numbers start at 1 */
};

typedef struct fp_wait {
    fp_node *node;      /* borrowed from the tree */
    int64_t seen_ticks; /* self time of the node, counted or excluded so far */
    int64_t sum_ticks;  /* of measured steps */
    uint16_t next;      /* next one entered in this step; 0: none */
    uint8_t kind;       /* fp_kind */
    uint8_t entered;
} fp_wait;

typedef struct fp_waits {
    fp_wait *wait; /* owned */
    uint32_t count;
    uint32_t capacity;
    uint32_t entered;  /* number of the first one entered; 0: none */
    uint8_t deaf;      /* ignore nodes that are entered now */
    uint64_t left_out; /* nodes not listed: no room */
} fp_waits;

/* Frees the list.  All zero bytes are an empty list. */
void
fp_waits_fini(fp_waits *w, const fp_alloc *a);

/* Lists [n], which is not listed yet.  Without room it counts in left_out. */
void
fp_waits_add(fp_waits *w, const fp_alloc *a, fp_node *n, fp_kind kind);

/* Number of [n] in the list; 0: not listed. */
static inline uint32_t
fp_waits_number(const fp_node *n)
{
    return (uint32_t)n->flags >> FP_NODE_FLAG_BITS;
}

/* The thread enters [n]. */
static inline void
fp_waits_enter(fp_waits *w, const fp_node *n)
{
    uint32_t number = fp_waits_number(n);
    if (number != 0 && !w->wait[number - 1].entered && !w->deaf) {
        fp_wait *wait = &w->wait[number - 1];
        wait->seen_ticks = n->self_ticks;
        wait->entered = 1;
        wait->next = (uint16_t)w->entered;
        w->entered = number;
    }
}

/* Excludes [ticks] of [n]'s self time from its wait. */
static inline void
fp_waits_take(fp_waits *w, const fp_node *n, int64_t ticks)
{
    uint32_t number = fp_waits_number(n);
    if (number != 0) {
        w->wait[number - 1].seen_ticks += ticks;
    }
}

/* Adds the waits since the last call to step[kind], and to the nodes' sums if
 * [measured]. */
void
fp_waits_end_step(fp_waits *w, int64_t step[FP_KIND_COUNT], int measured);

#endif
