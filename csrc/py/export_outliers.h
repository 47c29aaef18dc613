/* export_outliers: the slowest steps as Python values. */
#ifndef FP_PY_EXPORT_OUTLIERS_H
#define FP_PY_EXPORT_OUTLIERS_H

#include "py/exported.h"
#include "py/recorder.h"

/* A dict, or None if slow steps are not kept; after the threads, as its rows
 * name nodes of theirs. */
PyObject *
fp_outliers_export(fp_recorder *r, const fp_exported *exported);

#endif
