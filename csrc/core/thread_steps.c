#include "core/thread_steps.h"

#include "core/outliers.h"
#include "core/path.h"
#include "core/steps_pairs.h"
#include "core/steps_split.h"
#include "core/thread_sections.h"

/* Outliers are measured from here on. */
static void
begin_outliers(fp_thread *t, int64_t now)
{
    if (t->outliers != NULL) {
        fp_thread_charge(t, now);
        fp_outliers_begin(t->outliers, &t->tree, t->cur, now);
    }
}

static void
end_outlier(fp_thread *t, int64_t start, int64_t now)
{
    if (t->outliers != NULL) {
        fp_thread_charge(t, now);
        fp_outliers_end_step(t->outliers, &t->tree, t->cur, t->touched,
                             t->steps->count - 1, start, t->steps->ticks, now);
    }
}

void
fp_thread_restart_step(fp_thread *t, int64_t now)
{
    for (fp_section *s = t->touched; s != NULL; s = s->next_touched) {
        s->step_ticks = 0;
        s->touched = 0;
    }
    t->touched = NULL;
    t->steps->start = t->steps->paused_at = now;
    t->steps->paused_ticks = 0;
    t->steps->paused = !fp_run_phase_steps(t->run_phase);
    t->bottom_since = now;
    fp_split_start(t, now);
}

fp_status
fp_thread_start_steps(fp_thread *t, uint64_t skip, int64_t now)
{
    if (t->steps == NULL) {
        t->steps = fp_alloc_zeroed(&t->alloc, 1, sizeof(*t->steps));
        if (t->steps == NULL) {
            return FP_ENOMEM;
        }
    }
    t->steps->skip = skip;
    fp_thread_restart_step(t, now);
    begin_outliers(t, now);
    return FP_OK;
}

fp_status
fp_thread_begin_unprofiled(fp_thread *t, uint32_t settle)
{
    if (t->steps->count < t->steps->skip || t->split == NULL) {
        return FP_ENOTFOUND;
    }
    fp_status status = fp_split_keep_plain(t);
    if (status == FP_OK) {
        status = fp_pairs_begin(&t->split->pairs, t, settle);
    }
    t->steps->unprofiled = status == FP_OK;
    t->steps->settles = settle;
    return status;
}

void
fp_thread_settle_hooked(fp_thread *t)
{
    if (t->steps != NULL && t->steps->unprofiled) {
        t->steps->settles = FP_SETTLES_ON;
        t->phases.plain = 0;
    }
}

void
fp_thread_end_unprofiled(fp_thread *t, int valid, int64_t now)
{
    t->steps->unprofiled = 0;
    fp_pairs_end(t->split->pairs, valid);
    /* No begin_outliers: the steps without the hook ran in another subtree, so
     * the marks of measured steps are still right. */
    fp_thread_restart_step(t, now);
}

fp_status
fp_thread_keep_outliers(fp_thread *t, uint32_t limit, const fp_clock *clock,
                        int64_t now)
{
    if (t->outliers == NULL) {
        t->outliers = fp_outliers_create(&t->alloc, clock, limit, now);
        if (t->outliers == NULL) {
            t->counters.dropped++;
            return FP_ENOMEM;
        }
        begin_outliers(t, now);
    }
    return FP_OK;
}

void
fp_thread_pause_step(fp_thread *t, int64_t now)
{
    if (t->open_len > 0) {
        fp_thread_charge_bottom(t, now);
    }
    fp_steps_pause(t->steps, now);
    fp_split_pause(t, now);
}

void
fp_thread_resume_step(fp_thread *t, int64_t now)
{
    fp_steps_resume(t->steps, now);
    fp_split_resume(t, now);
    t->bottom_since = now;
}

int
fp_thread_end_step(fp_thread *t, int64_t now)
{
    int paused = t->steps->paused;
    if (paused) {
        fp_thread_resume_step(t, now);
    }
    if (t->open_len > 0) {
        fp_thread_charge_bottom(t, now);
    }
    int64_t start = t->steps->start;
    fp_step_kind kind = fp_steps_end(t->steps, &t->alloc, now);
    if (kind == FP_STEP_MEASURED) {
        end_outlier(t, start, now);
    }
    else if (kind == FP_STEP_PLAIN && t->outliers != NULL) {
        fp_outliers_end_plain_step(t->outliers, t->touched,
                                   t->steps->count - 1, start,
                                   t->steps->ticks);
    }
    else if (t->steps->count == t->steps->skip) {
        begin_outliers(t, now); /* the warm-up is over */
    }
    if (t->split != NULL) {
        fp_split_end_step(t, start, now, kind);
    }
    for (fp_section *s = t->touched; s != NULL; s = s->next_touched) {
        if (kind != FP_STEP_APART) {
            s->steps_ticks += s->step_ticks;
            s->steps++;
        }
        s->step_ticks = 0;
        s->touched = 0;
    }
    t->touched = NULL;
    fp_phases_mark_end(&t->phases, now);
    t->phases.plain = t->steps->unprofiled && t->steps->settles == 0;
    if (paused) {
        fp_thread_pause_step(t, now);
    }
    return kind == FP_STEP_MEASURED;
}
