/* thread_life: tells whether the thread that wrote an fp_thread has ended.
 *
 * A thread may have several thread states in its life (a C++ thread that calls
 * back into Python may get a new one each time), so this file watches the
 * operating system's thread: a pthread destructor marks its record as ended.
 * The destructor runs without the GIL and touches only that record, which is
 * reference-counted. */
#ifndef FP_PY_THREAD_LIFE_H
#define FP_PY_THREAD_LIFE_H

#include "py/state.h"

typedef struct fp_life fp_life;

/* If no pthread key is available, all threads count as alive. */
void
fp_life_init(fp_state *st);

/* The calling thread's record with one reference for the caller; NULL: no
 * memory or no key. */
fp_life *
fp_life_acquire(fp_state *st);

/* Both accept NULL: a thread without a record counts as alive. */
int
fp_life_ended(fp_life *life);

void
fp_life_release(fp_life *life);

#endif
