/* run_phase: the phase of the run, common to all threads of a recorder. */
#ifndef FP_PY_RUN_PHASE_H
#define FP_PY_RUN_PHASE_H

#include "py/recorder.h"

/* Sets the phase for every thread.  FP_RUN_STEPS, FP_RUN_WARMUP and
 * FP_RUN_UNPROFILED all mean "steps": the number of steps decides which one it
 * is.  [goes_on]: the phase continues after an interruption and is not counted
 * as a new one.  Does nothing with an external timer. */
void
fp_recorder_set_phase(fp_recorder *r, fp_run_phase phase, int goes_on);

/* Sets the phase at [now] (ticks); FP_RUN_STEPS and its variants are taken
 * literally. */
void
fp_recorder_set_phase_at(fp_recorder *r, fp_run_phase phase, int goes_on,
                         int64_t now);

/* No more windows of time: back to the phase that they interrupted.  See
 * plain_time.c. */
void
fp_recorder_leave_windows(fp_recorder *r, int64_t now);

/* The training loop has ended.  If the time since the last step is long
 * enough, moves it to FP_RUN_OUTSIDE.  See core/after_loop.h. */
void
fp_recorder_end_loop(fp_recorder *r);

/* A layer was switched on (begins), or is about to be switched off (ends), at
 * [now] in ticks. */
void
fp_recorder_phase_begins(fp_recorder *r, int64_t now);

void
fp_recorder_phase_ends(fp_recorder *r, int64_t now);

/* Ticks recorded in [phase] so far. */
int64_t
fp_recorder_phase_ticks(const fp_recorder *r, fp_run_phase phase);

/* Clears the times of the phases; the phase stays. */
void
fp_recorder_phases_cleared(fp_recorder *r);

/* Call these just before and after the end of a step; the recorder must have a
 * stepper. */
void
fp_recorder_phase_before_step(fp_recorder *r);

void
fp_recorder_phase_after_step(fp_recorder *r, int64_t now);

#endif
