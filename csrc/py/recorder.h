/* recorder: one recording, its threads and its switches; what the hooks, the
 * sections and the type share.  All of it runs under the GIL. */
#ifndef FP_PY_RECORDER_H
#define FP_PY_RECORDER_H

#include "py/keytab.h"
#include "py/monitoring_tool.h"
#include "py/state.h"

#include "core/trace.h"

typedef enum fp_backend {
    FP_BACKEND_NONE, /* not chosen yet */
    FP_BACKEND_SETPROFILE,
    FP_BACKEND_MONITORING,
} fp_backend;

/* The phases of the run: which one it is, and how long each has taken. */
typedef struct fp_recorder_phases {
    fp_run_phase now;
    int64_t since; /* ticks, while a layer is on */
    int64_t ticks[FP_RUN_PHASES];
    uint64_t entries[FP_RUN_PHASES]; /* how often each began */
    uint64_t saved; /* 1 + steps there were at the last checkpoint; 0: none */
} fp_recorder_phases;

/* A look at what the recording costs, some nodes at each step; see budget.c. */
enum { FP_BUDGET_CHOICES = 64 };

/* Calls that do not cost the same. */
typedef enum fp_budget_kind {
    FP_BUDGET_PYTHON,
    FP_BUDGET_C,
    FP_BUDGET_CONSTRUCTOR,
    FP_BUDGET_KINDS,
} fp_budget_kind;

typedef enum fp_budget_stage {
    FP_BUDGET_IDLE,
    FP_BUDGET_COUNTING, /* calls and own times of all keys */
    FP_BUDGET_CHOOSING, /* among the keys, those to be muted */
    FP_BUDGET_MARKING,  /* their nodes, so that they leave the plain path */
} fp_budget_stage;

typedef struct fp_budget {
    fp_budget_stage stage;
    uint32_t look;   /* number of the look under way */
    uint32_t ended;  /* ... and of the last one that counted to its end */
    uint32_t key;    /* of the keys, the next one to be looked at */
    int64_t ticks;   /* when the last look ended */
    uint64_t steps;  /* ... and how many steps there were */
    uint64_t window; /* steps between the last two */
    /* Calls that it counted, and that the one under way has counted so far. */
    uint64_t calls[FP_BUDGET_KINDS];
    uint64_t new_calls[FP_BUDGET_KINDS];
    double ns_per_tick; /* 0: not known yet */
    double excess_ns;   /* above what is allowed */
    uint32_t choices;
    uint32_t choice[FP_BUDGET_CHOICES]; /* indices of keys, most calls first */
    uint64_t visits;                    /* nodes and keys looked at */
} fp_budget;

