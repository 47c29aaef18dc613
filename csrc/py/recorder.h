/* recorder: one recording, its threads and its switches, as the hooks, the sections
 * and the layers share it.  All of it is under the GIL. */
#ifndef FP_PY_RECORDER_H
#define FP_PY_RECORDER_H

#include "py/config.h"
#include "py/keytab.h"
#include "py/layer.h"
#include "py/recorder_parts.h"
#include "py/state.h"

typedef struct fp_recorder {
    PyObject_HEAD
    fp_state *
        state; /* borrowed: the type keeps the module alive, until the collector
                      * clears both: then it goes before the recorder */
    const fp_layer *const *layers; /* static; as in the state */
    PyObject *weakrefs;
    fp_mode mode;
    uint64_t plain_epoch; /* function_epoch while the mode is FP_MODE_PLAIN */
    uint64_t function_epoch; /* FP_EPOCH_OFF: off or paused */
    uint64_t paused_epoch;   /* of threads that are followed in a pause */
    uint64_t section_epoch;
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
    fp_thread *ended;   /* owned: what ended threads recorded; may be NULL */
    fp_thread *stepper; /* borrowed: the thread that steps */
    uint32_t thread_count;
    uint32_t sweep_at; /* look for ended threads at this many */
    uint64_t threads_seen;
    fp_keytab keys;
    fp_keytab sites; /* call sites of bound builtins that do return */
    int64_t started; /* ticks, while a layer is on */
    uint8_t initialised;
    uint8_t functions_on;
    uint8_t sections_on;
    uint8_t paused;         /* calls are not recorded; see paused.h */
    uint8_t unhooked;       /* ... and the hook is out */
    uint8_t hook_lent;      /* ... for steps without it */
    uint8_t forget_wanted;  /* a fork came in the middle of an export */
    uint8_t stop_wanted;    /* disable() came while the hook was being set */
    uint8_t switching;      /* a thread is setting or removing the hook */
    unsigned long switcher; /* that thread */
    uint32_t busy_timer;    /* threads inside the external timer */
    uint32_t exporting;     /* exports under way: records must not go */
    /* While one of these is not 0; see in_use.h. */
    struct fp_recorder *next_in_use;
} fp_recorder;

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

static inline fp_recorder *
fp_recorder_cast(PyObject *self)
{
    return (fp_recorder *)self;
}

/* -1 with an exception when __init__ was never called. */
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

/* The path of [t] has changed. */
static inline void
fp_recorder_trace(fp_recorder *r, fp_thread *t, int64_t now)
{
    if (FP_UNLIKELY(r->tracing)) {
        fp_trace_moved(&r->trace.log, t, now);
    }
}

#endif
