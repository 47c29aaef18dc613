/* run_phase: the phase of the run, of all threads of a recorder. */
#include "core/after_loop.h"
#include "py/gpu_layer.h"
#include "py/recorder.h"

static int
is_recording(const fp_recorder *r)
{
    return (r->functions_on || r->sections_on) && r->timer == NULL;
}

void
fp_recorder_phase_begins(fp_recorder *r, int64_t now)
{
    r->phases.since = now;
}

void
fp_recorder_phase_ends(fp_recorder *r, int64_t now)
{
    int64_t ticks = now - r->phases.since;
    r->phases.ticks[r->phases.now] += ticks > 0 ? ticks : 0;
    r->phases.since = now;
}

int64_t
fp_recorder_phase_ticks(const fp_recorder *r, fp_run_phase phase)
{
    int64_t ticks = r->phases.ticks[phase];
    if (phase == r->phases.now && is_recording(r)) {
        ticks += fp_clock_now(&r->clock) - r->phases.since;
    }
    return ticks > 0 ? ticks : 0;
}

void
fp_recorder_phases_cleared(fp_recorder *r)
{
    fp_run_phase now = r->phases.now;
    r->phases = (fp_recorder_phases){.now = now};
    r->phases.entries[now] = now != FP_RUN_STEPS;
    if (is_recording(r)) {
        r->phases.since = fp_clock_now(&r->clock);
    }
}

/* Warm-up or measured: which of them steps are in now. */
static fp_run_phase
phase_of_steps(const fp_recorder *r)
{
    const fp_steps *s = r->stepper != NULL ? r->stepper->steps : NULL;
    uint64_t count = s != NULL ? s->count : 0;
    uint64_t skip = s != NULL ? s->skip : r->skip_steps;
    return count < skip ? FP_RUN_WARMUP : FP_RUN_STEPS;
}

void
fp_recorder_set_phase(fp_recorder *r, fp_run_phase phase, int goes_on)
{
    if (fp_run_phase_steps(phase)) {
        phase = phase_of_steps(r);
    }
    if (phase == r->phases.now || r->timer != NULL) {
        return;
    }
    int64_t now = fp_clock_now(&r->clock);
    if (is_recording(r)) {
        fp_recorder_phase_ends(r, now);
    }
    r->phases.now = phase;
    r->phases.entries[phase] += !goes_on;
    const fp_thread *own = fp_recorder_own_thread(r);
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        /* Without memory the thread stays in its phase; that was counted. */
        (void)fp_thread_set_run_phase(t, phase, now);
        if (r->tracing) {
            fp_trace_rehomed(&r->trace, t, now);
        }
        if (t == own && r->gpu_on) {
            fp_gpu_layer_section(r, t, now);
        }
    }
}

void
fp_recorder_phase_before_step(fp_recorder *r)
{
    fp_steps *s = r->stepper->steps;
    /* The program did not say when training began, so this step holds set-up.  (Set-up
     * may begin again later: what is measured by then stays so.) */
    if (r->phases.now == FP_RUN_SETUP && s->skip == s->count) {
        s->skip = s->count + 1;
    }
}

void
fp_recorder_phase_after_step(fp_recorder *r)
{
    if (r->phases.now == FP_RUN_SETUP || r->phases.now == FP_RUN_WARMUP ||
        r->phases.now == FP_RUN_OUTSIDE) {
        fp_recorder_set_phase(r, FP_RUN_STEPS, 0);
    }
}

/* What follows the last step is told apart from this much on, in ns ... */
enum { LEAST_BEYOND = 10 * 1000 * 1000 };

/* ... and of all steps this part. */
enum { PART_BEYOND = 20 };

void
fp_recorder_end_loop(fp_recorder *r)
{
    fp_thread *t = r->stepper;
    if (t == NULL || t->steps == NULL || r->phases.now != FP_RUN_STEPS ||
        !is_recording(r)) {
        return;
    }
    const fp_steps *s = t->steps;
    int64_t now = fp_clock_now(&r->clock);
    int64_t ticks = now - s->start - s->paused_ticks;
    if (ticks <= s->sum_ticks / PART_BEYOND ||
        (double)ticks * fp_clock_ns_per_tick(&r->clock) < LEAST_BEYOND) {
        return;
    }
    fp_recorder_set_phase(r, FP_RUN_OUTSIDE, 0);
    int64_t moved = fp_thread_end_loop(t);
    r->phases.ticks[FP_RUN_STEPS] -= moved;
    r->phases.ticks[FP_RUN_OUTSIDE] += moved;
}
