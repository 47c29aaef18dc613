/* hooks: the two sources of events, hook_monitoring.c and hook_setprofile.c.
 * The starting functions return 0, or -1 with an exception. */
#ifndef FP_PY_HOOKS_H
#define FP_PY_HOOKS_H

#include "py/recorder.h"

#if FP_HAVE_MONITORING

int
fp_monitoring_start(fp_recorder *r);

void
fp_monitoring_stop(fp_recorder *r);

/* A callback may outlive its recorder in the interpreter's tables.  Makes it
 * do nothing, before the recorder is freed. */
void
fp_monitoring_forget(fp_recorder *r);

int
fp_monitoring_add_type(PyObject *module, fp_state *st);

#else

#define fp_monitoring_stop(r) (void)(r)
#define fp_monitoring_forget(r) (void)(r)
#define fp_monitoring_add_type(module, st) 0

#endif

/* Finds the module threading, before the program could have a module with its
 * name.  Returns 0, or -1 with an exception. */
int
fp_setprofile_prepare(fp_state *st);

int
fp_setprofile_start(fp_recorder *r);

void
fp_setprofile_stop(fp_recorder *r);

/* Is the calling thread the one that set the hook? */
int
fp_setprofile_is_home(const fp_recorder *r);

/* Removes the hook from the calling thread only.  Returns 0 if it was not set
 * there or cannot be removed. */
int
fp_setprofile_rest(fp_recorder *r);

/* Sets the hook in the same thread again, unless another tool has set one. */
void
fp_setprofile_wake(fp_recorder *r);

/* As fp_monitoring_forget. */
void
fp_setprofile_forget(fp_recorder *r);

int
fp_setprofile_add_type(PyObject *module, fp_state *st);

#endif
