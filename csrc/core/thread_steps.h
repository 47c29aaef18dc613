/* thread_steps: the steps of the stepping thread. */
#ifndef FP_CORE_THREAD_STEPS_H
#define FP_CORE_THREAD_STEPS_H

#include "core/thread.h"

/* Pauses the current step at [now], and resumes it.  The time in between does
 * not belong to the step.  fp_thread_start_steps was called. */
void
fp_thread_pause_step(fp_thread *t, int64_t now);

void
fp_thread_resume_step(fp_thread *t, int64_t now);

/* Begins a step at [now]: the first, or one that replaces the current step.
 * The first [skip] steps are warm-up.  FP_ENOMEM: there are no steps. */
fp_status
fp_thread_start_steps(fp_thread *t, uint64_t skip, int64_t now);

/* Keeps the [limit] slowest steps, the first of which begins at [now].
 * [clock] must live as long as the thread.  FP_ENOMEM: counted as dropped. */
fp_status
fp_thread_keep_outliers(fp_thread *t, uint32_t limit, const fp_clock *clock,
                        int64_t now);

/* From now on steps run without the function hook and are not measured; see
 * steps_pairs.h.  [settle] steps after each change are left out.  The caller
 * changes the phase of the run to FP_RUN_UNPROFILED.  FP_ENOTFOUND: the warm-up
 * is not over yet. */
fp_status
fp_thread_begin_unprofiled(fp_thread *t, uint32_t settle);

/* The hook is on again, but steps are not measured yet: it slows the next
 * ones more than later ones. */
void
fp_thread_settle_hooked(fp_thread *t);

/* Steps run with the hook again; a measured step begins at [now].  If not
 * [valid], the steps without the hook did other work and are not compared. */
void
fp_thread_end_unprofiled(fp_thread *t, int valid, int64_t now);

/* Restarts the current step at [now] and drops its times. */
void
fp_thread_restart_step(fp_thread *t, int64_t now);

/* Ends a step at [now].  fp_thread_start_steps was called.  Returns 1 if it
 * was measured. */
int
fp_thread_end_step(fp_thread *t, int64_t now);

#endif
