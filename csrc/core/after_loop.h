/* after_loop: what follows the last step is no part of the steps.
 *
 * Where no loader tells that the loop is over, the thread stands in the subtree of
 * measured steps until the run ends.  Then what has happened since the last step
 * ended is moved to the subtree of FP_RUN_OUTSIDE.  The marks of outliers.h tell it:
 * what a node got since the last look is of the steps since then, of which each
 * is taken for a usual one, and of what follows.  The sum is exact. */
#ifndef FP_CORE_AFTER_LOOP_H
#define FP_CORE_AFTER_LOOP_H

#include "core/thread.h"

/* No step will end in this thread, which is in a phase that is no step.  Returns the
 * ticks that were moved; 0 as well where nothing is known, or there is no memory
 * (counted as dropped). */
int64_t
fp_thread_end_loop(fp_thread *t);

#endif
