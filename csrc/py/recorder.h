/* recorder: one recording with its threads and switches, shared by the hooks,
 * the sections and the layers.  The GIL guards all of it. */
#ifndef FP_PY_RECORDER_H
#define FP_PY_RECORDER_H

#include "py/config.h"
#include "py/keytab.h"
#include "py/layer.h"
#include "py/recorder_parts.h"
#include "py/state.h"

typedef struct fp_recorder {
    PyObject_HEAD
    /* borrowed: the type keeps the module alive.  If the garbage collector
     * clears both, the state goes before the recorder. */
    fp_state *state;
    const fp_layer *const *layers; /* static; as in the state */
    PyObject *weakrefs;
    fp_mode mode;
    uint64_t plain_epoch; /* function_epoch while the mode is FP_MODE_PLAIN */
    uint64_t function_epoch; /* FP_EPOCH_OFF: functions are off or paused */
    /* epoch of threads that the hook follows during a pause */
    uint64_t paused_epoch;
    uint64_t section_epoch;
    /* If one of these is set, sections leave the plain path. */
    union {
        struct {
            uint8_t lingering;
            uint8_t sync;
            uint8_t tracing; /* a window of the trace is open */
            uint8_t gpu_on;  /* launches are attributed to this recorder */
            /* copy of the state's nvtx_out; may still be 1 after it was
             * switched off */
            uint8_t nvtx_out;
        };
        uint64_t section_extras;
    };
    fp_clock clock;
    fp_config config;
    fp_recording recording;
    fp_hooks hooks;
    fp_lingers lingers;
    fp_trace_state trace;
    fp_gpu_link gpu;
    PyObject *gc_hook; /* owned or NULL; see gc_hook.c */
    fp_alloc alloc;
    fp_thread *threads; /* owned; newest first; user = its fp_life */
    fp_thread *ended;   /* owned or NULL: joined records of ended threads */
    fp_thread *stepper; /* borrowed: the training thread */
    unsigned long long next_event; /* steps after which its user has work */
    uint32_t thread_count;
    uint32_t sweep_at; /* number of threads at which to look for ended ones */
    uint64_t threads_seen;
    fp_keytab keys;
    int64_t started; /* ticks, while a layer is on */
    uint8_t initialised;
    uint8_t functions_on;
    uint8_t sections_on;
    uint8_t paused;    /* calls are not recorded; see paused.h */
    uint8_t unhooked;  /* the pause has removed the hook */
    uint8_t hook_lent; /* ... for steps or time without the hook */
    /* 1 + the phase that windows of time interrupt; 0: there are none */
    uint8_t beside_windows;
    /* the process forked during an export; forget when that ends */
    uint8_t forget_wanted;
    /* disable() was called while the hook was being set */
    uint8_t stop_wanted;
    uint8_t switching;      /* a thread is setting or removing the hook */
    unsigned long switcher; /* ident of that thread */
    uint32_t busy_timer;    /* number of threads inside the external timer */
    /* number of exports under way; they forbid freeing records */
    uint32_t exporting;
    /* Links the recorders of which busy_timer or exporting is not 0; see
     * in_use.h. */
    struct fp_recorder *next_in_use;
} fp_recorder;

/* Walks every record: first those of live threads, then the joined record of
 * ended threads.  Begins with [t] == NULL and returns NULL at the end. */
static inline fp_thread *
fp_recorder_next(const fp_recorder *r, const fp_thread *t)
{
    if (t != NULL && t == r->ended) {
        return NULL;
    }
    fp_thread *next = t == NULL ? r->threads : t->next;
    return next != NULL ? next : r->ended;
}

/* Serial number of the joined record of ended threads. */
#define FP_ENDED_SERIAL 0x7FFFFFFF

static inline fp_recorder *
fp_recorder_cast(PyObject *self)
{
    return (fp_recorder *)self;
}

/* Returns 0, or -1 with an exception if __init__ was never called. */
static inline int
fp_recorder_ready(fp_recorder *r)
{
    if (!r->initialised) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the recorder is not initialised: a subclass must "
                        "call super().__init__()");
        return -1;
    }
    return 0;
}

/* Records in the trace that the calling context of [t] has changed. */
static inline void
fp_recorder_trace(fp_recorder *r, fp_thread *t, int64_t now)
{
    if (FP_UNLIKELY(r->tracing)) {
        fp_trace_moved(&r->trace.log, t, now);
    }
}

#endif
