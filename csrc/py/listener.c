/* A thread without the GIL looks twice a second whether the folder of requests
 * has changed, or a signal has come.  Only then, and when the function asked
 * for it, does it take the GIL and call a function, which answers.  The program's threads make no call for it.
 *
 * It has no descriptor, which the program could close, and it does not exist
 * while the process forks (see bell.c). */
#include "py/listener.h"

#include "gpu/worker.h"
#include "py/around.h"
#include "py/guard.h"
#include "py/interrupts.h"
#include "py/own_gil.h"

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

/* One for the process. */
static struct {
    /* Under the GIL or the guard, and in fork(): */
    PyObject *function; /* owned; NULL: nobody listens */
    pid_t process;      /* of the thread */
    _Atomic int over;   /* the interpreter ends */
    _Atomic int has_thread;
    pthread_t thread;
    /* The thread's; written before it begins: */
    char folder[MOST_PATH];
    struct timespec seen; /* when the folder had changed at the last look */
    /* A thread ends when this is no longer the number that it began with. */
    _Atomic uintptr_t number;
    _Atomic int takes_gil; /* number of threads that wait for the GIL */
    _Atomic int woken;
    /* The handler's: */
    _Atomic int came; /* number of signals */
    _Atomic pid_t handles;
    struct sigaction before[NSIG];
} listener;

/* ---- the thread ---- */

static PyObject *
function_of(uintptr_t number)
{
    FP_GUARD();
    int ends = atomic_load(&listener.number) != number || listener.over;
    return ends ? NULL : Py_XNewRef(listener.function);
}

/* Returns the time of the next call. */
static int64_t
call(uintptr_t number, int signals)
{
    long long ns = -1;
    atomic_fetch_add(&listener.takes_gil, 1);
    PyThreadState *own = NULL;
    if (atomic_load(&listener.number) == number && !listener.over) {
        own = fp_own_gil_take();
    }
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
        fp_own_gil_give(own);
    }
    atomic_fetch_sub(&listener.takes_gil, 1);
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
    while (atomic_load(&listener.number) == number) {
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
            fp_worker_sleep(&listener.woken, left < LOOK_NS ? left : LOOK_NS);
        }
    }
    return NULL;
}

/* Asks the thread to end.  Returns 1 if the caller must join it. */
static int
dismiss(void)
{
    if (listener.process != getpid() ||
        !atomic_exchange(&listener.has_thread, 0)) {
        return 0;
    }
    atomic_fetch_add(&listener.number, 1);
    fp_worker_wake(&listener.woken);
    return 1;
}

static void
begin_thread(void)
{
    uintptr_t number = atomic_load(&listener.number);
    int begun = fp_worker_begin(&listener.thread, look, (void *)number) == 0;
    atomic_store(&listener.has_thread, begun);
}

/* If the thread waits for the GIL, which the caller has, or answers, it ends
 * later. */
static void
end_thread(void)
{
    if (dismiss()) {
        if (atomic_load(&listener.takes_gil)) {
            (void)pthread_detach(listener.thread);
        }
        else {
            (void)pthread_join(listener.thread, NULL);
        }
    }
}

/* ---- forks ---- */

/* A pending call. */
static int
begin_again(void *Py_UNUSED(arg))
{
    FP_GUARD();
    if (listener.function != NULL && !listener.over &&
        listener.process == getpid() && !atomic_load(&listener.has_thread)) {
        begin_thread();
    }
    return 0;
}

static void
before_fork(void)
{
    end_thread();
}

static void
after_fork(void)
{
    if (listener.function != NULL && !atomic_load(&listener.has_thread)) {
        (void)Py_AddPendingCall(begin_again, NULL);
    }
}

/* ---- the signal ---- */

static void
on_signal(int number, siginfo_t *info, void *context)
{
    int error = errno;
    const struct sigaction *before = &listener.before[number];
    if (atomic_load(&listener.handles) == getpid()) {
        atomic_fetch_add(&listener.came, 1);
        fp_worker_wake(&listener.woken);
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
    static int watches_forks;
    FP_GUARD();
    if (listener.process != getpid()) {
        listener.process = getpid(); /* the thread was the parent's */
        atomic_store(&listener.has_thread, 0);
        (void)atomic_fetch_add(&listener.number, 1);
        atomic_store(&listener.takes_gil, 0);
    }
    end_thread();
    PyObject *before = listener.function;
    listener.function = Py_XNewRef(function);
    if (function != NULL && !listener.over) {
        strcpy(listener.folder, folder);
        memset(&listener.seen, 0, sizeof(listener.seen));
        (void)has_changed(); /* no request is older */
        if (!watches_forks) {
            watches_forks = 1;
            fp_own_gil_prepare();
            (void)pthread_atfork(before_fork, after_fork, NULL);
        }
        begin_thread();
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
    atomic_store(&listener.over, 1);
    if (dismiss()) {
        pthread_t thread = listener.thread;
        Py_BEGIN_ALLOW_THREADS(void)
        pthread_join(thread, NULL);
        Py_END_ALLOW_THREADS
    }
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
