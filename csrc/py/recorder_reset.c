/* Clears a recording for clear(), for __init__() and in a forked child, whose
 * parent keeps it.  This file holds the only list of the parts of a
 * recording. */
#include "py/recorder_reset.h"

#include "py/guard.h"
#include "py/in_use.h"
#include "py/run_phase.h"
#include "py/threads.h"

int
fp_recorder_reset(fp_recorder *r, fp_keytab *keys)
{
    if (fp_recorder_free_threads(r, keys) < 0) {
        return -1;
    }
    r->recording = (fp_recording){.phases.now = r->recording.phases.now};
    FP_WRITE(r->lingering, 0);
    if (r->config.timer == NULL && (r->functions_on || r->sections_on)) {
        r->recording.origin = r->started = fp_clock_now(&r->clock);
    }
    fp_recorder_phases_cleared(r);
    FP_LAYERS(r, cleared, r);
    return 0;
}

/* ---- during an export ---- */

void
fp_recorder_forget(fp_recorder *r)
{
    r->forget_wanted = r->exporting != 0;
    if (r->forget_wanted) {
        return;
    }
    (void)fp_recorder_reset(r, NULL);
}

void
fp_recorder_begin_export(fp_recorder *r)
{
    fp_tls *me = fp_tls_own();
    if (me != NULL) {
        me->exporting++;
    }
    fp_recorder_use(r, &r->exporting);
}

void
fp_recorder_end_export(fp_recorder *r)
{
    fp_tls *me = fp_tls_if_any();
    if (me != NULL && me->exporting != 0) {
        me->exporting--;
    }
    fp_recorder_end_use(r, &r->exporting);
    if (r->forget_wanted) {
        fp_recorder_forget(r);
    }
}
