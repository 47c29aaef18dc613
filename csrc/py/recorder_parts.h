/* recorder_parts: the small structs that make up a recorder, each owned by one
 * file.  Its options are in config.h. */
#ifndef FP_PY_RECORDER_PARTS_H
#define FP_PY_RECORDER_PARTS_H

#include "py/config.h"
#include "py/monitoring_tool.h"

#include "core/trace.h"

/* How the hook handles events.  Only mode.h sets it. */
typedef enum fp_mode {
    FP_MODE_OFF,
    FP_MODE_PAUSED, /* not recorded; events only keep the paths up to date */
    FP_MODE_PLAIN,  /* the plain path first, then the full one */
    /* the full path only: a layer observes calls, or the clock is slow */
    FP_MODE_FULL,
} fp_mode;

/* Owned by hook_monitoring.c and hook_setprofile.c. */
typedef struct fp_hooks {
    fp_backend backend;
    int tool_id;
    PyObject *callback[FP_EVENTS]; /* owned; monitoring */
    PyObject *hook;                /* owned; setprofile */
    /* not 0: the hook is out of its home thread; see rest.h */
    fp_key resting;
    uint8_t fell_back;        /* no tool id was free, so setprofile is used */
    uint8_t new_threads_lost; /* threading had another tool's hook */
} fp_hooks;

/* Owned by section_enter.c: a section that stays open until another section
 * begins or ends; see leave_later(). */
typedef struct fp_lingers {
    const struct fp_section_object *section; /* borrowed from the state */
    uint64_t epoch;
    const fp_thread *in; /* valid in this epoch only */
    uint8_t parked;      /* the section was closed, but its entry was kept */
} fp_lingers;

/* Owned by trace_layer.c. */
typedef struct fp_trace_state {
    uint8_t has; /* trace_open() was called */
    fp_trace_log log;
    int64_t origin; /* ticks; the trace's times count from here */
} fp_trace_state;

/* Owned by gpu_layer.c. */
typedef struct fp_gpu_link {
    /* CUPTI gets correlation ids at every call and section */
    uint8_t external;
    uint8_t asked;   /* gpu_start() was called */
    uint8_t partial; /* the GPU layer started during the current step */
    uint8_t switching;
    PyObject *reason;       /* owned; str or NULL */
    PyObject *pause_reason; /* owned; str or NULL */
    PyObject *path;         /* owned; str or NULL */
    PyObject *lines;        /* owned; dict or NULL: see gpu_lines.c */
} fp_gpu_link;

/* ---- cleared by one assignment: see recorder_reset.c ---- */

/* The current phase of the run, and the time in each phase. */
typedef struct fp_recorder_phases {
    fp_run_phase now;
    int64_t since; /* ticks, while a layer is on */
    int64_t ticks[FP_RUN_PHASES];
    uint64_t entries[FP_RUN_PHASES]; /* how often each phase began */
    uint64_t saved; /* 1 + number of steps at the last checkpoint; 0: none */
} fp_recorder_phases;

/* The recording, except the records of threads. */
typedef struct fp_recording {
    /* ticks at which a layer was first switched on; 0: never */
    int64_t origin;
    int64_t recorded_ticks;
    fp_recorder_phases phases;
    uint64_t unprofiled_at; /* first step without the hook; 0: never */
    /* steps to leave out after each switch; 0 counts as 1 */
    uint32_t unprofiled_settle;
    uint64_t timer_errors;
    uint64_t sync_errors;
    uint64_t wrong_step_thread;
    uint64_t nvtx_without_gil; /* ranges that lost their section or its time */
    uint64_t nvtx_unmatched;   /* ends of ranges that never began */
    uint64_t nvtx_unbalanced;  /* our own ranges that ended too early */
    uint64_t gc_elsewhere;     /* collections in other threads */
    uint64_t dropped_threads;  /* threads not recorded: out of memory */
    uint64_t ended_threads;    /* number of records joined into `ended` */
    uint8_t displaced;         /* another tool removed the hook */
} fp_recording;

#endif
