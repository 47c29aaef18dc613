/* export: converts everything that a recorder holds to Python values. */
#ifndef FP_PY_EXPORT_H
#define FP_PY_EXPORT_H

#include "py/recorder.h"

/* The dict of Recorder.export(); NULL with an exception.  [fold]: see
 * export_imports.h, or NULL. */
PyObject *
fp_recorder_export(fp_recorder *r, int with_trace, PyObject *fold);

#endif
