#include "py/recorder.h"

#include "py/call_form.h"
#include "py/gc_hook.h"
#include "py/gpu_layer.h"
#include "py/paused.h"
#include "py/section_type.h"
#include "py/thread_life.h"

#include "core/steps_split.h"

const uint64_t fp_epoch_off = FP_EPOCH_OFF;

uint64_t
fp_new_epoch(void)
{
    static uint64_t last; /* guarded by the GIL */
    return ++last;
}

/* ---- threads ---- */

enum { FIRST_SWEEP = 32 };

fp_thread *
fp_recorder_own_thread(fp_recorder *r)
{
    /* The two layers of one recorder share a thread's record. */
    const fp_tls *me = fp_this_thread;
    if (me->sections.epoch == r->section_epoch) {
        return me->sections.thread;
    }
    if (me->functions.epoch == r->function_epoch) {
        return me->functions.thread;
    }
    /* A layer was switched off and on since. */
    fp_life *mine = fp_life_acquire(r->state);
    unsigned long ident = PyThread_get_thread_ident();
    fp_thread *t = r->threads;
    while (t != NULL && !(mine ? t->user == mine : t->ident == ident)) {
        t = t->next;
    }
    fp_life_release(mine);
    return t;
}

static fp_thread *
create_own(fp_recorder *r)
{
    if (r->thread_count >= r->sweep_at && !r->exporting) {
        fp_recorder_sweep(r);
        r->sweep_at = r->thread_count * 2 + FIRST_SWEEP;
    }
    /* An external timer is not read here: cProfile reads it once per event. */
    int64_t now = r->timer != NULL ? INT64_MIN : fp_clock_now(&r->clock);
    fp_thread *t = fp_thread_create(&r->alloc, r->limits, now);
    if (t == NULL) {
        r->dropped_threads++;
        return NULL;
    }
    t->ident = PyThread_get_thread_ident();
    t->serial = ++r->threads_seen;
#ifdef PY_HAVE_THREAD_NATIVE_ID
    t->native = PyThread_get_thread_native_id();
#endif
    t->user = fp_life_acquire(r->state);
    if (now != INT64_MIN) {
        /* Without memory its calls count as those of measured steps. */
        (void)fp_thread_set_run_phase(t, r->phases.now, now);
    }
    t->next = r->threads;
    r->threads = t;
    r->thread_count++;
    fp_paused_thread_made(r, t);
    if (r->tracing) {
        fp_trace_begin(&r->trace, t);
    }
    return t;
}

fp_thread *
fp_recorder_make_own_thread(fp_recorder *r)
{
    if (fp_tls_own() == NULL) {
        r->dropped_threads++;
        return NULL;
    }
    if (fp_this_thread->left_out) {
        return NULL;
    }
    fp_thread *t = fp_recorder_own_thread(r);
    return t != NULL ? t : create_own(r);
}

FP_COLD fp_thread *
fp_recorder_arrive(fp_recorder *r, fp_hook_kind kind, fp_key key)
{
    if (r->function_epoch == FP_EPOCH_OFF) {
        if (r->paused && r->functions_on) {
            fp_paused_event(r, kind, key);
        }
        return NULL;
    }
    fp_thread *t = fp_recorder_make_own_thread(r);
    if (t != NULL && kind != FP_HOOK_ASKED) {
        int starts = kind == FP_HOOK_ENTER && fp_key_tag(key) == FP_TAG_PYTHON;
        fp_tls_own()->functions = (fp_slot){r->function_epoch, t};
        fp_paused_catch_up(r, t, starts ? key : 0);
    }
    return t;
}

fp_thread *
fp_recorder_section_thread_slow(fp_recorder *r)
{
    if (r->section_epoch == FP_EPOCH_OFF) {
        return NULL;
    }
    fp_thread *t = fp_recorder_make_own_thread(r);
    if (t != NULL) {
        /* Phases before any loader count for "no loader". */
        if (fp_phases_reserve(&t->phases, &t->alloc, -1) != FP_OK) {
            t->counters.dropped++;
        }
        fp_tls_own()->sections = (fp_slot){r->section_epoch, t};
    }
    return t;
}

static void
free_thread(fp_thread *t)
{
    fp_life_release(t->user);
    fp_thread_destroy(t);
}

void
fp_recorder_free_threads(fp_recorder *r)
{
    fp_gpu_layer_hide_all(r);
    fp_thread *t = r->threads;
    r->threads = NULL;
    r->stepper = NULL;
    while (t != NULL) {
        fp_thread *next = t->next;
        free_thread(t);
        t = next;
    }
    r->thread_count = 0;
    r->sweep_at = FIRST_SWEEP;
    r->paused_epoch = fp_new_epoch();
    fp_thread_destroy(r->ended);
    r->ended = NULL;
    fp_gpu_layer_epochs(r);
}

