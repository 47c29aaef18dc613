/* unprofiled: steps that are made without the function hook. */
#ifndef FP_PY_UNPROFILED_H
#define FP_PY_UNPROFILED_H

#include "py/recorder.h"

/* Takes the hook out, if the step that begins is to be one without it; whether it
 * is out. */
int
fp_recorder_begin_unprofiled(fp_recorder *r);

/* Puts it back; the step that begins is measured.  Not [valid]: see
 * fp_thread_end_unprofiled.  -1 with an exception: another profiler has the hook, and
 * functions are off. */
int
fp_recorder_end_unprofiled(fp_recorder *r, int valid);

#endif
