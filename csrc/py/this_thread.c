#include "py/this_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const fp_tls nobody;

_Thread_local const fp_tls *fp_this_thread = &nobody;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int have_key;

/* Runs without the GIL. */
static void
thread_ended(void *arg)
{
    fp_tls *me = arg;
    /* Other destructors of this round still write to the state. */
    if (!me->ending && pthread_setspecific(key, me) == 0) {
        me->ending = 1;
        return;
    }
    /* Destructors of later rounds may run Python code, which gets a new
     * state. */
    fp_this_thread = &nobody;
    free(me);
}

static void
make_key(void)
{
    have_key = pthread_key_create(&key, thread_ended) == 0;
}

fp_tls *
fp_tls_if_any(void)
{
    return fp_this_thread != &nobody ? (fp_tls *)fp_this_thread : NULL;
}

fp_tls *
fp_tls_own(void)
{
    if (fp_this_thread == &nobody) {
        (void)pthread_once(&once, make_key);
        /* Python's allocator cannot be used: the state is freed without the
         * GIL. */
        fp_tls *me = calloc(1, sizeof(*me));
        if (me == NULL) {
            return NULL;
        }
        /* Without a key the state would leak when its thread ends. */
        if (have_key && pthread_setspecific(key, me) != 0) {
            free(me);
            return NULL;
        }
        fp_this_thread = me;
    }
    return (fp_tls *)fp_this_thread;
}

uint64_t
fp_new_epoch(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

int
fp_is_main_thread(void)
{
#if defined(__linux__)
    return syscall(SYS_gettid) == getpid();
#elif defined(__APPLE__)
    return pthread_main_np();
#else
    return 0;
#endif
}
