/* drainer: the collector's thread.  It makes every CUPTI call that can wait.
 *
 *   drainer.c         the thread
 *   drainer_decode.c  brings lanes and buffers to the ledger
 *   drainer_attach.c  switches CUPTI on and off
 *   drainer_correlation.c  ... and what distinguishes launches
 *   drainer_graphs.c  keeps CUPTI's memory on the device small
 *   drainer_clock.c   reads CUPTI's clock, takes it back if replaced
 *
 * These functions run on that thread only.  The collector's lock is not held
 * unless the comment says so. */
#ifndef FP_GPU_DRAINER_H
#define FP_GPU_DRAINER_H

#include "gpu/collector.h"

/* ---- drainer_decode.c ---- */

/* Reads the lanes' events.  The lock is held. */
void
fp_drainer_read_lanes(fp_gpu *g);

/* Decodes the buffers that CUPTI has returned. */
void
fp_drainer_drain(fp_gpu *g);

/* Makes CUPTI return buffers, then drains.  [how]: flags of
 * cuptiActivityFlushAll. */
void
fp_drainer_flush(fp_gpu *g, uint32_t how);

/* Returns how many records CUPTI has lost in a queue, and resets its count.
 * [context] and [stream]: those of a returned buffer; NULL and 0: the queue of
 * the process. */
uint64_t
fp_drainer_take_dropped(fp_gpu *g, void *context, uint32_t stream);

/* Checks that records arrive at all.  The lock is held. */
void
fp_drainer_watch(fp_gpu *g);

/* ---- drainer.c ---- */

/* Switches off the runtime's callbacks whose calls the driver's callbacks
 * report; or on again, for good, if an activity came without its launch. */
void
fp_drainer_thin_out(fp_gpu *g);

/* ---- drainer_clock.c ---- */

/* Now, by the device's clock, in ns. */
int64_t
fp_drainer_device_now(const fp_gpu *g);

/* Returns [result]; counts it if it is an error of a CUPTI call. */
int
fp_drainer_check(fp_gpu *g, int result);

/* Adds a pair of both clocks to the ledger. */
void
fp_drainer_sample_clock(fp_gpu *g);

/* Call this before kinds are switched on.  Returns 0, or -1 with g->found if
 * CUPTI's times cannot be used. */
int
fp_drainer_begin_clock(fp_gpu *g);

/* Takes CUPTI's clock back if records carry the times of another clock. */
void
fp_drainer_watch_clock(fp_gpu *g);

/* ---- drainer_correlation.c ---- */

/* Sets g->found and g->refused: what CUPTI refused, and its result. */
void
fp_drainer_say(fp_gpu *g, const char *what, int result);

/* Enables launch callbacks or, without the subscriber slot, external
 * correlation.  Returns the one that works, FP_TIER_NONE with g->found if none
 * does. */
fp_gpu_tier
fp_drainer_enable_correlation(fp_gpu *g);

void
fp_drainer_disable_correlation(fp_gpu *g, fp_gpu_tier tier);

/* ---- drainer_graphs.c ---- */

/* Limits the memory that CUPTI takes on the device.  Call this before kinds
 * are switched on: the limit is for memory taken later. */
void
fp_drainer_bound_memory(fp_gpu *g);

/* Restores the limit of before, unless another client has changed it. */
void
fp_drainer_unbound_memory(fp_gpu *g);

/* Switches records of whole graphs on or off, if nodes have none. */
void
fp_drainer_enable_graphs(fp_gpu *g);

void
fp_drainer_disable_graphs(fp_gpu *g);

/* Ends the records of graphs' nodes if they come without times. */
void
fp_drainer_watch_graphs(fp_gpu *g);

/* ---- drainer_attach.c ---- */

/* Starts or resumes the recording.  Sets g->attached, or g->found on
 * failure. */
void
fp_drainer_attach(fp_gpu *g);

/* Pauses the recording, if attached. */
void
fp_drainer_detach(fp_gpu *g);

/* Ends the recording. */
void
fp_drainer_finish(fp_gpu *g);

/* Reads the lanes in a pause: sections and steps continue and must not fill
 * them. */
void
fp_drainer_read_while_paused(fp_gpu *g);

#endif
