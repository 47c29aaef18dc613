/* recorder_methods: declarations shared by the files of the Recorder type.
 *
 *   recorder_type.c     the type, its life cycle and its attributes
 *   recorder_methods.c  its general methods
 *   recorder_steps.c    methods for steps
 *   plain_time.c        methods for time without the hook, without steps
 *   recorder_loaders.c  methods for loaders
 *   export_window.c     methods for a thread that observes the recording */
#ifndef FP_PY_RECORDER_METHODS_H
#define FP_PY_RECORDER_METHODS_H

#include "py/recorder.h"
#include "py/section_type.h"

int
fp_recorder_add_type(PyObject *module, fp_state *st);

extern PyMethodDef fp_recorder_methods[];

/* The first methods of the table are quiet: see fp_quiet. */
enum { FP_QUIET_RECORDER_METHODS = 9 };

/* Number of steps so far; NULL with an exception. */
PyObject *
fp_recorder_step_count(const fp_recorder *r);

/* ---- steps ---- */

PyObject *
fp_recorder_mark_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_set_phase_method(PyObject *self, PyObject *args);

PyObject *
fp_recorder_end_loop_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_unprofiled_length_method(PyObject *self, PyObject *settles_ns);

PyObject *
fp_recorder_plan_unprofiled_method(PyObject *self, PyObject *step);

PyObject *
fp_recorder_last_blocks_method(PyObject *self, PyObject *count);

PyObject *
fp_recorder_begin_unprofiled_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_end_unprofiled_method(PyObject *self, PyObject *valid);

/* Ends a step; a call in another thread than the steps' is counted. */
void
fp_recorder_end_step(fp_recorder *r);

PyObject *
fp_recorder_step_method(PyObject *self, PyObject *ignored);

/* ---- time without the hook (plain_time.c) ---- */

/* Is the hook out, and not for steps? */
int
fp_recorder_in_plain_time(const fp_recorder *r);

PyObject *
fp_recorder_begin_plain_time_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_end_plain_time_method(PyObject *self, PyObject *window);

PyObject *
fp_recorder_call_counts_method(PyObject *self, PyObject *ignored);

/* ---- reading a recording under way (export_window.c) ---- */

PyObject *
fp_recorder_window_method(PyObject *self, PyObject *args);

PyObject *
fp_recorder_node_times_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_add_spent_method(PyObject *self, PyObject *args);

PyObject *
fp_recorder_nodes_method(PyObject *self, PyObject *wanted);

PyObject *
fp_recorder_run_unrecorded_method(PyObject *self, PyObject *function);

/* ---- loaders ---- */

PyObject *
fp_recorder_set_loader_method(PyObject *self, PyObject *value);

/* The loader's tag in *tag.  Returns 0, or -1 with an exception. */
int
fp_loader_tag(PyObject *value, int32_t *tag);

/* Calls PyIter_Next, or [fetch] unless it is NULL, inside the section.  Puts
 * the time of this call into *ticks unless it is NULL. */
PyObject *
fp_loader_next_batch(fp_recorder *r, int32_t tag, PyObject *iterator,
                     fp_section_object *s, PyObject *fetch, int64_t *ticks);

PyObject *
fp_recorder_next_batch_method(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs);

PyObject *
fp_recorder_take_loaders_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_loader_totals_method(PyObject *self, PyObject *ignored);

#endif
