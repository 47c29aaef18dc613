/* A thread without the GIL looks twice a second whether the folder of requests
 * has changed, or a signal has come.  Only then, and when the function asked
 * for it, does it take the GIL and call a function, which answers.  The program's threads make no call for it.
 *
 * It has no descriptor, which the program could close, and it does not exist
 * while the process forks (see own_thread.h). */
#include "py/listener.h"

#include "gpu/worker.h"
#include "py/around.h"
#include "py/guard.h"
#include "py/interrupts.h"
#include "py/own_thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_NS = 500 * 1000 * 1000,
    /* The name of a folder is shorter. */
    MOST_PATH = 1024
};

/* No time. */
#define NEVER INT64_MAX

static void *
look(void *arg);

static int
begin_again(void *unused);

/* One for the process. */
static struct {
    /* Under the GIL or the guard: */
    PyObject *function; /* owned; NULL: nobody listens */
    /* The thread's; written before it begins: */
    char folder[MOST_PATH];
    struct timespec seen; /* when the folder had changed at the last look */
    fp_own_thread thread;
    /* The handler's: */
    _Atomic int came; /* number of signals */
    _Atomic pid_t handles;
    struct sigaction before[NSIG];
} listener = {.thread = {.run = look, .again = begin_again}};

/* ---- the thread ---- */

static PyObject *
function_of(uintptr_t number)
{
    FP_GUARD();
    int goes_on = fp_own_thread_goes_on(&listener.thread, number);
    return goes_on ? Py_XNewRef(listener.function) : NULL;
}

/* Returns the time of the next call. */
static int64_t
call(uintptr_t number, int signals)
{
    long long ns = -1;
    PyThreadState *own = fp_own_thread_take_gil(&listener.thread, number);
    if (own != NULL) {
        PyObject *function = function_of(number);
        PyObject *args = function ? Py_BuildValue("(i)", signals) : NULL;
        PyObject *next = args ? fp_call_untraced(function, args, NULL) : NULL;
        if (next != NULL && PyLong_Check(next)) {
            ns = PyLong_AsLongLong(next);
        }
        Py_XDECREF(next);
        Py_XDECREF(args);
        Py_XDECREF(function);
        PyErr_Clear();
        fp_own_thread_give_gil(&listener.thread, own);
    }
    return ns < 0 ? NEVER : fp_worker_now(CLOCK_MONOTONIC) + ns;
}

/* Returns 1 if the folder has changed since the last look. */
static int
has_changed(void)
{
    struct stat now;
    if (stat(listener.folder, &now) != 0 ||
        (now.st_mtim.tv_sec == listener.seen.tv_sec &&
         now.st_mtim.tv_nsec == listener.seen.tv_nsec)) {
        return 0;
    }
    listener.seen = now.st_mtim;
    return 1;
}

static void *
look(void *arg)
{
    uintptr_t number = (uintptr_t)arg;
    int64_t due = fp_worker_now(CLOCK_MONOTONIC); /* of the first call */
    while (fp_own_thread_goes_on(&listener.thread, number)) {
        int64_t left = NEVER;
        if (due != NEVER) {
            left = due - fp_worker_now(CLOCK_MONOTONIC);
        }
        int changed = has_changed();
        int signals = atomic_exchange(&listener.came, 0);
        if (changed || signals || left <= 0) {
            due = call(number, signals);
        }
        else {
            fp_worker_sleep(&listener.thread.woken,
                            left < LOOK_NS ? left : LOOK_NS);
        }
    }
    return NULL;
}

/* A pending call. */
static int
begin_again(void *Py_UNUSED(unused))
{
    FP_GUARD();
    if (listener.function != NULL && listener.thread.process == getpid()) {
        (void)fp_own_thread_begin(&listener.thread);
    }
    return 0;
}

/* ---- the signal ---- */

static void
on_signal(int number, siginfo_t *info, void *context)
{
    int error = errno;
    const struct sigaction *before = &listener.before[number];
    if (atomic_load(&listener.handles) == getpid()) {
        atomic_fetch_add(&listener.came, 1);
        fp_worker_wake(&listener.thread.woken);
    }
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    }
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    }
    errno = error;
}

static PyObject *
handle_signal(PyObject *Py_UNUSED(module), PyObject *arg)
{
    FP_GUARD();
    const long number = PyLong_AsLong(arg);
    if (PyErr_Occurred()) {
        return NULL;
    }
    struct sigaction now;
    if (number <= 0 || number >= NSIG ||
        sigaction((int)number, NULL, &now) != 0) {
        PyErr_SetString(PyExc_ValueError, "handle_signal: no such signal");
        return NULL;
    }
    atomic_store(&listener.handles, getpid());
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal) {
        Py_RETURN_NONE;
    }
    struct sigaction ours = now;
    int is_new = !(now.sa_flags & SA_SIGINFO) &&
                 (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN);
    if (is_new) {
        /* No call of the program may fail because of it. */
        ours.sa_flags = SA_RESTART | SA_ONSTACK;
    }
    listener.before[number] = now;
    ours.sa_flags |= SA_SIGINFO;
    ours.sa_sigaction = on_signal;
    if (sigaction((int)number, &ours, NULL) != 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* ---- functions of the module ---- */

static PyObject *
replace_function(PyObject *function, const char *folder)
{
    FP_GUARD();
    fp_own_thread_end(&listener.thread);
    PyObject *before = listener.function;
    listener.function = Py_XNewRef(function);
    if (function != NULL) {
        strcpy(listener.folder, folder);
        memset(&listener.seen, 0, sizeof(listener.seen));
        (void)has_changed(); /* no request is older */
        (void)fp_own_thread_begin(&listener.thread);
    }
    return before;
}

static PyObject *
listen_for(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *function;
    const char *folder;
    if (!PyArg_ParseTuple(args, "yO:listen", &folder, &function)) {
        return NULL;
    }
    if (!PyCallable_Check(function) || strlen(folder) >= MOST_PATH) {
        PyErr_SetString(PyExc_ValueError,
                        "listen: expected a folder and a function");
        return NULL;
    }
    Py_XDECREF(replace_function(function, folder));
    Py_RETURN_NONE;
}

static PyObject *
listen_never(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    Py_XDECREF(replace_function(NULL, NULL));
    Py_RETURN_NONE;
}

void
fp_listener_exit(void)
{
    fp_own_thread_exit(&listener.thread);
}

/* A pending call: what the function returns is called when no frame of it is
 * open any more. */
static int
run_in_main(void *arg)
{
    PyObject *function = arg;
    PyObject *none = PyTuple_New(0);
    PyObject *then = fp_call_untraced(function, none, NULL);
    if (then != NULL && then != Py_None) {
        Py_XDECREF(PyObject_CallNoArgs(then));
        (void)fp_error_drop();
    }
    Py_XDECREF(then);
    Py_XDECREF(none);
    Py_DECREF(function);
    return 0;
}

static PyObject *
call_in_main(PyObject *Py_UNUSED(module), PyObject *function)
{
    int set = Py_AddPendingCall(run_in_main, Py_NewRef(function)) == 0;
    if (!set) {
        Py_DECREF(function);
    }
    return PyBool_FromLong(set);
}

PyMethodDef fp_listener_methods[] = {
    {"listen", listen_for, METH_VARARGS,
     "listen($module, folder, function, /)\n--\n\n"},
    {"listen_never", listen_never, METH_NOARGS,
     "listen_never($module, /)\n--\n\n"},
    {"handle_signal", handle_signal, METH_O,
     "handle_signal($module, number, /)\n--\n\n"},
    {"call_in_main", call_in_main, METH_O,
     "call_in_main($module, function, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
