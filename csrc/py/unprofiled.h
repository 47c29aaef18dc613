/* unprofiled: runs some steps without the function hook. */
#ifndef FP_PY_UNPROFILED_H
#define FP_PY_UNPROFILED_H

#include "py/recorder.h"

/* Number of steps to run without the hook.  Setting or removing the hook
 * affects the next [ns] nanoseconds, so the steps that fit in that time are
 * added and left out. */
uint32_t
fp_recorder_unprofiled_length(fp_recorder *r, int64_t ns);

/* Removes the hook if the step that begins is one without it.  Returns 1 if
 * the hook was removed. */
int
fp_recorder_begin_unprofiled(fp_recorder *r);

/* Puts the hook back; the step that begins is measured.  [valid]: see
 * fp_thread_end_unprofiled.  Returns 0, or -1 with an exception: another
 * profiler has taken the hook, and functions are off. */
int
fp_recorder_end_unprofiled(fp_recorder *r, int valid);

#endif
