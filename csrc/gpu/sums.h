/* sums: what the device did, per site and kind of activity, and what the host
 * did about it, per site.  The sum over all rows is the sum over everything that
 * was ever added: what finds no room is added to rows without a place. */
#ifndef FP_GPU_SUMS_H
#define FP_GPU_SUMS_H

#include "core/alloc.h"
#include "gpu/site.h"

/* What an activity was: a kernel's row, or one of these. */
enum {
    FP_WHAT_HTOD = -1,
    FP_WHAT_DTOH = -2,
    FP_WHAT_DTOD = -3,
    FP_WHAT_PTOP = -4,
    FP_WHAT_HTOH = -5,
    FP_WHAT_COPY = -6, /* arrays and whatever comes */
    FP_WHAT_MEMSET = -7,
    FP_WHAT_KERNEL = -8, /* without a row of its own */
};

enum { FP_SUMS_MAX = 1 << 18 };

typedef struct fp_activity_sum {
    fp_site site;
    int32_t what;
    uint64_t count;
    int64_t ns;
    uint64_t bytes;
} fp_activity_sum;

typedef struct fp_host_sum {
    fp_site site;
    uint64_t launches;
    uint64_t delays; /* activities whose delay is known */
    int64_t delay_ns;
    int64_t delay_max_ns;
    uint64_t syncs;
    int64_t blocked_ns;
} fp_host_sum;

/* Rows in order of first use, found by hash. */
typedef struct fp_sum_table {
    fp_alloc alloc;
    void *row; /* owned */
    size_t row_bytes;
    uint32_t count;
    uint32_t capacity;
    uint32_t *index; /* owned; row + 1 */
    uint32_t index_capacity;
} fp_sum_table;

typedef struct fp_sums {
    fp_sum_table activity;
    fp_sum_table host;
    int64_t total_ns;                            /* of all activities */
    fp_activity_sum no_room[FP_HOW_UNKNOWN + 1]; /* by how */
    fp_host_sum no_room_host;
    uint64_t dropped; /* additions that found no room */
} fp_sums;

void
fp_sums_init(fp_sums *s, const fp_alloc *a);

void
fp_sums_fini(fp_sums *s);

void
fp_sums_activity(fp_sums *s, const fp_site *site, int32_t what, int64_t ns,
                 uint64_t bytes);

/* Never NULL; valid until the next call. */
fp_host_sum *
fp_sums_host(fp_sums *s, const fp_site *site);

/* The same; [row] says where the row was the last time, and may be wrong. */
fp_host_sum *
fp_sums_host_near(fp_sums *s, const fp_site *site, uint32_t *row);

/* The nodes of thread [from] have become those of thread [to]: node i is now
 * became[i].  Without memory the sums stay right, their places get lost. */
void
fp_sums_rename(fp_sums *s, uint32_t from, uint32_t to, const uint32_t *became,
               uint32_t nodes);

#endif
