/* steps_series: the last measured steps, one by one, as rows of a ring.  Row i
 * belongs to fp_steps.recent[i].  A row is two cache lines; columns of their
 * own would be one per value, which share their sets in the cache.  A section
 * gets a column, the only allocation here, when it first runs. */
#ifndef FP_CORE_STEPS_SERIES_H
#define FP_CORE_STEPS_SERIES_H

#include "core/section.h"
#include "core/steps.h"

enum { FP_SERIES_COLUMNS = 64 };

typedef struct fp_series_column {
    fp_section *section; /* borrowed */
    int64_t *ticks;      /* owned; ring of FP_STEPS_RECENT */
} fp_series_column;

typedef struct fp_series_row {
    int64_t number; /* in the run, from 0 */
    int64_t start;  /* ticks */
    int64_t cpu_ns;
    int64_t gc_ticks;
    int64_t switches;
    int64_t faults;
    int64_t delay_ns; /* ready to run, without a CPU */
    /* In ticks; -1: functions were not recorded. */
    int64_t communication;
    int64_t autograd;
} fp_series_row;

/* From a value of a row to the same one of the next. */
enum { FP_SERIES_STRIDE = sizeof(fp_series_row) / sizeof(int64_t) };

typedef struct fp_series {
    fp_series_row row[FP_STEPS_RECENT];
    fp_series_column column[FP_SERIES_COLUMNS];
    uint32_t columns;
    uint32_t left_out; /* sections without a column: too many, or no memory */
} fp_series;

/* Frees the columns. */
void
fp_series_fini(fp_series *s, const fp_alloc *a);

/* Adds a column for [section], which runs at the bottom of a thread's sections
 * for the first time. */
void
fp_series_add_column(fp_series *s, const fp_alloc *a, fp_section *section);

/* Stores the sections' times of the step that becomes row [row]. */
void
fp_series_put_sections(fp_series *s, uint32_t row);

#endif
