#include "py/keytab.h"

#include <string.h>

void
fp_keytab_init(fp_keytab *k, const fp_alloc *a)
{
    memset(k, 0, sizeof(*k));
    k->alloc = *a;
}

fp_keytab
fp_keytab_take(fp_keytab *k)
{
    fp_keytab old = *k;
    fp_keytab_init(k, &old.alloc);
    return old;
}

static void
release(const fp_keyent *e)
{
    Py_XDECREF(e->object);
    Py_XDECREF(e->name);
    Py_XDECREF(e->type);
}

void
fp_keytab_clear(fp_keytab *k)
{
    fp_keytab old = fp_keytab_take(k);
    for (uint32_t i = 0; i < old.count; i++) {
        release(&old.entry[i]);
    }
    fp_alloc_give(&old.alloc, old.entry, old.capacity, sizeof(*old.entry));
    fp_alloc_give(&old.alloc, old.slot, old.slots, sizeof(*old.slot));
}

int
fp_keytab_traverse(fp_keytab *k, visitproc visit, void *arg)
{
    for (uint32_t i = 0; i < k->count; i++) {
        Py_VISIT(k->entry[i].object);
        Py_VISIT(k->entry[i].name);
        Py_VISIT(k->entry[i].type);
    }
    return 0;
}

static uint32_t
hash(fp_key key)
{
    return (uint32_t)(((uint64_t)key * 0x9E3779B97F4A7C15u) >> 32);
}

fp_keyent *
fp_keytab_find(const fp_keytab *k, fp_key key)
{
    if (k->slots == 0) {
        return NULL;
    }
    uint32_t mask = k->slots - 1;
    for (uint32_t i = hash(key) & mask; k->slot[i] != 0; i = (i + 1) & mask) {
        fp_keyent *e = &k->entry[k->slot[i] - 1];
        if (e->key == key) {
            return e;
        }
    }
    return NULL;
}

static void
put(uint32_t *slot, uint32_t slots, fp_key key, uint32_t index)
{
    uint32_t mask = slots - 1;
    uint32_t i = hash(key) & mask;
    while (slot[i] != 0) {
        i = (i + 1) & mask;
    }
    slot[i] = index + 1;
}

static fp_status
reserve(fp_keytab *k)
{
    if (fp_alloc_room(&k->alloc, &k->entry, &k->capacity, k->count + 1, 64,
                      sizeof(*k->entry)) != FP_OK) {
        return FP_ENOMEM;
    }
    if (k->count * 2 >= k->slots) {
        uint32_t slots = k->slots ? k->slots * 2 : 256;
        uint32_t *slot = fp_alloc_zeroed(&k->alloc, slots, sizeof(*slot));
        if (slot == NULL) {
            return FP_ENOMEM;
        }
        for (uint32_t i = 0; i < k->count; i++) {
            put(slot, slots, k->entry[i].key, i);
        }
        fp_alloc_give(&k->alloc, k->slot, k->slots, sizeof(*k->slot));
        k->slot = slot;
        k->slots = slots;
    }
    return FP_OK;
}

static int
is_descriptor(PyObject *object)
{
    return Py_TYPE(object) == &PyMethodDescr_Type ||
           Py_TYPE(object) == &PyClassMethodDescr_Type;
}

/* The descriptor of [method] in [type] or a base of it, looked up past
 * overrides of the same name.  New reference, or NULL.  Runs Python code only
 * for names that are not plain strings. */
static PyObject *
descriptor_in(PyTypeObject *type, const PyMethodDef *method)
{
    /* A new reference: such Python code may replace the type's bases. */
    PyObject *mro = Py_XNewRef(type->tp_mro);
    PyObject *name = PyUnicode_FromString(method->ml_name);
    PyObject *found = NULL;
    for (Py_ssize_t i = 0; name && mro && i < PyTuple_GET_SIZE(mro) && !found;
         i++) {
        PyObject *names =
            fp_compat_type_dict((PyTypeObject *)PyTuple_GET_ITEM(mro, i));
        PyObject *one = NULL;
        if (names != NULL) {
            one = fp_compat_dict_get(names, name);
        }
        if (one != NULL && is_descriptor(one) &&
            ((PyMethodDescrObject *)one)->d_method == method) {
            found = Py_NewRef(one);
        }
        Py_XDECREF(one);
        Py_XDECREF(names);
        PyErr_Clear();
    }
    Py_XDECREF(name);
    Py_XDECREF(mro);
    return found;
}

/* Selects the object that keeps the method table alive.  A table lives as long
 * as the module, the type or the capsule (pybind11) that it belongs to.  If
 * the function is not a method of its self's type, or of self if that is a
 * type, the table may be inside self, as numba's is. */
static void
own_c_function(fp_keyent *e, PyObject *callable)
{
    e->method = fp_key_method(e->key);
    if (!PyCFunction_Check(callable)) {
        e->object = Py_NewRef(callable); /* a method descriptor */
        return;
    }
    PyCFunctionObject *f = (PyCFunctionObject *)callable;
    e->name = Py_XNewRef(f->m_module);
    if (f->m_self == NULL) {
        return;
    }
    PyTypeObject *type = Py_TYPE(f->m_self);
    /* A base has this weak reference already, so no object is created, which
     * might run the garbage collector. */
    e->type = PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)
                  ? PyWeakref_NewRef((PyObject *)type, NULL)
                  : Py_NewRef((PyObject *)type);
    if (!PyModule_Check(f->m_self)) {
        e->object = descriptor_in(type, e->method);
    }
    if (e->object == NULL && PyType_Check(f->m_self)) {
        e->object = descriptor_in((PyTypeObject *)f->m_self, e->method);
    }
    if (e->object == NULL) {
        e->object = Py_NewRef(f->m_self);
    }
}

