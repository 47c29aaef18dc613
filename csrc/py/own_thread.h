/* own_thread: a thread of fastprof that goes on between calls, and what forks
 * and the end of the interpreter mean for it.
 *
 * CPython warns of a fork in a process with several threads, and fastprof's
 * must not be the reason: it does not exist meanwhile. */
#ifndef FP_PY_OWN_THREAD_H
#define FP_PY_OWN_THREAD_H

#include "py/pycompat.h" /* Python.h goes first */

#include <pthread.h>
#include <sys/types.h>

/* One for the process, zero but for the first two; only own_thread.c changes
 * the others.  Under the GIL or the guard, and in fork(), if not atomic. */
typedef struct fp_own_thread {
    void *(*run)(void *number);
    /* A pending call: after a fork it may begin the thread.  NULL: none. */
    int (*again)(void *unused);
    pid_t process; /* of the thread */
    int is_over;   /* the interpreter ends: it does not begin */
    int is_known;
    struct fp_own_thread *next; /* borrowed; of those that are known */
    _Atomic int is;             /* see own_thread.c */
    _Atomic int is_missing;     /* a fork has ended it */
    pthread_t thread;           /* not written unless there is none */
    _Atomic uintptr_t number;
    _Atomic int takes_gil; /* number of threads that have or wait for it */
    _Atomic int woken;     /* for fp_worker_sleep() and fp_worker_wake() */
} fp_own_thread;

/* Returns 1 if the thread runs now; does nothing if it does. */
int
fp_own_thread_begin(fp_own_thread *t);

/* Does nothing if there is none.  If it needs the GIL, which the caller has,
 * it ends later. */
void
fp_own_thread_end(fp_own_thread *t);

/* The interpreter ends: lets it use the GIL meanwhile. */
void
fp_own_thread_exit(fp_own_thread *t);

/* In a forked child: the thread was the parent's. */
void
fp_own_thread_adopt(fp_own_thread *t);

/* The thread calls these with the argument of [run].  Should it go on? */
int
fp_own_thread_goes_on(fp_own_thread *t, uintptr_t number);

/* NULL: it must end, or there is no memory. */
PyThreadState *
fp_own_thread_take_gil(fp_own_thread *t, uintptr_t number);

void
fp_own_thread_give_gil(fp_own_thread *t, PyThreadState *taken);

#endif
