/* exit_status: whether the program ends with a status other than 0. */
#ifndef FP_PY_EXIT_STATUS_H
#define FP_PY_EXIT_STATUS_H

#include "py/pycompat.h" /* Python.h goes first */

/* _core.watch_exit and _core.exit_failed. */
extern PyMethodDef fp_exit_status_methods[];

#endif
