/* steps: durations of training steps in bounded memory.  Pure arithmetic,
 * without threads or sections. */
#ifndef FP_CORE_STEPS_H
#define FP_CORE_STEPS_H

#include "core/hist.h"

enum { FP_STEPS_RECENT = 4096 };

typedef struct fp_steps {
    uint64_t count;       /* all steps */
    uint64_t skip;        /* first steps: warm-up, counted but not measured */
    uint64_t apart;       /* later steps that were not measured */
    int64_t start;        /* ticks at which the current step began */
    int64_t paused_ticks; /* pauses of the current step */
    int64_t paused_at;    /* start of the current pause */
    int64_t ticks;        /* of the last step */
    int64_t sum_ticks;
    double sum_sq; /* of ticks */
    int64_t min_ticks;
    int64_t max_ticks;
    fp_hist hist;
    int64_t recent[FP_STEPS_RECENT]; /* ring; measured steps only */
    uint8_t paused;
    uint8_t unprofiled; /* the current step counts as apart */
} fp_steps;

/* Number of measured steps: all but the warm-up and those apart. */
static inline uint64_t
fp_steps_measured(const fp_steps *s)
{
    return s->count > s->skip ? s->count - s->skip - s->apart : 0;
}

/* Ends the current step at [now] and begins the next.  Returns 1 if the step
 * was measured, 0 if it was warm-up or apart. */
int
fp_steps_end(fp_steps *s, const fp_alloc *a, int64_t now);

/* Pauses the current step at [now]. */
void
fp_steps_pause(fp_steps *s, int64_t now);

/* Resumes it. */
void
fp_steps_resume(fp_steps *s, int64_t now);

/* Copies the last durations, at most [capacity], oldest first.  Returns their
 * number. */
uint32_t
fp_steps_recent(const fp_steps *s, int64_t *ticks, uint32_t capacity);

#endif
