/* gpu_layer: a recorder and the process's GPU collector.
 *
 * The collector belongs to one recorder at a time.  Launch callbacks run on the
 * program's threads without the GIL and look at the thread's own record, and at
 * those of threads that may own its work; so a record is freed only after it was
 * made unreachable for them and none is inside a callback any more. */
#ifndef FP_PY_GPU_LAYER_H
#define FP_PY_GPU_LAYER_H

#include "py/exported.h"
#include "py/recorder.h"

#include "gpu/collector.h"

/* ---- the process's one collector (gpu_entry.c) ---- */

/* Made when first asked for; NULL: no memory. */
fp_gpu *
fp_gpu_the_collector(const fp_clock *clock);

/* The same, if it was made. */
fp_gpu *
fp_gpu_if_any(void);

/* Launches of a thread whose slots have these epochs are looked up in its record;
 * FP_EPOCH_OFF twice: in nobody's. */
void
fp_gpu_set_epochs(uint64_t functions, uint64_t sections);

/* The calling thread's lane; NULL: no memory. */
fp_lane *
fp_gpu_own_lane(fp_gpu *g);

/* ---- whose it is; under the GIL ---- */

extern const fp_layer fp_gpu_layer;

/* Borrowed; whose launches are attributed, or NULL. */
extern fp_recorder *fp_gpu_owner;

/* Are the collector's sums those of this recorder? */
int
fp_gpu_layer_owns(const fp_recorder *r);

/* The interpreter goes: ends the layer of whoever has it. */
void
fp_gpu_layer_end_any(void);

/* In a forked child. */
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

/* ---- source lines of waits (gpu_lines.c) ---- */

/* Inside a callback, without the GIL: the calling thread has waited at
 * [place].  Asks the interpreter to look at the line soon. */
void
fp_gpu_lines_note(fp_place place, int64_t blocked_ticks);

/* Whose lines are kept; NULL: nobody's. */
void
fp_gpu_lines_for(fp_recorder *r);

/* ---- export (gpu_view.c, gpu_export.c, gpu_export_trace.c) ---- */

typedef struct fp_gpu_view fp_gpu_view;

/* What was recorded, copied at one moment; to be taken before the trees are
 * exported, so that every place has its node.  NULL without an exception: no GPU
 * layer was asked for; with one: no memory. */
fp_gpu_view *
fp_gpu_view_take(fp_recorder *r, int with_trace);

/* Its part of the trace: a dict, or None.  Times are since [origin]. */
PyObject *
fp_gpu_view_trace(const fp_gpu_view *v, int64_t origin, double ns_per_tick);

void
fp_gpu_view_free(fp_gpu_view *v);

/* The dict. */
PyObject *
fp_gpu_view_export(fp_recorder *r, const fp_gpu_view *v, const fp_exported *x);

#endif
