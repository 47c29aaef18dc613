/* switches: turn the layers of a recorder on and off. */
#include "py/switches.h"

#include "py/guard.h"
#include "py/hooks.h"
#include "py/interrupts.h"
#include "py/mode.h"
#include "py/paused.h"
#include "py/run_phase.h"

#include "core/path.h"
#include "core/steps_split.h"
#include "core/thread_sections.h"

#include <time.h>

static void
account_start(fp_recorder *r)
{
    if (!r->functions_on && !r->sections_on && r->config.timer == NULL) {
        fp_clock_learn(&r->clock);
        r->started = fp_clock_now(&r->clock);
        r->recording.origin =
            r->recording.origin != 0 ? r->recording.origin : r->started;
        fp_recorder_phase_begins(r, r->started);
    }
}

static void
account_stop(fp_recorder *r)
{
    if (!r->functions_on && !r->sections_on && r->config.timer == NULL) {
        int64_t now = fp_clock_now(&r->clock);
        r->recording.recorded_ticks += now - r->started;
        fp_recorder_phase_ends(r, now);
    }
}

static int
busy(fp_state *st, const char *layer)
{
    PyErr_Format(st->busy_error,
                 "another fastprof recorder is recording %s; stop it first, "
                 "only one can at a time",
                 layer);
    return -1;
}

static int
start_backend(fp_recorder *r)
{
    r->hooks.fell_back = 0;
#if FP_HAVE_MONITORING
    if (r->config.wanted != FP_BACKEND_SETPROFILE) {
        int rc = fp_monitoring_start(r);
        if (rc == 0) {
            r->hooks.backend = FP_BACKEND_MONITORING;
            return 0;
        }
        if (r->config.wanted == FP_BACKEND_MONITORING ||
            !PyErr_ExceptionMatches(r->state->busy_error)) {
            return -1;
        }
        /* Every tool id is taken; try the older hook, which may be free. */
        PyErr_Clear();
        r->hooks.fell_back = 1;
    }
#endif
    if (fp_setprofile_start(r) < 0) {
        return -1;
    }
    r->hooks.backend = FP_BACKEND_SETPROFILE;
    return 0;
}

static void
stop_backend(fp_recorder *r)
{
    if (r->hooks.backend == FP_BACKEND_MONITORING) {
        fp_monitoring_stop(r);
    }
    else {
        fp_setprofile_stop(r);
    }
}

/* Setting and removing a hook runs Python code, so another thread may call in
 * between.  That thread waits: otherwise its calls would be lost or its
 * removal undone.  The wait is bounded, because foreign code runs there. */
static void
wait_for_other_switch(const fp_recorder *r)
{
    enum { PATIENCE = 10000, NAP_NS = 50000 };
    const struct timespec nap = {0, NAP_NS};
    for (int i = 0; i < PATIENCE && r->switching &&
                    r->switcher != PyThread_get_thread_ident();
         i++) {
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&nap, NULL);
        Py_END_ALLOW_THREADS
    }
}

static void
begin_switch(fp_recorder *r)
{
    r->switching = 1;
    r->switcher = PyThread_get_thread_ident();
}

/* Closes the open calls of every thread and records no more; sections stay
 * open. */
static void
drop_calls(void *arg)
{
    fp_recorder *r = arg;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        t->unseen = 0;
        t->stale = 0;
        t->refound = 0;
        if (t->last != INT64_MIN) {
            fp_thread_unpark(t, fp_recorder_now_of(r, t));
            fp_thread_drop_functions(t, fp_recorder_now_of(r, t));
            fp_recorder_trace(r, t, t->last);
        }
    }
    fp_recorder_set_epoch(r, FP_EPOCH_OFF);
}

static void
drop_all_functions(fp_recorder *r)
{
    fp_world_stopped(drop_calls, r);
}

/* disable() may have been called during the switch. */
static void
after_switch(fp_recorder *r)
{
    if (r->stop_wanted) {
        fp_recorder_stop_functions(r);
    }
}

int
fp_recorder_start_functions(fp_recorder *r)
{
    fp_state *st = r->state;
    wait_for_other_switch(r);
    if (r->switching) {
        PyErr_SetString(PyExc_RuntimeError,
                        "enable() called from code that runs while the hook "
                        "is being set or removed");
        return -1;
    }
    if (r->functions_on || st->forced_off) {
        return 0;
    }
    if (st->function_owner != NULL) {
        return busy(st, "functions");
    }
    /* Callbacks of the parent's recording may have switched events off. */
    st->restart_events |= fp_guard_child_records();
    begin_switch(r);
    uint64_t epoch = fp_new_epoch();
    /* Recording begins before the hook is set, so that the first event finds
     * it.  A failure undoes all of this. */
    account_start(r);
    r->functions_on = 1;
    r->paused = r->unhooked = 0;
    fp_recorder_set_epoch(r, epoch);
    st->function_owner = r;
    fp_paused_expect_callers(r);
    int rc = start_backend(r);
    r->switching = 0;
    if (rc < 0) {
        r->stop_wanted = 0;
        r->functions_on = 0;
        drop_all_functions(r);
        st->function_owner = NULL;
        account_stop(r);
        return -1;
    }
    FP_LAYERS(r, epochs, r);
    after_switch(r);
    return 0;
}

