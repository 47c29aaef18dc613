/* plain_steps: ends the steps of a loop whose optimizer steps as before.
 *
 * Its methods before() and after() take the place of fastprof's hooks on
 * torch's optimizers, and call these for whatever is not such a step. */
#ifndef FP_PY_PLAIN_STEPS_H
#define FP_PY_PLAIN_STEPS_H

#include "py/pycompat.h"

int
fp_plain_steps_add_type(PyObject *module);

#endif
