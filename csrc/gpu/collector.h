/* collector: CUPTI switched on and off, and the thread that drains it.
 *
 * Every CUPTI call but three is made by that thread: switching on, flushing,
 * walking buffers, switching off.  The three are made where CUPTI must be told at
 * once: pushing and popping external correlation ids.  Who asks for something
 * waits for the thread with a limit, so that a call that hangs inside CUPTI
 * costs the recording, not the program; the collector is then dead for good.
 *
 *   OFF --start--> ON --pause--> PAUSED --resume--> ON --stop--> OFF
 *
 * One collector per process and never freed: CUPTI keeps buffers, and may call
 * back after everything is over. */
#ifndef FP_GPU_COLLECTOR_H
#define FP_GPU_COLLECTOR_H

#include "gpu/collector_state.h"

/* Once per process.  FP_ENOMEM: cannot be used. */
fp_status
fp_gpu_init(fp_gpu *g, const fp_alloc *a, const fp_clock *clock,
            const fp_gpu_entries *entries, int (*is_backward)(fp_key));

/* Begins a recording with the library and driver put into [g] before; a
 * recording before it is forgotten.  0, or -1 with g->why. */
int
fp_gpu_start(fp_gpu *g, const fp_gpu_options *o);

/* Ends it: waits up to [grace_ns] for what the device still does, without
 * synchronizing.  No CUPTI call is made afterwards.  What was recorded stays. */
void
fp_gpu_stop(fp_gpu *g, int64_t grace_ns);

/* Lets go of CUPTI for another client, and comes back. */
void
fp_gpu_pause(fp_gpu *g, int64_t grace_ns);

void
fp_gpu_resume(fp_gpu *g);

/* Brings what is recorded up to date, as far as CUPTI delivers it without being
 * forced.  0: done; -1: not within the limit, or there is nothing to flush. */
int
fp_gpu_flush(fp_gpu *g, int64_t patience_ns);

/* The process has been forked and this is the child: no call is made any more. */
void
fp_gpu_forked(fp_gpu *g);

/* Forgets what is recorded, keeps recording. */
void
fp_gpu_clear(fp_gpu *g);

/* A window of the trace begins, at [now]; [limit] records are kept at most, as
 * the first window says. */
void
fp_gpu_trace_open(fp_gpu *g, uint64_t limit, int64_t now);

void
fp_gpu_trace_close(fp_gpu *g, int64_t now);

/* Frees what is recorded, if that can be done; only while OFF. */
void
fp_gpu_forget(fp_gpu *g);

/* ---- inside CUPTI's callbacks, on any thread ---- */

/* A CUDA call was entered or left.  [self]: the thread's own record, or NULL.
 * Returns how long the host was blocked in it, in ticks, when the outermost
 * waiting call ends; else 0. */
int64_t
fp_gpu_on_call(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
               uint32_t cbid, const void *data);

/* Time to look at the lanes or buffers. */
void
fp_gpu_wake(fp_gpu *g);

/* The thread, for the collector alone.  0, or -1: it does not run. */
int
fp_gpu_begin_thread(fp_gpu *g);

/* What the lane remembers about its thread is about [self], in this recording. */
void
fp_gpu_lane_for(fp_gpu *g, fp_lane *lane, const fp_thread *self);

/* Where a launch by this thread belongs. */
fp_site
fp_gpu_site(fp_gpu *g, fp_lane *lane, const fp_thread *self);

#endif
