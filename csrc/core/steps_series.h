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

/* One value of every step: the place of the first, and the number of values
 * from one to the next. */
typedef struct fp_values {
    const int64_t *at;
    uint32_t stride;
} fp_values;

/* [at]: the value in the first row. */
static inline fp_values
fp_values_in_rows(const int64_t *at)
{
    return (fp_values){at, sizeof(fp_series_row) / sizeof(int64_t)};
}

/* The value of the step that has the number [n] of all that were put. */
static inline int64_t
fp_value_of(fp_values r, uint64_t n)
{
    return r.at[(n % FP_STEPS_RECENT) * r.stride];
}

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
