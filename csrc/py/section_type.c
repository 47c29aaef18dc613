#include "py/section_type.h"

#include "py/gpu_layer.h"
#include "py/nvtx_glue.h"

#include <string.h>

/* Names beyond this many share one section: a name that carries a step number
 * must not eat the memory. */
enum { MAX_NAMES = 10000, MAX_NAME_LENGTH = 1000 };

static const char other_name[] = "(other sections)";

/* ---- enter and leave ---- */

/* torch.cuda.synchronize(), or whatever was set; never fails. */
static void
synchronize(fp_recorder *r, const fp_section_object *s)
{
    int wanted = s->sync < 0 ? r->sync && s->phase != FP_PHASE_DATA : s->sync;
    if (!wanted || r->state->sync_function == NULL) {
        return;
    }
    /* It may drop the last reference to either. */
    PyObject *function = Py_NewRef(r->state->sync_function);
    Py_INCREF((PyObject *)r);
    PyObject *done = PyObject_CallNoArgs(function);
    if (done == NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        /* Ctrl-C is the program's: let it come again, outside of here. */
        PyErr_Clear();
        PyErr_SetInterrupt();
    }
    else if (done == NULL) {
        PyErr_Clear();
        r->sync_errors++;
    }
    Py_XDECREF(done);
    Py_DECREF((PyObject *)r);
    Py_DECREF(function);
}

/* Is there more to do than to read the clock? */
static inline int
has_extras(const fp_recorder *r, const fp_section_object *s)
{
    return s->sync > 0 || (r->sync | r->lingering | s->state->nvtx_out) != 0;
}

/* Tells those who follow where the thread stands. */
FP_COLD static void
section_changed(fp_recorder *r, fp_thread *t, int64_t now)
{
    fp_recorder_trace(r, t, now);
    if (r->gpu_on) {
        fp_gpu_layer_section(r, t, now);
    }
}

inline fp_thread *
fp_section_begin(fp_recorder *r, const fp_section_object *s)
{
    fp_thread *t = fp_recorder_section_thread(r);
    if (FP_UNLIKELY(t == NULL)) {
        return NULL;
    }
    if (FP_UNLIKELY(s->cover != FP_KIND_NONE) &&
        fp_thread_reserve_section(t, s->id) == FP_OK) {
        t->section[s->id]->cover = s->cover;
    }
    int64_t now = fp_clock_now(&r->clock);
    fp_status status = fp_thread_open_section(t, s->id, (fp_phase)s->phase,
                                              fp_compat_context(), now);
    if (FP_UNLIKELY((r->gpu_on | r->tracing) != 0)) {
        section_changed(r, t, now);
    }
    return status == FP_OK ? t : NULL;
}

/* What there is to do before a section opens; NULL if nothing records any more. */
FP_COLD static fp_recorder *
open_extras(fp_recorder *r, const fp_section_object *s)
{
    if (s->phase != FP_PHASE_NONE) {
        fp_section_end_lingering(r);
    }
    if (s->state->section_owner == r) {
        synchronize(r, s);
    }
    return s->state->section_owner; /* Python code ran */
}

static void
section_open(fp_section_object *s)
{
    fp_recorder *r = s->state->section_owner;
    if (FP_UNLIKELY(has_extras(r, s))) {
        r = open_extras(r, s);
        if (r == NULL) {
            return;
        }
        if (s->state->nvtx_out) {
            fp_nvtx_section_opens(s);
        }
    }
    (void)fp_section_begin(r, s);
}

static void
count_stray(fp_recorder *r, fp_thread *t, uint32_t id)
{
    for (fp_thread *u = r->threads; u != NULL; u = u->next) {
        if (u != t && fp_thread_has_open_section(u, id)) {
            t->counters.wrong_thread++;
            return;
        }
    }
    t->counters.stray_exit++;
}

static void
close_here(fp_recorder *r, const fp_section_object *s, unsigned flags)
{
    fp_thread *t = fp_recorder_section_thread(r);
    if (FP_UNLIKELY(t == NULL)) {
        return;
    }
    int64_t now = fp_clock_now(&r->clock);
    if (FP_UNLIKELY(fp_thread_close_section(t, s->id, fp_compat_context(),
                                            flags, now) != FP_OK)) {
        count_stray(r, t, s->id);
    }
    if (FP_UNLIKELY((r->gpu_on | r->tracing) != 0)) {
        section_changed(r, t, now);
    }
}

static void
end_lingering_inside(fp_recorder *r, const fp_section_object *s);

