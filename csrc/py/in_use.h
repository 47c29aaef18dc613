/* in_use: recorders in the middle of something that runs Python code: an export, an
 * external timer. */
#ifndef FP_PY_IN_USE_H
#define FP_PY_IN_USE_H

#include "py/recorder.h"

/* One more of [count], which is busy_timer or exporting; and one less. */
void
fp_recorder_use(fp_recorder *r, uint32_t *count);

void
fp_recorder_end_use(fp_recorder *r, uint32_t *count);

/* In a forked child: other threads are gone, and with them what they were in the
 * middle of, in any recorder. */
void
fp_recorder_forked(fp_state *st);

#endif
