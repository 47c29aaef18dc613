#include "py/interrupts.h"

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

/* Signal handlers run in the main thread, as pending calls do.  An exception
 * from another thread cannot be from a handler; it is raised again without its
 * value. */
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

int
fp_error_drop(void)
{
    if (PyErr_Occurred() == NULL) {
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return 0;
    }
    let_it_come_again();
    return 1;
}
