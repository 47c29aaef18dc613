/* guard: what takes the place of the GIL in free-threaded builds.
 *
 * There, an event of a known call or section writes only to its own thread's
 * record and takes no lock (events.h, section_enter.c).  Everything else runs
 * as it does under the GIL:
 *
 *   FP_GUARD()          one thread at a time, until the end of the block.  A
 *                       thread that waits or stops lets others in, so code
 *                       under the guard allows for the same as under the GIL.
 *   fp_world_stopped()  needed to change the records of other threads: those
 *                       do not take the guard for ordinary events.  It may
 *                       let others in before it begins, so the function tests
 *                       again what must still hold.
 *   FP_READ(), FP_WRITE()  for the few fields that say whether a thread may go
 *                       on without the guard.
 *   fp_guard_retire()   frees a record that a thread may still use which let
 *                       others in: as soon as no thread is under the guard.
 *
 * In builds with the GIL all of this costs nothing. */
#ifndef FP_PY_GUARD_H
#define FP_PY_GUARD_H

#include "py/pycompat.h" /* Python.h goes first */

#if FP_FREE_THREADED

/* A field that one thread writes while others read it without the guard. */
#define FP_READ(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define FP_WRITE(field, value) \
    __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

typedef struct fp_guard {
    fp_critical critical;
    int held;
} fp_guard;

/* Creates the guard.  Returns 0, or -1 with an exception. */
int
fp_guard_init(void);

void
fp_guard_begin(fp_guard *g);

void
fp_guard_end(fp_guard *g);

#define FP_GUARD() \
    __attribute__((cleanup(fp_guard_end))) fp_guard guard_; \
    fp_guard_begin(&guard_)

/* Calls [free] with [object] when no thread is under the guard any more.  Call
 * it under the guard. */
void
fp_guard_retire(void (*free)(void *object), void *object);

void
fp_world_stopped(void (*function)(void *arg), void *arg);

/* Is this a forked child that has started no thread and no recording so far?
 * A thread of the parent may have been about to stop the world; whoever stops
 * it in the child then waits forever for the lock of that thread.  CPython
 * stops it to set events: a child that does not record must not. */
int
fp_guard_is_alone(void);

/* The process starts a recording.  Returns 1 for a child's first one. */
int
fp_guard_child_records(void);

#else

#define FP_READ(field) (field)
#define FP_WRITE(field, value) ((field) = (value))

#define FP_GUARD() (void)0

#define fp_guard_retire(free, object) (free)(object)
#define fp_guard_is_alone() 0
#define fp_guard_child_records() 0
#define fp_guard_init() 0

static inline void
fp_world_stopped(void (*function)(void *arg), void *arg)
{
    function(arg);
}

#endif

#endif
