/* sums: the device's activities per site and kind, and the host's launches and
 * waits per site.  Rows without a place collect everything that finds no room,
 * so the sum over all rows is always complete. */
#ifndef FP_GPU_SUMS_H
#define FP_GPU_SUMS_H

#include "core/alloc.h"
#include "gpu/site.h"

/* Kind of activity: the row of a kernel, or one of these. */
enum {
    FP_WHAT_HTOD = -1,
    FP_WHAT_DTOH = -2,
    FP_WHAT_DTOD = -3,
    FP_WHAT_PTOP = -4,
    FP_WHAT_HTOH = -5,
    FP_WHAT_COPY = -6, /* arrays and unknown kinds */
    FP_WHAT_MEMSET = -7,
    FP_WHAT_KERNEL = -8, /* kernels without a row */
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
    uint64_t delays; /* activities with a known delay */
    int64_t delay_ns;
    int64_t delay_max_ns;
    uint64_t syncs;
    int64_t blocked_ns;
} fp_host_sum;

/* Rows in order of first use, with a hash index. */
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
    fp_activity_sum no_room[FP_HOW_UNKNOWN + 1]; /* by fp_how */
    fp_host_sum no_room_host;
    uint64_t dropped; /* additions without room */
} fp_sums;

void
fp_sums_init(fp_sums *s, const fp_alloc *a);

void
fp_sums_fini(fp_sums *s);

/* Adds an activity of [ns] and [bytes], of kind [what]. */
void
fp_sums_activity(fp_sums *s, const fp_site *site, int32_t what, int64_t ns,
                 uint64_t bytes);

/* The host's row of [site].  Never NULL; valid until the next call. */
fp_host_sum *
fp_sums_host(fp_sums *s, const fp_site *site);

/* The same; *row is a guess of the row's index and is updated. */
fp_host_sum *
fp_sums_host_near(fp_sums *s, const fp_site *site, uint32_t *row);

/* Nodes of thread [from] became nodes of thread [to]: node i is became[i].
 * Without memory the sums stay right but lose their places. */
void
fp_sums_rename(fp_sums *s, uint32_t from, uint32_t to, const uint32_t *became,
               uint32_t nodes);

#endif
