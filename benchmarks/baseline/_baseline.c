/* _baseline: the cost of hooking into the interpreter without recording
 * anything.
 *
 * A function profiler cannot be cheaper than a hook that does nothing, and
 * hardly cheaper than one that only reads the clock at both ends of a call.
 * Both are here, with a section object that does nothing, so that benchmarks
 * compare with the floor of the same run and machine.
 *
 * Not part of the package: benchmarks build it on demand and import it. */
#define PY_SSIZE_T_CLEAN
#define _POSIX_C_SOURCE 200809L
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

typedef enum {
    CLOCK_NONE,
    CLOCK_COUNTER,
    CLOCK_MONOTONIC_NS,
} clock_kind;

/* Takes the readings; volatile, so that the compiler does not remove them. */
static volatile int64_t last_reading;

static clock_kind
best_clock(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)) != 0) {
        return CLOCK_COUNTER;
    }
    return CLOCK_MONOTONIC_NS;
#elif defined(__aarch64__)
    return CLOCK_COUNTER;
#else
    return CLOCK_MONOTONIC_NS;
#endif
}

static inline int64_t
read_clock(clock_kind kind)
{
    if (kind == CLOCK_COUNTER) {
#if defined(__x86_64__)
        return (int64_t)__rdtsc();
#elif defined(__aarch64__)
        uint64_t value;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return (int64_t)value;
#endif
    }
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- the profile hook (all versions) ---- */

static int
hook_empty(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)self, (void)frame, (void)what, (void)arg;
    return 0;
}

/* Every event of the profile hook is one end of a call, so each event reads
 * once. */
static int
hook_counter(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)self, (void)frame, (void)what, (void)arg;
    last_reading = read_clock(CLOCK_COUNTER);
    return 0;
}

static int
hook_monotonic(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)self, (void)frame, (void)what, (void)arg;
    last_reading = read_clock(CLOCK_MONOTONIC_NS);
    return 0;
}

static PyObject *
set_profile(PyObject *module, PyObject *arg)
{
    (void)module;
    int clocked = PyObject_IsTrue(arg);
    if (clocked < 0) {
        return NULL;
    }
    Py_tracefunc hook = hook_empty;
    if (clocked) {
        hook = best_clock() == CLOCK_COUNTER ? hook_counter : hook_monotonic;
    }
    PyEval_SetProfile(hook, NULL);
    Py_RETURN_NONE;
}

static PyObject *
clear_profile(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyEval_SetProfile(NULL, NULL);
    Py_RETURN_NONE;
}

/* ---- callbacks for sys.monitoring (3.12 and later) ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    clock_kind clock;
} callback;

static PyObject *
callback_empty(PyObject *self, PyObject *const *args, size_t nargs,
               PyObject *names)
{
    (void)self, (void)args, (void)nargs, (void)names;
    Py_RETURN_NONE;
}

/* PY_START and similar events: always one end of a call. */
static PyObject *
callback_read(PyObject *self, PyObject *const *args, size_t nargs,
              PyObject *names)
{
    (void)args, (void)nargs, (void)names;
    last_reading = read_clock(((callback *)self)->clock);
    Py_RETURN_NONE;
}

/* CALL, C_RETURN, C_RAISE (code, offset, callable, arg0): also sent for Python
 * functions, whose time PY_START takes, and for types. */
static PyObject *
callback_read_if_c(PyObject *self, PyObject *const *args, size_t nargs,
                   PyObject *names)
{
    (void)nargs, (void)names;
    PyObject *callable = args[2];
    if (PyCFunction_Check(callable) ||
        Py_IS_TYPE(callable, &PyMethodDescr_Type)) {
        last_reading = read_clock(((callback *)self)->clock);
    }
    Py_RETURN_NONE;
}

static PyMemberDef callback_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(callback, call), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot callback_slots[] = {
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_members, callback_members},
    {0, NULL},
};

static PyType_Spec callback_spec = {
    .name = "_baseline.Callback",
    .basicsize = sizeof(callback),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = callback_slots,
};

static PyObject *callback_type;

static PyObject *
make_callback(PyObject *module, PyObject *args)
{
    (void)module;
    int clocked, of_calls;
    if (!PyArg_ParseTuple(args, "pp", &clocked, &of_calls)) {
        return NULL;
    }
    callback *self = PyObject_New(callback, (PyTypeObject *)callback_type);
    if (self == NULL) {
        return NULL;
    }
    self->clock = clocked ? best_clock() : CLOCK_NONE;
    self->call = callback_empty;
    if (clocked) {
        self->call = of_calls ? callback_read_if_c : callback_read;
    }
    return (PyObject *)self;
}

/* ---- a section that does nothing, found by its name ---- */

static PyObject *sections; /* name -> EmptySection */

static PyObject *
section_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *
section_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self, (void)args, (void)nargs;
    Py_RETURN_NONE;
}

static PyMethodDef section_methods[] = {
    {"__enter__", section_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))section_exit, METH_FASTCALL,
     NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot section_slots[] = {
    {Py_tp_methods, section_methods},
    {0, NULL},
};

static PyType_Spec section_spec = {
    .name = "_baseline.EmptySection",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = section_slots,
};

static PyObject *section_type;

static PyObject *
empty_section(PyObject *module, PyObject *name)
{
    (void)module;
    PyObject *found = PyDict_GetItemWithError(sections, name);
    if (found != NULL) {
        Py_INCREF(found);
        return found;
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *made = PyObject_CallNoArgs(section_type);
    if (made != NULL && PyDict_SetItem(sections, name, made) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

/* ---- the module ---- */

static PyObject *
clock_name(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(
        best_clock() == CLOCK_COUNTER ? "cycle counter" : "clock_gettime");
}

static PyMethodDef functions[] = {
    {"set_profile", set_profile, METH_O,
     "Install an empty profile hook; true: one that reads the clock."},
    {"clear_profile", clear_profile, METH_NOARGS, "Remove the profile hook."},
    {"make_callback", make_callback, METH_VARARGS,
     "(clocked, of_calls): a callback object for sys.monitoring."},
    {"empty_section", empty_section, METH_O,
     "The context manager of that name; it does nothing."},
    {"clock_name", clock_name, METH_NOARGS, "Which clock is read."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_baseline",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__baseline(void)
{
    callback_type = PyType_FromSpec(&callback_spec);
    section_type = PyType_FromSpec(&section_spec);
    sections = PyDict_New();
    if (callback_type == NULL || section_type == NULL || sections == NULL) {
        return NULL;
    }
    return PyModule_Create(&definition);
}
