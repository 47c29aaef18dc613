/* call_form: how what is called for the first time was called.
 *
 * Under sys.monitoring a call instruction announces what it calls and so costs an
 * event; a property, an operator, a loop over an iterator or C code call a
 * function without one.  And where the interpreter enters `__init__` straight
 * from a call instruction, it does so for some types only, and never while calls
 * are announced.  Which it is decides what the hook costs, and is asked once per
 * key, when it is first kept. */
#ifndef FP_PY_CALL_FORM_H
#define FP_PY_CALL_FORM_H

#include "py/state.h"

#include "core/tree.h"

/* Fills st->call_opcodes; 0, or -1 with an exception. */
int
fp_call_form_init(fp_state *st);

/* 1: no call instruction calls the function [object] (a code object, in whose
 * frame this thread must be), or enters the `__init__` of the type [object].
 * 0: one does, or it is not known.  Keeps a live exception. */
int
fp_called_implicitly(const fp_state *st, fp_key key, PyObject *object);

#endif
