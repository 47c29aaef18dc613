/* plain_fetch: fetches the batches of a loop whose steps plain_steps ends.
 *
 * Its method next() takes the place of a function in Python that times the
 * fetches of an iterator, and calls it for whatever is not such a fetch. */
#ifndef FP_PY_PLAIN_FETCH_H
#define FP_PY_PLAIN_FETCH_H

#include "py/pycompat.h"

int
fp_plain_fetch_add_type(PyObject *module);

#endif
