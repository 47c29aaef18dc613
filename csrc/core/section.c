#include "core/section.h"

void
fp_section_merge(fp_section *into, const fp_alloc *a, const fp_section *from)
{
    if (from->count != 0) {
        if (into->count == 0 || from->min_ticks < into->min_ticks) {
            into->min_ticks = from->min_ticks;
        }
        if (into->count == 0 || from->max_ticks > into->max_ticks) {
            into->max_ticks = from->max_ticks;
        }
    }
    into->open += from->open;
    into->lost += from->open; /* their thread has ended */
    into->count += from->count;
    into->errors += from->errors;
    into->sum_ticks += from->sum_ticks;
    into->outer_ticks += from->outer_ticks;
    into->steps_ticks += from->steps_ticks;
    into->steps += from->steps;
    fp_hist_merge(&into->hist, a, &from->hist);
}
