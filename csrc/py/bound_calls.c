#include "py/bound_calls.h"

#include "py/events.h"
#include "py/threads.h"

#if FP_HAVE_MONITORING

enum { MAX_SITES = 1 << 16 };

/* The key of a call site in the table of sites that have sent a C_RETURN. */
static fp_key
site_key(PyObject *code, long offset)
{
    return ((fp_key)code ^ ((fp_key)offset << 48)) | FP_TAG_SPECIAL;
}

void
fp_bound_forget(void)
{
    if (FP_UNLIKELY(fp_this_thread->pending_code != NULL)) {
        fp_tls_own()->pending_code = NULL;
    }
}

void
fp_bound_enter(fp_recorder *r, PyObject *function, PyObject *const *args)
{
    fp_key key = fp_c_function_key(function);
    if (key == 0 || fp_is_quiet(r->state, fp_key_method(key))) {
        return;
    }
    long offset = PyLong_AsLong(args[1]);
    if (fp_keytab_find(&r->sites, site_key(args[0], offset)) != NULL) {
        fp_recorder_enter(r, key, function, 0);
        return;
    }
    fp_thread *t = fp_recorder_at(r, FP_HOOK_ENTER, key);
    fp_node *n = t ? fp_recorder_node(r, t, key, function) : NULL;
    if (n != NULL) {
        n->calls++;
        fp_tls *me = fp_tls_own(); /* never NULL: the thread has a record */
        me->pending_code = args[0];
        me->pending_offset = offset;
        me->pending_key = key;
    }
}

int
fp_bound_ends(fp_recorder *r, fp_key key, PyObject *const *args)
{
    const fp_tls *me = fp_this_thread;
    if (me->pending_code != args[0] || me->pending_key != key ||
        fp_recorder_stands_in(r, key) ||
        PyLong_AsLong(args[1]) != me->pending_offset) {
        return 0;
    }
    fp_bound_forget();
    fp_key site = site_key(args[0], me->pending_offset);
    /* The table is bounded, because a program that generates code always has
     * new sites. */
    if (r->sites.count < MAX_SITES &&
        r->sites.count < r->config.limits.max_nodes &&
        fp_keytab_find(&r->sites, site) == NULL) {
        (void)fp_keytab_add(&r->sites, site, args[0]);
    }
    return 1;
}

#endif