void
fp_recorder_stop_functions(fp_recorder *r)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    wait_for_other_switch(r);
    if (!r->functions_on || r->switching) {
        r->stop_wanted = r->switching; /* the end of the switch does it */
        PyErr_Restore(type, exc, tb);
        return;
    }
    begin_switch(r);
    FP_LAYERS(r, functions_stop, r);
    drop_all_functions(r);
    FP_LAYERS(r, epochs, r);
    if (!r->unhooked) {
        stop_backend(r);
    }
    r->functions_on = r->paused = r->unhooked = 0;
    fp_recorder_set_mode(r);
    FP_LAYERS(r, epochs, r);
    if (r->state->function_owner == r) {
        r->state->function_owner = NULL;
    }
    account_stop(r);
    PyErr_Restore(type, exc, tb);
    r->switching = 0;
    r->stop_wanted = 0;
}

int
fp_recorder_start_sections(fp_recorder *r)
{
    fp_state *st = r->state;
    if (r->sections_on || st->forced_off) {
        return 0;
    }
    if (r->config.timer != NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "sections cannot be timed with an external timer; "
                        "make a Recorder without one");
        return -1;
    }
    if (st->section_owner != NULL) {
        return busy(st, "sections");
    }
    account_start(r);
    FP_WRITE(r->section_epoch, fp_new_epoch());
    r->sections_on = 1;
    FP_LAYERS(r, epochs, r);
    FP_WRITE(r->nvtx_out, st->nvtx_out);
    FP_WRITE(st->section_owner, r);
    FP_LAYERS(r, sections_start, r);
    return 0;
}

static void
drop_sections(void *arg)
{
    fp_recorder *r = arg;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_split_stop(t); /* a collection may be running in that thread */
        int parked = fp_thread_is_parked(t);
        fp_thread_unpark(t, fp_recorder_now_of(r, t));
        fp_thread_drop_sections(t, fp_recorder_now_of(r, t));
        if (parked) {
            fp_thread_park(t, fp_recorder_now_of(r, t));
        }
    }
    FP_WRITE(r->section_epoch, FP_EPOCH_OFF);
    if (r->state->section_owner == r) {
        FP_WRITE(r->state->section_owner, NULL);
    }
}

void
fp_recorder_stop_sections(fp_recorder *r)
{
    if (!r->sections_on) {
        return;
    }
    FP_LAYERS(r, sections_stop, r);
    fp_world_stopped(drop_sections, r);
    FP_LAYERS(r, epochs, r);
    r->sections_on = 0;
    account_stop(r);
}

/* Removing and setting the hook runs Python code; see
 * wait_for_other_switch(). */
static void
take_hook_out(fp_recorder *r)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    begin_switch(r);
    r->unhooked = 1; /* not the end of the recording; see set_here() */
    stop_backend(r);
    r->switching = 0;
    PyErr_Restore(type, exc, tb);
}

int
fp_recorder_pause(fp_recorder *r, int unhook)
{
    wait_for_other_switch(r);
    if (!r->functions_on || r->switching) {
        return 0;
    }
    unhook = unhook && !r->unhooked;
    int begins = !r->paused;
    if (r->config.timer != NULL) {
        uint64_t epoch = r->function_epoch;
        drop_all_functions(r); /* the time in between is unknown */
        if (r->functions_on && epoch != FP_EPOCH_OFF) {
            r->paused_epoch = epoch;
            r->paused = 1;
            fp_recorder_set_mode(r);
        }
    }
    else if (begins || unhook) {
        fp_paused_begin(r, unhook, begins);
    }
    if (begins) {
        FP_LAYERS(r, epochs, r);
    }
    if (FP_FREE_THREADED &&
        (!r->functions_on || r->switching || r->unhooked)) {
        return begins; /* another thread was faster */
    }
    if (unhook) {
        take_hook_out(r);
        after_switch(r);
    }
    return begins;
}

/* Setting the hook calls functions in Python, so an exception may come from
 * outside, such as a signal handler's.  It is no reason not to set the hook:
 * that is tried again, and the program gets the exception afterwards.
 * [outside]: whether the exception of a failure is such a one. */
static int
start_backend_again(fp_recorder *r, int *outside)
{
    *outside = 0;
    if (start_backend(r) == 0) {
        return 0;
    }
    *outside = fp_error_is_from_outside();
    if (!*outside) {
        return -1;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    int rc = start_backend(r);
    (void)fp_error_drop(); /* if it is from outside, it comes again */
    PyErr_Restore(type, exc, tb);
    if (rc == 0) {
        (void)fp_error_drop();
    }
    return rc;
}

int
fp_recorder_rehook(fp_recorder *r)
{
    wait_for_other_switch(r);
    if (!r->functions_on || !r->unhooked || r->switching) {
        return 0;
    }
    begin_switch(r);
    int outside, rc = start_backend_again(r, &outside);
    r->switching = 0;
    r->unhooked = rc < 0;
    if (rc < 0 && !outside) {
        fp_recorder_stop_functions(r); /* otherwise the next call may set it */
    }
    after_switch(r);
    return rc;
}

void
fp_recorder_resume(fp_recorder *r)
{
    if (!r->functions_on || !r->paused || r->unhooked || r->switching) {
        return;
    }
    r->paused = 0;
    fp_recorder_set_epoch(r, fp_new_epoch());
    if (r->config.timer == NULL) {
        (void)fp_recorder_arrive(r, FP_HOOK_LEAVE, 0);
    }
    FP_LAYERS(r, epochs, r);
}

unsigned
fp_recorder_signals(const fp_recorder *r)
{
    unsigned signals = 0;
    if (r->function_epoch != FP_EPOCH_OFF && r->config.builtins) {
        signals |= FP_SIGNAL_FUNCTIONS;
    }
    for (const fp_layer *const *l = r->layers; *l != NULL; l++) {
        signals |= (*l)->signals != NULL ? (*l)->signals(r) : 0;
    }
    return signals;
}
