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

/* One check of the recording's cost, spread over many steps; see budget.c. */
enum { FP_BUDGET_CHOICES = 64 };

/* Kinds of calls with different costs. */
typedef enum fp_budget_kind {
    FP_BUDGET_PYTHON,
    FP_BUDGET_C,
    FP_BUDGET_CONSTRUCTOR,
    FP_BUDGET_KINDS,
} fp_budget_kind;

typedef enum fp_budget_stage {
    FP_BUDGET_IDLE,
    FP_BUDGET_COUNTING, /* calls and own times of all keys */
    FP_BUDGET_CHOOSING, /* selects the functions to mute */
    /* marks their nodes, so that they leave the plain path */
    FP_BUDGET_MARKING,
} fp_budget_stage;

typedef struct fp_budget {
    fp_budget_stage stage;
    uint32_t look;   /* number of the current look */
    uint32_t ended;  /* number of the last look that counted all nodes */
    uint32_t key;    /* index of the next key to consider */
    int64_t ticks;   /* when the last look ended, in ticks */
    uint64_t steps;  /* number of steps at that time */
    uint64_t window; /* number of steps between the last two looks */
    /* Calls that the last look counted, and those that the current one has
     * counted so far. */
    uint64_t calls[FP_BUDGET_KINDS];
    uint64_t new_calls[FP_BUDGET_KINDS];
    double ns_per_tick; /* 0: not known yet */
    double excess_ns;   /* cost above the budget, in ns */
    uint32_t choices;
    uint32_t choice[FP_BUDGET_CHOICES]; /* indices of keys, most calls first */
    uint64_t visits;                    /* number of nodes and keys visited */
} fp_budget;

/* The recording, except the records of threads. */
typedef struct fp_recording {
    /* ticks at which a layer was first switched on; 0: never */
    int64_t origin;
    int64_t recorded_ticks;
    fp_recorder_phases phases;
    fp_budget budget;
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
    uint8_t any_muted;
    /* call sites of Python functions are off; see budget.c */
    uint8_t leaves_out_sites;
    uint64_t sites_off; /* number of sites switched off */
    /* largest sites_off before all sites sent events again */
    uint64_t sites_off_most;
    uint64_t calls_before_off; /* Python calls before the sites went off */
    /* events to ignore before the next site is switched off */
    uint32_t sites_wait;
} fp_recording;

#endif
