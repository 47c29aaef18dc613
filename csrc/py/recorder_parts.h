/* recorder_parts: the small structs of which a recorder is made, each of one file; for
 * what it is asked to do see config.h. */
#ifndef FP_PY_RECORDER_PARTS_H
#define FP_PY_RECORDER_PARTS_H

#include "py/config.h"
#include "py/monitoring_tool.h"

#include "core/trace.h"

/* What becomes of the hook's events; set in mode.h only. */
typedef enum fp_mode {
    FP_MODE_OFF,
    FP_MODE_PAUSED, /* ignored, but for what they say of paths */
    FP_MODE_PLAIN,  /* the short way, where it will do */
    FP_MODE_FULL, /* the long way, always: somebody follows, or the clock is slow */
} fp_mode;

/* Of hook_monitoring.c and hook_setprofile.c. */
typedef struct fp_hooks {
    fp_backend backend;
    int tool_id;
    PyObject *callback[FP_EVENTS]; /* owned; monitoring */
    PyObject *hook;                /* owned; setprofile */
    fp_key resting;    /* the hook is out in its home thread; see rest.h */
    uint8_t fell_back; /* no free tool id: setprofile instead */
    uint8_t new_threads_lost; /* threading's hook was somebody else's */
} fp_hooks;

/* Of section_enter.c: a section that another one may end; see leave_later(). */
typedef struct fp_lingers {
    const struct fp_section_object *section; /* borrowed from the state */
    uint64_t epoch;
    const fp_thread *in; /* meaningless in another epoch */
    uint8_t parked; /* that section is closed, but its entry has not ended */
} fp_lingers;

/* Of trace_layer.c. */
typedef struct fp_trace_state {
    uint8_t has; /* trace_open() was called */
    fp_trace_log log;
    int64_t origin; /* ticks; its times are since then */
} fp_trace_state;

/* Of gpu_layer.c. */
typedef struct fp_gpu_link {
    uint8_t external; /* by ids that are pushed at every boundary */
    uint8_t asked;    /* gpu_start() was called */
    uint8_t partial;  /* it began within the step under way */
    uint8_t switching;
    PyObject *reason;       /* owned; str or NULL */
    PyObject *pause_reason; /* owned; str or NULL */
    PyObject *path;         /* owned; str or NULL */
    PyObject *lines;        /* owned; dict or NULL: see gpu_lines.c */
} fp_gpu_link;

/* ---- what is forgotten in one assignment: see recorder_reset.c ---- */

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

/* What was recorded, beside the records of threads. */
typedef struct fp_recording {
    int64_t origin; /* ticks: when a layer was switched on first; 0: never */
    int64_t recorded_ticks;
    fp_recorder_phases phases;
    fp_budget budget;
    uint64_t
        unprofiled_at; /* steps without the hook begin with this one; 0: never */
    uint32_t unprofiled_settle; /* ... and so many are left out; 0: as 1 */
    uint64_t timer_errors;
    uint64_t sync_errors;
    uint64_t wrong_step_thread;
    uint64_t nvtx_without_gil; /* ranges that became no section, or no time */
    uint64_t nvtx_unmatched;   /* ends of ranges that nobody began */
    uint64_t nvtx_unbalanced;  /* ranges of ours that ended too early */
    uint64_t gc_elsewhere;     /* collections in other threads */
    uint64_t dropped_threads;  /* threads not recorded for want of memory */
    uint64_t ended_threads;    /* joined into `ended` */
    uint8_t displaced;         /* somebody took the hook away */
    uint8_t any_muted;
    uint8_t leaves_out_sites;  /* of Python functions, for max_overhead */
    uint64_t sites_off;        /* ... which has switched off so many */
    uint64_t sites_off_most;   /* ... before all were listened to again */
    uint64_t calls_before_off; /* Python calls until then */
    uint32_t sites_wait;       /* events until one is looked at again */
} fp_recording;

#endif
