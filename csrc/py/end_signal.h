/* end_signal: handles SIGTERM and its like, of which the program sees the
 * default action. */
#ifndef FP_PY_END_SIGNAL_H
#define FP_PY_END_SIGNAL_H

#include "py/pycompat.h" /* Python.h goes first */

/* _core.handle_end_signals, _core.leave_end_signals, _core.end_signal_taken
 * and _core.set_python_handler. */
extern PyMethodDef fp_end_signal_methods[];

#endif
