/* gpu_layer_parts: what the files of the GPU layer call of each other, beside
 * gpu_layer.h; for nobody else.  All of it under the GIL.
 *
 *   gpu_layer.c      what the recorder calls, and how it ends
 *   gpu_switches.c   methods of the Recorder type
 *   gpu_libraries.c  driver and CUPTI are found and opened
 *   gpu_threads.c    whose the collector is, and what callbacks may see of threads
 *   gpu_places.c     the collector is told where threads stand */
#ifndef FP_PY_GPU_LAYER_PARTS_H
#define FP_PY_GPU_LAYER_PARTS_H

#include "py/gpu_layer.h"

/* Why it is off, or what is worse than it could be. */
void
fp_gpu_layer_set_reason(fp_recorder *r, const char *text);

/* The driver at [path], opened into [driver]; unless it is FP_DRIVER_READY, the
 * reason is set. */
fp_driver_state
fp_gpu_layer_open_driver(fp_recorder *r, fp_cuda_driver *driver,
                         const char *path, int initialise);

/* The first of [paths], a tuple, from [*next] on that works with the driver of this
 * version; [*next] is the one after it.  1: one is open; 0: none, the reason is set;
 * -1: exception. */
int
fp_gpu_layer_open_cupti(fp_recorder *r, fp_cupti *c, int driver,
                        PyObject *paths, Py_ssize_t *next);

/* Some recorder is starting; the GIL is let go of meanwhile. */
extern int fp_gpu_starting;

/* Waits for what the device still does, and lets go of the collector. */
void
fp_gpu_layer_stop_within(fp_recorder *r, double grace_s);

/* What the fields of fp_layer say. */

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
fp_gpu_layer_step(fp_recorder *r, fp_thread *t, int64_t began, int64_t now);

/* Takes back the ids that the calling thread has pushed. */
void
fp_gpu_layer_pop_own(fp_gpu *g);

/* Written to the calling thread's lane. */
static inline void
fp_gpu_layer_tell(fp_gpu *g, fp_lane *lane, const fp_event *e)
{
    if (fp_lane_write(lane, e)) {
        fp_gpu_wake(g);
    }
}

/* Is CUPTI told where threads stand? */
static inline int
fp_gpu_layer_pushes(const fp_gpu *g)
{
    return atomic_load(&g->tier) == FP_TIER_EXTERNAL;
}

#endif