/* Joins the record of a thread that has ended. */
static void
join(fp_recorder *r, fp_thread *t)
{
    fp_recorder_trace_ended(r, t);
    uint32_t nodes = t->tree.count;
    uint32_t *became = fp_gpu_layer_owns(r)
                           ? fp_alloc_zeroed(&r->alloc, nodes, sizeof(*became))
                           : NULL;
    fp_gpu_layer_hide(r, t);
    fp_thread_merge_mapped(r->ended, t, became);
    if (became != NULL) {
        fp_gpu_layer_renamed(r, t, r->ended, became);
        fp_alloc_give(&r->alloc, became, nodes, sizeof(*became));
    }
}

void
fp_recorder_sweep(fp_recorder *r)
{
    fp_thread **link = &r->threads;
    while (*link != NULL) {
        fp_thread *t = *link;
        /* Steps cannot be joined with anybody's: a thread that stepped stays. */
        int go = fp_life_ended(t->user) && t != r->stepper;
        if (go && r->ended == NULL) {
            r->ended = fp_thread_create(&r->alloc, r->limits, t->last);
            if (r->ended != NULL) {
                r->ended->serial = FP_ENDED_SERIAL;
            }
        }
        if (!go || r->ended == NULL) {
            link = &t->next;
            continue;
        }
        join(r, t);
        fp_recorder_restart_budget(r);
        *link = t->next;
        free_thread(t);
        r->thread_count--;
        r->ended_threads++;
    }
}

/* ---- events ---- */

/* NULL: no memory. */
static const fp_keyent *
keep_key(fp_recorder *r, fp_key key, PyObject *object)
{
    fp_keyent *known = fp_keytab_find(&r->keys, key);
    if (known != NULL || fp_keytab_add(&r->keys, key, object) != FP_OK) {
        return known;
    }
    fp_call_form form = r->backend == FP_BACKEND_MONITORING
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
        return fp_thread_add(t, key); /* full: the key will not be kept */
    }
    /* The reference first: a node whose key may dangle must not exist. */
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

static void
enter_at(fp_thread *t, fp_node *n, int resume, int64_t now)
{
    if (resume) {
        n->resumes++;
    }
    else {
        n->calls++;
    }
    fp_waits_enter(&t->waits, n);
    if (fp_node_is_flat(n)) {
        (void)fp_thread_enter_flat(t, n, now); /* a failure is counted */
    }
    else {
        fp_thread_enter(t, n, now);
    }
}

void
fp_recorder_enter_slow(fp_recorder *r, fp_thread *t, fp_key key,
                       PyObject *object, int resume)
{
    fp_node *n = fp_recorder_node(r, t, key, object);
    if (n != NULL) {
        enter_at(t, n, resume, fp_clock_now(&r->clock));
    }
}

void
fp_recorder_enter_followed(fp_recorder *r, fp_thread *t, fp_key key,
                           PyObject *object, int resume)
{
    fp_node *n;
    if (r->gpu_external) {
        fp_recorder_enter_external(r, t, key, object, resume);
    }
    else if ((n = fp_thread_predict(t, key)) != NULL) {
        enter_at(t, n, resume, fp_clock_now(&r->clock));
    }
    else {
        fp_recorder_enter_slow(r, t, key, object, resume);
    }
    fp_recorder_trace(r, t, t->last);
}

void
fp_recorder_leave_followed(fp_recorder *r, fp_thread *t, fp_key key)
{
    if (r->gpu_external) {
        fp_recorder_leave_external(r, t, key);
    }
    else {
        fp_thread_leave(t, key, fp_clock_now(&r->clock));
    }
    fp_recorder_trace(r, t, t->last);
}

/* ---- steps ---- */

unsigned
fp_recorder_signals(const fp_recorder *r)
{
    unsigned signals = 0;
    if (r->function_epoch != FP_EPOCH_OFF && r->builtins) {
        signals |= FP_SIGNAL_FUNCTIONS;
    }
    if (fp_gc_hook_is_in(r)) {
        signals |= FP_SIGNAL_GC;
    }
    /* Told by ids alone, a wait is known long after its step. */
    if (r->gpu_on && !r->gpu_external) {
        signals |= FP_SIGNAL_GPU;
    }
    return signals;
}

/* ---- in the middle of something ---- */

static void
use(fp_recorder *r, uint32_t *count)
{
    if (r->busy_timer == 0 && r->exporting == 0) {
        r->next_in_use = r->state->in_use;
        r->state->in_use = r;
    }
    ++*count;
}

static void
end_use(fp_recorder *r, uint32_t *count)
{
    --*count;
    if (r->busy_timer == 0 && r->exporting == 0) {
        fp_recorder **link = &r->state->in_use;
        while (*link != r) {
            link = &(*link)->next_in_use;
        }
        *link = r->next_in_use;
    }
}

