/* call_form: classifies the way in which a function was first called.
 *
 * Under sys.monitoring, a call instruction sends an event for its callee.  A
 * property, an operator, a loop over an iterator or C code calls a function
 * without such an event.  A call by position normally enters the function on
 * the interpreter's fast path and loses that path when the event is sent; a
 * call with keywords has no fast path to lose.  The interpreter enters
 * `__init__` directly from a call instruction for some types and forms only,
 * and never while CALL events are on.  The cost of the hook depends on the
 * form, which is determined once per key, when the key is added. */
#ifndef FP_PY_CALL_FORM_H
#define FP_PY_CALL_FORM_H

#include "py/state.h"

#include "core/tree.h"

typedef enum fp_call_form {
    FP_FORM_SHORT,    /* a call instruction with a fast path, or unknown */
    FP_FORM_IMPLICIT, /* no CALL event, or `__init__` is entered from C */
    FP_FORM_GENERAL,  /* with keywords, or the callee accepts any arguments */
    FP_FORM_UNPACKED, /* f(*args, **kwargs) */
    FP_FORMS,
} fp_call_form;

/* Names of the forms, as exported. */
extern const char *const fp_call_form_names[FP_FORMS];

/* Fills st->opcodes.  Returns 0, or -1 with an exception. */
int
fp_call_form_init(fp_state *st);

/* The form of the current call of [object].  If [object] is a code object, its
 * frame must be the calling thread's innermost one; if it is a callable, its
 * caller's frame must be.  Keeps a live exception. */
fp_call_form
fp_called_how(const fp_state *st, fp_key key, PyObject *object);

/* Is the instruction of [code] at [offset], at which a CALL event was sent,
 * `f(*args)` or `f(**kwargs)`? */
int
fp_is_star_call(const fp_state *st, PyObject *code, long offset);

#endif
