/* gpu_kit: builds records as CUPTI writes them and places from numbers, and
 * checks the invariants of sums. */
#ifndef FP_GPU_KIT_H
#define FP_GPU_KIT_H

#include "fake.h"
#include "gpu/cupti_abi.h"
#include "gpu/cupti_records.h"
#include "gpu/ledger.h"

#include <stdatomic.h>

/* An allocator for many threads: libc's, but it can fail. */
typedef struct kit_memory {
    _Atomic uint64_t takes;
    _Atomic uint64_t fail_at; /* the nth attempt from 1; 0: none */
    _Atomic int fail_on;      /* ... and every later one */
} kit_memory;

static inline void *
kit_take(void *ctx, size_t size_bytes)
{
    kit_memory *m = ctx;
    uint64_t n = atomic_fetch_add(&m->takes, 1) + 1;
    uint64_t at = atomic_load(&m->fail_at);
    if (at != 0 && (n == at || (n > at && atomic_load(&m->fail_on)))) {
        return NULL;
    }
    return malloc(size_bytes);
}

static inline void
kit_give(void *ctx, void *block, size_t size_bytes)
{
    (void)ctx;
    (void)size_bytes;
    free(block);
}

static inline fp_alloc
kit_alloc(kit_memory *m)
{
    fp_alloc a = {kit_take, kit_give, m};
    return a;
}

static inline fp_place
kit_place(uint32_t thread, uint32_t node)
{
    return (fp_place)thread << 32 | node;
}

/* ---- records ---- */

enum { KIT_RECORD = 248, KIT_API = 40, KIT_EXTERNAL = 24 };

typedef struct kit_record {
    uint8_t byte[KIT_RECORD];
} kit_record;

static inline void
kit_u16(kit_record *r, size_t at, uint16_t v)
{
    memcpy(r->byte + at, &v, sizeof(v));
}

static inline void
kit_u32(kit_record *r, size_t at, uint32_t v)
{
    memcpy(r->byte + at, &v, sizeof(v));
}

static inline void
kit_u64(kit_record *r, size_t at, uint64_t v)
{
    memcpy(r->byte + at, &v, sizeof(v));
}

/* Fields that a test does not set are garbage: the core must not read them. */
static inline kit_record
kit_of_kind(uint32_t kind)
{
    kit_record r;
    memset(&r, 0xCC, sizeof(r));
    kit_u32(&r, FP_AT_KIND, kind);
    return r;
}

static inline kit_record
kit_kernel(uint32_t corr, int64_t start, int64_t end, const char *name)
{
    kit_record r = kit_of_kind(FP_CUPTI_CONCURRENT_KERNEL);
    kit_u16(&r, FP_AT_KERNEL_REGISTERS, 32);
    kit_u64(&r, FP_AT_KERNEL_START, (uint64_t)start);
    kit_u64(&r, FP_AT_KERNEL_END, (uint64_t)end);
    kit_u32(&r, FP_AT_KERNEL_DEVICE, 0);
    for (size_t i = 0; i < 3; i++) {
        kit_u32(&r, FP_AT_KERNEL_GRID + 4 * i, 2);
        kit_u32(&r, FP_AT_KERNEL_BLOCK + 4 * i, 4);
    }
    kit_u32(&r, FP_AT_KERNEL_STATIC_SHARED, 16);
    kit_u32(&r, FP_AT_KERNEL_DYNAMIC_SHARED, 0);
    kit_u32(&r, FP_AT_KERNEL_CORRELATION, corr);
    memcpy(r.byte + FP_AT_KERNEL_NAME, &name, sizeof(name));
    kit_u64(&r, FP_AT_KERNEL_GRAPH_NODE, 0);
    return r;
}

static inline kit_record
kit_memcpy(uint32_t corr, int64_t start, int64_t end, uint8_t kind,
           uint64_t bytes)
{
    kit_record r = kit_of_kind(FP_CUPTI_MEMCPY);
    r.byte[FP_AT_MEMCPY_COPY_KIND] = kind;
    kit_u64(&r, FP_AT_MEMCPY_BYTES, bytes);
    kit_u64(&r, FP_AT_MEMCPY_START, (uint64_t)start);
    kit_u64(&r, FP_AT_MEMCPY_END, (uint64_t)end);
    kit_u32(&r, FP_AT_MEMCPY_DEVICE, 0);
    kit_u32(&r, FP_AT_MEMCPY_CORRELATION, corr);
    kit_u64(&r, FP_AT_MEMCPY_GRAPH_NODE, 0);
    return r;
}

