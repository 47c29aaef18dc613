/* thread_life: has the thread that wrote an fp_thread ended?
 *
 * Thread states come and go while a thread lives (a C++ thread that calls back
 * may get a new one each time), so the operating system's thread is watched: a
 * pthread destructor marks its record as ended.  It runs without the GIL and
 * touches nothing but that record, which is freed by whoever lets go last. */
#ifndef FP_PY_THREAD_LIFE_H
#define FP_PY_THREAD_LIFE_H

#include "py/state.h"

typedef struct fp_life fp_life;

/* 0, or -1: no key could be had; threads then count as alive for ever. */
int
fp_life_init(fp_state *st);

/* This thread's record, one reference to the caller; NULL: no memory or no
 * key. */
fp_life *
fp_life_acquire(fp_state *st);

/* Accept NULL (a thread that is not watched has not ended). */
int
fp_life_ended(fp_life *life);

void
fp_life_release(fp_life *life);

#endif
