/* section: what is kept of one section name in one thread.  Plain record; the
 * thread that owns it writes. */
#ifndef FP_CORE_SECTION_H
#define FP_CORE_SECTION_H

#include "core/hist.h"

typedef struct fp_section {
    uint32_t id;
    uint32_t open;    /* entries not left yet */
    uint32_t lost;    /* of these, the ones that can never be left any more */
    uint32_t touched; /* linked in the thread's list for this step */
    uint64_t count;   /* entries left */
    uint64_t errors;
    int64_t sum_ticks;   /* every entry */
    int64_t outer_ticks; /* while at least one entry was open */
    int64_t outer_since; /* since when one is; meaningless if none is */
    int64_t min_ticks;   /* meaningless while count is 0 */
    int64_t max_ticks;
    fp_hist hist;
    /* Time at the bottom of the section stack, for the rows of a step. */
    int64_t step_ticks; /* in the step under way */
    int64_t steps_ticks;
    int64_t usual_ticks;             /* in steps that were not slow */
    uint64_t steps;                  /* steps in which it ran */
    struct fp_section *next_touched; /* borrowed */
    uint8_t has_column;              /* see steps_series.h */
    uint8_t cover;                   /* fp_kind of all time in it; or 0 */
} fp_section;

/* One entry of [ticks], not below 0, was left. */
static inline void
fp_section_record(fp_section *s, const fp_alloc *a, int64_t ticks, int error)
{
    if (FP_UNLIKELY(ticks > s->max_ticks)) {
        s->min_ticks = s->count == 0 ? ticks : s->min_ticks;
        s->max_ticks = ticks;
    }
    else if (FP_UNLIKELY(ticks < s->min_ticks)) {
        s->min_ticks = ticks;
    }
    s->count++;
    s->sum_ticks += ticks;
    s->errors += error ? 1 : 0;
    fp_hist_add(&s->hist, a, ticks);
}

void
fp_section_merge(fp_section *into, const fp_alloc *a, const fp_section *from);

#endif
