/* end_signal: ends a process whose main thread cannot handle SIGTERM. */
#ifndef FP_PY_END_SIGNAL_H
#define FP_PY_END_SIGNAL_H

#include "py/pycompat.h" /* Python.h goes first */

/* _core.limit_sigterm and _core.sigterm_taken. */
extern PyMethodDef fp_end_signal_methods[];

#endif
