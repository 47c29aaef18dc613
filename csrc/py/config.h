/* config: the options of a recorder.  Its __init__() and enable() write them. */
#ifndef FP_PY_CONFIG_H
#define FP_PY_CONFIG_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/thread.h"

typedef enum fp_backend {
    FP_BACKEND_NONE, /* not chosen yet */
    FP_BACKEND_SETPROFILE,
    FP_BACKEND_MONITORING,
} fp_backend;

typedef struct fp_config {
    PyObject *timer; /* owned or NULL: external timer */
    double timer_unit;
    fp_limits limits;
    fp_backend wanted;
    uint64_t skip_steps;
    uint32_t outliers; /* slowest steps to keep; 0: none */
    /* show calls that began before the recording as callers */
    uint8_t callers;
    uint8_t builtins;
    uint8_t subcalls;
    uint8_t constructors;
} fp_config;

#endif