typedef struct fp_recorder {
    PyObject_HEAD
    fp_state *state; /* borrowed: the type keeps the module alive */
    PyObject *weakrefs;
    uint64_t function_epoch; /* FP_EPOCH_OFF: off or paused */
    uint64_t paused_epoch;   /* of threads that are followed in a pause */
    uint64_t section_epoch;
    fp_clock clock;
    PyObject *timer; /* owned or NULL: external timer */
    double timer_unit;
    PyObject *callback[FP_EVENTS]; /* owned; monitoring */
    PyObject *hook;                /* owned; setprofile */
    fp_alloc alloc;
    fp_limits limits;
    fp_thread *threads; /* owned; newest first; user = its fp_life */
    fp_thread *ended;   /* owned: what ended threads recorded; may be NULL */
    fp_thread *stepper; /* borrowed: the thread that steps */
    uint32_t thread_count;
    uint32_t sweep_at; /* look for ended threads at this many */
    uint64_t threads_seen;
    unsigned long switcher; /* that thread */
    fp_keytab keys;
    fp_keytab sites; /* call sites of bound builtins that do return */
    fp_backend wanted;
    fp_backend backend;
    int tool_id;
    int64_t started; /* ticks, while a layer is on */
    int64_t origin;  /* when one was switched on first; 0: never */
    int64_t recorded_ticks;
    fp_recorder_phases phases;
    uint64_t skip_steps;
    uint64_t
        unprofiled_at; /* steps without the hook begin with this one; 0: never */
    uint32_t outliers;       /* slowest steps to keep; 0: none */
    double max_overhead;     /* share of wall time; 0: no limit */
    double cost_python_ns;   /* per call, from calibration; 0: not known */
    double cost_implicit_ns; /* ... that no call instruction announces */
    double cost_c_ns;
    double cost_constructor_ns;
    fp_key resting; /* the hook is out in its home thread; see rest.h */
    fp_budget budget;
    uint64_t timer_errors;
    uint64_t sync_errors;
    uint64_t wrong_step_thread;
    uint64_t nvtx_without_gil; /* ranges that became no section, or no time */
    uint64_t nvtx_unmatched;   /* ends of ranges that nobody began */
    uint64_t nvtx_unbalanced;  /* ranges of ours that ended too early */
    PyObject *gc_hook;         /* owned or NULL; see gc_hook.h */
    uint64_t gc_elsewhere;     /* collections in other threads */
    uint64_t dropped_threads;  /* threads not recorded for want of memory */
    uint64_t ended_threads;    /* joined into `ended` */
    /* A section that another one may end; see leave_later(). */
    const struct fp_section_object *lingers; /* borrowed from the state */
    uint64_t lingers_epoch;
    const fp_thread *lingers_in; /* meaningless in another epoch */
    /* With any of these a section is no plain one. */
    union {
        struct {
            uint8_t lingering;
            uint8_t sync;
            uint8_t tracing;  /* a window of the trace is open */
            uint8_t gpu_on;   /* launches are attributed to this recorder */
            uint8_t nvtx_out; /* as in the state, or out of date: on */
        };
        uint64_t section_extras;
    };
    uint8_t parked; /* that section is closed, but its entry has not ended */
    uint8_t initialised;
    uint8_t functions_on;
    uint8_t sections_on;
    uint8_t paused;    /* calls are not recorded; see paused.h */
    uint8_t unhooked;  /* ... and the hook is out */
    uint8_t hook_lent; /* ... for steps without it */
    uint8_t callers;   /* calls that began before the recording are callers */
    uint8_t builtins;
    uint8_t subcalls;
    uint8_t constructors;
    uint8_t displaced;
    uint8_t fell_back;        /* no free tool id: setprofile instead */
    uint8_t new_threads_lost; /* threading's hook was somebody else's */
    uint32_t busy_timer;      /* threads inside the external timer */
    uint32_t exporting;       /* exports under way: records must not go */
    /* While one of these is not 0; see fp_recorder_forked(). */
    struct fp_recorder *next_in_use;
    uint8_t forget_wanted; /* a fork came in the middle of an export */
    uint8_t stop_wanted;   /* disable() came while the hook was being set */
    uint8_t switching;     /* a thread is setting or removing the hook */
    uint8_t any_muted;
    uint8_t leaves_out_sites;  /* of Python functions, for max_overhead */
    uint64_t sites_off;        /* ... which has switched off so many */
    uint64_t sites_off_most;   /* ... before all were listened to again */
    uint64_t calls_before_off; /* Python calls until then */
    uint32_t sites_wait;       /* events until one is looked at again */
    uint8_t has_trace;         /* trace_open() was called */
    fp_trace_log trace;        /* see trace_layer.c */
    int64_t trace_origin;      /* ticks; its times are since then */
    /* the GPU layer, see gpu_layer.h */
    uint8_t gpu_external; /* ... by ids that are pushed at every boundary */
    uint8_t gpu_asked;    /* gpu_start() was called */
    uint8_t gpu_partial;  /* it began within the step under way */
    uint8_t gpu_switching;
    PyObject *gpu_reason;       /* owned; str or NULL */
    PyObject *gpu_pause_reason; /* owned; str or NULL */
    PyObject *gpu_path;         /* owned; str or NULL */
    PyObject *gpu_lines;        /* owned; dict or NULL: see gpu_lines.c */
} fp_recorder;

/* ---- threads ---- */

/* This thread's record, if it has one. */
fp_thread *
fp_recorder_own_thread(fp_recorder *r);

/* The same, made if need be; NULL: without memory (counted), or it is left out. */
fp_thread *
fp_recorder_make_own_thread(fp_recorder *r);

/* What asks for this thread's record: an event of the hook, or somebody in the
 * middle of one. */
typedef enum fp_hook_kind {
    FP_HOOK_ENTER,
    FP_HOOK_LEAVE,
    FP_HOOK_ASKED,
} fp_hook_kind;

/* This thread's record for functions, at the first event since they were switched
 * on or resumed: its path is put in order.  NULL when they are off or paused, or
 * without memory (counted). */
fp_thread *
fp_recorder_arrive(fp_recorder *r, fp_hook_kind kind, fp_key key);

fp_thread *
fp_recorder_section_thread_slow(fp_recorder *r);

static inline fp_thread *
fp_recorder_section_thread(fp_recorder *r)
{
    const fp_tls *me = fp_this_thread;
    if (FP_LIKELY(me->sections.epoch == r->section_epoch)) {
        return me->sections.thread;
    }
    return fp_recorder_section_thread_slow(r);
}

