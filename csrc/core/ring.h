/* ring: the last so many items of one size.
 *
 * Memory is taken in chunks as it fills; beyond the limit, or when there is no
 * memory for another chunk, each new item takes the place of the oldest.  One
 * thread at a time. */
#ifndef FP_CORE_RING_H
#define FP_CORE_RING_H

#include "core/alloc.h"
#include "core/base.h"

enum { FP_RING_CHUNK = 256 }; /* items */

typedef struct fp_ring {
    fp_alloc alloc;
    size_t item_bytes;
    void **chunk; /* owned, and what it points to */
    uint32_t chunks;
    uint32_t chunk_capacity;
    uint64_t limit;   /* items; what is kept at most */
    uint64_t size;    /* ... that there is memory for */
    uint64_t written; /* items ever */
    int fixed;        /* takes no more memory */
} fp_ring;

/* Takes no memory so far. */
void
fp_ring_init(fp_ring *r, const fp_alloc *a, size_t item_bytes, uint64_t limit);

void
fp_ring_fini(fp_ring *r);

/* Forgets all items; the memory stays. */
void
fp_ring_clear(fp_ring *r);

/* How many are kept. */
static inline uint64_t
fp_ring_count(const fp_ring *r)
{
    return r->written < r->size ? r->written : r->size;
}

/* Item [i], counted from the oldest that is kept. */
void *
fp_ring_at(const fp_ring *r, uint64_t i);

/* The place for a new item, to be filled at once.  If it holds the oldest item,
 * which is lost thereby, *lost is 1.  NULL: there is no memory at all. */
void *
fp_ring_push(fp_ring *r, int *lost);

/* Bytes held. */
size_t
fp_ring_bytes(const fp_ring *r);

#endif
