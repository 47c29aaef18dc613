#include "core/steps_series.h"

void
fp_series_fini(fp_series *s, const fp_alloc *a)
{
    for (uint32_t i = 0; i < s->columns; i++) {
        fp_alloc_give(a, s->column[i].ticks, FP_STEPS_RECENT, sizeof(int64_t));
    }
    s->columns = 0;
}

void
fp_series_add_column(fp_series *s, const fp_alloc *a, fp_section *section)
{
    /* Set even if there is no room, so that this runs once per section. */
    section->has_column = 1;
    int64_t *ticks = NULL;
    if (s->columns < FP_SERIES_COLUMNS) {
        ticks = fp_alloc_zeroed(a, FP_STEPS_RECENT, sizeof(*ticks));
    }
    if (ticks == NULL) {
        s->left_out++;
        return;
    }
    s->column[s->columns++] = (fp_series_column){section, ticks};
}

void
fp_series_put_sections(fp_series *s, uint32_t row)
{
    for (uint32_t i = 0; i < s->columns; i++) {
        s->column[i].ticks[row] = s->column[i].section->step_ticks;
    }
}
