/* alloc: the allocator that is handed in.  The core never calls malloc itself,
 * so that tests can make the nth allocation fail. */
#ifndef FP_CORE_ALLOC_H
#define FP_CORE_ALLOC_H

#include <stddef.h>

typedef struct fp_alloc {
    /* NULL when there is no memory. */
    void *(*take)(void *ctx, size_t size_bytes);
    void (*give)(void *ctx, void *block, size_t size_bytes);
    void *ctx; /* borrowed */
} fp_alloc;

/* malloc and free. */
fp_alloc
fp_alloc_libc(void);

/* Zeroed block of [count] x [size] bytes, or NULL (no memory, or overflow). */
void *
fp_alloc_zeroed(const fp_alloc *a, size_t count, size_t size);

/* A zeroed block of [new_count] items that begins with the old ones; the old
 * block is freed.  NULL (and the old block untouched) when there is no memory. */
void *
fp_alloc_grow(const fp_alloc *a, void *block, size_t old_count,
              size_t new_count, size_t size);

/* Accepts NULL. */
void
fp_alloc_give(const fp_alloc *a, void *block, size_t count, size_t size);

#endif
