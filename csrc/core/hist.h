/* hist: log-linear histogram of durations in constant memory.
 *
 * Values below 64 have a bucket each.  Above, every power of two is divided
 * into 64 equal buckets, so a bucket is at most 1/64 of its lower bound wide
 * and its middle is within 0.8 % of any value in it (the scheme of
 * HdrHistogram, two significant digits).  The counters of an octave are
 * allocated when it gets its first value: after warm-up nothing is
 * allocated. */
#ifndef FP_CORE_HIST_H
#define FP_CORE_HIST_H

#include "core/alloc.h"
#include "core/base.h"

enum { FP_HIST_SUB_BITS = 6, FP_HIST_SUB = 1 << FP_HIST_SUB_BITS };
enum { FP_HIST_OCTAVES = 64 - FP_HIST_SUB_BITS };

typedef struct fp_hist {
    uint64_t *octave[FP_HIST_OCTAVES]; /* owned, NULL until it has a value */
    uint64_t lost;                     /* values not stored: no memory */
} fp_hist;

/* Frees the counters.  A histogram of all zero bytes is empty. */
void
fp_hist_fini(fp_hist *h, const fp_alloc *a);

/* As fp_hist_add, for an octave that has no counters yet. */
void
fp_hist_add_slow(fp_hist *h, const fp_alloc *a, int octave, uint32_t sub);

/* Adds [value]; a negative value counts as 0. */
static inline void
fp_hist_add(fp_hist *h, const fp_alloc *a, int64_t value)
{
    uint64_t v = value > 0 ? (uint64_t)value : 0;
    int octave = 0;
    uint32_t sub = (uint32_t)(v & (FP_HIST_SUB - 1));
    if (FP_LIKELY(v >= FP_HIST_SUB)) {
        int top = 63 - __builtin_clzll(v);
        octave = top - FP_HIST_SUB_BITS + 1;
        sub = (uint32_t)(v >> (top - FP_HIST_SUB_BITS)) & (FP_HIST_SUB - 1);
    }
    if (FP_UNLIKELY(h->octave[octave] == NULL)) {
        fp_hist_add_slow(h, a, octave, sub);
        return;
    }
    h->octave[octave][sub]++;
}

/* Adds the counts of [from].  Counts without memory go to lost. */
void
fp_hist_merge(fp_hist *into, const fp_alloc *a, const fp_hist *from);

/* One nonempty bucket: values v with low <= v < high. */
typedef struct fp_hist_row {
    int64_t low;
    int64_t high;
    uint64_t count;
} fp_hist_row;

/* Returns the number of nonempty buckets and copies the first [capacity] of
 * them to [rows], in ascending order. */
uint32_t
fp_hist_rows(const fp_hist *h, fp_hist_row *rows, uint32_t capacity);

#endif
