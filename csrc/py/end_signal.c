/* end_signal: handles SIGTERM, of which the program sees the default action.
 *
 * A program that finds a handler in Python keeps it and calls it from its own.
 * So Python does not know of this one, which runs Python's handler of another
 * signal, the carrier; a handler that the program sets takes its place.
 *
 * Python runs its handler between two instructions of the main thread, so a
 * thread inside a C call, such as a collective that waits for a dead rank,
 * never gets there.  Without a handler SIGTERM would have ended the process. */
#include "py/end_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__

enum { PATIENCE_S = 5 };

static struct {
    timer_t timer;
    pid_t has_timer;     /* the process that has it: a forked child does not */
    pid_t owner;         /* the process that handles SIGTERM */
    void (*python)(int); /* Python's handler of every signal */
    int carrier;
    atomic_int came;
    atomic_int taken; /* Python's handler runs */
} end;

static void
die(void)
{
    struct sigaction dies = {.sa_handler = SIG_DFL};
    sigaction(SIGTERM, &dies, NULL);
    kill(getpid(), SIGTERM);
}

static void
on_sigterm(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    int before = errno;
    if (end.owner != getpid()) {
        /* A forked child that has not left this handler yet.  Python forgets
         * signals that came before it was ready, and a pool that ends waits
         * for its workers to die. */
        die();
    }
    else if (info != NULL && info->si_code == SI_TIMER) {
        if (!atomic_load(&end.taken)) {
            die();
        }
    }
    else {
        if (!atomic_exchange(&end.came, 1) && end.has_timer == getpid()) {
            const struct itimerspec once = {
                .it_value = {.tv_sec = PATIENCE_S}};
            timer_settime(end.timer, 0, &once, NULL);
        }
        end.python(end.carrier);
    }
    errno = before;
}

static PyObject *
handle_sigterm(PyObject *module, PyObject *carrier)
{
    (void)module;
    const long number = PyLong_AsLong(carrier);
    if (PyErr_Occurred()) {
        return NULL;
    }
    struct sigaction python;
    struct sigaction now;
    if (sigaction((int)number, NULL, &python) != 0 ||
        sigaction(SIGTERM, NULL, &now) != 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if ((python.sa_flags & SA_SIGINFO) || python.sa_handler == SIG_DFL ||
        python.sa_handler == SIG_IGN || now.sa_handler != SIG_DFL) {
        Py_RETURN_FALSE;
    }
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                             .sigev_signo = SIGTERM};
    if (end.has_timer != getpid() &&
        timer_create(CLOCK_MONOTONIC, &event, &end.timer) == 0) {
        end.has_timer = getpid();
    }
    end.python = python.sa_handler;
    end.carrier = (int)number;
    end.owner = getpid();
    atomic_store(&end.came, 0);
    atomic_store(&end.taken, 0);
    python.sa_sigaction = on_sigterm;
    python.sa_flags |= SA_SIGINFO;
    sigaction(SIGTERM, &python, NULL);
    Py_RETURN_TRUE;
}

static PyObject *
leave_sigterm(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    const struct sigaction dies = {.sa_handler = SIG_DFL};
    struct sigaction now;
    if (sigaction(SIGTERM, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == on_sigterm) {
        sigaction(SIGTERM, &dies, NULL);
    }
    Py_RETURN_NONE;
}

static PyObject *
sigterm_taken(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    atomic_store(&end.taken, 1);
    Py_RETURN_NONE;
}

#else

static PyObject *
handle_sigterm(PyObject *module, PyObject *carrier)
{
    (void)module;
    (void)carrier;
    Py_RETURN_FALSE;
}

static PyObject *
leave_sigterm(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    Py_RETURN_NONE;
}

static PyObject *
sigterm_taken(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    Py_RETURN_NONE;
}

#endif

PyMethodDef fp_end_signal_methods[] = {
    {"handle_sigterm", handle_sigterm, METH_O,
     "handle_sigterm($module, carrier, /)\n--\n\n"},
    {"leave_sigterm", leave_sigterm, METH_NOARGS,
     "leave_sigterm($module, /)\n--\n\n"},
    {"sigterm_taken", sigterm_taken, METH_NOARGS,
     "sigterm_taken($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