/* Keeps the name of [type], and what [e]'s key is the address of. */
static void
own_type(fp_keyent *e, PyTypeObject *type)
{
    if (fp_type_key(type, fp_key_tag(e->key)) != e->key) {
        return;
    }
    e->object = Py_NewRef(fp_key_object(e->key));
    e->name = PyUnicode_DecodeUTF8(
        type->tp_name, (Py_ssize_t)strlen(type->tp_name), "replace");
}

/* Fills [e]; FP_ENOMEM: it must not be added. */
static fp_status
own(fp_keyent *e, PyObject *object)
{
    switch (fp_key_tag(e->key)) {
    case FP_TAG_C:
        own_c_function(e, object);
        e->wait = (uint8_t)fp_wait_class(e);
        return FP_OK;
    case FP_TAG_TYPE:
        own_type(e, (PyTypeObject *)object);
        return e->name != NULL ? FP_OK : FP_ENOMEM;
    case FP_TAG_CALLABLE:
        own_type(e, Py_TYPE(object));
        return e->name != NULL ? FP_OK : FP_ENOMEM;
    default:
        e->object = Py_NewRef(object);
        return FP_OK;
    }
}

fp_status
fp_keytab_add(fp_keytab *k, fp_key key, PyObject *object)
{
    fp_keyent e = {.key = key, .first_resume = -1};
    PyObject *raised[3];
    PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
    fp_status rc = own(&e, object);
    PyErr_Restore(raised[0], raised[1], raised[2]);
    if (rc != FP_OK || reserve(k) != FP_OK) { /* not before: descriptor_in */
        release(&e);
        return FP_ENOMEM;
    }
    k->entry[k->count] = e;
    put(k->slot, k->slots, key, k->count);
    k->count++;
    return FP_OK;
}

/* ---- names ---- */

static PyObject *
describe_code(const fp_keyent *e)
{
    PyCodeObject *code = (PyCodeObject *)e->object;
    return Py_BuildValue("(sOiON)", "python", code->co_filename,
                         code->co_firstlineno, code->co_name,
                         fp_compat_code_qualname(code));
}

/* cProfile's label: the repr of the type's method, else the function's module
 * and name.  (If a subclass overrides the method, cProfile shows the override
 * with its address; this label shows the method that ran.) */
static PyObject *
c_label(const fp_keyent *e)
{
    if (e->object != NULL && Py_TYPE(e->object) == &PyMethodDescr_Type) {
        return PyObject_Repr(e->object);
    }
    PyObject *type = fp_compat_strong(e->type);
    if (type != NULL) {
        PyObject *method = PyObject_GetAttrString(type, e->method->ml_name);
        PyObject *label = method ? PyObject_Repr(method) : NULL;
        Py_XDECREF(method);
        Py_DECREF(type);
        if (label != NULL) {
            return label;
        }
        PyErr_Clear();
    }
    PyObject *module = e->name;
    if (module != NULL && PyUnicode_Check(module)) {
        return PyUnicode_FromFormat("<built-in method %U.%s>", module,
                                    e->method->ml_name);
    }
    return PyUnicode_FromFormat("<built-in method %s>", e->method->ml_name);
}

/* The name of the type that has the function; NULL: none, or unknown. */
static const char *
type_name(const fp_keyent *e)
{
    PyObject *object = e->object;
    if (object == NULL || PyModule_Check(object) ||
        PyCapsule_CheckExact(object)) {
        return NULL;
    }
    /* A descriptor names the class that defines the method; self may be of
     * any subclass, because the first call decides. */
    if (is_descriptor(object)) {
        return PyDescr_TYPE(object)->tp_name;
    }
    if (!PyType_Check(object)) {
        return Py_TYPE(object)->tp_name;
    }
    /* Types share one PyMethodDef for __new__; this one was called first. */
    return strcmp(e->method->ml_name, "__new__") != 0
               ? ((PyTypeObject *)object)->tp_name
               : NULL;
}

/* The qualified name for reports: `list.append`, `math.sqrt`. */
static PyObject *
c_qualname(const fp_keyent *e)
{
    const char *name = e->method->ml_name;
    /* Before the type: torch.stack is a method of an internal class of torch,
     * but its module is torch. */
    if (e->name != NULL && PyUnicode_Check(e->name)) {
        return PyUnicode_FromFormat("%U.%s", e->name, name);
    }
    const char *type = type_name(e);
    return type != NULL ? PyUnicode_FromFormat("%s.%s", type, name)
                        : PyUnicode_FromString(name);
}

static PyObject *
describe_c(const fp_keyent *e)
{
    PyObject *label = c_label(e);
    PyObject *name = label != NULL ? c_qualname(e) : NULL;
    if (name == NULL) {
        Py_XDECREF(label);
        return NULL;
    }
    return Py_BuildValue("(ssiNN)", "c", "~", 0, label, name);
}

static PyObject *
describe_type(const fp_keyent *e, const char *format)
{
    return Py_BuildValue("(ssiNO)", "type", "~", 0,
                         PyUnicode_FromFormat(format, e->name), e->name);
}

static PyObject *
describe(const fp_keyent *e)
{
    switch (fp_key_tag(e->key)) {
    case FP_TAG_PYTHON:
        return describe_code(e);
    case FP_TAG_C:
        return describe_c(e);
    case FP_TAG_TYPE:
        return describe_type(e, "<class '%U'>");
    default:
        return describe_type(e, "<callable '%U' object>");
    }
}

PyObject *
fp_keyent_describe(const fp_keyent *e)
{
    fp_keyent copy = *e;
    Py_XINCREF(copy.object);
    Py_XINCREF(copy.type);
    Py_XINCREF(copy.name);
    PyObject *text = describe(&copy);
    release(&copy);
    return text;
}