FP_COLD static void
close_with_extras(fp_recorder *r, const fp_section_object *s, unsigned flags)
{
    end_lingering_inside(r, s);
    if (s->state->section_owner == r) {
        synchronize(r, s);
    }
    r = s->state->section_owner;
    if (r == NULL) {
        return;
    }
    close_here(r, s, flags);
    if (s->state->nvtx_out) {
        fp_nvtx_section_closed(s, r);
    }
}

/* ---- a section that lingers ends where another begins or ends ---- */

static int
lingers_here(fp_recorder *r)
{
    return r->lingering && r->lingers_epoch == r->section_epoch &&
           r->lingers_in == fp_recorder_section_thread(r);
}

void
fp_section_end_lingering(fp_recorder *r)
{
    if (!lingers_here(r)) {
        return;
    }
    const fp_section_object *s = r->lingers;
    r->lingering = 0;
    if (s->sync > 0 || (r->sync | s->state->nvtx_out) != 0) {
        close_with_extras(r, s, 0);
    }
    else {
        close_here(r, s, 0);
    }
}

/* If it is on top of [s], which ends now. */
static void
end_lingering_inside(fp_recorder *r, const fp_section_object *s)
{
    if (!lingers_here(r) || r->lingers == s) {
        return;
    }
    const fp_thread *t = r->lingers_in;
    if (t->open_len > 0 &&
        t->open[t->open_len - 1].section->id == r->lingers->id &&
        fp_thread_has_open_section(t, s->id)) {
        fp_section_end_lingering(r);
    }
}

static void
section_close(fp_section_object *s, unsigned flags)
{
    fp_recorder *r = s->state->section_owner;
    if (FP_UNLIKELY(has_extras(r, s))) {
        close_with_extras(r, s, flags);
        return;
    }
    close_here(r, s, flags);
}

static PyObject *
section_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_section_object *s = (fp_section_object *)self;
    if (s->state->section_owner != NULL) {
        section_open(s);
    }
    return Py_NewRef(self);
}

static PyObject *
section_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    fp_section_object *s = (fp_section_object *)self;
    if (s->state->section_owner != NULL) {
        int error = nargs > 0 && args[0] != Py_None;
        section_close(s, error ? FP_EXIT_ERROR : 0);
    }
    Py_RETURN_NONE;
}

/* Is it open in this thread, or another section of its phase? */
static int
is_open(fp_recorder *r, const fp_section_object *s)
{
    const fp_thread *t = fp_recorder_section_thread(r);
    for (uint32_t i = 0; t != NULL && i < t->open_len; i++) {
        if (t->open[i].section->id == s->id ||
            (s->phase != FP_PHASE_NONE && t->open[i].phase == s->phase)) {
            return 1;
        }
    }
    return 0;
}

static PyObject *
section_enter_phase(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = s->state->section_owner;
    if (r == NULL || is_open(r, s)) {
        Py_RETURN_FALSE;
    }
    section_open(s);
    Py_RETURN_TRUE;
}

static PyObject *
section_phase_is_open(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = s->state->section_owner;
    return PyBool_FromLong(r != NULL && is_open(r, s));
}

static PyObject *
section_leave_later(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = s->state->section_owner;
    fp_thread *t = r == NULL ? NULL : fp_recorder_section_thread(r);
    if (t != NULL && fp_thread_has_open_section(t, s->id)) {
        r->lingers = s;
        r->lingers_in = t;
        r->lingers_epoch = r->section_epoch;
        r->lingering = 1;
    }
    Py_RETURN_NONE;
}

static PyObject *
section_leave_now(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = s->state->section_owner;
    if (r != NULL && r->lingers == s) {
        fp_section_end_lingering(r);
    }
    Py_RETURN_NONE;
}

