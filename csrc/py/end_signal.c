/* end_signal: handles the signals that end a process by default and come from
 * outside, such as SIGTERM.  The program sees their default action.
 *
 * A program that finds a handler in Python keeps it and calls it from its own.
 * So Python does not know of this one, which runs Python's handler of another
 * signal, the carrier; a handler that the program sets takes its place.
 *
 * Python runs its handler between two instructions of the main thread, so a
 * thread inside a C call, such as a collective that waits for a dead rank,
 * never gets there.  Without a handler the signal would have ended the
 * process: a timer, which sends the carrier, does so. */
#include "py/end_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__

enum { PATIENCE_S = 5 };

/* SIGALRM, SIGVTALRM and SIGPROF are excluded: other profilers time with them,
 * and begin only where these have no handler. */
static const int SIGNALS[] = {SIGTERM, SIGHUP,  SIGUSR1,
                              SIGUSR2, SIGXCPU, SIGQUIT};

static struct {
    timer_t timer;
    pid_t has_timer;     /* the process that has it: a forked child does not */
    pid_t owner;         /* the process that handles the signals; 0: none */
    void (*python)(int); /* Python's handler of every signal */
    int carrier;
    atomic_int came;  /* the first of them that came; 0: none */
    atomic_int taken; /* Python's handler runs */
} end;

static void
die(int number)
{
    struct sigaction dies = {.sa_handler = SIG_DFL};
    sigaction(number, &dies, NULL);
    kill(getpid(), number);
}

static void
set_timer(int seconds)
{
    if (end.has_timer == getpid()) {
        const struct itimerspec once = {.it_value = {.tv_sec = seconds}};
        timer_settime(end.timer, 0, &once, NULL);
    }
}

static void
on_signal(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    int before = errno;
    int none = 0;
    if (end.owner != getpid()) {
        /* A forked child that has not left this handler yet: Python forgets
         * signals that came before it was ready, and a pool that ends waits
         * for its workers to die.  Or the run is over, and faulthandler has
         * restored this handler, which it had found. */
        die(number);
    }
    else {
        if (atomic_compare_exchange_strong(&end.came, &none, number)) {
            set_timer(PATIENCE_S);
        }
        end.python(end.carrier);
    }
    errno = before;
}

static void
on_carrier(int number, siginfo_t *info, void *context)
{
    (void)context;
    int before = errno;
    if (info == NULL || info->si_code != SI_TIMER) {
        die(number);
    }
    else if (!atomic_load(&end.taken)) {
        die(atomic_load(&end.came));
    }
    errno = before;
}

static bool
set_handler(int number, const struct sigaction *action)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 &&
           !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL &&
           sigaction(number, action, NULL) == 0;
}

static PyObject *
handle_end_signals(PyObject *module, PyObject *carrier)
{
    (void)module;
    const long number = PyLong_AsLong(carrier);
    if (PyErr_Occurred()) {
        return NULL;
    }
    struct sigaction python;
    if (sigaction((int)number, NULL, &python) != 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if ((python.sa_flags & SA_SIGINFO) || python.sa_handler == SIG_DFL ||
        python.sa_handler == SIG_IGN) {
        Py_RETURN_FALSE;
    }
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                             .sigev_signo = (int)number};
    if (end.has_timer != getpid() &&
        timer_create(CLOCK_MONOTONIC, &event, &end.timer) == 0) {
        end.has_timer = getpid();
    }
    end.python = python.sa_handler;
    end.carrier = (int)number;
    end.owner = getpid();
    atomic_store(&end.came, 0);
    atomic_store(&end.taken, 0);
    struct sigaction ours = python;
    ours.sa_flags |= SA_SIGINFO;
    ours.sa_sigaction = on_carrier;
    sigaction((int)number, &ours, NULL);
    ours.sa_sigaction = on_signal;
    bool any = false;
    for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(*SIGNALS); i++) {
        any |= set_handler(SIGNALS[i], &ours);
    }
    return PyBool_FromLong(any);
}

static PyObject *
leave_end_signals(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    const struct sigaction dies = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(*SIGNALS); i++) {
        struct sigaction now;
        if (sigaction(SIGNALS[i], NULL, &now) == 0 &&
            (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal) {
            sigaction(SIGNALS[i], &dies, NULL);
        }
    }
    end.owner = 0;
    set_timer(0);
    Py_RETURN_NONE;
}

static PyObject *
end_signal_taken(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    const int came = atomic_load(&end.came);
    if (came != 0) {
        atomic_store(&end.taken, 1);
    }
    return PyLong_FromLong(came);
}

/* A new action would drop faulthandler's handler, and siginterrupt(). */
static PyObject *
set_python_handler(PyObject *module, PyObject *args)
{
    (void)module;
    int number;
    PyObject *handler;
    if (!PyArg_ParseTuple(args, "iO:set_python_handler", &number, &handler) ||
        PyErr_CheckSignals() < 0) { /* the program may set actions there */
        return NULL;
    }
    struct sigaction action;
    const bool known = sigaction(number, NULL, &action) == 0;
    PyObject *signals = PyImport_ImportModule("_signal");
    PyObject *before =
        signals != NULL
            ? PyObject_CallMethod(signals, "signal", "iO", number, handler)
            : NULL;
    Py_XDECREF(signals);
    if (before != NULL && known) {
        sigaction(number, &action, NULL);
    }
    return before;
}

#else

static PyObject *
set_python_handler(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *signals = PyImport_ImportModule("_signal");
    PyObject *set =
        signals != NULL ? PyObject_GetAttrString(signals, "signal") : NULL;
    PyObject *before = set != NULL ? PyObject_CallObject(set, args) : NULL;
    Py_XDECREF(set);
    Py_XDECREF(signals);
    return before;
}

static PyObject *
handle_end_signals(PyObject *module, PyObject *carrier)
{
    (void)module;
    (void)carrier;
    Py_RETURN_FALSE;
}

static PyObject *
leave_end_signals(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    Py_RETURN_NONE;
}

static PyObject *
end_signal_taken(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    return PyLong_FromLong(0);
}

#endif

PyMethodDef fp_end_signal_methods[] = {
    {"handle_end_signals", handle_end_signals, METH_O,
     "handle_end_signals($module, carrier, /)\n--\n\n"},
    {"leave_end_signals", leave_end_signals, METH_NOARGS,
     "leave_end_signals($module, /)\n--\n\n"},
    {"end_signal_taken", end_signal_taken, METH_NOARGS,
     "end_signal_taken($module, /)\n--\n\n"},
    {"set_python_handler", set_python_handler, METH_VARARGS,
     "set_python_handler($module, number, handler, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
