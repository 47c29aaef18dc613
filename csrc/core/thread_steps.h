/* thread_steps: the steps of the thread that steps. */
#ifndef FP_CORE_THREAD_STEPS_H
#define FP_CORE_THREAD_STEPS_H

#include "core/thread.h"

/* The step under way stands still from [now] on, and goes on; what happens in
 * between is no part of it.  Steps have begun. */
void
fp_thread_pause_step(fp_thread *t, int64_t now);

void
fp_thread_resume_step(fp_thread *t, int64_t now);

/* A step begins at [now]: the first, or one instead of the step under way. */
fp_status
fp_thread_start_steps(fp_thread *t, uint64_t skip, int64_t now);

/* Keeps the [limit] slowest steps from here on, with the first one beginning at
 * [now]; [clock] stays as long as the thread.  FP_ENOMEM: counted as dropped. */
fp_status
fp_thread_keep_outliers(fp_thread *t, uint32_t limit, const fp_clock *clock,
                        int64_t now);

/* The step that begins now and those that follow are not measured, and are recorded
 * without the function hook: see steps_pairs.h.  FP_ENOTFOUND: not during the warm-up.
 * The caller changes the phase of the run to FP_RUN_UNPROFILED.  [settle] steps after
 * each change are left out. */
fp_status
fp_thread_begin_unprofiled(fp_thread *t, uint32_t settle);

/* ... until here, where a measured step begins at [now].  Not [valid]: what took
 * place meanwhile was no step like the others. */
void
fp_thread_end_unprofiled(fp_thread *t, int valid, int64_t now);

/* Ends a step.  fp_thread_start_steps was called. */
void
fp_thread_end_step(fp_thread *t, int64_t now);

#endif
