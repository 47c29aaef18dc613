/* renames: what became of the nodes of threads that have ended.
 *
 * The tree of such a thread is joined with that of all others that have ended.
 * Sums are renamed at once, but its last launches may still be under way: in its
 * lane, or as external correlation ids in a buffer that CUPTI has not given
 * back.  So the tables are kept for some generations. */
#ifndef FP_GPU_RENAMES_H
#define FP_GPU_RENAMES_H

#include "core/alloc.h"
#include "gpu/site.h"

enum { FP_RENAMES_MAX = 1 << 16, FP_RENAMES_BYTES = 1 << 24 };

typedef struct fp_rename {
    uint32_t *became; /* owned; node i is now became[i] of thread `to` */
    uint32_t nodes;
    uint32_t from; /* 0: the slot is free */
    uint32_t to;
    uint32_t generation;
} fp_rename;

typedef struct fp_renames {
    fp_alloc alloc;
    fp_rename *slot;   /* owned; open addressing by `from` */
    uint32_t capacity; /* power of two */
    uint32_t count;
    uint32_t generation;
    size_t bytes; /* of all tables */
} fp_renames;

void
fp_renames_init(fp_renames *r, const fp_alloc *a);

/* Forgets all. */
void
fp_renames_fini(fp_renames *r);

/* Copies [became].  Without memory, or beyond FP_RENAMES_BYTES, places of [from]
 * are nobody's. */
void
fp_renames_put(fp_renames *r, uint32_t from, uint32_t to,
               const uint32_t *became, uint32_t nodes);

/* What [p] is now. */
fp_place
fp_renames_apply(const fp_renames *r, fp_place p);

/* A new generation begins; what is older than [age] of them goes. */
void
fp_renames_age(fp_renames *r, uint32_t age);

#endif
