#include "py/interrupts.h"

#include "py/this_thread.h"

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
    PyObject *raised = fp_is_main_thread() ? PyTuple_New(3) : NULL;
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

/* Asks fastprof.guards whether the current exception, an Exception, came from
 * outside of the code that raised it. */
static int
is_from_outside(void)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyErr_NormalizeException(&type, &exc, &tb);
    if (tb != NULL) {
        PyException_SetTraceback(exc, tb);
    }
    PyObject *guards = PyImport_ImportModule("fastprof.guards");
    PyObject *answer =
        guards ? PyObject_CallMethod(guards, "is_from_outside", "O", exc)
               : NULL;
    int outside = answer == Py_True;
    Py_XDECREF(answer);
    Py_XDECREF(guards);
    PyErr_Restore(type, exc, tb); /* drops an error of these calls */
    return outside;
}

int
fp_error_drop(void)
{
    if (PyErr_Occurred() == NULL) {
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_Exception) && !is_from_outside()) {
        PyErr_Clear();
        return 0;
    }
    let_it_come_again();
    return 1;
}
