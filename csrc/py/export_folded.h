/* export_folded: keys for groups of functions that are counted together; see
 * export_imports.h. */
#ifndef FP_PY_EXPORT_FOLDED_H
#define FP_PY_EXPORT_FOLDED_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/tree.h"

/* Addresses that no object has.  The cost of a call depends on the kind of
 * function, so the kinds have different keys. */
enum { FP_FOLDED_ANY = 8, FP_FOLDED_METHOD = 16 };

/* (kind, file, line, name, qualname) of functions that are counted together;
 * NULL without an exception if [key] is not such a key. */
PyObject *
fp_describe_folded(fp_key key);

#endif
