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

/* Asks fastprof.guards whether [exc], an Exception, came from outside of the
 * code that raised it.  Returns -1 with an exception that came from outside
 * meanwhile. */
static int
ask_guards(PyObject *exc)
{
    /* Not PyImport_ImportModule(): that calls __import__ of the builtins, which
     * are the program's. */
    PyObject *package =
        PyImport_ImportModuleLevel("fastprof.guards", NULL, NULL, NULL, 0);
    PyObject *guards =
        package ? PyObject_GetAttrString(package, "guards") : NULL;
    PyObject *ask =
        guards ? PyObject_GetAttrString(guards, "is_from_outside") : NULL;
    PyObject *answer = ask ? PyObject_CallOneArg(ask, exc) : NULL;
    int outside = answer != NULL ? answer == Py_True : -1;
    if (ask == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* the interpreter is shutting down */
        outside = 0;
    }
    Py_XDECREF(answer);
    Py_XDECREF(ask);
    Py_XDECREF(guards);
    Py_XDECREF(package);
    return outside;
}

int
fp_error_is_from_outside(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return 1;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyErr_NormalizeException(&type, &exc, &tb);
    if (tb != NULL) {
        PyException_SetTraceback(exc, tb);
    }
    int outside = ask_guards(exc);
    if (outside < 0) {
        /* That one waits: it would come again while the guards are asked. */
        PyObject *type2, *exc2, *tb2;
        PyErr_Fetch(&type2, &exc2, &tb2);
        outside = ask_guards(exc);
        if (outside < 0) {
            let_it_come_again();
        }
        PyErr_Restore(type2, exc2, tb2);
        let_it_come_again();
    }
    PyErr_Restore(type, exc, tb);
    return outside > 0;
}

int
fp_error_drop(void)
{
    if (PyErr_Occurred() == NULL) {
        return 0;
    }
    if (!fp_error_is_from_outside()) {
        PyErr_Clear();
        return 0;
    }
    let_it_come_again();
    return 1;
}
