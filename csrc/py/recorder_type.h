/* recorder_type: the Recorder type. */
#ifndef FP_PY_RECORDER_TYPE_H
#define FP_PY_RECORDER_TYPE_H

#include "py/state.h"

int
fp_recorder_add_type(PyObject *module, fp_state *st);

#endif
