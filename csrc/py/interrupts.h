/* interrupts: errors of Python functions that fastprof calls. */
#ifndef FP_PY_INTERRUPTS_H
#define FP_PY_INTERRUPTS_H

#include "py/pycompat.h"

/* Clears the current exception, if any.  Returns 1 if it was Ctrl-C, or came
 * from a signal handler: that belongs to the program, which gets it a moment
 * later, outside of fastprof's code. */
int
fp_error_drop(void);

/* Is the current exception Ctrl-C, or did it come from a signal handler?  A
 * further one that comes meanwhile is raised again a moment later. */
int
fp_error_is_from_outside(void);

#endif
