#include "py/guard.h"

#if FP_FREE_THREADED

#include "py/this_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct retired {
    struct retired *next;
    void (*free)(void *object);
    void *object;
} retired;

/* Never freed: threads may still wait for it while the interpreter ends. */
static PyObject *lock;

/* Number of threads under the guard, with those that have let others in. */
static unsigned inside;  /* guarded */
static retired *waiting; /* guarded */

static _Atomic int alone; /* see fp_guard_is_alone() */

/* The other threads do not exist here.  Runs before any other code of the
 * child: hooks of other modules send events. */
static void
forked(void)
{
    atomic_store(&alone, 1);
    inside = fp_this_thread->guarded;
    fp_compat_critical_reset(lock, inside != 0);
}

int
fp_guard_init(void)
{
    if (lock != NULL) {
        return 0;
    }
    lock = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (lock == NULL) {
        return -1;
    }
    fp_compat_immortal(lock);
    if (pthread_atfork(NULL, NULL, forked) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void
fp_guard_begin(fp_guard *g)
{
    /* While the interpreter ends, only this thread runs.  CPython may have
     * handed the lock to a thread that never wakes up. */
    g->held = !Py_IsFinalizing();
    if (!g->held) {
        return;
    }
    fp_compat_critical_begin(&g->critical, lock);
    inside++;
    fp_tls *me = fp_tls_own();
    if (me != NULL) {
        me->guarded++;
    }
}

void
fp_guard_end(fp_guard *g)
{
    if (!g->held) {
        return;
    }
    retired *r = NULL;
    fp_tls *me = fp_tls_if_any();
    if (me != NULL && me->guarded != 0) {
        me->guarded--;
    }
    if (inside != 0 && --inside == 0) {
        r = waiting;
        waiting = NULL;
    }
    fp_compat_critical_end(&g->critical);
    while (r != NULL) {
        retired *next = r->next;
        r->free(r->object);
        free(r);
        r = next;
    }
}

int
fp_guard_is_alone(void)
{
    if (!atomic_load(&alone)) {
        return 0;
    }
    /* Threads that begin meanwhile may ask, too. */
    if (!fp_compat_has_one_thread()) {
        atomic_store(&alone, 0);
        return 0;
    }
    return 1;
}

int
fp_guard_child_records(void)
{
    return atomic_exchange(&alone, 0);
}

void
fp_world_stopped(void (*function)(void *arg), void *arg)
{
    if (fp_guard_is_alone()) {
        function(arg);
    }
    else {
        fp_compat_stop_world(function, arg);
    }
}

void
fp_guard_retire(void (*free)(void *object), void *object)
{
    if (Py_IsFinalizing()) {
        return; /* a thread that never wakes up may use it */
    }
    retired *r = malloc(sizeof(*r));
    if (r != NULL) { /* else [object] is never freed */
        *r = (retired){waiting, free, object};
        waiting = r;
    }
}

#endif
