#include "core/ring.h"

void
fp_ring_init(fp_ring *r, const fp_alloc *a, size_t item_bytes, uint64_t limit)
{
    *r = (fp_ring){.alloc = *a, .item_bytes = item_bytes, .limit = limit};
}

void
fp_ring_fini(fp_ring *r)
{
    for (uint32_t i = 0; i < r->chunks; i++) {
        fp_alloc_give(&r->alloc, r->chunk[i], FP_RING_CHUNK, r->item_bytes);
    }
    fp_alloc_give(&r->alloc, r->chunk, r->chunk_capacity, sizeof(*r->chunk));
    fp_ring_init(r, &r->alloc, r->item_bytes, r->limit);
}

void
fp_ring_clear(fp_ring *r)
{
    r->written = 0;
    r->fixed = r->size == r->limit;
}

static void *
slot(const fp_ring *r, uint64_t n)
{
    uint64_t at = n % r->size;
    char *chunk = r->chunk[at / FP_RING_CHUNK];
    return chunk + (at % FP_RING_CHUNK) * r->item_bytes;
}

void *
fp_ring_at(const fp_ring *r, uint64_t i)
{
    return slot(r, r->written - fp_ring_count(r) + i);
}

static fp_status
grow(fp_ring *r)
{
    if (fp_alloc_room(&r->alloc, &r->chunk, &r->chunk_capacity, r->chunks + 1,
                      16, sizeof(*r->chunk)) != FP_OK) {
        return FP_ENOMEM;
    }
    void *chunk = fp_alloc_zeroed(&r->alloc, FP_RING_CHUNK, r->item_bytes);
    if (chunk == NULL) {
        return FP_ENOMEM;
    }
    r->chunk[r->chunks++] = chunk;
    uint64_t size = (uint64_t)r->chunks * FP_RING_CHUNK;
    r->size = size < r->limit ? size : r->limit;
    return FP_OK;
}

void *
fp_ring_push(fp_ring *r, int *lost)
{
    *lost = 0;
    if (r->written >= r->size && !r->fixed) {
        /* Items wrap around by size, so a ring that has wrapped cannot
         * grow. */
        r->fixed = r->size == r->limit || grow(r) != FP_OK;
        if (r->size == 0) {
            r->fixed = 0; /* try again at the next push */
            return NULL;
        }
    }
    *lost = r->written >= r->size;
    return slot(r, r->written++);
}

size_t
fp_ring_bytes(const fp_ring *r)
{
    return (size_t)r->chunks * FP_RING_CHUNK * r->item_bytes +
           r->chunk_capacity * sizeof(*r->chunk);
}
