/* drainer: the collector's thread.  Every CUPTI call that can wait is made here.
 *
 *   drainer.c         the thread itself
 *   drainer_decode.c  lanes and buffers are brought to the ledger
 *   drainer_attach.c  CUPTI is switched on and off
 *   drainer_clock.c   CUPTI's clock is read, and taken back if it was replaced
 *
 * What these call of each other; on that thread alone, and but for
 * fp_drainer_read_lanes without the collector's lock. */
#ifndef FP_GPU_DRAINER_H
#define FP_GPU_DRAINER_H

#include "gpu/collector.h"

/* ---- drainer_decode.c ---- */

/* What the lanes hold now.  The lock is held. */
void
fp_drainer_read_lanes(fp_gpu *g);

/* Decodes what CUPTI has given back. */
void
fp_drainer_drain(fp_gpu *g);

/* Has CUPTI give back what it holds, and drains. */
void
fp_drainer_flush(fp_gpu *g, uint32_t how);

/* Do records come at all?  The lock is held. */
void
fp_drainer_watch(fp_gpu *g);

/* ---- drainer.c ---- */

/* The runtime's callbacks that tell what the driver's do are switched off. */
void
fp_drainer_thin_out(fp_gpu *g);

/* ---- drainer_clock.c ---- */

int64_t
fp_drainer_monotonic_ns(void);

/* By the device's clock. */
int64_t
fp_drainer_device_now(const fp_gpu *g);

/* 0 if a CUPTI call succeeded; else counts it. */
int
fp_drainer_check(fp_gpu *g, int result);

/* A pair of both clocks for the ledger. */
void
fp_drainer_sample_clock(fp_gpu *g);

/* Before kinds are switched on.  0; or -1 and g->found says why CUPTI's times are
 * of no use. */
int
fp_drainer_begin_clock(fp_gpu *g);

/* Records came with times of another clock? */
void
fp_drainer_watch_clock(fp_gpu *g);

/* ---- drainer_attach.c ---- */

/* A recording begins or goes on; g->attached, or g->found says why not. */
void
fp_drainer_attach(fp_gpu *g);

/* It pauses, if it was attached. */
void
fp_drainer_detach(fp_gpu *g);

/* It ends. */
void
fp_drainer_finish(fp_gpu *g);

/* Sections and steps go on in a pause, and must not fill the lanes. */
void
fp_drainer_read_while_paused(fp_gpu *g);

#endif
