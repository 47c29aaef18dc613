/* ring: keeps the last items of one size.
 *
 * Memory is allocated in chunks as the ring fills.  At the limit, or without
 * memory for another chunk, each new item replaces the oldest.  One thread at
 * a time. */
#ifndef FP_CORE_RING_H
#define FP_CORE_RING_H

#include "core/alloc.h"
#include "core/base.h"

enum { FP_RING_CHUNK = 256 }; /* items */

typedef struct fp_ring {
    fp_alloc alloc;
    size_t item_bytes;
    void **chunk; /* owned, with the chunks */
    uint32_t chunks;
    uint32_t chunk_capacity;
    uint64_t limit;   /* most items to keep */
    uint64_t size;    /* items there is memory for */
    uint64_t written; /* all items ever pushed */
    int fixed;        /* does not grow any more */
} fp_ring;

/* Allocates nothing yet. */
void
fp_ring_init(fp_ring *r, const fp_alloc *a, size_t item_bytes, uint64_t limit);

/* Frees the items; the ring is empty again. */
void
fp_ring_fini(fp_ring *r);

/* Forgets all items and keeps the memory. */
void
fp_ring_clear(fp_ring *r);

/* Number of items kept. */
static inline uint64_t
fp_ring_count(const fp_ring *r)
{
    return r->written < r->size ? r->written : r->size;
}

/* Item [i]; 0 is the oldest that is kept. */
void *
fp_ring_at(const fp_ring *r, uint64_t i);

/* Returns the place of a new item, to be filled at once.  If it holds the
 * oldest item, which is lost, *lost becomes 1.  NULL: no memory at all. */
void *
fp_ring_push(fp_ring *r, int *lost);

/* Bytes of memory held. */
size_t
fp_ring_bytes(const fp_ring *r);

#endif