PyObject *
fp_section_next_batch(fp_recorder *r, int32_t tag, PyObject *iterator,
                      fp_section_object *s)
{
    /* It belongs to the batch before. */
    fp_section_end_lingering(r);
    fp_thread *t = fp_recorder_section_thread(r);
    if (t != NULL && fp_phases_reserve(&t->phases, &t->alloc, tag) == FP_OK) {
        t->phases.tag = tag;
        fp_phases_ask(&t->phases, tag, fp_clock_now(&r->clock));
    }
    if (s->state->section_owner != NULL) {
        section_open(s);
    }
    PyObject *item = Py_TYPE(iterator)->tp_iternext(iterator);
    unsigned flags = 0;
    if (item == NULL) {
        int end = PyErr_Occurred() == NULL ||
                  PyErr_ExceptionMatches(PyExc_StopIteration);
        flags = end ? FP_EXIT_CANCEL : FP_EXIT_ERROR;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    if (s->state->section_owner != NULL) {
        section_close(s, flags);
    }
    t = fp_recorder_section_thread(r);
    if (item != NULL && t != NULL) {
        fp_phases_deliver(&t->phases, tag, fp_clock_now(&r->clock));
    }
    PyErr_Restore(type, exc, tb);
    if (item == NULL && !PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    return item;
}

/* ---- names ---- */

static const struct {
    const char *name;
    fp_phase phase;
} phase_names[] = {
    {"data", FP_PHASE_DATA},           {"data_loading", FP_PHASE_DATA},
    {"forward", FP_PHASE_FORWARD},     {"forward_pass", FP_PHASE_FORWARD},
    {"backward", FP_PHASE_BACKWARD},   {"backward_pass", FP_PHASE_BACKWARD},
    {"optimizer", FP_PHASE_OPTIMIZER}, {"optimizer_step", FP_PHASE_OPTIMIZER},
};

static fp_phase
phase_of(PyObject *name)
{
    for (size_t i = 0; i < sizeof(phase_names) / sizeof(phase_names[0]); i++) {
        if (PyUnicode_CompareWithASCIIString(name, phase_names[i].name) == 0) {
            return phase_names[i].phase;
        }
    }
    return FP_PHASE_NONE;
}

/* Number of [name]; new names get the next one.  -1 with an exception. */
static int64_t
number_of(fp_state *st, PyObject *name)
{
    PyObject *plain = PyDict_GetItemWithError(st->sections, name);
    if (plain != NULL) {
        return ((fp_section_object *)plain)->id;
    }
    if (PyErr_Occurred() || PyList_Append(st->section_names, name) < 0) {
        return -1;
    }
    return PyList_GET_SIZE(st->section_names) - 1;
}

/* [key] is what the section is found by: the name, or (name, sync). */
static PyObject *
make_section(fp_state *st, PyObject *key, PyObject *name, int sync)
{
    int64_t id = number_of(st, name);
    if (id < 0) {
        return NULL;
    }
    fp_section_object *s =
        PyObject_GC_New(fp_section_object, st->section_type);
    if (s == NULL) {
        return NULL;
    }
    s->state = st;
    s->name = Py_NewRef(name);
    s->id = (uint32_t)id;
    s->phase = (uint8_t)phase_of(name);
    s->sync = (int8_t)sync;
    int communicates =
        PyUnicode_CompareWithASCIIString(name, "synchronization") == 0;
    s->cover = communicates ? FP_KIND_COMMUNICATION : FP_KIND_NONE;
    PyObject_GC_Track(s);
    if (PyDict_SetItem(st->sections, key, (PyObject *)s) < 0) {
        Py_DECREF(s);
        return NULL;
    }
    return (PyObject *)s;
}

/* A very long name is cut, and says so; new reference. */
static PyObject *
short_name(PyObject *name)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(name);
    if (length <= MAX_NAME_LENGTH) {
        return PyUnicode_FromObject(name);
    }
    PyObject *head = PyUnicode_Substring(name, 0, MAX_NAME_LENGTH);
    if (head == NULL) {
        return NULL;
    }
    PyObject *cut =
        PyUnicode_FromFormat("%U... (%zd characters)", head, length);
    Py_DECREF(head);
    return cut;
}

static PyObject *
find_or_make(fp_state *st, PyObject *name, int sync)
{
    PyObject *key =
        sync < 0 ? Py_NewRef(name) : Py_BuildValue("(Oi)", name, sync);
    if (key == NULL) {
        return NULL;
    }
    PyObject *found = PyDict_GetItemWithError(st->sections, key);
    PyObject *section = Py_XNewRef(found);
    if (section == NULL && !PyErr_Occurred()) {
        section = make_section(st, key, name, sync);
    }
    Py_DECREF(key);
    return section;
}

static PyObject *
section_for(fp_state *st, PyObject *name, int sync)
{
    if (!PyUnicode_Check(name)) {
        return PyErr_Format(PyExc_TypeError,
                            "a section's name must be a str, not %.100s",
                            Py_TYPE(name)->tp_name);
    }
    if (PyUnicode_GET_LENGTH(name) == 0) {
        PyErr_SetString(PyExc_ValueError, "a section's name is empty: give "
                                          "one, such as \"forward\"");
        return NULL;
    }
    PyObject *cut = short_name(name);
    if (cut == NULL) {
        return NULL;
    }
    PyObject *section = NULL;
    int known = PyDict_Contains(st->sections, cut);
    if (known == 0 && PyList_GET_SIZE(st->section_names) >= MAX_NAMES) {
        st->names_dropped++;
        Py_SETREF(cut, PyUnicode_FromString(other_name));
    }
    if (known >= 0 && cut != NULL) {
        /* The plain one first: it owns the number. */
        section = find_or_make(st, cut, -1);
        if (section != NULL && sync >= 0) {
            Py_SETREF(section, find_or_make(st, cut, sync));
        }
    }
    Py_XDECREF(cut);
    return section;
}

PyObject *
fp_section_named(fp_state *st, PyObject *name)
{
    return section_for(st, name, -1);
}

/* sync=None, True or False as -1, 1 or 0; -2 with an exception. */
static int
sync_of(PyObject *value)
{
    if (value == Py_None) {
        return -1;
    }
    int truth = PyObject_IsTrue(value);
    return truth < 0 ? -2 : truth;
}

static PyObject *
profile_section(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    fp_state *st = fp_state_of(module);
    if (FP_LIKELY(nargs == 1 && kwnames == NULL)) {
        if (FP_LIKELY(PyUnicode_CheckExact(args[0]))) {
            PyObject *found = PyDict_GetItemWithError(st->sections, args[0]);
            if (FP_LIKELY(found != NULL)) {
                return Py_NewRef(found);
            }
            if (PyErr_Occurred()) {
                return NULL;
            }
        }
        return section_for(st, args[0], -1);
    }
    PyObject *name = nargs > 0 ? args[0] : NULL;
    PyObject *sync = Py_None;
    Py_ssize_t keywords = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(key, "sync") == 0) {
            sync = args[nargs + i];
        }
        else if (name == NULL &&
                 PyUnicode_CompareWithASCIIString(key, "name") == 0) {
            name = args[nargs + i];
        }
        else {
            return PyErr_Format(PyExc_TypeError,
                                "profile_section() got an unexpected or "
                                "repeated argument '%U'",
                                key);
        }
    }
    if (nargs > 1 || name == NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "profile_section() takes one name, and sync= by "
                        "keyword");
        return NULL;
    }
    int wanted = sync_of(sync);
    return wanted == -2 ? NULL : section_for(st, name, wanted);
}

