/* exit_status: whether the program ends with a status other than 0.
 *
 * The interpreter does not tell exit handlers its status.  It takes the status
 * from the SystemExit that left the program, and lets go of that exception
 * before it calls them: no other SystemExit dies on the main thread while no
 * Python code runs there.  The type has no hook for this in Python, so its
 * deallocator is wrapped, for the rest of the process. */
#include "py/exit_status.h"

#include <stdatomic.h>

static struct {
    destructor dealloc; /* SystemExit's own; NULL: not watched */
    unsigned long thread;
    atomic_int failed;
} ends;

/* As the interpreter decides, without a call into the program's objects. */
static int
is_failure(PyObject *code)
{
    if (code == NULL || code == Py_None) {
        return 0;
    }
    if (!PyLong_Check(code)) {
        return 1; /* it is printed */
    }
    int overflow = 0;
    return PyLong_AsLongAndOverflow(code, &overflow) != 0;
}

/* Does Python code run in this thread?  Asking may make a frame object, for
 * which 3.11 may collect garbage: also an object that is being deallocated. */
static int
runs_code(void)
{
    int collects = PyGC_Disable();
    int runs = PyEval_GetFrame() != NULL;
    if (collects) {
        PyGC_Enable();
    }
    return runs;
}

static void
dies(PyObject *self)
{
    if (PyThread_get_thread_ident() == ends.thread && !runs_code()) {
        PyObject *code = ((PySystemExitObject *)self)->code;
        atomic_store(&ends.failed, is_failure(code));
    }
    ends.dealloc(self);
}

#if FP_LAZY_EXCEPTIONS

/* The interpreter does not need the object of sys.exit's exception. */
typedef PyObject *(*exit_function)(PyObject *, PyObject *const *, Py_ssize_t);

static exit_function sys_exit;

static PyObject *
exits(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *nothing = sys_exit(module, args, count);
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyErr_NormalizeException(&type, &exc, &tb);
    PyErr_Restore(type, exc, tb);
    return nothing;
}

static void
watch_sys_exit(void)
{
    PyObject *function = PySys_GetObject("exit"); /* borrowed */
    if (function == NULL || !PyCFunction_CheckExact(function) ||
        PyCFunction_GET_FLAGS(function) != METH_FASTCALL) {
        return; /* the program's own */
    }
    PyMethodDef *method = ((PyCFunctionObject *)function)->m_ml;
    sys_exit = (exit_function)(void (*)(void))method->ml_meth;
    method->ml_meth = (PyCFunction)(void (*)(void))exits;
}

#else

static void
watch_sys_exit(void)
{
}

#endif

static PyObject *
watch_exit(PyObject *module, PyObject *thread)
{
    (void)module;
    unsigned long number = PyLong_AsUnsignedLong(thread);
    if (PyErr_Occurred()) {
        return NULL;
    }
    ends.thread = number;
    if (ends.dealloc == NULL) {
        PyTypeObject *type = (PyTypeObject *)PyExc_SystemExit;
        ends.dealloc = type->tp_dealloc;
        type->tp_dealloc = dies;
        watch_sys_exit();
    }
    Py_RETURN_NONE;
}

static PyObject *
exit_failed(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    return PyBool_FromLong(atomic_load(&ends.failed));
}

PyMethodDef fp_exit_status_methods[] = {
    {"watch_exit", watch_exit, METH_O,
     "watch_exit($module, main_thread, /)\n--\n\n"
     "Note with which status the program ends."},
    {"exit_failed", exit_failed, METH_NOARGS,
     "exit_failed($module, /)\n--\n\n"
     "Whether it has ended with another status than 0."},
    {NULL, NULL, 0, NULL},
};
