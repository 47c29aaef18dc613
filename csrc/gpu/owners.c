#include "gpu/owners.h"

#include "core/path.h"

fp_place
fp_owner_choose(const fp_owner_state *states, uint32_t n, int functions_known)
{
    const fp_owner_state *latest = NULL, *inside = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const fp_owner_state *s = &states[i];
        if (s->backward != 0 &&
            (inside == NULL || s->opened >= inside->opened)) {
            inside = s;
        }
        if (s->section != 0 &&
            (latest == NULL || s->opened >= latest->opened)) {
            latest = s;
        }
    }
    if (inside != NULL) {
        return inside->backward;
    }
    if (latest != NULL && (!functions_known || latest->is_backward_phase)) {
        return latest->section;
    }
    return 0;
}

/* ---- owners at the present ---- */

int
fp_owners_join(fp_owners *o, const fp_thread *t)
{
    for (int i = 0; i < FP_OWNERS; i++) {
        if (atomic_load(&o->slot[i].thread) == t) {
            return i;
        }
    }
    for (int i = 0; i < FP_OWNERS; i++) {
        const fp_thread *nobody = NULL;
        if (atomic_compare_exchange_strong(&o->slot[i].thread, &nobody, t)) {
            return i;
        }
    }
    return -1;
}

void
fp_owners_leave(fp_owners *o, const fp_thread *t)
{
    for (int i = 0; i < FP_OWNERS; i++) {
        if (atomic_load(&o->slot[i].thread) == t) {
            atomic_store(&o->slot[i].section, 0);
            atomic_store(&o->slot[i].opened, 0);
            atomic_store(&o->slot[i].is_backward_phase, 0);
            atomic_store(&o->slot[i].thread, NULL);
        }
    }
}

void
fp_owners_section(fp_owners *o, int slot, fp_place section, int backward)
{
    fp_owner *s = &o->slot[slot];
    atomic_store_explicit(&s->is_backward_phase, backward,
                          memory_order_relaxed);
    uint64_t now =
        atomic_fetch_add_explicit(&o->count, 1, memory_order_relaxed);
    atomic_store_explicit(&s->opened, now + 1, memory_order_relaxed);
    atomic_store_explicit(&s->section, section, memory_order_release);
}

const fp_node *
fp_owners_backward_node(const fp_owners *o, const fp_node *n)
{
    enum { DEEP_ENOUGH = 64 };
    for (int i = 0; n != NULL && i < DEEP_ENOUGH; i++, n = n->parent) {
        if (fp_key_tag(n->key) == FP_TAG_C && o->is_backward(n->key)) {
            return n;
        }
    }
    return NULL;
}

fp_place
fp_owners_find(const fp_owners *o, const fp_thread *self)
{
    fp_owner_state state[FP_OWNERS];
    uint32_t n = 0;
    for (int i = 0; i < FP_OWNERS; i++) {
        const fp_owner *s = &o->slot[i];
        const fp_thread *t = atomic_load(&s->thread);
        if (t == NULL || t == self) {
            continue;
        }
        fp_owner_state *now = &state[n++];
        now->section = atomic_load_explicit(&s->section, memory_order_acquire);
        now->opened = atomic_load_explicit(&s->opened, memory_order_relaxed);
        now->is_backward_phase =
            atomic_load_explicit(&s->is_backward_phase, memory_order_relaxed);
        const fp_node *b = fp_owners_backward_node(o, fp_thread_stands(t));
        now->backward = b != NULL ? fp_place_of(t, b) : 0;
    }
    return fp_owner_choose(
        state, n,
        atomic_load_explicit(&o->functions_known, memory_order_relaxed));
}