/* Frees every thread's record.  No layer's slots may match afterwards: the
 * caller takes new epochs. */
void
fp_recorder_free_threads(fp_recorder *r);

/* Walks every record: those of live threads, then that of ended ones.  Begins
 * with [t] NULL, ends with NULL. */
static inline fp_thread *
fp_recorder_next(const fp_recorder *r, const fp_thread *t)
{
    if (t != NULL && t == r->ended) {
        return NULL;
    }
    fp_thread *next = t == NULL ? r->threads : t->next;
    return next != NULL ? next : r->ended;
}

/* Serial number of `ended`. */
#define FP_ENDED_SERIAL 0x7FFFFFFF

/* Joins ended threads into `ended` and frees them. */
void
fp_recorder_sweep(fp_recorder *r);

/* ---- events ---- */

/* The node for [key] below where [t] stands, made if need be; NULL: no memory
 * for the key (counted). */
fp_node *
fp_recorder_node(fp_recorder *r, fp_thread *t, fp_key key, PyObject *object);

void
fp_recorder_enter_slow(fp_recorder *r, fp_thread *t, fp_key key,
                       PyObject *object, int resume);

/* With an external timer. */
void
fp_recorder_enter_timed(fp_recorder *r, fp_key key, PyObject *object,
                        int resume);

void
fp_recorder_leave_timed(fp_recorder *r, fp_key key);

/* While a trace is taken, or CUPTI must be told where the thread stands. */
void
fp_recorder_enter_followed(fp_recorder *r, fp_thread *t, fp_key key,
                           PyObject *object, int resume);

void
fp_recorder_leave_followed(fp_recorder *r, fp_thread *t, fp_key key);

/* The latter. */
void
fp_recorder_enter_external(fp_recorder *r, fp_thread *t, fp_key key,
                           PyObject *object, int resume);

void
fp_recorder_leave_external(fp_recorder *r, fp_thread *t, fp_key key);

/* The thread's own record while it is inside a hook; NULL: not recording. */
static inline fp_thread *
fp_recorder_at(fp_recorder *r, fp_hook_kind kind, fp_key key)
{
    const fp_tls *me = fp_this_thread;
    if (FP_LIKELY(me->functions.epoch == r->function_epoch)) {
        return me->functions.thread;
    }
    return fp_recorder_arrive(r, kind, key);
}

static inline fp_thread *
fp_recorder_here(fp_recorder *r)
{
    return fp_recorder_at(r, FP_HOOK_ASKED, 0);
}

/* [object] is what the key table needs when it sees [key] first. */
static inline void
fp_recorder_enter(fp_recorder *r, fp_key key, PyObject *object, int resume)
{
    fp_thread *t = fp_recorder_at(r, FP_HOOK_ENTER, key);
    if (FP_UNLIKELY(t == NULL)) {
        return;
    }
    if (FP_UNLIKELY(r->timer != NULL)) {
        fp_recorder_enter_timed(r, key, object, resume);
        return;
    }
    if (FP_UNLIKELY((r->gpu_external | r->tracing) != 0)) {
        fp_recorder_enter_followed(r, t, key, object, resume);
        return;
    }
    fp_node *n = fp_thread_predict(t, key);
    if (FP_UNLIKELY(n == NULL)) {
        fp_recorder_enter_slow(r, t, key, object, resume);
        return;
    }
    if (resume) {
        n->resumes++;
    }
    else {
        n->calls++;
    }
    fp_waits_enter(&t->waits, n);
    fp_thread_enter(t, n, fp_clock_now(&r->clock));
}

static inline void
fp_recorder_leave(fp_recorder *r, fp_key key)
{
    fp_thread *t = fp_recorder_at(r, FP_HOOK_LEAVE, key);
    if (FP_UNLIKELY(t == NULL)) {
        return;
    }
    if (FP_UNLIKELY(r->timer != NULL)) {
        fp_recorder_leave_timed(r, key);
        return;
    }
    if (FP_UNLIKELY((r->gpu_external | r->tracing) != 0)) {
        fp_recorder_leave_followed(r, t, key);
        return;
    }
    fp_thread_leave(t, key, fp_clock_now(&r->clock));
}

/* ---- the plain path ----
 *
 * What nearly every event needs: this thread is known, the node is the expected
 * one, its flags say nothing odd, the clock is the counter.  A key that equals a
 * node's was checked when the node was made, so nothing is checked again.
 * Whatever else there is to do is done, for the whole event, by the functions
 * above; the hooks call them last. */

