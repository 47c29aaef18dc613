#include "py/gc_hook.h"

#include "py/guard.h"
#include "core/steps_split.h"

typedef struct gc_hook {
    PyObject_HEAD
    fp_recorder *recorder; /* borrowed; NULL: its recording is over */
} gc_hook;

/* ---- events ---- */

/* The training thread's record if this is that thread; otherwise NULL. */
static fp_thread *
stepper_here(const fp_recorder *r)
{
    const fp_tls *me = fp_this_thread;
    if (me->sections.epoch != r->section_epoch) {
        return NULL;
    }
    fp_thread *t = me->sections.thread;
    return t == r->stepper && t->split != NULL ? t : NULL;
}

static void
begins(fp_recorder *r)
{
    fp_thread *t = stepper_here(r);
    if (t != NULL) {
        fp_split_gc_begin(t, fp_clock_now(&r->clock));
    }
}

static void
ends(fp_recorder *r, PyObject *info)
{
    fp_thread *t = stepper_here(r);
    if (t == NULL) {
        r->recording.gc_elsewhere++;
        return;
    }
    int64_t now = fp_clock_now(&r->clock);
    PyObject *value =
        PyDict_Check(info) ? PyDict_GetItemString(info, "generation") : NULL;
    int generation = value != NULL && PyLong_CheckExact(value)
                         ? (int)PyLong_AsLong(value)
                         : -1;
    fp_split_gc_end(t, now, generation);
}

/* hook(phase, info) */
static PyObject *
hook_call(PyObject *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    FP_GUARD();
    fp_recorder *r = ((gc_hook *)self)->recorder;
    if (r == NULL || r->section_epoch == FP_EPOCH_OFF ||
        PyTuple_GET_SIZE(args) != 2 ||
        !PyUnicode_Check(PyTuple_GET_ITEM(args, 0))) {
        Py_RETURN_NONE;
    }
    PyObject *phase = PyTuple_GET_ITEM(args, 0);
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    if (PyUnicode_CompareWithASCIIString(phase, "start") == 0) {
        begins(r);
    }
    else if (PyUnicode_CompareWithASCIIString(phase, "stop") == 0) {
        ends(r, PyTuple_GET_ITEM(args, 1));
    }
    PyErr_Clear(); /* a generation that is not an int is ignored */
    PyErr_Restore(type, exc, tb);
    Py_RETURN_NONE;
}

/* ---- on and off ---- */

static int
is_in(const fp_recorder *r)
{
    PyObject *list = r->state->gc_callbacks;
    if (r->gc_hook == NULL || list == NULL) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if (PyList_GET_ITEM(list, i) == r->gc_hook) {
            return 1;
        }
    }
    return 0;
}

/* Adds the hook to gc.callbacks.  If that fails, collections are not timed. */
static void
put_in(fp_recorder *r)
{
    if (r->gc_hook != NULL || r->state->gc_callbacks == NULL) {
        return;
    }
    gc_hook *hook = PyObject_New(gc_hook, r->state->gc_hook_type);
    if (hook != NULL) {
        hook->recorder = r;
        if (PyList_Append(r->state->gc_callbacks, (PyObject *)hook) == 0) {
            r->gc_hook = (PyObject *)hook;
            return;
        }
        Py_DECREF((PyObject *)hook);
    }
    PyErr_Clear();
}

static void
take_out(PyObject *list, PyObject *hook)
{
    for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; i--) {
        /* A program that copied and restored the list may have duplicated the
         * entry. */
        if (i < PyList_GET_SIZE(list) && PyList_GET_ITEM(list, i) == hook &&
            PyList_SetSlice(list, i, i + 1, NULL) < 0) {
            PyErr_Clear();
        }
    }
}

static void
take_out_own(fp_recorder *r)
{
    PyObject *hook = r->gc_hook;
    if (hook == NULL) {
        return;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    r->gc_hook = NULL;
    ((gc_hook *)hook)->recorder = NULL;
    if (r->state->gc_callbacks != NULL) {
        take_out(r->state->gc_callbacks, hook);
    }
    Py_DECREF(hook);
    PyErr_Restore(type, exc, tb);
}

/* The program may have emptied gc.callbacks, so test for the entry each
 * time. */
static unsigned
signals(const fp_recorder *r)
{
    return is_in(r) ? FP_SIGNAL_GC : 0;
}

const fp_layer fp_gc_layer = {
    .sections_start = put_in,
    .sections_stop = take_out_own,
    .signals = signals,
};

/* ---- type ---- */

static PyObject *
hook_repr(PyObject *Py_UNUSED(self))
{
    return PyUnicode_FromString("<fastprof's timer of collections>");
}

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, fp_plain_dealloc},
    {Py_tp_call, hook_call},
    {Py_tp_repr, hook_repr},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "fastprof._core._GcHook",
    .basicsize = sizeof(gc_hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_slots,
};

int
fp_gc_hook_add_type(PyObject *module, fp_state *st)
{
    st->gc_hook_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &hook_spec, NULL);
    if (st->gc_hook_type == NULL) {
        return -1;
    }
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *list = gc ? PyObject_GetAttrString(gc, "callbacks") : NULL;
    if (list != NULL && PyList_Check(list)) {
        st->gc_callbacks = Py_NewRef(list);
    }
    Py_XDECREF(list);
    Py_XDECREF(gc);
    PyErr_Clear(); /* then collections are not timed */
    return 0;
}
