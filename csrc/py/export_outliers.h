/* export_outliers: converts the slowest steps to Python values. */
#ifndef FP_PY_EXPORT_OUTLIERS_H
#define FP_PY_EXPORT_OUTLIERS_H

#include "py/exported.h"
#include "py/recorder.h"

/* A dict, or None if slow steps are not kept; NULL with an exception.  Call it
 * after the export of the threads: its rows refer to their nodes. */
PyObject *
fp_outliers_export(fp_recorder *r, const fp_exported *exported);

#endif
