/* line_sampler: finds the lines on which a function spends its time.
 *
 * A thread of fastprof looks at intervals where one thread of the program is.
 * It takes no lock of the interpreter, calls nothing of it and stops nobody:
 * it copies that thread's frames with a system call, which fails where there
 * is no memory, and so may get a mixture of two moments.  What it gets are
 * numbers.  They become lines at the end, under the GIL, and only those of
 * functions that the recorder keeps alive.
 *
 * There is one sampler per process.  It is off where threads run without the
 * GIL, and where the system has no such call or the interpreter's frames are
 * not as expected, which the calling thread tests before each start. */
#ifndef FP_PY_LINE_SAMPLER_H
#define FP_PY_LINE_SAMPLER_H

#include "py/recorder.h"

extern const fp_layer fp_line_layer;

/* Ends a window and drops what it has. */
void
fp_line_sampler_end(void);

/* Methods of Recorder; see _core.pyi. */
PyObject *
fp_recorder_begin_lines_method(PyObject *self, PyObject *args);

PyObject *
fp_recorder_take_lines_method(PyObject *self, PyObject *wait);

#endif