extern const uint64_t fp_epoch_off; /* FP_EPOCH_OFF */

/* Where the epoch stands that a thread must have for the plain path: the
 * recorder's, if its events may take that at all. */
static inline const uint64_t *
fp_plain_epoch(const fp_recorder *r)
{
    return r->timer == NULL && r->clock.kind == FP_CLOCK_COUNTER &&
                   (r->gpu_external | r->tracing) == 0
               ? &r->function_epoch
               : &fp_epoch_off;
}

/* NULL: not this path. */
static inline fp_thread *
fp_plain_thread(const uint64_t *epoch)
{
    const fp_tls *me = fp_this_thread;
    return FP_LIKELY(me->functions.epoch == *epoch) ? me->functions.thread
                                                    : NULL;
}

/* 1: done; 0: nothing was done. */
static inline int
fp_plain_enter(fp_thread *t, fp_key key, int resume)
{
    fp_node *n = fp_thread_predict(t, key);
    if (FP_UNLIKELY(n == NULL || n->flags != 0)) {
        return 0;
    }
    if (resume) {
        n->resumes++;
    }
    else {
        n->calls++;
    }
    fp_thread_enter(t, n, fp_clock_counter());
    return 1;
}

static inline int
fp_plain_leave(fp_thread *t, fp_key key)
{
    fp_node *n = t->cur;
    if (FP_UNLIKELY(n->key != key || n->flags != 0)) {
        return 0;
    }
    fp_thread_charge(t, fp_clock_counter());
    fp_thread_stand(t, n->parent);
    return 1;
}

/* ---- switches; 0, or -1 with an exception and nothing changed ---- */

int
fp_recorder_start_functions(fp_recorder *r);

/* Never fails, keeps a live exception. */
void
fp_recorder_stop_functions(fp_recorder *r);

int
fp_recorder_start_sections(fp_recorder *r);

void
fp_recorder_stop_sections(fp_recorder *r);

/* [unhook]: the hook is taken out, too. */
void
fp_recorder_pause(fp_recorder *r, int unhook);

/* Puts it back; the pause goes on.  -1: functions are off. */
int
fp_recorder_rehook(fp_recorder *r);

/* Does nothing while the hook is out. */
void
fp_recorder_resume(fp_recorder *r);

/* Around what reads the records and runs Python code meanwhile. */
void
fp_recorder_begin_export(fp_recorder *r);

void
fp_recorder_end_export(fp_recorder *r);

/* In a forked child: other threads are gone, and with them what they were in the
 * middle of, in any recorder. */
void
fp_recorder_forked(fp_state *st);

/* In a forked child: what was recorded so far is the parent's alone.  Done at the
 * end of an export in the middle of which this thread forked. */
void
fp_recorder_forget(fp_recorder *r);

/* Forgets what was recorded, but for the tables of keys; layers that are on stay
 * on.  See recorder_reset.c. */
void
fp_recorder_reset(fp_recorder *r);

/* -1 with RuntimeError when called from inside this thread's external timer, or
 * ([whole]) while any thread is inside it. */
int
fp_recorder_guard_timer(fp_recorder *r, const char *what, int whole);

/* Who watches now: FP_SIGNAL_... of core/steps_split.h. */
unsigned
fp_recorder_signals(const fp_recorder *r);

/* ---- phases of the run (run_phase.c) ---- */

/* For every thread.  FP_RUN_STEPS, FP_RUN_WARMUP and FP_RUN_UNPROFILED all mean
 * "steps": which of them it is depends on the step under way.  [goes_on]: it was interrupted and does
 * not begin anew.  Nothing with an external timer. */
void
fp_recorder_set_phase(fp_recorder *r, fp_run_phase phase, int goes_on);

/* No step will end any more: where that is no little, what has followed the last one
 * belongs to FP_RUN_OUTSIDE.  See core/after_loop.h. */
void
fp_recorder_end_loop(fp_recorder *r);

/* Takes the hook out, if the step that begins is to be one without it; whether it
 * is out. */
int
fp_recorder_begin_unprofiled(fp_recorder *r);

/* Puts it back; the step that begins is measured.  Not [valid]: see
 * fp_thread_end_unprofiled.  -1 with an exception: another profiler has the hook, and
 * functions are off. */
int
fp_recorder_end_unprofiled(fp_recorder *r, int valid);

/* A layer was switched on, or is about to be switched off. */
void
fp_recorder_phase_begins(fp_recorder *r, int64_t now);

void
fp_recorder_phase_ends(fp_recorder *r, int64_t now);

/* Ticks recorded in [phase] so far. */
int64_t
fp_recorder_phase_ticks(const fp_recorder *r, fp_run_phase phase);

