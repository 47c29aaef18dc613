/* What was recorded is forgotten: by clear(), by __init__() and in a forked child,
 * whose parent has it.  The one list of what a recording is. */
#include "py/recorder.h"

/* Functions that were muted are recorded again. */
static void
unmute(fp_recorder *r)
{
    for (uint32_t i = 0; i < r->keys.count; i++) {
        r->keys.entry[i].muted = r->keys.entry[i].chosen = 0;
        r->keys.entry[i].calls_before_mute = 0;
        r->keys.entry[i].calls = r->keys.entry[i].calls_then = 0;
    }
    if (!r->any_muted && !r->leaves_out_sites) {
        return;
    }
    r->any_muted = r->leaves_out_sites = 0;
    r->sites_off = r->sites_off_most = r->calls_before_off = 0;
    r->sites_wait = 0;
    if (r->functions_on && !r->unhooked &&
        r->backend == FP_BACKEND_MONITORING) {
        fp_monitoring_rearm(r);
    }
}

void
fp_recorder_reset(fp_recorder *r)
{
    /* Threads that record now must not find their old records. */
    if (r->function_epoch != FP_EPOCH_OFF) {
        r->function_epoch = fp_new_epoch();
    }
    if (r->section_epoch != FP_EPOCH_OFF) {
        r->section_epoch = fp_new_epoch();
    }
    fp_recorder_free_threads(r);
    r->recorded_ticks = r->origin = 0;
    if (r->timer == NULL && (r->functions_on || r->sections_on)) {
        r->origin = r->started = fp_clock_now(&r->clock);
    }
    fp_recorder_trace_cleared(r);
    fp_recorder_phases_cleared(r);
    r->ended_threads = r->dropped_threads = 0;
    r->lingering = 0;
    r->displaced = 0;
    r->timer_errors = r->sync_errors = r->wrong_step_thread = 0;
    r->nvtx_without_gil = r->nvtx_unmatched = r->nvtx_unbalanced = 0;
    r->gc_elsewhere = 0;
    r->unprofiled_at = 0;
    unmute(r);
    r->budget = (fp_budget){.look = r->budget.look};
}
