#include "core/steps.h"

int
fp_steps_end(fp_steps *s, const fp_alloc *a, int64_t now)
{
    int64_t ticks = now > s->start ? now - s->start : 0;
    ticks = ticks > s->paused_ticks ? ticks - s->paused_ticks : 0;
    s->ticks = ticks;
    s->start = now;
    s->paused_ticks = 0;
    s->count++;
    if (s->unprofiled) {
        s->apart++;
        return 0;
    }
    uint64_t n = fp_steps_measured(s);
    if (n == 0) {
        return 0;
    }
    if (n == 1 || ticks < s->min_ticks) {
        s->min_ticks = ticks;
    }
    if (n == 1 || ticks > s->max_ticks) {
        s->max_ticks = ticks;
    }
    s->sum_ticks += ticks;
    s->sum_sq += (double)ticks * (double)ticks;
    s->recent[(n - 1) % FP_STEPS_RECENT] = ticks;
    fp_hist_add(&s->hist, a, ticks);
    return 1;
}

void
fp_steps_pause(fp_steps *s, int64_t now)
{
    s->paused = 1;
    s->paused_at = now;
}

void
fp_steps_resume(fp_steps *s, int64_t now)
{
    s->paused = 0;
    s->paused_ticks += now > s->paused_at ? now - s->paused_at : 0;
}

uint32_t
fp_steps_recent(const fp_steps *s, int64_t *ticks, uint32_t capacity)
{
    uint64_t n = fp_steps_measured(s);
    uint64_t kept = n < FP_STEPS_RECENT ? n : FP_STEPS_RECENT;
    kept = kept < capacity ? kept : capacity;
    for (uint64_t i = 0; i < kept; i++) {
        ticks[i] = s->recent[(n - kept + i) % FP_STEPS_RECENT];
    }
    return (uint32_t)kept;
}
