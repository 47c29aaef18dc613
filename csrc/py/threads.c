#include "py/threads.h"

#include "py/call_form.h"
#include "py/guard.h"
#include "py/mode.h"
#include "py/thread_life.h"

#include "core/path_rebuild.h"
#include "core/steps_split.h"
#include "core/thread_sections.h"

enum { FIRST_SWEEP = 32 };

fp_thread *
fp_recorder_own_thread(fp_recorder *r)
{
    /* Both layers of a recorder share a thread's record. */
    const fp_tls *me = fp_this_thread;
    if (me->sections.epoch == r->section_epoch) {
        return me->sections.thread;
    }
    if (me->functions.epoch == r->function_epoch) {
        return me->functions.thread;
    }
    /* A layer was switched off and on since then. */
    fp_life *mine = fp_life_acquire(r->state);
    unsigned long ident = PyThread_get_thread_ident();
    fp_thread *t = r->threads;
    while (t != NULL && !(mine ? t->user == mine : t->ident == ident)) {
        t = t->next;
    }
    fp_life_release(mine);
    return t;
}

fp_thread *
fp_recorder_thread_numbered(const fp_recorder *r, uint64_t serial)
{
    fp_thread *t = r->threads;
    while (t != NULL && t->serial != serial) {
        t = t->next;
    }
    return t;
}

static void
free_thread(void *thread)
{
    fp_thread *t = thread;
    fp_life_release(t->user);
    fp_thread_destroy(t);
}

/* Joins the record of an ended thread. */
static void
join(fp_recorder *r, fp_thread *t)
{
    uint32_t nodes = t->tree.count;
    uint32_t *became = fp_alloc_zeroed(&r->alloc, nodes, sizeof(*became));
    FP_LAYERS(r, thread_ended, r, t);
    fp_thread_merge(r->ended, t, became);
    if (became != NULL) {
        FP_LAYERS(r, renamed, r, t, r->ended, became);
        fp_alloc_give(&r->alloc, became, nodes, sizeof(*became));
    }
}

/* Joins the records of ended threads into `ended` and frees them. */
static void
sweep(fp_recorder *r)
{
    fp_thread **link = &r->threads;
    while (*link != NULL) {
        fp_thread *t = *link;
        /* The training thread's record stays: steps of two threads cannot be
         * joined. */
        int go = fp_life_ended(t->user) && t != r->stepper;
        if (go && r->ended == NULL) {
            r->ended = fp_thread_create(&r->alloc, r->config.limits, t->last);
            if (r->ended != NULL) {
                r->ended->serial = FP_ENDED_SERIAL;
            }
        }
        if (!go || r->ended == NULL) {
            link = &t->next;
            continue;
        }
        join(r, t);
        *link = t->next;
        fp_guard_retire(free_thread, t);
        r->thread_count--;
        r->recording.ended_threads++;
    }
}

static fp_thread *
create_own(fp_recorder *r)
{
    if (r->thread_count >= r->sweep_at && !r->exporting) {
        sweep(r);
        r->sweep_at = r->thread_count * 2 + FIRST_SWEEP;
    }
    /* No reading of an external timer here: cProfile reads it once per
     * event. */
    int64_t now =
        r->config.timer != NULL ? INT64_MIN : fp_clock_now(&r->clock);
    fp_thread *t = fp_thread_create(&r->alloc, r->config.limits, now);
    if (t == NULL) {
        r->recording.dropped_threads++;
        return NULL;
    }
    t->ident = PyThread_get_thread_ident();
    t->serial = ++r->threads_seen;
#ifdef PY_HAVE_THREAD_NATIVE_ID
    t->native = PyThread_get_thread_native_id();
#endif
    t->user = fp_life_acquire(r->state);
    if (now != INT64_MIN) {
        /* If memory runs out, its calls count as those of measured steps. */
        (void)fp_thread_set_run_phase(t, r->recording.phases.now, now);
    }
    t->next = r->threads;
    r->threads = t;
    r->thread_count++;
    t->before = UINT32_MAX;
    if (r->functions_on && r->config.callers && r->config.timer == NULL) {
        /* Its first event puts the calls that are already open on its path. */
        t->stale = 1;
        fp_thread_park(t, t->last);
    }
    if (r->tracing) {
        fp_trace_begin(&r->trace.log, t);
    }
    return t;
}

