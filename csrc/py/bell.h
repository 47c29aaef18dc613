/* bell: calls a Python function in the main thread, some time later. */
#ifndef FP_PY_BELL_H
#define FP_PY_BELL_H

#include "py/pycompat.h" /* Python.h goes first */

/* ring_after() and ring_never(). */
extern PyMethodDef fp_bell_methods[];

/* It rings no more, unless it is set again. */
void
fp_bell_end(void);

/* The interpreter ends: its thread ends, too. */
void
fp_bell_exit(void);

#endif
