/* fake: what tests hand to the core: an allocator that counts, checks and can
 * fail, a clock that the test sets, and numbers that are random but the same
 * in every run. */
#ifndef FP_FAKE_H
#define FP_FAKE_H

#include "core/alloc.h"
#include "fp_test.h"

typedef struct fake_memory {
    size_t bytes; /* outstanding */
    size_t peak_bytes;
    uint64_t takes;        /* attempts so far */
    uint64_t failures;     /* ... that failed */
    uint64_t fail_at;      /* fail at the nth attempt from 1; 0: never */
    bool fail_on;          /* ... and every later one */
    uint64_t fail_one_in;  /* fail at random; 0: never */
    uint64_t random_state; /* of fail_one_in */
} fake_memory;

/* splitmix64: all seeds are equally good. */
static inline uint64_t
fake_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline uint32_t
fake_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(fake_random(state) % limit);
}

/* Precedes each block; large enough for any alignment. */
typedef union fake_header {
    size_t size_bytes;
    max_align_t align;
} fake_header;

static inline bool
fake_refuses(fake_memory *m)
{
    if (m->fail_at != 0 &&
        (m->takes == m->fail_at || (m->fail_on && m->takes > m->fail_at))) {
        return true;
    }
    return m->fail_one_in != 0 &&
           fake_random(&m->random_state) % m->fail_one_in == 0;
}

static inline void *
fake_take(void *ctx, size_t size_bytes)
{
    fake_memory *m = ctx;
    m->takes++;
    if (fake_refuses(m)) {
        m->failures++;
        return NULL;
    }
    fake_header *h = malloc(sizeof(*h) + size_bytes);
    CHECK(h != NULL);
    h->size_bytes = size_bytes;
    m->bytes += size_bytes;
    if (m->bytes > m->peak_bytes) {
        m->peak_bytes = m->bytes;
    }
    memset(h + 1, 0xA5, size_bytes); /* the core must not rely on zeros */
    return h + 1;
}

static inline void
fake_give(void *ctx, void *block, size_t size_bytes)
{
    fake_memory *m = ctx;
    fake_header *h = (fake_header *)block - 1;
    CHECK_UINT(size_bytes, h->size_bytes);
    m->bytes -= size_bytes;
    memset(block, 0x5A, size_bytes);
    free(h);
}

static inline fp_alloc
fake_alloc(fake_memory *m)
{
    fp_alloc a = {fake_take, fake_give, m};
    return a;
}

/* Reads the integer that [ctx] points to: an fp_clock_reader. */
static inline int64_t
fake_clock_read(void *ctx)
{
    return *(const int64_t *)ctx;
}

#endif