fp_thread *
fp_recorder_make_own_thread(fp_recorder *r)
{
    if (fp_tls_own() == NULL) {
        r->recording.dropped_threads++;
        return NULL;
    }
    if (fp_this_thread->left_out) {
        return NULL;
    }
    fp_thread *t = fp_recorder_own_thread(r);
    return t != NULL ? t : create_own(r);
}

fp_thread *
fp_recorder_section_thread_slow(fp_recorder *r)
{
    if (r->section_epoch == FP_EPOCH_OFF) {
        return NULL;
    }
    fp_thread *t = fp_recorder_make_own_thread(r);
    if (t != NULL) {
        /* Phases before the first loader count as "no loader". */
        if (fp_phases_reserve(&t->phases, &t->alloc, -1) != FP_OK) {
            t->counters.dropped++;
        }
        fp_tls_own()->sections = (fp_slot){r->section_epoch, t};
    }
    return t;
}

typedef struct hidden {
    fp_recorder *r;
    fp_keytab *keys;
    fp_thread *threads;
    fp_thread *ended;
    int refused;
} hidden;

/* The new epochs hide the records from events that begin after this. */
static void
hide_records(void *arg)
{
    hidden *h = arg;
    fp_recorder *r = h->r;
    h->refused = r->exporting != 0;
    if (h->refused) {
        return;
    }
    h->threads = r->threads;
    h->ended = r->ended;
    r->threads = r->ended = NULL;
    r->thread_count = 0;
    r->sweep_at = FIRST_SWEEP;
    if (h->keys != NULL) {
        *h->keys = fp_keytab_take(&r->keys);
    }
    r->stepper = NULL;
    r->paused_epoch = fp_new_epoch();
    if (r->function_epoch != FP_EPOCH_OFF) {
        fp_recorder_set_epoch(r, fp_new_epoch());
    }
    if (r->section_epoch != FP_EPOCH_OFF) {
        FP_WRITE(r->section_epoch, fp_new_epoch());
    }
}

int
fp_recorder_free_threads(fp_recorder *r, fp_keytab *keys)
{
    hidden h = {.r = r, .keys = keys};
    FP_LAYERS(r, hide_all, r);
    fp_world_stopped(hide_records, &h);
    while (h.threads != NULL) {
        fp_thread *t = h.threads;
        h.threads = t->next;
        fp_guard_retire(free_thread, t);
    }
    if (h.ended != NULL) {
        fp_guard_retire(free_thread, h.ended);
    }
    FP_LAYERS(r, epochs, r);
    return h.refused ? -1 : 0;
}

/* ---- nodes ---- */

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
    if (e->wait != FP_KIND_NONE) {
        fp_thread_list_wait(t, n, (fp_kind)e->wait);
    }
    return n;
}

/* ---- sections ---- */

typedef struct stray_exit {
    const fp_recorder *r;
    fp_thread *t;
    uint32_t id;
} stray_exit;

static void
count_stray_exit(void *arg)
{
    const stray_exit *x = arg;
    for (fp_thread *u = x->r->threads; u != NULL; u = u->next) {
        if (u != x->t && fp_thread_has_open_section(u, x->id)) {
            x->t->counters.wrong_thread++;
            return;
        }
    }
    x->t->counters.stray_exit++;
}

void
fp_recorder_count_stray_exit(fp_recorder *r, fp_thread *t, uint32_t id)
{
    fp_world_stopped(count_stray_exit, &(stray_exit){r, t, id});
}
