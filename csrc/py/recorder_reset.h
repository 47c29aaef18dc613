/* recorder_reset: what was recorded is forgotten. */
#ifndef FP_PY_RECORDER_RESET_H
#define FP_PY_RECORDER_RESET_H

#include "py/recorder.h"

/* All but the tables of keys; layers that are on stay on. */
void
fp_recorder_reset(fp_recorder *r);

/* In a forked child: what was recorded so far is the parent's alone.  Done at the
 * end of an export in the middle of which this thread forked. */
void
fp_recorder_forget(fp_recorder *r);

/* Around what reads the records and runs Python code meanwhile. */
void
fp_recorder_begin_export(fp_recorder *r);

void
fp_recorder_end_export(fp_recorder *r);

#endif
