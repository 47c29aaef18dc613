/* steps: durations of training steps in bounded memory.  Pure arithmetic: it
 * knows neither threads nor sections. */
#ifndef FP_CORE_STEPS_H
#define FP_CORE_STEPS_H

#include "core/hist.h"

enum { FP_STEPS_RECENT = 4096 };

typedef struct fp_steps {
    uint64_t count; /* all steps */
    uint64_t skip;  /* the first so many are warm-up: counted, not measured */
    uint64_t apart; /* later ones that were not measured, either */
    int64_t start;  /* ticks at which the step under way began */
    int64_t paused_ticks; /* of it: what is no part of it */
    int64_t paused_at;    /* while it stands still: since when */
    int64_t ticks;        /* what the last step took */
    int64_t sum_ticks;
    double sum_sq; /* of ticks */
    int64_t min_ticks;
    int64_t max_ticks;
    fp_hist hist;
    int64_t recent[FP_STEPS_RECENT]; /* ring; measured steps only */
    uint8_t paused;
    uint8_t unprofiled; /* the step under way is one of those apart */
} fp_steps;

/* Steps that were measured: count less the warm-up and those apart. */
static inline uint64_t
fp_steps_measured(const fp_steps *s)
{
    return s->count > s->skip ? s->count - s->skip - s->apart : 0;
}

/* Ends the step under way at [now] and begins the next.  1: it was measured,
 * 0: it was warm-up, or is apart. */
int
fp_steps_end(fp_steps *s, const fp_alloc *a, int64_t now);

/* The step under way stands still from [now] on, and goes on. */
void
fp_steps_pause(fp_steps *s, int64_t now);

void
fp_steps_resume(fp_steps *s, int64_t now);

/* Copies up to [capacity] of the last durations, oldest first; returns how
 * many. */
uint32_t
fp_steps_recent(const fp_steps *s, int64_t *ticks, uint32_t capacity);

#endif
