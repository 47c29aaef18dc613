/* section: the statistics of one section name in one thread.  A plain record;
 * only the owning thread writes it. */
#ifndef FP_CORE_SECTION_H
#define FP_CORE_SECTION_H

#include "core/hist.h"

typedef struct fp_section {
    uint32_t id;
    uint32_t open;    /* entries not closed yet */
    uint32_t lost;    /* of these, entries that can never be closed */
    uint32_t touched; /* linked in the thread's list for this step */
    uint64_t count;   /* closed entries */
    uint64_t errors;
    int64_t sum_ticks;   /* of all entries */
    int64_t outer_ticks; /* while at least one entry was open */
    /* start of the open period; invalid if none is open */
    int64_t outer_since;
    int64_t min_ticks; /* invalid while count is 0 */
    int64_t max_ticks;
    fp_hist hist;
    /* Time at the bottom of the section stack, for the rows of steps. */
    int64_t step_ticks; /* in the current step */
    int64_t steps_ticks;
    int64_t usual_ticks;             /* in steps that were not slow */
    uint64_t steps;                  /* steps in which it ran */
    struct fp_section *next_touched; /* borrowed */
    uint8_t has_column;              /* see steps_series.h */
    uint8_t cover;                   /* fp_kind of all its time; or 0 */
} fp_section;

/* Records a closed entry of [ticks] ticks (0 or more). */
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

/* Adds the entries of [from], whose thread has ended. */
void
fp_section_merge(fp_section *into, const fp_alloc *a, const fp_section *from);

#endif
