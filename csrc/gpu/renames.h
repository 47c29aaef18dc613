/* renames: maps nodes of ended threads to their new nodes.
 *
 * The tree of an ended thread is merged into the tree of all ended threads.
 * Sums are renamed at once, but the thread's last launches may still come:
 * from its lane, or as external correlation ids in a buffer that CUPTI holds.
 * So the maps are kept for some generations. */
#ifndef FP_GPU_RENAMES_H
#define FP_GPU_RENAMES_H

#include "core/alloc.h"
#include "gpu/site.h"

enum { FP_RENAMES_MAX = 1 << 16, FP_RENAMES_BYTES = 1 << 24 };

typedef struct fp_rename {
    uint32_t *became; /* owned; node i became became[i] of thread `to` */
    uint32_t nodes;
    uint32_t from; /* 0: free slot */
    uint32_t to;
    uint32_t generation;
} fp_rename;

typedef struct fp_renames {
    fp_alloc alloc;
    fp_rename *slot;   /* owned; open addressing by `from` */
    uint32_t capacity; /* power of two */
    uint32_t count;
    uint32_t generation;
    size_t bytes; /* of all maps */
} fp_renames;

void
fp_renames_init(fp_renames *r, const fp_alloc *a);

/* Forgets all maps. */
void
fp_renames_fini(fp_renames *r);

/* Copies the map [became].  Without memory, or beyond FP_RENAMES_BYTES, later
 * launches of [from] get no place. */
void
fp_renames_put(fp_renames *r, uint32_t from, uint32_t to,
               const uint32_t *became, uint32_t nodes);

/* The present place of [p]. */
fp_place
fp_renames_apply(const fp_renames *r, fp_place p);

/* Begins a generation and drops maps older than [age] generations. */
void
fp_renames_age(fp_renames *r, uint32_t age);

#endif
