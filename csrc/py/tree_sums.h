/* tree_sums: core/pairs.h for the reports. */
#ifndef FP_PY_TREE_SUMS_H
#define FP_PY_TREE_SUMS_H

#include "py/pycompat.h" /* Python.h goes first */

/* _core.pair_sums and _core.stats_file. */
extern PyMethodDef fp_tree_sums_methods[];

#endif
