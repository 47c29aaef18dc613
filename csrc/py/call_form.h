/* call_form: how what is called for the first time was called.
 *
 * Under sys.monitoring a call instruction announces what it calls and so costs an
 * event; a property, an operator, a loop over an iterator or C code call a
 * function without one.  A call by position loses the interpreter's short way into
 * the function when it is announced; one with keywords has none to lose.  And where
 * the interpreter enters `__init__` straight from a call instruction, it does so for
 * some types and forms only, and never while calls are announced.  Which it is
 * decides what the hook costs, and is asked once per key, when it is first kept. */
#ifndef FP_PY_CALL_FORM_H
#define FP_PY_CALL_FORM_H

#include "py/state.h"

#include "core/tree.h"

typedef enum fp_call_form {
    FP_FORM_SHORT, /* a call instruction that has a short way; or not known */
    FP_FORM_IMPLICIT, /* no call instruction calls it, or enters its `__init__` */
    FP_FORM_GENERAL,  /* with keywords, or to a function that takes any */
    FP_FORM_UNPACKED, /* f(*args, **kwargs) */
    FP_FORMS,
} fp_call_form;

/* Names of the forms, as exported. */
extern const char *const fp_call_form_names[FP_FORMS];

/* Fills st->call_opcodes; 0, or -1 with an exception. */
int
fp_call_form_init(fp_state *st);

/* [object] is being called: a code object, in whose frame this thread must be, or a
 * callable, whose caller's frame it must be.  Keeps a live exception. */
fp_call_form
fp_called_how(const fp_state *st, fp_key key, PyObject *object);

#endif
