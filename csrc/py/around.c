#include "py/around.h"

#include "py/interrupts.h"
#include "py/state.h"

/* All are owned and immutable. */
typedef struct around {
    PyObject_HEAD
    PyObject *original; /* the program's, called with the arguments */
    PyObject *before;   /* before(*args), or None */
    PyObject *after;    /* after(what before() returned, result), or None */
} around;

static PyObject *
around_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "", "", NULL};
    PyObject *original, *before, *after;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:Around", names,
                                     &original, &before, &after)) {
        return NULL;
    }
    around *a = (around *)type->tp_alloc(type, 0);
    if (a != NULL) {
        a->original = Py_NewRef(original);
        a->before = Py_NewRef(before);
        a->after = Py_NewRef(after);
    }
    return (PyObject *)a;
}

static int
around_traverse(PyObject *self, visitproc visit, void *arg)
{
    around *a = (around *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(a->original);
    Py_VISIT(a->before);
    Py_VISIT(a->after);
    return 0;
}

static int
around_clear(PyObject *self)
{
    around *a = (around *)self;
    Py_CLEAR(a->original);
    Py_CLEAR(a->before);
    Py_CLEAR(a->after);
    return 0;
}

PyObject *
fp_call_untraced(PyObject *function, PyObject *args, PyObject *kwargs)
{
    if (function == Py_None || args == NULL) {
        return NULL;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyThreadState *ts = PyThreadState_Get();
    fp_compat_enter_tracing(ts);
    PyObject *result = PyObject_Call(function, args, kwargs);
    (void)fp_error_drop(); /* calls a function in Python, too */
    fp_compat_leave_tracing(ts);
    PyErr_Restore(type, exc, tb);
    return result;
}

static PyObject *
around_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    around *a = (around *)self;
    /* A function may end the wait for an import, and thereby this object. */
    PyObject *original = Py_NewRef(a->original);
    PyObject *after = Py_NewRef(a->after);
    PyObject *token = fp_call_untraced(a->before, args, kwargs);
    PyObject *result = PyObject_Call(original, args, kwargs);
    if (after != Py_None) {
        PyObject *type, *exc, *tb;
        PyErr_Fetch(&type, &exc, &tb);
        PyObject *pair = PyTuple_Pack(2, token != NULL ? token : Py_None,
                                      result != NULL ? result : Py_Ellipsis);
        Py_XDECREF(fp_call_untraced(after, pair, NULL));
        Py_XDECREF(pair);
        PyErr_Restore(type, exc, tb);
    }
    Py_XDECREF(token);
    Py_DECREF(after);
    Py_DECREF(original);
    return result;
}

/* As a function is: bound to the object whose class has it. */
static PyObject *
around_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self)
                                               : PyMethod_New(self, object);
}

static PyObject *
around_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return found;
    }
    PyErr_Clear(); /* its name, its signature and the like */
    return PyObject_GetAttr(((around *)self)->original, name);
}

static PyType_Slot around_slots[] = {
    {Py_tp_new, (void *)around_new},
    {Py_tp_traverse, (void *)around_traverse},
    {Py_tp_clear, (void *)around_clear},
    {Py_tp_dealloc, (void *)fp_cleared_dealloc},
    {Py_tp_call, (void *)around_call},
    {Py_tp_descr_get, (void *)around_get},
    {Py_tp_getattro, (void *)around_attribute},
    {0, NULL},
};

static PyType_Spec around_spec = {
    .name = "fastprof._core.Around",
    .basicsize = sizeof(around),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = around_slots,
};

int
fp_around_add_type(PyObject *module)
{
    return fp_add_type(module, &around_spec, "Around");
}

/* What the finders other than [finder] find for [args], or NULL. */
static PyObject *
asked_of_others(PyObject *finder, PyObject *finders, PyObject *args)
{
    PyObject *asked = PySequence_List(finders);
    PyObject *spec = NULL;
    for (Py_ssize_t i = 0;
         asked != NULL && spec == NULL && i < PyList_GET_SIZE(asked); i++) {
        PyObject *other = PyList_GET_ITEM(asked, i);
        PyObject *find = other != finder
                             ? PyObject_GetAttrString(other, "find_spec")
                             : NULL;
        if (find == NULL) {
            PyErr_Clear(); /* the import system ignores it, too */
            continue;
        }
        spec = PyObject_Call(find, args, NULL);
        Py_DECREF(find);
        if (spec == NULL) {
            break;
        }
        if (spec == Py_None) {
            Py_CLEAR(spec);
        }
    }
    Py_XDECREF(asked);
    return spec;
}

/* find_elsewhere(finder, name, *args): what the finders other than [finder]
 * find for the arguments, if their first one is [name]; else None.  One of
 * them may ask all others as well: [finder] then finds nothing, lest each ask
 * the other without end. */
static PyObject *
find_elsewhere(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_ssize_t given = PyTuple_GET_SIZE(args);
    PyObject *finders = PySys_GetObject("meta_path"); /* borrowed */
    PyObject *under_way = PyThreadState_GetDict();    /* borrowed */
    if (given < 3 || finders == NULL || under_way == NULL ||
        PyObject_RichCompareBool(PyTuple_GET_ITEM(args, 1),
                                 PyTuple_GET_ITEM(args, 2), Py_EQ) != 1) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *finder = PyTuple_GET_ITEM(args, 0);
    if (PyDict_Contains(under_way, finder) != 0 ||
        PyDict_SetItem(under_way, finder, Py_True) < 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *rest = PyTuple_GetSlice(args, 2, given);
    PyObject *spec =
        rest == NULL ? NULL : asked_of_others(finder, finders, rest);
    Py_XDECREF(rest);
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    if (PyDict_DelItem(under_way, finder) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, exc, tb);
    return spec == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : spec;
}

PyMethodDef fp_around_methods[] = {
    {"find_elsewhere", find_elsewhere, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
