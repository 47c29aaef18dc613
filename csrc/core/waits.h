/* waits: the nodes of a tree in which a thread waits.
 *
 * A node whose function waits (for a lock, a device, another process) is listed
 * once, with what it waits for, and its number in the list is in its flags.  So
 * entering any other node costs nothing; entering a listed one notes it for the
 * step under way.  What it cost is the difference of the node's own time, seen
 * at the ends of two steps. */
#ifndef FP_CORE_WAITS_H
#define FP_CORE_WAITS_H

#include "core/tree.h"

/* What time can be spent on, beside computing.  The last one may be computing. */
typedef enum fp_kind {
    FP_KIND_NONE,
    FP_KIND_DATA,
    FP_KIND_COMMUNICATION,
    FP_KIND_LOCK,
    FP_KIND_IO,
    FP_KIND_GPU,
    FP_KIND_GC,
    FP_KIND_AUTOGRAD, /* computes, or waits for other ranks in backward */
    FP_KIND_COUNT,
} fp_kind;

enum {
    FP_WAITS_MAX = 4095, /* their numbers are from 1 on */
};

typedef struct fp_wait {
    fp_node *node;      /* borrowed from the tree */
    int64_t seen_ticks; /* of the node's own time: counted, or not to be */
    int64_t sum_ticks;  /* in measured steps */
    uint16_t next;      /* entered in this step, too; 0: none */
    uint8_t kind;       /* fp_kind */
    uint8_t entered;
} fp_wait;

typedef struct fp_waits {
    fp_wait *wait; /* owned */
    uint32_t count;
    uint32_t capacity;
    uint32_t entered;  /* number of the first entered one; 0: none */
    uint8_t deaf;      /* what is entered now is not noted */
    uint64_t left_out; /* nodes for which there was no room */
} fp_waits;

/* All zero bytes is an empty list. */
void
fp_waits_fini(fp_waits *w, const fp_alloc *a);

/* Lists [n], which is not listed.  Without room it is only counted. */
void
fp_waits_add(fp_waits *w, const fp_alloc *a, fp_node *n, fp_kind kind);

/* Number of [n] in the list; 0: not listed. */
static inline uint32_t
fp_waits_number(const fp_node *n)
{
    return (uint32_t)n->flags >> FP_NODE_FLAG_BITS;
}

/* [n] was entered. */
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

/* [ticks] that will be [n]'s own time are something else's. */
static inline void
fp_waits_take(fp_waits *w, const fp_node *n, int64_t ticks)
{
    uint32_t number = fp_waits_number(n);
    if (number != 0) {
        w->wait[number - 1].seen_ticks += ticks;
    }
}

/* Adds to step[kind] what the nodes have taken since the last call; with
 * [measured] to their own sums, too. */
void
fp_waits_end_step(fp_waits *w, int64_t step[FP_KIND_COUNT], int measured);

#endif
