/* Synchronizes the GPU at the borders of sections. */
#include "py/section_methods.h"

/* Is this the thread that runs signal handlers and pending calls?  Clears
 * exceptions. */
static int
in_main_thread(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread =
        threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    int is_main = ident != NULL && PyLong_Check(ident) &&
                  PyLong_AsUnsignedLong(ident) == PyThread_get_thread_ident();
    PyErr_Clear();
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return is_main;
}

static int
raise_again(void *arg)
{
    PyObject *raised = arg; /* (type, value, traceback) */
    PyErr_Restore(Py_XNewRef(PyTuple_GET_ITEM(raised, 0)),
                  Py_XNewRef(PyTuple_GET_ITEM(raised, 1)),
                  Py_XNewRef(PyTuple_GET_ITEM(raised, 2)));
    Py_DECREF(raised);
    return -1;
}

/* Ctrl-C, or SystemExit from a signal handler, belongs to the program: raise
 * it again later, outside this code.  Signal handlers run in the main thread,
 * as pending calls do.  An exception from another thread cannot be from a
 * handler; it is raised again without its value. */
static void
let_it_come_again(void)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyErr_NormalizeException(&type, &exc, &tb);
    PyObject *raised = in_main_thread() ? PyTuple_New(3) : NULL;
    if (raised != NULL) {
        PyTuple_SET_ITEM(raised, 0, Py_XNewRef(type));
        PyTuple_SET_ITEM(raised, 1, Py_XNewRef(exc));
        PyTuple_SET_ITEM(raised, 2, Py_XNewRef(tb));
    }
    if (raised == NULL || Py_AddPendingCall(raise_again, raised) < 0) {
        Py_XDECREF(raised);
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type);
    }
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(exc);
    Py_XDECREF(tb);
}

void
fp_section_synchronize(fp_recorder *r, const fp_section_object *s)
{
    int wanted = s->sync < 0 ? r->sync && s->phase != FP_PHASE_DATA : s->sync;
    if (!wanted || r->state->sync_function == NULL) {
        return;
    }
    /* The function may drop the last reference to either. */
    PyObject *function = Py_NewRef(r->state->sync_function);
    Py_INCREF((PyObject *)r);
    PyObject *done = PyObject_CallNoArgs(function);
    if (done == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        let_it_come_again();
    }
    else if (done == NULL) {
        PyErr_Clear();
        r->recording.sync_errors++;
    }
    Py_XDECREF(done);
    Py_DECREF((PyObject *)r);
    Py_DECREF(function);
}
