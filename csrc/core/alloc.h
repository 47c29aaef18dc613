/* alloc: the allocator of the core.  The caller supplies it.  The core never
 * calls malloc itself, so tests can make the nth allocation fail. */
#ifndef FP_CORE_ALLOC_H
#define FP_CORE_ALLOC_H

#include "core/base.h"

#include <stddef.h>

typedef struct fp_alloc {
    /* Returns NULL if there is no memory. */
    void *(*take)(void *ctx, size_t size_bytes);
    void (*give)(void *ctx, void *block, size_t size_bytes);
    void *ctx; /* borrowed */
} fp_alloc;

/* An allocator that uses malloc and free. */
fp_alloc
fp_alloc_libc(void);

/* Returns a zeroed block of [count] x [size] bytes, or NULL if there is no
 * memory or the product overflows. */
void *
fp_alloc_zeroed(const fp_alloc *a, size_t count, size_t size);

/* Returns a zeroed block of [new_count] items that starts with the old items,
 * and frees the old block.  Returns NULL and keeps the old block if there is
 * no memory. */
void *
fp_alloc_grow(const fp_alloc *a, void *block, size_t old_count,
              size_t new_count, size_t size);

/* Makes room in an array for [wanted] items: doubles its capacity, starting at
 * [first].  FP_ENOMEM: no memory; the array is unchanged.  [array] is the
 * address of the pointer to the array: &t->open. */
fp_status
fp_alloc_room(const fp_alloc *a, void *array, uint32_t *capacity,
              uint32_t wanted, uint32_t first, size_t size);

/* Frees a block of [count] x [size] bytes.  Accepts NULL. */
void
fp_alloc_give(const fp_alloc *a, void *block, size_t count, size_t size);

#endif
