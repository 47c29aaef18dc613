/* collector: switches CUPTI on and off and runs the thread that drains it.
 *
 * The thread makes all CUPTI calls except three.  It switches on, flushes,
 * walks buffers and switches off.  Pushing and popping external correlation
 * ids must happen on the program's threads.  A caller waits for the thread
 * with a limit, so a call that hangs inside CUPTI costs the recording, not the
 * program; the collector is then dead for good.
 *
 *   OFF --start--> ON --pause--> PAUSED --resume--> ON --stop--> OFF
 *
 * There is one collector per process and it is never freed: CUPTI keeps
 * buffers, and may call back after the end. */
#ifndef FP_GPU_COLLECTOR_H
#define FP_GPU_COLLECTOR_H

#include "gpu/collector_state.h"

/* Call once per process.  FP_ENOMEM: the collector cannot be used. */
fp_status
fp_gpu_init(fp_gpu *g, const fp_alloc *a, const fp_clock *clock,
            const fp_gpu_entries *entries, int (*is_backward)(fp_key));

/* Starts a recording with the library and driver that the caller put into [g],
 * and forgets the previous recording.  Returns 0, or -1 with g->why. */
int
fp_gpu_start(fp_gpu *g, const fp_gpu_options *o);

/* Stops the recording.  Waits up to [grace_ns] for running activities, without
 * synchronizing the device.  Makes no CUPTI call afterwards, and keeps the
 * recorded data. */
void
fp_gpu_stop(fp_gpu *g, int64_t grace_ns);

/* Detaches from CUPTI so that another client can use it, after waiting like
 * fp_gpu_stop; and attaches again. */
void
fp_gpu_pause(fp_gpu *g, int64_t grace_ns);

void
fp_gpu_resume(fp_gpu *g);

/* Brings the recorded data up to date, as far as CUPTI delivers it without
 * force.  Returns 0, or -1 if that took longer than [patience_ns] or nothing
 * is recorded. */
int
fp_gpu_flush(fp_gpu *g, int64_t patience_ns);

/* For the child of a fork: makes no further CUPTI call. */
void
fp_gpu_forked(fp_gpu *g);

/* Forgets the recorded data and keeps recording. */
void
fp_gpu_clear(fp_gpu *g);

/* Opens a window of the trace at [now].  The first window sets the limit of
 * records. */
void
fp_gpu_trace_open(fp_gpu *g, uint64_t limit, int64_t now);

/* Closes the window at [now]. */
void
fp_gpu_trace_close(fp_gpu *g, int64_t now);

/* Frees the recorded data, if the state is OFF. */
void
fp_gpu_forget(fp_gpu *g);

/* ---- called inside CUPTI's callbacks, on any thread ---- */

/* A CUDA call was entered or left.  [self] is the thread's record, or NULL.
 * Returns the ticks for which the host was blocked when the outermost waiting
 * call ends, else 0. */
int64_t
fp_gpu_on_call(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
               uint32_t cbid, const void *data);

/* Wakes the thread to read lanes or buffers. */
void
fp_gpu_wake(fp_gpu *g);

/* Starts the thread.  For the collector only.  Returns 0, or -1 if it does not
 * run. */
int
fp_gpu_begin_thread(fp_gpu *g);

/* Makes the lane's state that of [self] in this recording. */
void
fp_gpu_lane_for(fp_gpu *g, fp_lane *lane, const fp_thread *self);

/* The place to which a launch by this thread belongs. */
fp_site
fp_gpu_site(fp_gpu *g, fp_lane *lane, const fp_thread *self);

#endif
