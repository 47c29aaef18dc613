/* after_loop: moves time spent after the last step out of the measured steps.
 *
 * If no loader reports the end of the loop, the thread stays in the subtree of
 * measured steps until the run ends.  fp_thread_end_loop then moves everything
 * recorded since the last step to the subtree of FP_RUN_OUTSIDE.  The marks of
 * outliers_look.h give each node's growth since the last look.  The growth
 * consists of the steps since then, each counted as a usual step, and of the
 * work after the loop.  The parts are scaled to the exact total. */
#ifndef FP_CORE_AFTER_LOOP_H
#define FP_CORE_AFTER_LOOP_H

#include "core/thread.h"

/* Call this when [t] will end no more steps and its step is paused.  Returns
 * the ticks that were moved.  Returns 0 if nothing is known about usual steps,
 * or if there is no memory (counted as dropped). */
int64_t
fp_thread_end_loop(fp_thread *t);

#endif
