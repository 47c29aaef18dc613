/* steps_series: the last measured steps one by one, as columns of a ring.  Pure
 * storage: row i is that of fp_steps.recent[i].  A section gets its column when
 * it is first seen; nothing is allocated otherwise. */
#ifndef FP_CORE_STEPS_SERIES_H
#define FP_CORE_STEPS_SERIES_H

#include "core/section.h"
#include "core/steps.h"

enum { FP_SERIES_COLUMNS = 64 };

typedef struct fp_series_column {
    fp_section *section; /* borrowed */
    int64_t *ticks;      /* owned; ring of FP_STEPS_RECENT */
} fp_series_column;

typedef struct fp_series {
    int64_t number[FP_STEPS_RECENT]; /* among all steps of the run, from 0 */
    int64_t start[FP_STEPS_RECENT];  /* ticks */
    int64_t cpu_ns[FP_STEPS_RECENT];
    int64_t gc_ticks[FP_STEPS_RECENT];
    int64_t switches[FP_STEPS_RECENT];
    int64_t faults[FP_STEPS_RECENT];
    int64_t delay_ns[FP_STEPS_RECENT]; /* ready to run, without a CPU */
    /* Ticks; -1: functions were not recorded. */
    int64_t communication[FP_STEPS_RECENT];
    int64_t autograd[FP_STEPS_RECENT];
    fp_series_column column[FP_SERIES_COLUMNS];
    uint32_t columns;
    uint32_t left_out; /* sections beyond, or without memory */
} fp_series;

void
fp_series_fini(fp_series *s, const fp_alloc *a);

/* [section] runs at the bottom of a thread's sections for the first time. */
void
fp_series_add_column(fp_series *s, const fp_alloc *a, fp_section *section);

/* The sections' time in the step that has become row [row]. */
void
fp_series_put_sections(fp_series *s, uint32_t row);

#endif
