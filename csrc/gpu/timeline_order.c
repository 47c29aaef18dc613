#include "gpu/timeline_order.h"

#include <string.h>

/* The end of the ascending run that begins at [i]. */
static uint32_t
run_end(const fp_interval *v, uint32_t i, uint32_t n)
{
    for (i++; i < n && v[i - 1].start <= v[i].start; i++) {
    }
    return i;
}

static void
merge(const fp_interval *a, const fp_interval *a_end, const fp_interval *b,
      const fp_interval *b_end, fp_interval *to)
{
    while (a < a_end && b < b_end) {
        *to++ = b->start < a->start ? *b++ : *a++;
    }
    memcpy(to, a, (size_t)(a_end - a) * sizeof(*a));
    memcpy(to + (a_end - a), b, (size_t)(b_end - b) * sizeof(*b));
}

/* Merges pairs of neighbouring runs.  Returns the number of runs left. */
static uint32_t
merge_runs(const fp_interval *from, fp_interval *to, uint32_t n)
{
    uint32_t runs = 0;
    for (uint32_t i = 0, middle, end; i < n; i = end, runs++) {
        middle = run_end(from, i, n);
        end = middle < n ? run_end(from, middle, n) : n;
        merge(from + i, from + middle, from + middle, from + end, to + i);
    }
    return runs;
}

/* Shell's sort with Ciura's gaps, continued by a factor of 9/4: takes no
 * memory. */
void
fp_intervals_sort_in_place(fp_interval *v, uint32_t n)
{
    static const uint32_t gaps[] = {
        1045268, 464564, 206473, 91766, 40785, 18127, 8056, 3581, 1591,
        707,     301,    132,    57,    23,    10,    4,    1};
    for (size_t g = 0; g < sizeof(gaps) / sizeof(gaps[0]); g++) {
        uint32_t gap = gaps[g];
        for (uint32_t i = gap; i < n; i++) {
            fp_interval x = v[i];
            uint32_t k = i;
            for (; k >= gap && v[k - gap].start > x.start; k -= gap) {
                v[k] = v[k - gap];
            }
            v[k] = x;
        }
    }
}

/* Merges the last [n] of [all] intervals, which are in [spare], from the back:
 * usually only few others begin later. */
static void
merge_into_place(fp_interval *v, uint32_t all, const fp_interval *spare,
                 uint32_t n)
{
    uint32_t i = all - n, to = all;
    while (n > 0) {
        if (i > 0 && v[i - 1].start > spare[n - 1].start) {
            v[--to] = v[--i];
        }
        else {
            v[--to] = spare[--n];
        }
    }
}

int
fp_intervals_sort_last(const fp_alloc *a, fp_interval *v, uint32_t ordered,
                       uint32_t n)
{
    fp_interval *last = v + ordered;
    uint32_t count = n - ordered;
    size_t size_bytes = count * sizeof(fp_interval);
    fp_interval *spare = a->take(a->ctx, size_bytes);
    if (spare == NULL) {
        return -1;
    }
    uint32_t runs;
    do {
        (void)merge_runs(last, spare, count);
        runs = merge_runs(spare, last, count);
    } while (runs > 1);
    memcpy(spare, last, size_bytes);
    merge_into_place(v, n, spare, count);
    a->give(a->ctx, spare, size_bytes);
    return 0;
}
