#include "py/plain_fetch.h"

#include "py/guard.h"
#include "py/interrupts.h"
#include "py/plain_steps.h"
#include "py/recorder_methods.h"
#include "py/section_methods.h"

/* The arguments of PlainFetch(), after the PlainSteps. */
enum { SLOW, OVER, ORIGINAL, PHASES, SECTION, OBJECTS };

/* Attributes: of the loading of the PlainSteps, of PHASES, of the entry. */
enum { COUNTING, FETCHING, BATCHES, NAMES };
static const char *const names[NAMES] = {"counting", "fetching", "batches"};

typedef struct plain_fetch {
    PyObject_HEAD
    fp_plain_steps *steps; /* owned, like the objects; all immutable */
    PyObject *object[OBJECTS];
    PyObject *name[NAMES];
    PyObject *entry;      /* owned or NULL: of the loader */
    PyObject *tag;        /* owned or NULL */
    int32_t number;       /* the same */
    const void *iterator; /* an address, not used as an object; NULL: none */
    uint64_t begin;       /* of [steps] */
    long left;            /* batches to be fetched here */
    int64_t usual_ticks;  /* of fastprof itself for the last one */
    char fetching;
} plain_fetch;

static PyObject *
fetch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const fp_state *st = fp_state_of(PyType_GetModule(type));
    if (PyTuple_GET_SIZE(args) != OBJECTS + 1 ||
        (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0) || st == NULL ||
        !fp_is_plain_steps(PyTuple_GET_ITEM(args, 0)) ||
        Py_TYPE(PyTuple_GET_ITEM(args, SECTION + 1)) != st->section_type) {
        PyErr_SetString(PyExc_TypeError,
                        "PlainFetch() takes a PlainSteps, four objects and a "
                        "Section");
        return NULL;
    }
    plain_fetch *f = (plain_fetch *)type->tp_alloc(type, 0);
    if (f == NULL) {
        return NULL;
    }
    f->steps = (fp_plain_steps *)Py_NewRef(PyTuple_GET_ITEM(args, 0));
    for (int i = 0; i < OBJECTS; i++) {
        f->object[i] = Py_NewRef(PyTuple_GET_ITEM(args, i + 1));
    }
    for (int i = 0; i < NAMES; i++) {
        f->name[i] = PyUnicode_InternFromString(names[i]);
        if (f->name[i] == NULL) {
            Py_DECREF(f);
            return NULL;
        }
    }
    return (PyObject *)f;
}

static int
fetch_traverse(PyObject *self, visitproc visit, void *arg)
{
    plain_fetch *f = (plain_fetch *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)f->steps);
    for (int i = 0; i < OBJECTS; i++) {
        Py_VISIT(f->object[i]);
    }
    Py_VISIT(f->entry);
    return 0;
}

static int
fetch_clear(PyObject *self)
{
    plain_fetch *f = (plain_fetch *)self;
    f->iterator = NULL;
    Py_CLEAR(f->steps);
    for (int i = 0; i < OBJECTS; i++) {
        Py_CLEAR(f->object[i]);
    }
    for (int i = 0; i < NAMES; i++) {
        Py_CLEAR(f->name[i]);
    }
    Py_CLEAR(f->entry);
    Py_CLEAR(f->tag);
    return 0;
}

/* begin(iterator, entry, tag, most): at most so many of the next batches of
 * that iterator are fetched here, until the steps are no longer plain.
 * Returns whether they are. */
static PyObject *
fetch_begin(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    plain_fetch *f = (plain_fetch *)self;
    long most = nargs == 4 ? PyLong_AsLong(args[3]) : -1;
    int32_t number = 0;
    if (nargs != 4 || most < 0 || fp_loader_tag(args[2], &number) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError,
                            "begin() takes an iterator, an entry, a tag and "
                            "a count");
        }
        return NULL;
    }
    FP_GUARD();
    Py_XSETREF(f->entry, Py_NewRef(args[1]));
    Py_XSETREF(f->tag, Py_NewRef(args[2]));
    f->number = number;
    f->iterator = args[0];
    f->begin = f->steps->begins;
    f->left = most;
    return PyBool_FromLong(f->steps->on);
}

static PyObject *
fetch_end(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    ((plain_fetch *)self)->iterator = NULL;
    Py_RETURN_NONE;
}

static void
set(PyObject *object, PyObject *name, PyObject *value)
{
    if (PyObject_SetAttr(object, name, value) < 0) {
        (void)fp_error_drop();
    }
}

