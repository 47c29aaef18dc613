#include "core/hist.h"

#include <stddef.h>

void
fp_hist_fini(fp_hist *h, const fp_alloc *a)
{
    for (int i = 0; i < FP_HIST_OCTAVES; i++) {
        fp_alloc_give(a, h->octave[i], FP_HIST_SUB, sizeof(uint64_t));
        h->octave[i] = NULL;
    }
}

static uint64_t *
octave_of(fp_hist *h, const fp_alloc *a, int octave)
{
    if (h->octave[octave] == NULL) {
        h->octave[octave] = fp_alloc_zeroed(a, FP_HIST_SUB, sizeof(uint64_t));
    }
    return h->octave[octave];
}

void
fp_hist_add_slow(fp_hist *h, const fp_alloc *a, int octave, uint32_t sub)
{
    uint64_t *counts = octave_of(h, a, octave);
    if (FP_UNLIKELY(counts == NULL)) {
        h->lost++;
        return;
    }
    counts[sub]++;
}

void
fp_hist_merge(fp_hist *into, const fp_alloc *a, const fp_hist *from)
{
    into->lost += from->lost;
    for (int o = 0; o < FP_HIST_OCTAVES; o++) {
        if (from->octave[o] == NULL) {
            continue;
        }
        uint64_t *counts = octave_of(into, a, o);
        for (int s = 0; s < FP_HIST_SUB; s++) {
            if (counts != NULL) {
                counts[s] += from->octave[o][s];
            }
            else {
                into->lost += from->octave[o][s];
            }
        }
    }
}

/* The upper bound of the top bucket would be 2^63; INT64_MAX keeps it
 * signed. */
static int64_t
bound(int octave, uint64_t sub)
{
    if (octave == 0) {
        return (int64_t)sub;
    }
    uint64_t v = (FP_HIST_SUB + sub) << (octave - 1);
    return v > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)v;
}

uint32_t
fp_hist_rows(const fp_hist *h, fp_hist_row *rows, uint32_t capacity)
{
    uint32_t n = 0;
    for (int o = 0; o < FP_HIST_OCTAVES; o++) {
        for (uint64_t s = 0; h->octave[o] != NULL && s < FP_HIST_SUB; s++) {
            uint64_t count = h->octave[o][s];
            if (count == 0) {
                continue;
            }
            if (n < capacity) {
                rows[n].low = bound(o, s);
                rows[n].high = bound(o, s + 1);
                rows[n].count = count;
            }
            n++;
        }
    }
    return n;
}
