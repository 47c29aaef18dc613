/* in_use: the recorders that are inside an export or an external timer, both
 * of which run Python code. */
#ifndef FP_PY_IN_USE_H
#define FP_PY_IN_USE_H

#include "py/recorder.h"

/* Increments and decrements [count], which is busy_timer or exporting. */
void
fp_recorder_use(fp_recorder *r, uint32_t *count);

void
fp_recorder_end_use(fp_recorder *r, uint32_t *count);

/* In a forked child: removes the exports and timer calls of other threads,
 * which do not exist there, from every recorder. */
void
fp_recorder_forked(fp_state *st);

#endif
