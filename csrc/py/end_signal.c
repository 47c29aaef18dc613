/* end_signal: ends a process whose main thread cannot handle SIGTERM.
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
    pid_t has_timer; /* the process that has it: a forked child does not */
    struct sigaction python; /* the handler that Python installed */
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
    (void)context;
    int before = errno;
    if (info != NULL && info->si_code == SI_TIMER) {
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
        end.python.sa_handler(number);
    }
    errno = before;
}

/* Python's own handler has been installed. */
static PyObject *
limit_sigterm(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                             .sigev_signo = SIGTERM};
    if (end.has_timer != getpid() &&
        timer_create(CLOCK_MONOTONIC, &event, &end.timer) == 0) {
        end.has_timer = getpid();
    }
    struct sigaction now;
    if (end.has_timer != getpid() || sigaction(SIGTERM, NULL, &now) != 0 ||
        (now.sa_flags & SA_SIGINFO) || now.sa_handler == SIG_DFL ||
        now.sa_handler == SIG_IGN) {
        Py_RETURN_NONE;
    }
    end.python = now;
    atomic_store(&end.came, 0);
    atomic_store(&end.taken, 0);
    now.sa_sigaction = on_sigterm;
    now.sa_flags |= SA_SIGINFO;
    sigaction(SIGTERM, &now, NULL);
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
limit_sigterm(PyObject *module, PyObject *Py_UNUSED(ignored))
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
    {"limit_sigterm", limit_sigterm, METH_NOARGS,
     "limit_sigterm($module, /)\n--\n\n"},
    {"sigterm_taken", sigterm_taken, METH_NOARGS,
     "sigterm_taken($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
