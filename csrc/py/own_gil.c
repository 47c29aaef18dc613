#include "py/own_gil.h"

#include <pthread.h>
#include <time.h>

/* Held while a thread state is made, and during a fork. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static int is_held;     /* by a fork; under the GIL or the guard, or alone */
static int is_prepared; /* likewise */

/* Making a state takes microseconds.  If it takes longer, it waits for the
 * interpreter's lock, which later versions of Python hold while they fork: then
 * there is nothing to wait for. */
static void
before_fork(void)
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

static void
after_fork(void)
{
    if (is_held) {
        is_held = 0;
        (void)pthread_mutex_unlock(&making);
    }
}

/* In the child, where its holder may be a thread that does not exist. */
static void
in_child(void)
{
    is_held = 0;
    (void)pthread_mutex_init(&making, NULL);
}

void
fp_own_gil_prepare(void)
{
    if (!is_prepared) {
        is_prepared = 1;
        (void)pthread_atfork(before_fork, after_fork, in_child);
    }
}

PyThreadState *
fp_own_gil_take(void)
{
    (void)pthread_mutex_lock(&making);
    PyThreadState *own = PyThreadState_New(PyInterpreterState_Main());
    (void)pthread_mutex_unlock(&making);
    if (own != NULL) {
        PyEval_RestoreThread(own);
    }
    return own;
}

void
fp_own_gil_give(PyThreadState *taken)
{
    PyThreadState_Clear(taken);
    PyThreadState_DeleteCurrent();
}
