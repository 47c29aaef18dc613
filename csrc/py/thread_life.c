#include "py/thread_life.h"

#include <stdatomic.h>
#include <stdlib.h>

struct fp_life {
    atomic_int ended;
    atomic_int references;
};

static void
thread_ended(void *arg)
{
    fp_life *life = arg;
    /* Destructors that run after this one may run Python code in this thread;
     * it then gets a separate record. */
    fp_tls *me = fp_tls_if_any();
    if (me != NULL) {
        me->functions.epoch = 0;
        me->sections.epoch = 0;
    }
    atomic_store(&life->ended, 1);
    fp_life_release(life);
}

void
fp_life_init(fp_state *st)
{
    st->have_thread_key =
        pthread_key_create(&st->thread_key, thread_ended) == 0;
}

fp_life *
fp_life_acquire(fp_state *st)
{
    if (!st->have_thread_key) {
        return NULL;
    }
    fp_life *life = pthread_getspecific(st->thread_key);
    if (life == NULL) {
        /* Python's allocator cannot be used: the record is freed without the
         * GIL. */
        life = malloc(sizeof(*life));
        if (life == NULL) {
            return NULL;
        }
        atomic_init(&life->ended, 0);
        atomic_init(&life->references, 1); /* the reference of the thread */
        if (pthread_setspecific(st->thread_key, life) != 0) {
            free(life);
            return NULL;
        }
    }
    atomic_fetch_add(&life->references, 1);
    return life;
}

int
fp_life_ended(fp_life *life)
{
    return life != NULL && atomic_load(&life->ended);
}

void
fp_life_release(fp_life *life)
{
    if (life != NULL && atomic_fetch_sub(&life->references, 1) == 1) {
        free(life);
    }
}