/* Counts the batch for its loader if the run counts batches. */
static void
count_batch(plain_fetch *f, PyObject *entry)
{
    PyObject *counting = PyObject_GetAttr(f->steps->object[FP_PLAIN_LOADING],
                                          f->name[COUNTING]);
    if (counting == Py_True) {
        PyObject *batches = PyObject_GetAttr(entry, f->name[BATCHES]);
        long n = batches != NULL ? PyLong_AsLong(batches) : -1;
        PyObject *more = n >= 0 ? PyLong_FromLong(n + 1) : NULL;
        if (more != NULL) {
            (void)PyObject_SetAttr(entry, f->name[BATCHES], more);
        }
        Py_XDECREF(more);
        Py_XDECREF(batches);
    }
    Py_XDECREF(counting);
    (void)fp_error_drop();
}

static int
fetches(const plain_fetch *f, const void *iterator)
{
    FP_GUARD();
    const fp_plain_steps *p = f->steps;
    return f->iterator == iterator && f->left > 0 && !f->fetching && p->on &&
           p->begins == f->begin && !p->stepping &&
           p->thread == PyThread_get_thread_ident() &&
           !fp_plain_is_claimed(p) &&
           !fp_section_is_open((fp_section_object *)f->object[SECTION]);
}

/* The loader is at its end: calls OVER, which may raise an exception. */
static PyObject *
is_over(plain_fetch *f)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyObject *done = PyObject_CallNoArgs(f->object[OVER]);
    if (done == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(exc);
        Py_XDECREF(tb);
        return NULL;
    }
    Py_DECREF(done);
    PyErr_Restore(type, exc, tb);
    return NULL;
}

/* The next batch of an iterator. */
static PyObject *
fetch_next(PyObject *self, PyObject *iterator)
{
    plain_fetch *f = (plain_fetch *)self;
    if (f->steps == NULL) { /* the collector has cleared it */
        return PyErr_Format(PyExc_RuntimeError, "PlainFetch is cleared");
    }
    if (!fetches(f, iterator)) {
        return PyObject_CallOneArg(f->object[SLOW], iterator);
    }
    fp_plain_steps *p = f->steps;
    fp_recorder *r = p->recorder;
    int64_t began = fp_clock_now(&r->clock), inside = 0;
    Py_INCREF(self);
    PyObject *entry = Py_NewRef(f->entry);
    f->left--;
    f->fetching = 1;
    set(p->object[FP_PLAIN_FLAGS], p->name[FP_PLAIN_FETCHED], Py_True);
    set(p->object[FP_PLAIN_LOADING], p->name[FP_PLAIN_TRAIN_TAG], f->tag);
    set(f->object[PHASES], f->name[FETCHING], Py_True);
    PyObject *batch = fp_loader_next_batch(
        r, f->number, iterator, (fp_section_object *)f->object[SECTION],
        f->object[ORIGINAL], &inside);
    f->fetching = 0;
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    set(f->object[PHASES], f->name[FETCHING], Py_False);
    if (batch != NULL) {
        count_batch(f, entry);
    }
    fp_plain_took(p, fp_clock_now(&r->clock) - began - inside,
                  &f->usual_ticks);
    PyErr_Restore(type, exc, tb);
    Py_DECREF(entry);
    if (batch == NULL && PyErr_ExceptionMatches(PyExc_StopIteration)) {
        batch = is_over(f);
    }
    Py_DECREF(self);
    return batch;
}

#define FASTCALL(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef fetch_methods[] = {
    {"begin", FASTCALL(fetch_begin), METH_FASTCALL,
     "begin($self, iterator, entry, tag, most, /)\n--\n\n"},
    {"end", fetch_end, METH_NOARGS, "end($self, /)\n--\n\n"},
    {"next", fetch_next, METH_O, "next($self, iterator, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fetch_slots[] = {
    {Py_tp_new, (void *)fetch_new},
    {Py_tp_traverse, (void *)fetch_traverse},
    {Py_tp_clear, (void *)fetch_clear},
    {Py_tp_dealloc, (void *)fp_cleared_dealloc},
    {Py_tp_methods, fetch_methods},
    {0, NULL},
};

static PyType_Spec fetch_spec = {
    .name = "fastprof._core.PlainFetch",
    .basicsize = sizeof(plain_fetch),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = fetch_slots,
};

int
fp_plain_fetch_add_type(PyObject *module)
{
    return fp_add_type(module, &fetch_spec, "PlainFetch");
}