/* ---- type ---- */

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
    /* Copying or pickling gives the one object of that name and sync back: by
     * calling functools.partial(profile_section, name, sync=...). */
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

PyMethodDef fp_quiet_methods[] = {
    {"profile_section", (PyCFunction)(void (*)(void))profile_section,
     METH_FASTCALL | METH_KEYWORDS, profile_section_doc},
    {"__enter__", section_enter, METH_NOARGS,
     "__enter__($self, /)\n--\n\nOpen the section in this thread."},
    {"__exit__", (PyCFunction)(void (*)(void))section_exit, METH_FASTCALL,
     "__exit__($self, exc_type=None, exc=None, tb=None, /)\n--\n\n"
     "Close it; exceptions pass through."},
    {"enter_phase", section_enter_phase, METH_NOARGS,
     "enter_phase($self, /)\n--\n\n"
     "Open it, unless phase_is_open(); whether it was opened."},
    {"phase_is_open", section_phase_is_open, METH_NOARGS,
     "phase_is_open($self, /)\n--\n\n"
     "Is it open in this thread, or another section of its phase?"},
    {"leave_later", section_leave_later, METH_NOARGS,
     "leave_later($self, /)\n--\n\n"
     "Close it when another phase begins, what is around it is closed, or "
     "the step ends."},
    {"leave_now", section_leave_now, METH_NOARGS,
     "leave_now($self, /)\n--\n\n"
     "Close it if that has not happened after leave_later()."},
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
    {Py_tp_methods, &fp_quiet_methods[1]},
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

int
fp_section_add_type(PyObject *module, fp_state *st)
{
    st->section_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &section_spec, NULL);
    if (st->section_type == NULL ||
        PyModule_AddObjectRef(module, "Section",
                              (PyObject *)st->section_type) < 0) {
        return -1;
    }
    PyObject *name = PyUnicode_FromString("fastprof._core");
    PyObject *make =
        name ? PyCFunction_NewEx(&fp_quiet_methods[0], module, name) : NULL;
    Py_XDECREF(name);
    if (make == NULL) {
        return -1;
    }
    int rc = PyModule_AddObjectRef(module, "profile_section", make);
    Py_DECREF(make);
    return rc;
}
