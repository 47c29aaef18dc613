/* steps_split_places: the nodes in which time of a kind was spent, for the
 * time that fp_waits does not count: collections and sections that cover.  A
 * hash table of fixed size, part of fp_split. */
#ifndef FP_CORE_STEPS_SPLIT_PLACES_H
#define FP_CORE_STEPS_SPLIT_PLACES_H

#include "core/waits.h"

enum { FP_SPLIT_PLACES = 256 }; /* a power of two */

/* Time of one kind in one node. */
typedef struct fp_split_place {
    const fp_node *node; /* borrowed from the tree; NULL: free slot */
    int64_t step_ticks;
    int64_t sum_ticks;
    uint16_t next; /* next place used in this step: index + 1; 0: none */
    uint8_t kind;  /* fp_kind */
    uint8_t used;  /* in the current step */
} fp_split_place;

struct fp_split;

/* Adds [ticks] of [kind] to the current step, and to [n] if there is room. */
void
fp_split_add_place(struct fp_split *s, const fp_node *n, fp_kind kind,
                   int64_t ticks);

/* Ends the current step of all places.  Adds it to their sums if
 * [measured]. */
void
fp_split_end_places(struct fp_split *s, int measured);

#endif
