/* timer: reads an external timer, which is Python code. */
#ifndef FP_PY_TIMER_H
#define FP_PY_TIMER_H

#include "py/recorder.h"

/* Reads the external timer.  It may switch threads, fail, or drop the last
 * reference to the recorder.  Returns 0: *now, in ticks, is valid and the
 * recording continues; -1: ignore the event, for example one inside the
 * timer. */
int
fp_timer_read(fp_recorder *r, int64_t *now);

/* At a thread's first event, sets its clock to [now] (ticks), so that no time
 * is charged. */
void
fp_timer_first(fp_thread *t, int64_t now);

/* Returns 0, or -1 with RuntimeError if this thread is inside the external
 * timer, or ([whole]) if any thread is. */
int
fp_recorder_guard_timer(fp_recorder *r, const char *what, int whole);

#endif
