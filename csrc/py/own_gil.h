/* own_gil: the GIL for a thread of fastprof that Python does not know.
 *
 * PyGILState_Ensure() makes a thread state, under a lock of the interpreter,
 * before it waits for the GIL.  If the program forks meanwhile, nobody releases
 * that lock in the child, and the child waits for it in os.fork() for ever.  So
 * the state is made where a fork waits for it. */
#ifndef FP_PY_OWN_GIL_H
#define FP_PY_OWN_GIL_H

#include <Python.h>

/* Call once, with the GIL, before a thread may call the others. */
void
fp_own_gil_prepare(void);

/* Waits for the GIL; NULL: no memory. */
PyThreadState *
fp_own_gil_take(void);

void
fp_own_gil_give(PyThreadState *taken);

#endif
