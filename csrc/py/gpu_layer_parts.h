/* gpu_layer_parts: functions that the files of the GPU layer share, in
 * addition to gpu_layer.h.  No other file includes it.  Everything runs under
 * the GIL.
 *
 *   gpu_layer.c      the functions that the recorder calls
 *   gpu_switches.c   methods of the Recorder type
 *   gpu_libraries.c  finds and opens the driver and CUPTI
 *   gpu_threads.c    the collector's owner, and the records that callbacks see
 *   gpu_places.c     reports the threads' calling contexts to the collector */
#ifndef FP_PY_GPU_LAYER_PARTS_H
#define FP_PY_GPU_LAYER_PARTS_H

#include "py/gpu_layer.h"

/* Sets the reason why the layer is off or works with limits. */
void
fp_gpu_layer_set_reason(fp_recorder *r, const char *text);

/* Opens the driver at [path] into [driver]; unless the result is
 * FP_DRIVER_READY, sets the reason. */
fp_driver_state
fp_gpu_layer_open_driver(fp_recorder *r, fp_cuda_driver *driver,
                         const char *path, int initialise);

/* Opens the first of [paths], a tuple, that works with this version of the
 * driver, starting at *next; *next becomes the index after it.  Returns 1:
 * opened; 0: none works, and the reason is set; -1 with an exception. */
int
fp_gpu_layer_open_cupti(fp_recorder *r, fp_cupti *c, int driver,
                        PyObject *paths, Py_ssize_t *next);

/* 1 while a recorder is starting the collector, which releases the GIL. */
extern int fp_gpu_starting;

/* Waits at most [grace_s] seconds for running GPU work, then stops the
 * collector and releases it. */
void
fp_gpu_layer_stop_within(fp_recorder *r, double grace_s);

/* Functions of fp_gpu_layer; see layer.h. */

void
fp_gpu_layer_traced(fp_recorder *r, int64_t now);

void
fp_gpu_layer_epochs(fp_recorder *r);

void
fp_gpu_layer_hide_all(fp_recorder *r);

void
fp_gpu_layer_hide(fp_recorder *r, fp_thread *t);

void
fp_gpu_layer_renamed(fp_recorder *r, const fp_thread *from,
                     const fp_thread *to, const uint32_t *became);

void
fp_gpu_layer_entered(fp_recorder *r, fp_thread *t, fp_key key);

void
fp_gpu_layer_left(fp_recorder *r, fp_thread *t, fp_key key, int paired);

void
fp_gpu_layer_section(fp_recorder *r, fp_thread *t, int64_t now);

void
fp_gpu_layer_step(fp_recorder *r, fp_thread *t, int64_t began, int64_t now,
                  int measured);

/* Removes the correlation ids that the calling thread has pushed. */
void
fp_gpu_layer_pop_own(fp_gpu *g);

/* Writes an event to the calling thread's lane. */
static inline void
fp_gpu_layer_tell(fp_gpu *g, fp_lane *lane, const fp_event *e)
{
    if (fp_lane_write(lane, e)) {
        fp_gpu_wake(g);
    }
}

/* Does CUPTI get correlation ids? */
static inline int
fp_gpu_layer_pushes(const fp_gpu *g)
{
    return atomic_load(&g->tier) == FP_TIER_EXTERNAL;
}

#endif
