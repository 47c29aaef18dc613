#include "py/nodes.h"

#include "py/call_form.h"

#include "core/path.h"
#include "core/steps_split.h"

/* NULL: out of memory. */
static const fp_keyent *
keep_key(fp_recorder *r, fp_key key, PyObject *object)
{
    fp_keyent *known = fp_keytab_find(&r->keys, key);
    if (known != NULL || fp_keytab_add(&r->keys, key, object) != FP_OK) {
        return known;
    }
    fp_call_form form = r->hooks.backend == FP_BACKEND_MONITORING
                            ? fp_called_how(r->state, key, object)
                            : FP_FORM_SHORT;
    known = fp_keytab_find(&r->keys, key);
    if (known != NULL) {
        known->form = (uint8_t)form;
    }
    return known;
}

fp_node *
fp_recorder_node(fp_recorder *r, fp_thread *t, fp_key key, PyObject *object)
{
    fp_node *n = fp_thread_find(t, key);
    if (n != NULL) {
        return n;
    }
    if (t->tree.count >= (uint64_t)t->limits.max_nodes * 2) {
        /* the tree is full, so the key is not kept */
        return fp_thread_add(t, key);
    }
    /* Take the reference first: a node must never have a dangling key. */
    const fp_keyent *e = keep_key(r, key, object);
    if (e == NULL) {
        t->counters.dropped++;
        return NULL;
    }
    n = fp_thread_add(t, key);
    n->flags |= e->chosen ? FP_NODE_MUTED : 0;
    if (e->wait != FP_KIND_NONE) {
        fp_thread_list_wait(t, n, (fp_kind)e->wait);
    }
    return n;
}
