/* switches: turn the layers of a recorder on and off.  The starting functions
 * return 0, or -1 with an exception and nothing changed. */
#ifndef FP_PY_SWITCHES_H
#define FP_PY_SWITCHES_H

#include "py/recorder.h"

int
fp_recorder_start_functions(fp_recorder *r);

/* Never fails; keeps a live exception. */
void
fp_recorder_stop_functions(fp_recorder *r);

int
fp_recorder_start_sections(fp_recorder *r);

void
fp_recorder_stop_sections(fp_recorder *r);

/* Pauses the recording of functions.  [unhook]: also removes the hook.  Returns
 * whether a pause has begun. */
int
fp_recorder_pause(fp_recorder *r, int unhook);

/* Puts the hook back; the pause continues.  Returns 0, or -1 with an
 * exception: the hook could not be set, and functions are off. */
int
fp_recorder_rehook(fp_recorder *r);

/* Ends the pause.  Does nothing while the hook is out. */
void
fp_recorder_resume(fp_recorder *r);

/* The signals that the layers record now: FP_SIGNAL_... of
 * core/steps_split.h. */
unsigned
fp_recorder_signals(const fp_recorder *r);

#endif
