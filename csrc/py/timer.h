/* timer: the clock of a recorder that is Python code. */
#ifndef FP_PY_TIMER_H
#define FP_PY_TIMER_H

#include "py/recorder.h"

/* Reads the external timer.  It is Python code: it may switch threads, drop the
 * last reference to the recorder or fail.  0: *now is valid and the layer is as
 * it was; -1: forget the event (one within the timer,
 * perhaps). */
int
fp_timer_read(fp_recorder *r, int64_t *now);

/* The first event a thread sees only sets its clock. */
void
fp_timer_first(fp_thread *t, int64_t now);

/* -1 with RuntimeError when called from inside this thread's external timer, or
 * ([whole]) while any thread is inside it. */
int
fp_recorder_guard_timer(fp_recorder *r, const char *what, int whole);

#endif
