#include "py/interrupts.h"

#include "py/this_thread.h"

static int
raise_again(void *arg)
{
    PyObject *exc = arg;
    PyErr_Restore(Py_NewRef(Py_TYPE(exc)), exc, PyException_GetTraceback(exc));
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
    if (tb != NULL) {
        PyException_SetTraceback(exc, tb);
    }
    if (!fp_is_main_thread() || Py_AddPendingCall(raise_again, exc) < 0) {
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type);
        Py_DECREF(exc);
    }
    Py_DECREF(type);
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
    /* Not PyImport_ImportModule(): that calls __import__ of the builtins, which
     * are the program's. */
    PyObject *package =
        PyImport_ImportModuleLevel("fastprof.guards", NULL, NULL, NULL, 0);
    PyObject *guards =
        package ? PyObject_GetAttrString(package, "guards") : NULL;
    PyObject *answer =
        guards ? PyObject_CallMethod(guards, "is_from_outside", "O", exc)
               : NULL;
    int outside = answer == Py_True;
    Py_XDECREF(answer);
    Py_XDECREF(guards);
    Py_XDECREF(package);
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
