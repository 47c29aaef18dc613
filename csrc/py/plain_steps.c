#include "py/plain_steps.h"

#include "py/guard.h"
#include "py/interrupts.h"
#include "py/recorder_methods.h"

#include "core/thread_steps.h"

#include <math.h>
#include <stddef.h>

#define LONG_NS 1e6

static const char *const names[FP_PLAIN_NAMES] = {"train_tag", "fetched",
                                                  "backward"};

static PyObject *
plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) != FP_PLAIN_OBJECTS + 1 ||
        (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0)) {
        PyErr_SetString(PyExc_TypeError, "PlainSteps() takes 8 arguments");
        return NULL;
    }
    PyObject *recorder = PyTuple_GET_ITEM(args, FP_PLAIN_OBJECTS);
    const fp_state *st = fp_state_of(PyType_GetModule(type));
    if (st == NULL || !PyObject_TypeCheck(recorder, st->recorder_type) ||
        !PyList_CheckExact(PyTuple_GET_ITEM(args, FP_PLAIN_CLAIMS))) {
        PyErr_SetString(PyExc_TypeError,
                        "PlainSteps() takes a list of claims and a Recorder");
        return NULL;
    }
    fp_plain_steps *p = (fp_plain_steps *)type->tp_alloc(type, 0);
    if (p == NULL) {
        return NULL;
    }
    p->recorder = fp_recorder_cast(Py_NewRef(recorder));
    for (int i = 0; i < FP_PLAIN_OBJECTS; i++) {
        p->object[i] = Py_NewRef(PyTuple_GET_ITEM(args, i));
    }
    for (int i = 0; i < FP_PLAIN_NAMES; i++) {
        p->name[i] = PyUnicode_InternFromString(names[i]);
        if (p->name[i] == NULL) {
            Py_DECREF(p);
            return NULL;
        }
    }
    return (PyObject *)p;
}

static int
plain_traverse(PyObject *self, visitproc visit, void *arg)
{
    fp_plain_steps *p = (fp_plain_steps *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)p->recorder);
    for (int i = 0; i < FP_PLAIN_OBJECTS; i++) {
        Py_VISIT(p->object[i]);
    }
    return 0;
}

static int
plain_clear(PyObject *self)
{
    fp_plain_steps *p = (fp_plain_steps *)self;
    p->on = 0;
    Py_CLEAR(p->recorder);
    for (int i = 0; i < FP_PLAIN_OBJECTS; i++) {
        Py_CLEAR(p->object[i]);
    }
    for (int i = 0; i < FP_PLAIN_NAMES; i++) {
        Py_CLEAR(p->name[i]);
    }
    Py_CLEAR(p->tag);
    return 0;
}

static uint64_t
steps_of(const fp_recorder *r)
{
    return r->stepper != NULL ? r->stepper->steps->count : 0;
}

/* begin(optimizer, tag): from now on its steps on batches of that loader, in
 * this thread, are ended here. */
static PyObject *
plain_begin(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    fp_plain_steps *p = (fp_plain_steps *)self;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError,
                        "begin() takes an optimizer and a tag");
        return NULL;
    }
    FP_GUARD();
    Py_XSETREF(p->tag, Py_NewRef(args[1]));
    p->optimizer = args[0];
    p->thread = PyThread_get_thread_ident();
    p->seen = steps_of(p->recorder);
    p->stepping = 0;
    p->begins++;
    p->on = 1;
    Py_RETURN_NONE;
}

/* end(): whether it was on, and whether a step of the optimizer has begun. */
static PyObject *
plain_end(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_plain_steps *p = (fp_plain_steps *)self;
    PyObject *was = Py_BuildValue("(NN)", PyBool_FromLong(p->on),
                                  PyBool_FromLong(p->on && p->stepping));
    p->on = p->stepping = 0;
    return was;
}

/* take(): steps since the last call, their own time in ns, and the number of
 * all steps after the last one of these. */
static PyObject *
plain_take(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_plain_steps *p = (fp_plain_steps *)self;
    double ns = (double)p->ticks * fp_clock_ns_per_tick(&p->recorder->clock);
    PyObject *taken = Py_BuildValue("(KLK)", p->taken, llround(ns),
                                    (unsigned long long)p->seen);
    p->taken = 0;
    p->ticks = 0;
    return taken;
}

void
fp_plain_took(fp_plain_steps *p, int64_t ticks, int64_t *usual)
{
    if ((double)ticks * fp_clock_ns_per_tick(&p->recorder->clock) > LONG_NS) {
        ticks = *usual;
    }
    *usual = ticks;
    p->ticks += ticks;
}

static int
is_here(const fp_plain_steps *p, PyObject *const *args, Py_ssize_t nargs)
{
    return p->on && nargs == 3 && p->thread == PyThread_get_thread_ident() &&
           args[0] == p->optimizer;
}

