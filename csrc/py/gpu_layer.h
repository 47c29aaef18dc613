/* gpu_layer: a recorder and the process's GPU collector.
 *
 * The collector belongs to one recorder at a time.  Launch callbacks run on the
 * program's threads without the GIL and look at the thread's own record, and at
 * those of threads that may own its work; so a record is freed only after it was
 * made unreachable for them and none is inside a callback any more. */
#ifndef FP_PY_GPU_LAYER_H
#define FP_PY_GPU_LAYER_H

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

/* ---- called by the recorder; all of it under the GIL ---- */

/* The recorder's epochs, or what it knows of functions, have changed. */
void
fp_gpu_layer_epochs(fp_recorder *r);

/* Before any record of a thread is freed: none can be reached afterwards.  Call
 * fp_gpu_layer_epochs when they are gone. */
void
fp_gpu_layer_hide_all(fp_recorder *r);

/* The same for the record of a thread that has ended. */
void
fp_gpu_layer_hide(fp_recorder *r, const fp_thread *t);

/* Its nodes are now those of another. */
void
fp_gpu_layer_renamed(fp_recorder *r, const fp_thread *from,
                     const fp_thread *to, const uint32_t *became);

void
fp_gpu_layer_cleared(fp_recorder *r);

/* The calling thread has opened or closed a section. */
void
fp_gpu_layer_section(fp_recorder *r, fp_thread *t, int64_t now);

void
fp_gpu_layer_step(fp_recorder *r, const fp_thread *t, int64_t now);

/* A window of the recorder's trace begins or ends. */
void
fp_gpu_layer_trace(fp_recorder *r, int64_t now);

/* The recorder goes: ends its layer, waiting for little.  Never fails. */
void
fp_gpu_layer_end(fp_recorder *r);

/* The interpreter goes: ends the layer of whoever has it. */
void
fp_gpu_layer_end_any(void);

/* In a forked child. */
void
fp_gpu_layer_forked(void);

/* Are the collector's sums those of this recorder? */
int
fp_gpu_layer_owns(const fp_recorder *r);

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

/* How places are found in what has been exported. */
typedef struct fp_exported_thread {
    uint32_t serial;
    uint32_t nodes;
    uint32_t *folded;  /* owned or NULL; per node the one that stands for it */
    uint32_t left_out; /* how many nodes there are in `without` */
    uint32_t bases;    /* bit i: without[i] is the base of a phase */
    uint32_t
        without[2 * FP_RUN_PHASES]; /* nodes that have no row; ascending */
} fp_exported_thread;

/* Row of node [index]; -1: it has none.  The base of a phase is row 0. */
long
fp_exported_row(const fp_exported_thread *t, uint32_t index);

typedef struct fp_exported {
    const fp_exported_thread *thread; /* in the order of export */
    uint32_t threads;
    double ns_per_tick;
    /* Index of a section's key; -1 with an exception. */
    Py_ssize_t (*section_key)(void *ctx, uint32_t section);
    void *ctx;
} fp_exported;

/* The dict. */
PyObject *
fp_gpu_view_export(fp_recorder *r, const fp_gpu_view *v, const fp_exported *x);

#endif
