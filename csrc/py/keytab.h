/* keytab: the objects behind the keys of one recorder.
 *
 * A key is an address, so what it points to must not be freed and its address
 * used again while it is in a tree: the table owns a reference until it is
 * cleared.  For a C function that reference is not the function itself when
 * that is bound to somebody's data (`some_list.append`): the type that has the
 * method is kept instead, so no argument is kept alive. */
#ifndef FP_PY_KEYTAB_H
#define FP_PY_KEYTAB_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/tree.h"

typedef struct fp_keyent {
    fp_key key;
    PyObject *object;     /* owned: code object, type, descr, or self */
    PyObject *module;     /* owned or NULL: __module__ of a builtin */
    PyTypeObject *type;   /* owned or NULL: type of a builtin's self */
    PyMethodDef *method;  /* borrowed, C functions: kept alive by the above */
    int32_t first_resume; /* byte offset, generators under setprofile */
    uint8_t muted;
    uint8_t wait;   /* fp_kind, C functions: what it waits for */
    uint8_t form;   /* fp_call_form: how it was called first */
    uint8_t chosen; /* to be muted: its nodes are being marked */
    uint64_t calls_before_mute;
    /* By the look at the budget with this number; see budget.c. */
    uint32_t look;
    uint32_t open_look; /* ... which found a call of it that goes on */
    uint64_t calls;
    uint64_t calls_then; /* ... by the last look that counted to its end */
    int64_t self_ticks;
} fp_keyent;

typedef struct fp_keytab {
    fp_alloc alloc;
    fp_keyent *entry; /* owned */
    uint32_t count;
    uint32_t capacity;
    uint32_t *slot; /* owned; entry index + 1, 0 = free */
    uint32_t slots;
} fp_keytab;

void
fp_keytab_init(fp_keytab *k, const fp_alloc *a);

/* What [k] held, to be cleared by the caller; [k] is empty and usable. */
fp_keytab
fp_keytab_take(fp_keytab *k);

/* Gives back every reference; may run arbitrary code.  The table is empty and
 * usable before the first reference goes. */
void
fp_keytab_clear(fp_keytab *k);

int
fp_keytab_traverse(fp_keytab *k, visitproc visit, void *arg);

/* NULL if not in the table; valid until the next add. */
fp_keyent *
fp_keytab_find(const fp_keytab *k, fp_key key);

/* Were the events of [key] switched off? */
int
fp_keytab_is_muted(const fp_keytab *k, fp_key key);

/* Takes references to what [object] (a code object, a callable, a type) needs.
 * Sets no exception.  FP_ENOMEM: not added. */
fp_status
fp_keytab_add(fp_keytab *k, fp_key key, PyObject *object);

/* (kind, file, line, name, qualname); new reference, NULL with an exception.
 * May run Python code (repr of a type's attribute). */
PyObject *
fp_keyent_describe(const fp_keyent *e);

/* Key of a C function as cProfile understands it (a builtin, or an unbound
 * method of a builtin type); 0 for anything else. */
static inline fp_key
fp_c_function_key(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyCFunction_Type) {
        return (fp_key)((PyCFunctionObject *)callable)->m_ml | FP_TAG_C;
    }
    if (type == &PyMethodDescr_Type) {
        return (fp_key)((PyMethodDescrObject *)callable)->d_method | FP_TAG_C;
    }
    if (PyCFunction_Check(callable)) {
        return (fp_key)((PyCFunctionObject *)callable)->m_ml | FP_TAG_C;
    }
    return 0;
}

/* Can a call of [code] be suspended and resumed? */
static inline int
fp_code_can_suspend(const PyCodeObject *code)
{
    enum {
        SUSPENDABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR |
                      CO_ITERABLE_COROUTINE,
    };
    return (code->co_flags & SUSPENDABLE) != 0;
}

static inline PyMethodDef *
fp_key_method(fp_key key)
{
    return (PyMethodDef *)(key & ~(fp_key)FP_TAG_MASK);
}

#endif
