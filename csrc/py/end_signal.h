/* end_signal: handles SIGTERM, of which the program sees the default action. */
#ifndef FP_PY_END_SIGNAL_H
#define FP_PY_END_SIGNAL_H

#include "py/pycompat.h" /* Python.h goes first */

/* _core.handle_sigterm, _core.leave_sigterm and _core.sigterm_taken. */
extern PyMethodDef fp_end_signal_methods[];

#endif
