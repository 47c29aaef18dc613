#include "py/unprofiled.h"

#include "py/run_phase.h"
#include "py/switches.h"
#include "py/threads.h"

#include "core/steps_pairs.h"
#include "core/steps_split.h"
#include "core/thread_steps.h"

uint32_t
fp_recorder_unprofiled_length(fp_recorder *r, int64_t ns)
{
    uint32_t settle = 1;
    if (r->stepper != NULL && r->stepper->steps != NULL) {
        double ticks = (double)ns / fp_clock_ns_per_tick(&r->clock);
        settle = fp_pairs_settle(r->stepper->steps, (int64_t)ticks);
    }
    r->recording.unprofiled_settle = settle;
    return fp_pairs_length(settle);
}

int
fp_recorder_begin_unprofiled(fp_recorder *r)
{
    const fp_thread *t = r->stepper;
    if (t == NULL || !t->steps->unprofiled || !r->functions_on || r->paused ||
        r->recording.phases.now != FP_RUN_UNPROFILED) {
        return 0;
    }
    fp_recorder_pause(r, 1);
    r->hook_lent = r->unhooked;
    return r->unhooked;
}

int
fp_recorder_end_unprofiled(fp_recorder *r, int valid)
{
    fp_thread *t = r->stepper;
    int rc = 0;
    /* Otherwise the block was only planned, and we must not set the hook. */
    if (r->hook_lent) {
        r->hook_lent = 0;
        rc = fp_recorder_rehook(r);
        fp_recorder_resume(r);
    }
    if (t == NULL || !t->steps->unprofiled || t != fp_recorder_own_thread(r)) {
        return rc;
    }
    int64_t now = fp_clock_now(&r->clock);
    fp_thread_end_unprofiled(t, valid && rc == 0, now);
    if (r->recording.phases.now == FP_RUN_UNPROFILED) {
        fp_recorder_set_phase_at(r, FP_RUN_STEPS, 1, now);
    }
    t->split->signals = t->split->signals_before = fp_recorder_signals(r);
    return rc;
}
