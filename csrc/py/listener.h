/* listener: notices requests from outside of the process: a change of a
 * folder, and a signal. */
#ifndef FP_PY_LISTENER_H
#define FP_PY_LISTENER_H

#include "py/pycompat.h" /* Python.h goes first */

/* listen(), listen_never(), handle_signal() and call_in_main(). */
extern PyMethodDef fp_listener_methods[];

/* The interpreter ends: the thread ends, too. */
void
fp_listener_exit(void);

#endif