static inline kit_record
kit_memcpy2(uint32_t corr, int64_t start, int64_t end, uint64_t bytes)
{
    kit_record r = kit_of_kind(FP_CUPTI_MEMCPY2);
    kit_u64(&r, FP_AT_MEMCPY2_BYTES, bytes);
    kit_u64(&r, FP_AT_MEMCPY2_START, (uint64_t)start);
    kit_u64(&r, FP_AT_MEMCPY2_END, (uint64_t)end);
    kit_u32(&r, FP_AT_MEMCPY2_DEVICE, 0);
    kit_u32(&r, FP_AT_MEMCPY2_CORRELATION, corr);
    kit_u64(&r, FP_AT_MEMCPY2_GRAPH_NODE, 0);
    return r;
}

static inline kit_record
kit_memset(uint32_t corr, int64_t start, int64_t end, uint64_t bytes)
{
    kit_record r = kit_of_kind(FP_CUPTI_MEMSET);
    kit_u64(&r, FP_AT_MEMSET_BYTES, bytes);
    kit_u64(&r, FP_AT_MEMSET_START, (uint64_t)start);
    kit_u64(&r, FP_AT_MEMSET_END, (uint64_t)end);
    kit_u32(&r, FP_AT_MEMSET_DEVICE, 0);
    kit_u32(&r, FP_AT_MEMSET_CORRELATION, corr);
    kit_u64(&r, FP_AT_MEMSET_GRAPH_NODE, 0);
    return r;
}

static inline kit_record
kit_api(uint32_t kind, uint32_t cbid, uint32_t corr, int64_t start,
        int64_t end)
{
    kit_record r = kit_of_kind(kind);
    kit_u32(&r, FP_AT_API_CBID, cbid);
    kit_u64(&r, FP_AT_API_START, (uint64_t)start);
    kit_u64(&r, FP_AT_API_END, (uint64_t)end);
    kit_u32(&r, FP_AT_API_CORRELATION, corr);
    return r;
}

static inline kit_record
kit_external(uint32_t kind, uint64_t id, uint32_t corr)
{
    kit_record r = kit_of_kind(FP_CUPTI_EXTERNAL_CORRELATION);
    kit_u32(&r, FP_AT_EXTERNAL_KIND, kind);
    kit_u64(&r, FP_AT_EXTERNAL_ID, id);
    kit_u32(&r, FP_AT_EXTERNAL_CORRELATION, corr);
    return r;
}

/* ---- sums ---- */

/* Totals over all rows of one kind of activity, or of all kinds (0). */
typedef struct kit_total {
    uint64_t count;
    int64_t ns;
    uint64_t bytes;
} kit_total;

static inline void
kit_add(kit_total *t, const fp_activity_sum *a)
{
    t->count += a->count;
    t->ns += a->ns;
    t->bytes += a->bytes;
}

static inline kit_total
kit_sum_rows(const fp_sums *s)
{
    kit_total t = {0, 0, 0};
    const fp_activity_sum *row = s->activity.row;
    for (uint32_t i = 0; i < s->activity.count; i++) {
        kit_add(&t, &row[i]);
    }
    for (int how = 0; how <= FP_HOW_UNKNOWN; how++) {
        kit_add(&t, &s->no_room[how]);
    }
    return t;
}

/* The row of a site and [what]; NULL if there is none. */
static inline const fp_activity_sum *
kit_activity(const fp_sums *s, fp_site site, int32_t what)
{
    const fp_activity_sum *row = s->activity.row, *found = NULL;
    for (uint32_t i = 0; i < s->activity.count; i++) {
        if (row[i].site.place == site.place && row[i].site.via == site.via &&
            row[i].site.how == site.how && row[i].what == what) {
            CHECK(found == NULL);
            found = &row[i];
        }
    }
    return found;
}

static inline const fp_host_sum *
kit_host(const fp_sums *s, fp_site site)
{
    const fp_host_sum *row = s->host.row, *found = NULL;
    for (uint32_t i = 0; i < s->host.count; i++) {
        if (row[i].site.place == site.place && row[i].site.via == site.via &&
            row[i].site.how == site.how) {
            CHECK(found == NULL);
            found = &row[i];
        }
    }
    return found;
}

/* Time of [what] at a place of the launching thread. */
static inline int64_t
kit_own_ns(const fp_sums *s, fp_place place, int32_t what)
{
    const fp_activity_sum *row =
        kit_activity(s, (fp_site){place, 0, FP_HOW_OWN}, what);
    return row != NULL ? row->ns : 0;
}

#endif
