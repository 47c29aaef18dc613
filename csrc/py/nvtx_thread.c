#include "py/nvtx_thread.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_LEVELS = 65536 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int have_key;

static void
thread_ended(void *arg)
{
    fp_nvtx_thread *t = arg;
    fp_alloc a = fp_alloc_libc();
    for (uint32_t i = 0; i < t->domains; i++) {
        free(t->domain[i].range);
    }
    free(t->domain);
    fp_nvtx_stack_free(&t->out, &a);
    free(t);
    /* Destructors that run later may begin ranges again. */
    fp_tls *me = fp_tls_if_any();
    if (me != NULL) {
        me->nvtx = NULL;
    }
}

static void
make_key(void)
{
    have_key = pthread_key_create(&key, thread_ended) == 0;
}

fp_nvtx_thread *
fp_nvtx_thread_get(int make)
{
    if (fp_this_thread->nvtx != NULL || !make) {
        return fp_this_thread->nvtx;
    }
    (void)pthread_once(&once, make_key);
    fp_tls *me = have_key ? fp_tls_own() : NULL;
    fp_nvtx_thread *t = me != NULL ? calloc(1, sizeof(*t)) : NULL;
    if (t != NULL && pthread_setspecific(key, t) != 0) {
        free(t);
        t = NULL;
    }
    if (t != NULL) {
        me->nvtx = t;
    }
    return t;
}

static fp_nvtx_levels *
add_domain(fp_nvtx_thread *t, const fp_nvtx_name *domain)
{
    fp_nvtx_levels *more =
        realloc(t->domain, (t->domains + 1) * sizeof(*more));
    if (more == NULL) {
        return NULL;
    }
    t->domain = more;
    more[t->domains] = (fp_nvtx_levels){.domain = domain};
    return &more[t->domains++];
}

fp_nvtx_levels *
fp_nvtx_thread_levels(const fp_nvtx_name *domain, int make)
{
    fp_nvtx_thread *t = fp_nvtx_thread_get(make);
    for (uint32_t i = 0; t != NULL && i < t->domains; i++) {
        if (t->domain[i].domain == domain) {
            return &t->domain[i];
        }
    }
    return t != NULL && make ? add_domain(t, domain) : NULL;
}

int
fp_nvtx_levels_room(fp_nvtx_levels *l)
{
    if (l->beyond > 0) {
        return 0;
    }
    if (l->length < l->capacity) {
        return 1;
    }
    uint32_t capacity = l->capacity != 0 ? l->capacity * 2 : 16;
    fp_nvtx_range *range = capacity <= MAX_LEVELS
                               ? realloc(l->range, capacity * sizeof(*range))
                               : NULL;
    if (range == NULL) {
        return 0;
    }
    l->range = range;
    l->capacity = capacity;
    return 1;
}
