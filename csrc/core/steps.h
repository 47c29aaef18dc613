/* steps: durations of training steps in bounded memory.  Pure arithmetic,
 * without threads or sections. */
#ifndef FP_CORE_STEPS_H
#define FP_CORE_STEPS_H

#include "core/hist.h"

enum { FP_STEPS_RECENT = 4096 };

/* What a step counts as. */
typedef enum fp_step_kind {
    FP_STEP_APART,    /* warm-up, or the steps around a change of the hook */
    FP_STEP_MEASURED, /* with the function hook */
    FP_STEP_PLAIN,    /* without it; `apart` counts them, too */
} fp_step_kind;

/* The durations of one kind of steps. */
typedef struct fp_step_times {
    uint64_t count;
    int64_t sum_ticks;
    double sum_sq; /* of ticks */
    int64_t min_ticks;
    int64_t max_ticks;
    fp_hist hist;
    int64_t recent[FP_STEPS_RECENT]; /* ring */
} fp_step_times;

/* No step counts as plain before the hook is removed again. */
#define FP_SETTLES_ON UINT32_MAX

typedef struct fp_steps {
    uint64_t count;       /* all steps */
    uint64_t skip;        /* first steps: warm-up, counted but not measured */
    uint64_t apart;       /* later steps that were not measured */
    int64_t start;        /* ticks at which the current step began */
    int64_t paused_ticks; /* pauses of the current step */
    int64_t paused_at;    /* start of the current pause */
    int64_t ticks;        /* of the last step */
    fp_step_times measured;
    fp_step_times plain;
    uint32_t settles; /* steps to leave out before plain ones */
    uint8_t paused;
    uint8_t unprofiled; /* the current step is not measured */
} fp_steps;

/* Ends the current step at [now] and begins the next. */
fp_step_kind
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
fp_step_times_recent(const fp_step_times *s, int64_t *ticks,
                     uint32_t capacity);

#endif
