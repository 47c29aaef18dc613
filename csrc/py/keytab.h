/* keytab: the objects behind the keys of one recorder.
 *
 * A key is an address.  While it is in a tree, its object must not be freed
 * and its address must not be reused, so the table owns a reference until it
 * is cleared.  Two kinds of callables would keep the program's data alive
 * with it.  A class of the program refers to its methods and through their
 * closures to anything: its key is the address of its qualified name, which
 * the classes that class statements make under that name share, in any module.
 * A C function that is bound to an object (`some_list.append`) refers to that
 * object: the table owns the descriptor of the method instead, which the C
 * type has that defines it. */
#ifndef FP_PY_KEYTAB_H
#define FP_PY_KEYTAB_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/waits.h"

typedef struct fp_keyent {
    fp_key key;
    PyObject *object; /* owned: code, type or its name, descriptor, or self */
    PyObject *name; /* owned or NULL: a builtin's __module__, a type's name */
    /* owned or NULL: the type of a builtin's self, or a weak reference to it
     */
    PyObject *type;
    /* borrowed, C functions: the objects above keep it alive */
    PyMethodDef *method;
    int32_t first_resume; /* byte offset, generators under setprofile */
    uint8_t wait;         /* fp_kind, C functions: the reason for waiting */
    uint8_t form;         /* fp_call_form of the first call */
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

/* Returns the contents of [k], to be cleared by the caller; [k] is then empty
 * and usable. */
fp_keytab
fp_keytab_take(fp_keytab *k);

/* Releases every reference, which may run arbitrary code.  The table is empty
 * and usable before the first reference is released. */
void
fp_keytab_clear(fp_keytab *k);

int
fp_keytab_traverse(fp_keytab *k, visitproc visit, void *arg);

/* The entry of [key]; NULL if there is none.  Valid until the next add. */
fp_keyent *
fp_keytab_find(const fp_keytab *k, fp_key key);

/* Adds [key] with references to the parts of [object] (a code object, a
 * callable, a type) that it needs.  Sets no exception.  FP_ENOMEM: not added:
 * no memory, or the type was renamed since [key] was made. */
fp_status
fp_keytab_add(fp_keytab *k, fp_key key, PyObject *object);

/* The reason for which a C function waits, by its name; called when its key is
 * added: FP_KIND_LOCK, _IO, _COMMUNICATION, _AUTOGRAD or _NONE.  Runs no Python
 * code. */
fp_kind
fp_wait_class(const fp_keyent *e);

/* (kind, file, line, name, qualname); new reference, NULL with an exception.
 * May run Python code (repr of a type's attribute), which may free or move
 * [e]. */
PyObject *
fp_keyent_describe(const fp_keyent *e);

/* Key of a C function as cProfile understands it (a builtin, or an unbound
 * method of a builtin type); 0 for other callables. */
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

/* Key of a type, or with FP_TAG_CALLABLE of the objects of a type. */
static inline fp_key
fp_type_key(PyTypeObject *type, int tag)
{
    PyObject *identity = (PyObject *)type;
    if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        PyObject *name = ((PyHeapTypeObject *)type)->ht_qualname;
        identity = name != NULL ? name : identity;
    }
    return (fp_key)identity | (fp_key)tag;
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

/* Of a code object, a type or a callable: what the key is the address of. */
static inline PyObject *
fp_key_object(fp_key key)
{
    return (PyObject *)(key & ~(fp_key)FP_TAG_MASK);
}

#endif
