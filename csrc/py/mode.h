/* mode: selects how the hook handles events. */
#ifndef FP_PY_MODE_H
#define FP_PY_MODE_H

#include "py/guard.h"
#include "py/recorder.h"

/* Derives the mode from the switches, the timer and the clock.  Call it after
 * one of them has changed; otherwise the plain path would run with wrong
 * assumptions. */
static inline void
fp_recorder_set_mode(fp_recorder *r)
{
    if (!r->functions_on) {
        r->mode = FP_MODE_OFF;
    }
    else if (r->paused) {
        r->mode = FP_MODE_PAUSED;
    }
    else {
        r->mode = r->config.timer == NULL &&
                          r->clock.kind == FP_CLOCK_COUNTER &&
                          (r->gpu.external | r->tracing) == 0
                      ? FP_MODE_PLAIN
                      : FP_MODE_FULL;
    }
    FP_WRITE(r->plain_epoch,
             r->mode == FP_MODE_PLAIN ? r->function_epoch : FP_EPOCH_OFF);
}

/* Sets the epoch of functions and derives the mode.  Each thread then finds
 * its record again at its next event; with FP_EPOCH_OFF no thread does. */
static inline void
fp_recorder_set_epoch(fp_recorder *r, uint64_t epoch)
{
    r->function_epoch = epoch;
    fp_recorder_set_mode(r);
}

#endif