/* Hands the call to the function that handles all of them. */
static PyObject *
hand_over(fp_plain_steps *p, int which, PyObject *const *args,
          Py_ssize_t nargs)
{
    if (p->on && p->thread == PyThread_get_thread_ident()) {
        PyObject *done = PyObject_CallNoArgs(p->object[FP_PLAIN_LEFT]);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    if (p->object[which] == NULL) { /* the collector has cleared it */
        Py_RETURN_NONE;
    }
    PyObject *function = Py_NewRef(p->object[which]);
    PyObject *result =
        PyObject_Vectorcall(function, args, (size_t)nargs, NULL);
    Py_DECREF(function);
    return result;
}

/* Is it step() or step(closure), by position or by name? */
static int
takes_closure_at_most(PyObject *args, PyObject *kwargs)
{
    if (!PyTuple_Check(args) || !PyDict_Check(kwargs)) {
        return 0;
    }
    Py_ssize_t named = PyDict_GET_SIZE(kwargs);
    Py_ssize_t more = PyTuple_GET_SIZE(args) - 1 + named;
    return more <= 0 ||
           (more == 1 &&
            (!named || PyDict_GetItemString(kwargs, "closure") != NULL));
}

/* Before optimizer.step(): (optimizer, args, kwargs). */
static PyObject *
plain_before(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    fp_plain_steps *p = (fp_plain_steps *)self;
    if (is_here(p, args, nargs) && !p->stepping && !fp_plain_is_claimed(p) &&
        takes_closure_at_most(args[1], args[2])) {
        p->stepping = 1;
        Py_RETURN_NONE;
    }
    return hand_over(p, FP_PLAIN_BEFORE, args, nargs);
}

/* Is the batch of the loader whose steps are ended here? */
static int
has_tag(const fp_plain_steps *p)
{
    PyObject *tag = PyObject_GetAttr(p->object[FP_PLAIN_LOADING],
                                     p->name[FP_PLAIN_TRAIN_TAG]);
    int same = tag != NULL && PyObject_RichCompareBool(tag, p->tag, Py_EQ) > 0;
    Py_XDECREF(tag);
    (void)fp_error_drop();
    return same;
}

/* Ends the step.  Returns whether work is due after it.  Does nothing if the
 * program ends steps itself. */
static int
end_step(fp_plain_steps *p)
{
    if (steps_of(p->recorder) != p->seen) {
        return 0;
    }
    fp_recorder_end_step(p->recorder);
    p->taken++;
    p->seen = steps_of(p->recorder);
    return p->seen >= p->recorder->next_event;
}

/* After optimizer.step(), likewise. */
static PyObject *
plain_after(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    fp_plain_steps *p = (fp_plain_steps *)self;
    if (!is_here(p, args, nargs) || !p->stepping || !has_tag(p) ||
        fp_plain_is_claimed(p)) {
        return hand_over(p, FP_PLAIN_AFTER, args, nargs);
    }
    int64_t began = fp_clock_now(&p->recorder->clock);
    p->stepping = 0;
    for (int i = FP_PLAIN_FETCHED; i <= FP_PLAIN_BACKWARD; i++) {
        if (PyObject_SetAttr(p->object[FP_PLAIN_FLAGS], p->name[i], Py_False) <
            0) {
            (void)fp_error_drop();
        }
    }
    int due = end_step(p);
    fp_plain_took(p, fp_clock_now(&p->recorder->clock) - began,
                  &p->usual_ticks);
    if (!due) {
        Py_RETURN_NONE;
    }
    PyObject *function = Py_NewRef(p->object[FP_PLAIN_DUE]);
    PyObject *done = PyObject_CallFunction(function, "K", p->seen);
    Py_DECREF(function);
    return done;
}

#define FASTCALL(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef plain_methods[] = {
    {"begin", FASTCALL(plain_begin), METH_FASTCALL,
     "begin($self, optimizer, tag, /)\n--\n\n"},
    {"end", plain_end, METH_NOARGS, "end($self, /)\n--\n\n"},
    {"take", plain_take, METH_NOARGS, "take($self, /)\n--\n\n"},
    {"before", FASTCALL(plain_before), METH_FASTCALL,
     "before($self, optimizer, args, kwargs, /)\n--\n\n"},
    {"after", FASTCALL(plain_after), METH_FASTCALL,
     "after($self, optimizer, args, kwargs, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef plain_members[] = {
    {"on", T_BOOL, offsetof(fp_plain_steps, on), READONLY, NULL},
    {"stepping", T_BOOL, offsetof(fp_plain_steps, stepping), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot plain_slots[] = {
    {Py_tp_new, (void *)plain_new},
    {Py_tp_traverse, (void *)plain_traverse},
    {Py_tp_clear, (void *)plain_clear},
    {Py_tp_dealloc, (void *)fp_cleared_dealloc},
    {Py_tp_methods, plain_methods},
    {Py_tp_members, plain_members},
    {0, NULL},
};

static PyType_Spec plain_spec = {
    .name = "fastprof._core.PlainSteps",
    .basicsize = sizeof(fp_plain_steps),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plain_slots,
};

int
fp_is_plain_steps(const PyObject *object)
{
    return Py_TYPE(object)->tp_traverse == plain_traverse;
}

int
fp_plain_steps_add_type(PyObject *module)
{
    return fp_add_type(module, &plain_spec, "PlainSteps");
}
