/* gpu_layer: connects a recorder with the process's GPU collector.
 *
 * The collector belongs to one recorder at a time.  Launch callbacks run on
 * the program's threads without the GIL.  They read the thread's record, and
 * the records of threads that may own its work.  So a record is freed only
 * after callbacks can no longer find it and none of them is still running. */
#ifndef FP_PY_GPU_LAYER_H
#define FP_PY_GPU_LAYER_H

#include "py/recorder.h"

#include "gpu/collector.h"

/* ---- the process's one collector (gpu_entry.c) ---- */

/* The collector, created on the first call; NULL: no memory. */
fp_gpu *
fp_gpu_the_collector(const fp_clock *clock);

/* The collector; NULL: not created yet. */
fp_gpu *
fp_gpu_if_any(void);

/* Sets the epochs by which launch callbacks find a thread's record: its slots
 * must have them.  With FP_EPOCH_OFF for both, no record is found. */
void
fp_gpu_set_epochs(uint64_t functions, uint64_t sections);

/* The calling thread's lane; NULL: no memory. */
fp_lane *
fp_gpu_own_lane(fp_gpu *g);

/* ---- the recorder that has the collector; under the GIL ---- */

extern const fp_layer fp_gpu_layer;

/* Borrowed: the recorder to which launches are attributed; NULL: none. */
extern fp_recorder *fp_gpu_owner;

/* The interpreter is shutting down: stops the layer of the recorder that has
 * the collector. */
void
fp_gpu_layer_end_any(void);

/* In a forked child: the recorder loses the collector. */
void
fp_gpu_layer_forked(void);

/* ---- methods of the Recorder type ---- */

PyObject *
fp_gpu_layer_start(PyObject *self, PyObject *args, PyObject *kwargs);

PyObject *
fp_gpu_layer_stop(PyObject *self, PyObject *args, PyObject *kwargs);

PyObject *
fp_gpu_layer_pause(PyObject *self, PyObject *args);

PyObject *
fp_gpu_layer_resume(PyObject *self, PyObject *ignored);

PyObject *
fp_gpu_layer_flush(PyObject *self, PyObject *args);

PyObject *
fp_gpu_layer_status(PyObject *self, PyObject *ignored);

/* ---- a recording under way (gpu_waits.c) ---- */

/* 1: the GPU has unfinished work; 0: it has finished everything; -1: unknown.
 * Releases the GIL. */
int
fp_gpu_layer_is_busy(const fp_recorder *r);

/* Raises ns[i] and compute_ns[i] to the times for which a device of the rank
 * waited for other ranks, and computed, in step number[i], if known.  [number]
 * ascends.  Returns the number of the last known step; -1: no collective has
 * run on a GPU.  Releases the GIL. */
int64_t
fp_gpu_layer_waits(const fp_recorder *r, const int64_t *number, int64_t *ns,
                   int64_t *compute_ns, uint32_t count);

/* ---- source lines of waits (gpu_lines.c) ---- */

/* Called in a callback without the GIL: the calling thread has waited at
 * [place] for [blocked_ticks].  Requests a pending call that reads the source
 * line. */
void
fp_gpu_lines_note(fp_place place, int64_t blocked_ticks);

/* Sets the recorder that keeps source lines; NULL: none does. */
void
fp_gpu_lines_for(fp_recorder *r);

#endif
