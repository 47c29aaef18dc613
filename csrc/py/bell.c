/* A thread sleeps until the time has come, and requests a pending call.  The
 * main thread runs that call between two instructions of Python code, as
 * it runs signal handlers.  If it works in C meanwhile, the call is late. */
#include "py/bell.h"

#include "gpu/worker.h"
#include "py/around.h"
#include "py/guard.h"
#include "py/interrupts.h"
#include "py/own_thread.h"

#include <unistd.h>

/* Until another try. */
enum { AGAIN_NS = 1000 * 1000 * 1000 };

/* No time. */
#define NEVER INT64_MAX

static int
ring(void *arg);

static void *
wait_and_ring(void *arg);

/* One for the process. */
static struct {
    /* Under the GIL or the guard: */
    PyObject *function; /* owned; NULL: it does not ring */
    int64_t rings_ns;   /* when it is due; CLOCK_MONOTONIC */
    /* The thread's: */
    _Atomic int64_t due_ns; /* rings_ns until it has rung, then NEVER */
    fp_own_thread thread;
} bell = {.due_ns = NEVER, .thread = {.run = wait_and_ring, .again = ring}};

/* ---- the thread ---- */

/* Before 3.13 the main thread does not look for a call that another thread
 * requested until it has taken the GIL again. */
static void
make_it_look(uintptr_t number)
{
#if !FP_PENDING_CALLS_INTERRUPT
    PyThreadState *own = fp_own_thread_take_gil(&bell.thread, number);
    if (own != NULL) {
        fp_own_thread_give_gil(&bell.thread, own);
    }
#else
    (void)number;
#endif
}

static void *
wait_and_ring(void *arg)
{
    uintptr_t number = (uintptr_t)arg;
    while (fp_own_thread_goes_on(&bell.thread, number)) {
        int64_t due = atomic_load(&bell.due_ns);
        int64_t left =
            due == NEVER ? -1 : due - fp_worker_now(CLOCK_MONOTONIC);
        if (due == NEVER || left > 0) {
            fp_worker_sleep(&bell.thread.woken, left);
        }
        else if (Py_AddPendingCall(ring, NULL) != 0) {
            fp_worker_sleep(&bell.thread.woken, AGAIN_NS);
        }
        else {
            (void)atomic_compare_exchange_strong(&bell.due_ns, &due, NEVER);
            make_it_look(number);
        }
    }
    return NULL;
}

/* ---- ringing ---- */

/* Takes the function if it is due, else makes sure that it will ring. */
static PyObject *
take_function(void)
{
    FP_GUARD();
    if (bell.function == NULL || bell.thread.is_over ||
        bell.thread.process != getpid()) {
        return NULL;
    }
    if (bell.rings_ns > fp_worker_now(CLOCK_MONOTONIC)) {
        (void)fp_own_thread_begin(&bell.thread);
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
    PyObject *before = bell.function;
    fp_own_thread_adopt(&bell.thread);
    bell.function = Py_XNewRef(function);
    bell.rings_ns =
        function != NULL ? fp_worker_now(CLOCK_MONOTONIC) + ns : NEVER;
    atomic_store(&bell.due_ns, bell.rings_ns);
    if (function == NULL) {
        fp_own_thread_end(&bell.thread);
    }
    else if (fp_own_thread_begin(&bell.thread)) {
        fp_worker_wake(&bell.thread.woken);
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
        if (!bell.thread.is_over && bell.thread.process == getpid()) {
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
    fp_own_thread_exit(&bell.thread);
    fp_bell_end();
}

PyMethodDef fp_bell_methods[] = {
    {"ring_after", ring_after, METH_VARARGS,
     "ring_after($module, function, ns, /)\n--\n\n"},
    {"ring_never", ring_never, METH_NOARGS, "ring_never($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
