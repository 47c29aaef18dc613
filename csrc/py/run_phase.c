/* run_phase: the phase of the run, common to all threads of a recorder. */
#include "py/run_phase.h"

#include "py/guard.h"
#include "py/rest.h"
#include "py/threads.h"

#include "core/after_loop.h"
#include "core/thread_steps.h"

static int
is_recording(const fp_recorder *r)
{
    return (r->functions_on || r->sections_on) && r->config.timer == NULL;
}

void
fp_recorder_phase_begins(fp_recorder *r, int64_t now)
{
    r->recording.phases.since = now;
}

void
fp_recorder_phase_ends(fp_recorder *r, int64_t now)
{
    int64_t ticks = now - r->recording.phases.since;
    r->recording.phases.ticks[r->recording.phases.now] +=
        ticks > 0 ? ticks : 0;
    r->recording.phases.since = now;
}

int64_t
fp_recorder_phase_ticks(const fp_recorder *r, fp_run_phase phase)
{
    int64_t ticks = r->recording.phases.ticks[phase];
    if (phase == r->recording.phases.now && is_recording(r)) {
        ticks += fp_clock_now(&r->clock) - r->recording.phases.since;
    }
    return ticks > 0 ? ticks : 0;
}

void
fp_recorder_phases_cleared(fp_recorder *r)
{
    fp_run_phase now = r->recording.phases.now;
    r->recording.phases = (fp_recorder_phases){.now = now};
    r->recording.phases.entries[now] = now != FP_RUN_STEPS;
    if (is_recording(r)) {
        r->recording.phases.since = fp_clock_now(&r->clock);
    }
}

/* The phase that "steps" means now: warm-up, measured, or without the hook. */
static fp_run_phase
phase_of_steps(const fp_recorder *r)
{
    const fp_steps *s = r->stepper != NULL ? r->stepper->steps : NULL;
    uint64_t count = s != NULL ? s->count : 0;
    uint64_t skip = s != NULL ? s->skip : r->config.skip_steps;
    if (s != NULL && s->unprofiled) {
        return FP_RUN_UNPROFILED;
    }
    return count < skip ? FP_RUN_WARMUP : FP_RUN_STEPS;
}

/* Does a checkpoint that begins now write another file of the previous one?
 * It does if no step has ended since. */
static int
goes_on_saving(fp_recorder *r)
{
    const fp_steps *s = r->stepper != NULL ? r->stepper->steps : NULL;
    uint64_t before = r->recording.phases.saved;
    r->recording.phases.saved = 1 + (s != NULL ? s->count : 0);
    return before == r->recording.phases.saved;
}

typedef struct phase_change {
    fp_recorder *r;
    int64_t now;
} phase_change;

static void
move_threads(void *arg)
{
    const phase_change *c = arg;
    fp_recorder *r = c->r;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        int64_t now = fp_thread_from(t, c->now);
        /* If memory runs out, the thread stays in its phase; the failure was
         * counted. */
        (void)fp_thread_set_run_phase(t, r->recording.phases.now, now);
        if (r->tracing) {
            fp_trace_rehomed(&r->trace.log, t, now);
        }
    }
}

void
fp_recorder_set_phase_at(fp_recorder *r, fp_run_phase phase, int goes_on,
                         int64_t now)
{
    int64_t since = r->recording.phases.since;
    int recording = is_recording(r);
    int compiled =
        recording && r->recording.phases.now == FP_RUN_COMPILE && now > since;
    if (recording) {
        fp_recorder_phase_ends(r, now);
    }
    /* line_sampler.c reads it in another thread */
    __atomic_store_n(&r->recording.phases.now, phase, __ATOMIC_RELAXED);
    if (phase == FP_RUN_CHECKPOINT && !goes_on) {
        goes_on = goes_on_saving(r);
    }
    r->recording.phases.entries[phase] += !goes_on;
    fp_world_stopped(move_threads, &(phase_change){r, now});
    fp_thread *own = fp_recorder_own_thread(r);
    if (own != NULL) {
        if (compiled) { /* here: sections of other threads went on */
            fp_thread_leave_out(own, since, now);
        }
        FP_LAYERS(r, sections_changed, r, own, now);
    }
}

