#include "py/own_thread.h"

#include "gpu/worker.h"

#include <sched.h>
#include <unistd.h>

/* Of a thread. */
enum { NONE, RUNNING, BEING_JOINED };

/* The threads that have ever begun; none is removed. */
static _Atomic(fp_own_thread *) first;

/* Held while a thread state is made, and during a fork: PyGILState_Ensure()
 * makes one under a lock of the interpreter, before it waits for the GIL.  If
 * the program forks meanwhile, nobody releases that lock in the child, which
 * waits for it in os.fork() for ever. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static int is_held; /* by a fork; under the GIL or the guard, or alone */

/* Asks the thread to end.  Returns 1 if the caller must join it. */
static int
dismiss(fp_own_thread *t)
{
    int was = RUNNING;
    if (t->process != getpid() || /* a child may come from a bare clone() */
        !atomic_compare_exchange_strong(&t->is, &was, BEING_JOINED)) {
        return 0;
    }
    atomic_fetch_add(&t->number, 1);
    fp_worker_wake(&t->woken);
    return 1;
}

/* Any thread may call this.  Returns 1 if there was a thread. */
static int
join(fp_own_thread *t)
{
    if (!dismiss(t)) {
        return 0;
    }
    if (atomic_load(&t->takes_gil)) {
        (void)pthread_detach(t->thread);
    }
    else {
        (void)pthread_join(t->thread, NULL);
    }
    atomic_store(&t->is, NONE);
    return 1;
}

/* ---- forks ---- */

/* Making a state takes microseconds.  If it takes longer, it waits for the
 * interpreter's lock, which later versions of Python hold while they fork: then
 * there is nothing to wait for. */
static void
hold_making(void)
{
    enum { TRIES = 50, NAP_NS = 100000 };
    const struct timespec nap = {0, NAP_NS};
    for (int i = 0; i < TRIES; i++) {
        if (pthread_mutex_trylock(&making) == 0) {
            is_held = 1;
            return;
        }
        nanosleep(&nap, NULL);
    }
}

/* A thread that forks without the GIL may meet one that ends it with the GIL,
 * and need not wait for that. */
static void
before_fork(void)
{
    for (fp_own_thread *t = atomic_load(&first); t != NULL; t = t->next) {
        if (join(t)) {
            atomic_store(&t->is_missing, 1);
        }
    }
    hold_making();
}

/* It begins in a pending call, when CPython's warning is over. */
static void
after_fork(void)
{
    if (is_held) {
        is_held = 0;
        (void)pthread_mutex_unlock(&making);
    }
    for (fp_own_thread *t = atomic_load(&first); t != NULL; t = t->next) {
        if (atomic_load(&t->is_missing) &&
            (t->again == NULL || Py_AddPendingCall(t->again, NULL) == 0)) {
            atomic_store(&t->is_missing, 0);
        }
    }
}

/* The holder may be a thread that does not exist. */
static void
in_child(void)
{
    is_held = 0;
    (void)pthread_mutex_init(&making, NULL);
}

static void
watch_forks(fp_own_thread *t)
{
    if (!t->is_known) {
        t->is_known = 1;
        t->next = atomic_load(&first);
        if (t->next == NULL) {
            (void)pthread_atfork(before_fork, after_fork, in_child);
        }
        atomic_store(&first, t);
    }
}

/* ---- its life ---- */

void
fp_own_thread_adopt(fp_own_thread *t)
{
    if (t->process != getpid()) {
        t->process = getpid();
        atomic_store(&t->is, NONE);
        atomic_store(&t->is_missing, 0);
        atomic_fetch_add(&t->number, 1);
        atomic_store(&t->takes_gil, 0);
    }
}

int
fp_own_thread_begin(fp_own_thread *t)
{
    fp_own_thread_adopt(t);
    if (atomic_load(&t->is) == NONE && !t->is_over) {
        watch_forks(t);
        void *number = (void *)atomic_load(&t->number);
        int begun = fp_worker_begin(&t->thread, t->run, number) == 0;
        atomic_store(&t->is, begun ? RUNNING : NONE);
    }
    return atomic_load(&t->is) == RUNNING;
}

void
fp_own_thread_end(fp_own_thread *t)
{
    (void)join(t);
    while (t->process == getpid() && atomic_load(&t->is) != NONE) {
        (void)sched_yield(); /* a thread that forks joins it */
    }
}

void
fp_own_thread_exit(fp_own_thread *t)
{
    t->is_over = 1;
    if (dismiss(t)) {
        atomic_store(&t->is, NONE); /* nobody else waits for it */
        Py_BEGIN_ALLOW_THREADS(void)
        pthread_join(t->thread, NULL);
        Py_END_ALLOW_THREADS
    }
}

/* ---- in the thread ---- */

int
fp_own_thread_goes_on(fp_own_thread *t, uintptr_t number)
{
    return atomic_load(&t->number) == number;
}

/* Whoever joins the thread without the GIL's release has changed the number
 * before it reads [takes_gil]: one of both sees the other's. */
PyThreadState *
fp_own_thread_take_gil(fp_own_thread *t, uintptr_t number)
{
    PyThreadState *own = NULL;
    atomic_fetch_add(&t->takes_gil, 1);
    if (fp_own_thread_goes_on(t, number)) {
        (void)pthread_mutex_lock(&making);
        own = PyThreadState_New(PyInterpreterState_Main());
        (void)pthread_mutex_unlock(&making);
    }
    if (own != NULL) {
        PyEval_RestoreThread(own);
    }
    else {
        atomic_fetch_sub(&t->takes_gil, 1);
    }
    return own;
}

void
fp_own_thread_give_gil(fp_own_thread *t, PyThreadState *taken)
{
    PyThreadState_Clear(taken);
    PyThreadState_DeleteCurrent();
    atomic_fetch_sub(&t->takes_gil, 1);
}
