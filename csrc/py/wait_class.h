/* wait_class: tells which C functions wait, and for what.  Called once per
 * function, when its key is added. */
#ifndef FP_PY_WAIT_CLASS_H
#define FP_PY_WAIT_CLASS_H

#include "py/keytab.h"

#include "core/waits.h"

/* Returns FP_KIND_LOCK, _IO, _COMMUNICATION, _AUTOGRAD or _NONE.  [e] must be
 * the entry of a C function.  Runs no Python code. */
fp_kind
fp_wait_class(const fp_keyent *e);

#endif