void
fp_recorder_begin_export(fp_recorder *r)
{
    fp_tls *me = fp_tls_own();
    if (me != NULL) {
        me->exporting++;
    }
    use(r, &r->exporting);
}

void
fp_recorder_end_export(fp_recorder *r)
{
    fp_tls *me = fp_tls_if_any();
    if (me != NULL && me->exporting != 0) {
        me->exporting--;
    }
    end_use(r, &r->exporting);
    if (r->forget_wanted) {
        fp_recorder_forget(r);
    }
}

void
fp_recorder_forked(fp_state *st)
{
    fp_recorder **link = &st->in_use;
    while (*link != NULL) {
        fp_recorder *r = *link;
        /* What this thread itself is in the middle of goes on here. */
        r->busy_timer = fp_this_thread->in_timer ? r->busy_timer : 0;
        r->exporting = fp_this_thread->exporting ? r->exporting : 0;
        if (r->busy_timer == 0 && r->exporting == 0) {
            *link = r->next_in_use;
        }
        else {
            link = &r->next_in_use;
        }
    }
}

void
fp_recorder_forget(fp_recorder *r)
{
    r->forget_wanted = r->exporting != 0;
    if (r->forget_wanted) {
        return;
    }
    fp_recorder_reset(r);
}

/* ---- external timer ---- */

/* The timer's answer as ticks; 0 and an exception for what is no time. */
static int64_t
timer_ticks(const fp_recorder *r, PyObject *value)
{
    /* Half of the range, so that no difference of two readings overflows. */
    const double limit = 4.6e18;
    if (r->timer_unit > 0.0 && PyLong_Check(value)) {
        int overflow;
        int64_t ticks = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (!overflow && ticks < (int64_t)limit && ticks > -(int64_t)limit) {
            return ticks;
        }
    }
    double v = PyFloat_AsDouble(value);
    if (v == -1.0 && PyErr_Occurred()) {
        return 0;
    }
    if (r->timer_unit <= 0.0) {
        v *= 1e9; /* seconds: one tick is 1 ns */
    }
    if (!(v > -limit && v < limit)) {
        PyErr_SetString(PyExc_OverflowError, "timer value out of range");
        return 0;
    }
    return (int64_t)v;
}

/* Reads the external timer.  It is Python code: it may switch threads, drop the
 * last reference to the recorder or fail.  0: *now is valid and the layer is as
 * it was; -1: forget the event. */
static int
read_timer(fp_recorder *r, int64_t *now)
{
    uint64_t epoch = r->function_epoch;
    fp_tls *me = fp_tls_own();
    if (me == NULL) {
        return -1;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    Py_INCREF((PyObject *)r);
    me->in_timer++;
    use(r, &r->busy_timer);
    PyObject *value = PyObject_CallNoArgs(r->timer);
    int64_t ticks = value != NULL ? timer_ticks(r, value) : 0;
    Py_XDECREF(value);
    end_use(r, &r->busy_timer);
    me->in_timer--;
    if (PyErr_Occurred()) {
        /* As cProfile does: say it, go on with time 0. */
        PyErr_WriteUnraisable(r->timer);
        r->timer_errors++;
        ticks = 0;
    }
    /* The timer may have dropped the last reference but this one. */
    int same = r->function_epoch == epoch && Py_REFCNT((PyObject *)r) > 1;
    Py_DECREF((PyObject *)r);
    PyErr_Restore(type, exc, tb);
    *now = ticks;
    return same ? 0 : -1;
}

/* The first event a thread sees only sets its clock. */
static void
first_reading(fp_thread *t, int64_t now)
{
    if (t->last == INT64_MIN) {
        t->last = now;
    }
}

void
fp_recorder_enter_timed(fp_recorder *r, fp_key key, PyObject *object,
                        int resume)
{
    int64_t now;
    if (fp_this_thread->in_timer || read_timer(r, &now) < 0) {
        return;
    }
    fp_thread *t = fp_recorder_here(r);
    fp_node *n = t != NULL ? fp_recorder_node(r, t, key, object) : NULL;
    if (n != NULL) {
        first_reading(t, now);
        enter_at(t, n, resume, now);
    }
}

void
fp_recorder_leave_timed(fp_recorder *r, fp_key key)
{
    int64_t now;
    fp_thread *t = fp_recorder_here(r);
    if (t == NULL || fp_this_thread->in_timer || !fp_thread_in_function(t)) {
        return; /* a return without a call reads no clock */
    }
    if (read_timer(r, &now) < 0 || (t = fp_recorder_here(r)) == NULL) {
        return;
    }
    first_reading(t, now);
    fp_thread_leave(t, key, now);
}

int
fp_recorder_guard_timer(fp_recorder *r, const char *what, int whole)
{
    if (fp_this_thread->in_timer || (whole && r->busy_timer)) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s() called from inside the profiler's timer: "
                     "a timer may only return the time",
                     what);
        return -1;
    }
    return 0;
}
