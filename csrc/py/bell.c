/* A thread sleeps until the time has come, and requests a pending call.  The
 * main thread runs that call between two instructions of Python code, as
 * it runs signal handlers.  If it works in C meanwhile, the call is late. */
#include "py/bell.h"

#include "gpu/worker.h"
#include "py/around.h"
#include "py/guard.h"
#include "py/interrupts.h"
#include "py/own_gil.h"

#include <unistd.h>

/* Until another try. */
enum { AGAIN_NS = 1000 * 1000 * 1000 };

/* No time. */
#define NEVER INT64_MAX

/* One for the process. */
static struct {
    /* Under the GIL or the guard, and in fork(): */
    PyObject *function; /* owned; NULL: it does not ring */
    int64_t rings_ns;   /* when it is due; CLOCK_MONOTONIC */
    pid_t process;      /* of the thread */
    int over;           /* the interpreter ends */
    _Atomic int has_thread;
    pthread_t thread;
    /* The thread's: */
    _Atomic int64_t due_ns; /* rings_ns until it has rung, then NEVER */
    /* A thread ends when this is no longer the number that it began with. */
    _Atomic uintptr_t number;
    _Atomic int takes_gil; /* number of threads that wait for the GIL */
    _Atomic int woken;
} bell = {.due_ns = NEVER};

/* ---- the thread ---- */

static int
ring(void *arg);

/* Before 3.13 the main thread does not look for a call that another thread
 * requested until it has taken the GIL again. */
static void
make_it_look(uintptr_t number)
{
#if !FP_PENDING_CALLS_INTERRUPT
    atomic_fetch_add(&bell.takes_gil, 1);
    if (atomic_load(&bell.number) == number) {
        PyThreadState *own = fp_own_gil_take();
        if (own != NULL) {
            fp_own_gil_give(own);
        }
    }
    atomic_fetch_sub(&bell.takes_gil, 1);
#else
    (void)number;
#endif
}

static void *
wait_and_ring(void *arg)
{
    uintptr_t number = (uintptr_t)arg;
    while (atomic_load(&bell.number) == number) {
        int64_t due = atomic_load(&bell.due_ns);
        int64_t left =
            due == NEVER ? -1 : due - fp_worker_now(CLOCK_MONOTONIC);
        if (due == NEVER || left > 0) {
            fp_worker_sleep(&bell.woken, left);
        }
        else if (Py_AddPendingCall(ring, NULL) != 0) {
            fp_worker_sleep(&bell.woken, AGAIN_NS);
        }
        else {
            (void)atomic_compare_exchange_strong(&bell.due_ns, &due, NEVER);
            make_it_look(number);
        }
    }
    return NULL;
}

/* Asks the thread to end.  Returns 1 if the caller must join it. */
static int
dismiss(void)
{
    if (bell.process != getpid() || !atomic_exchange(&bell.has_thread, 0)) {
        return 0;
    }
    atomic_fetch_add(&bell.number, 1);
    fp_worker_wake(&bell.woken);
    return 1;
}

static void
begin_thread(void)
{
    uintptr_t number = atomic_load(&bell.number);
    int begun =
        fp_worker_begin(&bell.thread, wait_and_ring, (void *)number) == 0;
    atomic_store(&bell.has_thread, begun);
}

/* If the thread waits for the GIL, which the caller has, it ends later. */
static void
end_thread(void)
{
    if (dismiss()) {
        if (atomic_load(&bell.takes_gil)) {
            (void)pthread_detach(bell.thread);
        }
        else {
            (void)pthread_join(bell.thread, NULL);
        }
    }
}

/* ---- forks ---- */

/* CPython warns of a fork in a process with several threads, and this one must
 * not be the reason.  It begins again in a pending call, when the warning is
 * over. */
static void
before_fork(void)
{
    end_thread();
}

static void
after_fork(void)
{
    if (bell.function != NULL && !atomic_load(&bell.has_thread)) {
        (void)Py_AddPendingCall(ring, NULL);
    }
}

