/* run_phase: the phase of the run, of all threads of a recorder. */
#ifndef FP_PY_RUN_PHASE_H
#define FP_PY_RUN_PHASE_H

#include "py/recorder.h"

/* For every thread.  FP_RUN_STEPS, FP_RUN_WARMUP and FP_RUN_UNPROFILED all mean
 * "steps": which of them it is depends on the step under way.  [goes_on]: it was interrupted and does
 * not begin anew.  Nothing with an external timer. */
void
fp_recorder_set_phase(fp_recorder *r, fp_run_phase phase, int goes_on);

/* The same at [now], and FP_RUN_STEPS and so on are meant as they are. */
void
fp_recorder_set_phase_at(fp_recorder *r, fp_run_phase phase, int goes_on,
                         int64_t now);

/* No step will end any more: where that is no little, what has followed the last one
 * belongs to FP_RUN_OUTSIDE.  See core/after_loop.h. */
void
fp_recorder_end_loop(fp_recorder *r);

/* A layer was switched on, or is about to be switched off. */
void
fp_recorder_phase_begins(fp_recorder *r, int64_t now);

void
fp_recorder_phase_ends(fp_recorder *r, int64_t now);

/* Ticks recorded in [phase] so far. */
int64_t
fp_recorder_phase_ticks(const fp_recorder *r, fp_run_phase phase);

/* What was recorded is forgotten; the phase stays. */
void
fp_recorder_phases_cleared(fp_recorder *r);

/* Around the end of a step, of which there is a stepper. */
void
fp_recorder_phase_before_step(fp_recorder *r);

void
fp_recorder_phase_after_step(fp_recorder *r, int64_t now);

#endif
