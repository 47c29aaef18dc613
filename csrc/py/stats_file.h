/* stats_file: the sums of core/pairs.h as a .stats file, without objects for
 * its values: there may be a million functions. */
#ifndef FP_PY_STATS_FILE_H
#define FP_PY_STATS_FILE_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/pairs.h"

/* Returns (bytes, functions, edges); None if a line is negative or
 * too large.
 * [labels] is a list with (file, line, name) per group. */
PyObject *
fp_stats_file(const fp_pairs *p, PyObject *labels);

#endif