/* What was recorded is forgotten; the phase stays. */
void
fp_recorder_phases_cleared(fp_recorder *r);

/* Around the end of a step, of which there is a stepper. */
void
fp_recorder_phase_before_step(fp_recorder *r);

void
fp_recorder_phase_after_step(fp_recorder *r, int64_t now);

/* ---- the two hooks ---- */

int
fp_monitoring_start(fp_recorder *r);

void
fp_monitoring_stop(fp_recorder *r);

/* From now on places that call Python functions are switched off when they do.  0: no
 * calls are listened to. */
int
fp_monitoring_leave_out_sites(fp_recorder *r);

/* Places that were switched off send events again. */
void
fp_monitoring_rearm(fp_recorder *r);

int
fp_setprofile_start(fp_recorder *r);

void
fp_setprofile_stop(fp_recorder *r);

/* Is this the thread that has started the hook? */
int
fp_setprofile_is_home(const fp_recorder *r);

/* Takes the hook out of this thread alone; 0: it was not there, or cannot be. */
int
fp_setprofile_rest(fp_recorder *r);

/* Puts it back into the same thread. */
void
fp_setprofile_wake(fp_recorder *r);

/* What fp_plain_epoch answers has changed. */
void
fp_monitoring_replan(fp_recorder *r);

void
fp_setprofile_replan(fp_recorder *r);

/* Callbacks and hooks outlive their recorder in the interpreter's tables; they
 * are told to do nothing before it goes. */
void
fp_monitoring_forget(fp_recorder *r);

void
fp_setprofile_forget(fp_recorder *r);

int
fp_monitoring_add_type(PyObject *module, fp_state *st);

int
fp_setprofile_add_type(PyObject *module, fp_state *st);

/* ---- the trace (trace_layer.c) ---- */

/* The path of [t] has changed while a window is open. */
static inline void
fp_recorder_trace(fp_recorder *r, fp_thread *t, int64_t now)
{
    if (FP_UNLIKELY(r->tracing)) {
        fp_trace_moved(&r->trace, t, now);
    }
}

/* The record of [t], whose thread has ended, is about to go. */
void
fp_recorder_trace_ended(fp_recorder *r, fp_thread *t);

/* The window ends, if one is open. */
void
fp_recorder_trace_close(fp_recorder *r);

/* What was recorded is forgotten. */
void
fp_recorder_trace_cleared(fp_recorder *r);

/* Methods of the type. */
PyObject *
fp_recorder_trace_open_method(PyObject *self, PyObject *args,
                              PyObject *kwargs);

PyObject *
fp_recorder_trace_close_method(PyObject *self, PyObject *ignored);

/* The dict of export()["trace"]; [index] is what numbers keys, -1 with an
 * exception.  None: nothing was traced. */
PyObject *
fp_recorder_export_trace(fp_recorder *r, double ns_per_tick,
                         Py_ssize_t (*index)(void *ctx, fp_key key),
                         void *ctx);

/* ---- values ---- */

/* The dict of Recorder.export(); [fold]: see export_imports.h, or NULL. */
PyObject *
fp_recorder_export(fp_recorder *r, int with_trace, PyObject *fold);

int
fp_recorder_add_type(PyObject *module, fp_state *st);

/* A step has ended: looks at a part of what the recording costs, and mutes hot
 * trivial functions if that is more than max_overhead. */
void
fp_recorder_check_budget(fp_recorder *r, const fp_steps *steps);

/* Records were joined: what was counted of them would be counted again. */
static inline void
fp_recorder_restart_budget(fp_recorder *r)
{
    if (r->budget.stage == FP_BUDGET_COUNTING) {
        r->budget.stage = FP_BUDGET_IDLE;
    }
}

int
fp_recorder_is_muted_slow(fp_recorder *r, fp_key key);

/* Were the events of [key] switched off?  Only asked when any are. */
static inline int
fp_recorder_is_muted(fp_recorder *r, fp_key key)
{
    fp_thread *t = fp_recorder_here(r);
    if (t == NULL) {
        return 0;
    }
    const fp_node *n = fp_thread_predict(t, key);
    if (n != NULL && (n->flags & FP_NODE_MUTED) == 0) {
        return 0;
    }
    return fp_recorder_is_muted_slow(r, key);
}

/* Does this thread stand in a call of [key]? */
static inline int
fp_recorder_stands_in(fp_recorder *r, fp_key key)
{
    fp_thread *t = fp_recorder_here(r);
    return t != NULL && t->cur->key == key;
}

#endif