void
fp_recorder_leave_windows(fp_recorder *r, int64_t now)
{
    fp_run_phase phase = r->recording.phases.now;
    if (r->beside_windows != 0 &&
        (phase == FP_RUN_UNHOOKED || phase == FP_RUN_WINDOWS)) {
        fp_recorder_set_phase_at(r, (fp_run_phase)(r->beside_windows - 1), 1,
                                 now);
    }
    r->beside_windows = 0;
}

void
fp_recorder_set_phase(fp_recorder *r, fp_run_phase phase, int goes_on)
{
    if (fp_run_phase_steps(phase)) {
        phase = phase_of_steps(r);
    }
    if (phase != r->recording.phases.now && r->config.timer == NULL) {
        fp_rest_end(r, NULL);
        fp_recorder_set_phase_at(r, phase, goes_on, fp_clock_now(&r->clock));
    }
}

void
fp_recorder_phase_before_step(fp_recorder *r)
{
    fp_steps *s = r->stepper->steps;
    if (r->beside_windows != 0) {
        fp_recorder_leave_windows(r, fp_clock_now(&r->clock));
    }
    /* The program did not mark the begin of training, so this step includes
     * set-up.  If set-up begins again later, earlier measurements stay. */
    if (r->recording.phases.now == FP_RUN_SETUP && s->skip == s->count) {
        s->skip = s->count + 1;
    }
}

void
fp_recorder_phase_after_step(fp_recorder *r, int64_t now)
{
    fp_thread *t = r->stepper;
    if (r->recording.phases.now == FP_RUN_SETUP ||
        r->recording.phases.now == FP_RUN_WARMUP ||
        r->recording.phases.now == FP_RUN_OUTSIDE) {
        fp_recorder_set_phase(r, FP_RUN_STEPS, 0);
    }
    uint32_t settle = r->recording.unprofiled_settle;
    /* At the very end of the step, so that the tree of measured steps contains
     * nothing else. */
    if (r->recording.unprofiled_at != 0 &&
        t->steps->count == r->recording.unprofiled_at &&
        r->recording.phases.now == FP_RUN_STEPS &&
        fp_thread_begin_unprofiled(t, settle > 0 ? settle : 1) == FP_OK) {
        fp_recorder_set_phase_at(r, FP_RUN_UNPROFILED, 0, now);
    }
}

/* The time after the last step is split off if it is at least this long, in
 * ns, ... */
enum { LEAST_BEYOND = 10 * 1000 * 1000 };

/* ... and at least 1/20 of the time of all steps. */
enum { PART_BEYOND = 20 };

typedef struct loop_end {
    const fp_recorder *r;
    fp_thread *t;
    int64_t moved; /* ticks */
} loop_end;

static void
end_loop(void *arg)
{
    loop_end *e = arg;
    e->moved = e->t == e->r->stepper ? fp_thread_end_loop(e->t) : 0;
}

void
fp_recorder_end_loop(fp_recorder *r)
{
    fp_thread *t = r->stepper;
    fp_run_phase phase = r->recording.phases.now;
    if (t == NULL || t->steps == NULL || !is_recording(r) ||
        (phase != FP_RUN_STEPS && phase != FP_RUN_UNPROFILED)) {
        return;
    }
    const fp_steps *s = t->steps;
    int64_t now = fp_clock_now(&r->clock);
    int64_t ticks = now - s->start - s->paused_ticks;
    int64_t steps = s->measured.sum_ticks + s->plain.sum_ticks;
    if (ticks <= steps / PART_BEYOND ||
        (double)ticks * fp_clock_ns_per_tick(&r->clock) < LEAST_BEYOND) {
        return;
    }
    fp_recorder_set_phase(r, FP_RUN_OUTSIDE, 0);
    /* Without the hook there are hardly any nodes to move, so they stay. */
    loop_end end = {r, t, ticks};
    if (phase == FP_RUN_STEPS) {
        fp_world_stopped(end_loop, &end);
    }
    r->recording.phases.ticks[phase] -= end.moved;
    r->recording.phases.ticks[FP_RUN_OUTSIDE] += end.moved;
}
