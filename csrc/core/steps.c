#include "core/steps.h"

static void
add(fp_step_times *of, const fp_alloc *a, int64_t ticks)
{
    uint64_t n = ++of->count;
    if (n == 1 || ticks < of->min_ticks) {
        of->min_ticks = ticks;
    }
    if (n == 1 || ticks > of->max_ticks) {
        of->max_ticks = ticks;
    }
    of->sum_ticks += ticks;
    of->sum_sq += (double)ticks * (double)ticks;
    of->recent[(n - 1) % FP_STEPS_RECENT] = ticks;
    fp_hist_add(&of->hist, a, ticks);
}

fp_step_kind
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
        if (s->settles != 0) {
            s->settles -= s->settles != FP_SETTLES_ON;
            return FP_STEP_APART;
        }
        add(&s->plain, a, ticks);
        return FP_STEP_PLAIN;
    }
    if (s->count <= s->skip) {
        return FP_STEP_APART;
    }
    add(&s->measured, a, ticks);
    return FP_STEP_MEASURED;
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
fp_step_times_recent(const fp_step_times *s, int64_t *ticks, uint32_t capacity)
{
    uint64_t n = s->count;
    uint64_t kept = n < FP_STEPS_RECENT ? n : FP_STEPS_RECENT;
    kept = kept < capacity ? kept : capacity;
    for (uint64_t i = 0; i < kept; i++) {
        ticks[i] = s->recent[(n - kept + i) % FP_STEPS_RECENT];
    }
    return (uint32_t)kept;
}
