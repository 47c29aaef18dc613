#include "py/section_methods.h"

PyDoc_STRVAR(profile_section_doc,
"profile_section($module, name, /, *, sync=None)\n--\n\n"
"Time a block: `with profile_section(\"forward\"): ...`, or a function as a\n"
"decorator.  Costs some tens of ns while nothing records.\n\n"
"Args:\n"
"    name: any non-empty str; the same name gives the same object.\n"
"    sync: True runs torch.cuda.synchronize() (if CUDA is in use) before\n"
"        either clock is read, False never does, None does as the Profiler\n"
"        says.\n\n"
"Raises:\n"
"    TypeError: the name is not a str.\n"
"    ValueError: the name is empty.");

static PyObject *
section_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    /* A copied or unpickled section is the existing object of that name and
     * sync: functools.partial(profile_section, name, sync=...) returns it. */
    fp_section_object *s = (fp_section_object *)self;
    PyObject *module = PyImport_ImportModule("fastprof._core");
    PyObject *functools = PyImport_ImportModule("functools");
    PyObject *make =
        module ? PyObject_GetAttrString(module, "profile_section") : NULL;
    PyObject *partial =
        functools ? PyObject_GetAttrString(functools, "partial") : NULL;
    PyObject *args = make ? Py_BuildValue("(OO)", make, s->name) : NULL;
    PyObject *sync =
        s->sync < 0 ? Py_NewRef(Py_None) : PyBool_FromLong(s->sync);
    PyObject *kwargs = Py_BuildValue("{sN}", "sync", sync);
    PyObject *call = partial && args && kwargs
                         ? PyObject_Call(partial, args, kwargs)
                         : NULL;
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(partial);
    Py_XDECREF(make);
    Py_XDECREF(functools);
    Py_XDECREF(module);
    return call ? Py_BuildValue("(N())", call) : NULL;
}

/* All of these are quiet: see fp_quiet. */
static PyMethodDef quiet_methods[] = {
    {"profile_section", (PyCFunction)(void (*)(void))fp_profile_section,
     METH_FASTCALL | METH_KEYWORDS, profile_section_doc},
    {"__enter__", fp_section_enter, METH_NOARGS,
     "__enter__($self, /)\n--\n\nOpen the section in this thread."},
    {"__exit__", (PyCFunction)(void (*)(void))fp_section_exit, METH_FASTCALL,
     "__exit__($self, exc_type=None, exc=None, tb=None, /)\n--\n\n"
     "Close it; exceptions pass through."},
    {"enter_phase", fp_section_enter_phase, METH_NOARGS,
     "enter_phase($self, /)\n--\n\n"
     "Open it, unless phase_is_open(); whether it was opened."},
    {"phase_is_open", fp_section_phase_is_open, METH_NOARGS,
     "phase_is_open($self, /)\n--\n\n"
     "Is it open in this thread, or another section of its phase?"},
    {"leave_later", fp_section_leave_later, METH_NOARGS,
     "leave_later($self, /)\n--\n\n"
     "Close it when another phase begins, what is around it is closed, or "
     "the step ends."},
    {"leave_now", fp_section_leave_now, METH_NOARGS,
     "leave_now($self, /)\n--\n\n"
     "Close it if that has not happened after leave_later()."},
    {"park", fp_section_park, METH_NOARGS,
     "park($self, /)\n--\n\n"
     "Close it without ending its sample, after leave_later(): resume() goes "
     "on with it, and what ends a section that lingers ends the sample."},
    {"resume", fp_section_resume, METH_NOARGS,
     "resume($self, /)\n--\n\n"
     "Open it again after park(); whether there was something to go on with."},
    {"__reduce__", section_reduce, METH_NOARGS,
     "__reduce__($self, /)\n--\n\nBy name."},
    {NULL, NULL, 0, NULL},
};

static PyObject *
section_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    fp_section_object *s = (fp_section_object *)self;
    PyObject *function;
    static char *names[] = {"", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &function)) {
        return NULL;
    }
    if (s->state->decorator_function == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "import fastprof before using a section as decorator");
        return NULL;
    }
    return PyObject_CallFunctionObjArgs(s->state->decorator_function, self,
                                        function, NULL);
}

static PyObject *
section_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<fastprof section %R>",
                                ((fp_section_object *)self)->name);
}

static int
section_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((fp_section_object *)self)->name);
    return 0;
}

static void
section_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((fp_section_object *)self)->name);
    PyObject_GC_Del(self);
    Py_DECREF((PyObject *)type);
}

static PyMemberDef section_members[] = {
    {"name", T_OBJECT_EX, offsetof(fp_section_object, name), READONLY,
     "The section's name."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot section_slots[] = {
    {Py_tp_dealloc, section_dealloc},
    {Py_tp_traverse, section_traverse},
    {Py_tp_methods, &quiet_methods[1]},
    {Py_tp_members, section_members},
    {Py_tp_call, section_call},
    {Py_tp_repr, section_repr},
    {Py_tp_doc, "A section name: context manager and decorator."},
    {0, NULL},
};

static PyType_Spec section_spec = {
    .name = "fastprof._core.Section",
    .basicsize = sizeof(fp_section_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = section_slots,
};

/* Every `with` in every thread gets these methods. */
static void
share_methods(PyTypeObject *type)
{
    for (const PyMethodDef *m = &quiet_methods[1]; m->ml_name != NULL; m++) {
        PyObject *method =
            PyObject_GetAttrString((PyObject *)type, m->ml_name);
        if (method != NULL) {
            fp_compat_immortal(method);
            Py_DECREF(method);
        }
    }
    PyErr_Clear();
}

int
fp_section_add_type(PyObject *module, fp_state *st)
{
    const size_t quiet = sizeof(quiet_methods) / sizeof(quiet_methods[0]) - 1;
    st->quiet[0] = (fp_quiet){quiet_methods, quiet_methods + quiet};
    st->section_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &section_spec, NULL);
    if (st->section_type == NULL ||
        PyModule_AddObjectRef(module, "Section",
                              (PyObject *)st->section_type) < 0) {
        return -1;
    }
    if (FP_FREE_THREADED) {
        share_methods(st->section_type);
    }
    PyObject *name = PyUnicode_FromString("fastprof._core");
    PyObject *make =
        name ? PyCFunction_NewEx(&quiet_methods[0], module, name) : NULL;
    Py_XDECREF(name);
    if (make == NULL) {
        return -1;
    }
    int rc = PyModule_AddObjectRef(module, "profile_section", make);
    Py_DECREF(make);
    return rc == 0 ? fp_section_add_covering(module) : rc;
}
