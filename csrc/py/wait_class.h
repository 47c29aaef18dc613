/* wait_class: which C functions wait, and for what.  Asked once per function,
 * when its key is first seen. */
#ifndef FP_PY_WAIT_CLASS_H
#define FP_PY_WAIT_CLASS_H

#include "py/keytab.h"

#include "core/waits.h"

/* FP_KIND_LOCK, _IO, _COMMUNICATION, or _NONE.  [e] is of a C function.  Runs no
 * Python code. */
fp_kind
fp_wait_class(const fp_keyent *e);

#endif
