/* rest: removes the hook from one thread while it imports a library.
 *
 * Importing torch makes millions of calls, and no reader needs them one by
 * one.  Before Python 3.12 the hook slows each of them, and every bytecode.
 * If the hook can be removed from one thread alone, the import hook reports
 * the bodies of modules instead; each has the time of the calls that it
 * makes. */
#ifndef FP_PY_REST_H
#define FP_PY_REST_H

#include "py/recorder.h"

/* The body that [module] represents has ended; NULL: puts the hook back at
 * once.  When the hook is back, the path is rebuilt from the interpreter's
 * frames.  Keeps a live exception; does nothing in another thread. */
void
fp_rest_end(fp_recorder *r, PyObject *module);

/* The body of the module in [file] begins in this thread.  Returns a new
 * reference to a code object that represents it, or Py_None if the hook stays
 * and records it; NULL with an exception. */
PyObject *
fp_recorder_rest_method(PyObject *self, PyObject *file);

PyObject *
fp_recorder_end_rest_method(PyObject *self, PyObject *module);

#endif
