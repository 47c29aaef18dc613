#include "core/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *
libc_take(void *ctx, size_t size_bytes)
{
    (void)ctx;
    return malloc(size_bytes);
}

static void
libc_give(void *ctx, void *block, size_t size_bytes)
{
    (void)ctx;
    (void)size_bytes;
    free(block);
}

fp_alloc
fp_alloc_libc(void)
{
    fp_alloc a = {libc_take, libc_give, NULL};
    return a;
}

void *
fp_alloc_zeroed(const fp_alloc *a, size_t count, size_t size)
{
    if (count != 0 && size > SIZE_MAX / count) {
        return NULL;
    }
    void *block = a->take(a->ctx, count * size);
    if (block != NULL) {
        memset(block, 0, count * size);
    }
    return block;
}

void *
fp_alloc_grow(const fp_alloc *a, void *block, size_t old_count,
              size_t new_count, size_t size)
{
    void *bigger = fp_alloc_zeroed(a, new_count, size);
    if (bigger != NULL && block != NULL) {
        memcpy(bigger, block, old_count * size);
        fp_alloc_give(a, block, old_count, size);
    }
    return bigger;
}

fp_status
fp_alloc_room(const fp_alloc *a, void *array, uint32_t *capacity,
              uint32_t wanted, uint32_t first, size_t size)
{
    if (wanted <= *capacity) {
        return FP_OK;
    }
    uint32_t more = *capacity ? *capacity : first;
    while (more < wanted) {
        more *= 2;
    }
    void *block;
    memcpy(&block, array, sizeof(block)); /* its pointer type is unknown */
    block = fp_alloc_grow(a, block, *capacity, more, size);
    if (block == NULL) {
        return FP_ENOMEM;
    }
    memcpy(array, &block, sizeof(block));
    *capacity = more;
    return FP_OK;
}

void
fp_alloc_give(const fp_alloc *a, void *block, size_t count, size_t size)
{
    if (block != NULL) {
        a->give(a->ctx, block, count * size);
    }
}
