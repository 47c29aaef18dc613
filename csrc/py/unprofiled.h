/* unprofiled: steps that are made without the function hook. */
#ifndef FP_PY_UNPROFILED_H
#define FP_PY_UNPROFILED_H

#include "py/recorder.h"

/* Steps without the hook that are to be made, if a change of the hook leaves traces
 * for [ns]: so many are left out as were made in that time of late. */
uint32_t
fp_recorder_unprofiled_length(fp_recorder *r, int64_t ns);

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
