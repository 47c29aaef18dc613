/* setprofile_events: handles the events of PyEval_SetProfile. */
#ifndef FP_PY_SETPROFILE_EVENTS_H
#define FP_PY_SETPROFILE_EVENTS_H

#include "py/recorder.h"

typedef struct fp_hook {
    PyObject_HEAD
    fp_recorder *recorder; /* borrowed; NULL: the recording is over */
    /* the recorder's plain_epoch, or one that never matches */
    const uint64_t *plain;
    unsigned long home; /* thread that started the recording */
} fp_hook;

/* A Py_tracefunc; [self] is an fp_hook. */
int
fp_setprofile_event(PyObject *self, PyFrameObject *frame, int what,
                    PyObject *arg);

#endif