/* ---- ringing ---- */

/* Takes the function if it is due, else makes sure that it will ring. */
static PyObject *
take_function(void)
{
    FP_GUARD();
    if (bell.function == NULL || bell.over || bell.process != getpid()) {
        return NULL;
    }
    if (bell.rings_ns > fp_worker_now(CLOCK_MONOTONIC)) {
        if (!atomic_load(&bell.has_thread)) {
            begin_thread();
        }
        return NULL;
    }
    PyObject *function = bell.function;
    bell.function = NULL;
    return function;
}

/* Returns the function before. */
static PyObject *
set_guarded(PyObject *function, int64_t ns)
{
    static int watches_forks;
    PyObject *before = bell.function;
    if (bell.process != getpid()) {
        bell.process = getpid(); /* the thread was the parent's */
        atomic_store(&bell.has_thread, 0);
        (void)atomic_fetch_add(&bell.number, 1);
        atomic_store(&bell.takes_gil, 0);
    }
    bell.function = Py_XNewRef(function);
    bell.rings_ns =
        function != NULL ? fp_worker_now(CLOCK_MONOTONIC) + ns : NEVER;
    atomic_store(&bell.due_ns, bell.rings_ns);
    if (function != NULL && !watches_forks) {
        watches_forks = 1;
        fp_own_gil_prepare();
        (void)pthread_atfork(before_fork, after_fork, NULL);
    }
    if (function == NULL) {
        end_thread();
    }
    else if (atomic_load(&bell.has_thread)) {
        fp_worker_wake(&bell.woken);
    }
    else if (!bell.over) {
        begin_thread();
    }
    return before;
}

static PyObject *
set(PyObject *function, int64_t ns)
{
    FP_GUARD();
    return set_guarded(function, ns);
}

static void
ring_again(PyObject *function)
{
    PyObject *before = NULL;
    {
        FP_GUARD();
        if (!bell.over && bell.process == getpid()) {
            before = set_guarded(function, AGAIN_NS);
        }
    }
    Py_XDECREF(before);
}

/* A pending call; runs in the main thread.  The program's signal handlers run
 * in the function, too, and may raise through it: then it is called again. */
static int
ring(void *Py_UNUSED(arg))
{
    PyObject *function = take_function();
    PyObject *none = function != NULL ? PyTuple_New(0) : NULL;
    PyObject *then = function ? fp_call_untraced(function, none, NULL) : NULL;
    int again = function != NULL && then == NULL;
    if (then != NULL && then != Py_None) {
        PyObject *done = PyObject_CallNoArgs(then);
        again = done == Py_False;
        Py_XDECREF(done);
        (void)fp_error_drop();
    }
    if (again) {
        ring_again(function);
    }
    Py_XDECREF(then);
    Py_XDECREF(none);
    Py_XDECREF(function);
    return 0;
}

static PyObject *
ring_after(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *function;
    long long ns;
    if (!PyArg_ParseTuple(args, "OL:ring_after", &function, &ns)) {
        return NULL;
    }
    if (!PyCallable_Check(function) || ns < 0 || ns > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError,
                        "ring_after: expected a function and a time in ns");
        return NULL;
    }
    Py_XDECREF(set(function, ns));
    Py_RETURN_NONE;
}

void
fp_bell_end(void)
{
    Py_XDECREF(set(NULL, 0));
}

static PyObject *
ring_never(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    fp_bell_end();
    Py_RETURN_NONE;
}

void
fp_bell_exit(void)
{
    bell.over = 1;
    fp_bell_end();
    if (dismiss()) {
        pthread_t thread = bell.thread;
        Py_BEGIN_ALLOW_THREADS(void)
        pthread_join(thread, NULL);
        Py_END_ALLOW_THREADS
    }
}

PyMethodDef fp_bell_methods[] = {
    {"ring_after", ring_after, METH_VARARGS,
     "ring_after($module, function, ns, /)\n--\n\n"},
    {"ring_never", ring_never, METH_NOARGS, "ring_never($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
