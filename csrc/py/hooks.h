/* hooks: the two sources of calls, hook_monitoring.c and hook_setprofile.c. */
#ifndef FP_PY_HOOKS_H
#define FP_PY_HOOKS_H

#include "py/recorder.h"

int
fp_monitoring_start(fp_recorder *r);

void
fp_monitoring_stop(fp_recorder *r);

/* From now on places that call Python functions are switched off when they do.  0: no
 * calls are listened to. */
int
fp_monitoring_leave_out_sites(fp_recorder *r);

/* Places that were switched off send events again. */
void
fp_monitoring_rearm(fp_recorder *r);

int
fp_setprofile_start(fp_recorder *r);

void
fp_setprofile_stop(fp_recorder *r);

/* Is this the thread that has started the hook? */
int
fp_setprofile_is_home(const fp_recorder *r);

/* Takes the hook out of this thread alone; 0: it was not there, or cannot be. */
int
fp_setprofile_rest(fp_recorder *r);

/* Puts it back into the same thread. */
void
fp_setprofile_wake(fp_recorder *r);

/* Callbacks and hooks outlive their recorder in the interpreter's tables; they
 * are told to do nothing before it goes. */
void
fp_monitoring_forget(fp_recorder *r);

void
fp_setprofile_forget(fp_recorder *r);

int
fp_monitoring_add_type(PyObject *module, fp_state *st);

int
fp_setprofile_add_type(PyObject *module, fp_state *st);

#endif
