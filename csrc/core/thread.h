/* thread: everything that one thread records: its tree, its path, its open
 * sections and its steps.  Only the thread itself enters and leaves; it shares
 * nothing with other threads, so there is no lock.
 *
 *   thread.c           create and destroy
 *   path.c             the open calls
 *   path_rebuild.c     ... while calls are not recorded
 *   thread_sections.c  the open sections
 *   thread_steps.c     the current step
 *   thread_merge.c     adding an ended thread to another one */
#ifndef FP_CORE_THREAD_H
#define FP_CORE_THREAD_H

#include "core/clock.h"
#include "core/phases.h"
#include "core/run_phases.h"
#include "core/section.h"
#include "core/steps.h"
#include "core/waits.h"

typedef struct fp_limits {
    uint32_t max_nodes; /* per thread */
    uint32_t max_depth; /* below 65 000 */
} fp_limits;

typedef struct fp_counters {
    uint64_t unbalanced; /* calls closed early: their caller returned first */
    uint64_t unmatched;  /* returns without a recorded call */
    uint64_t dropped;    /* events lost: no memory */
    uint64_t truncated;  /* calls beyond the depth or node cap */
    uint64_t out_of_order; /* sections closed before an inner one */
    uint64_t stray_exit;   /* section exits without an open entry */
    uint64_t wrong_thread; /* ... whose entry is in another thread */
    uint64_t clock_back;   /* readings before the latest one */
} fp_counters;

typedef struct fp_open {
    fp_section *section; /* borrowed */
    fp_key key;
    int64_t start;
    const void *owner; /* never followed; which task of the thread */
    uint8_t on_path;   /* has a node on the path */
    uint8_t phase;     /* fp_phase */
    uint8_t cover;     /* fp_kind; see steps_split.h */
} fp_open;

/* The sections of one phase of the run, by section id. */
typedef struct fp_section_table {
    fp_section **section; /* owned; NULL if unused */
    uint32_t capacity;
} fp_section_table;

typedef struct fp_thread {
    fp_node *cur; /* current node; borrowed from tree */
    int64_t last; /* time is charged up to here, in ticks */
    uint32_t over_len;
    uint32_t open_len;
    fp_node **over; /* owned */
    fp_open *open;  /* owned */
    uint32_t over_capacity;
    uint32_t open_capacity;
    /* See path_rebuild.h. */
    fp_node *parked;      /* top of the path; NULL: not parked */
    uint32_t parked_over; /* over_len of that path */
    uint32_t unseen;      /* open calls that are not on the path ... */
    uint8_t stale;        /* ... their number is unknown */
    uint16_t refound;     /* depth up to which calls were put back */
    uint32_t before;      /* calls below the path; UINT32_MAX: unknown */
    fp_tree tree;
    fp_alloc alloc;
    fp_limits limits;
    fp_section **section; /* owned; sections of run_phase */
    uint32_t section_capacity;
    fp_run_phase run_phase;
    fp_node *base;           /* where the path begins: the base of run_phase */
    fp_node *base_truncated; /* the truncated node under base */
    /* Sections of the other phases; the entry of run_phase is out of date. */
    fp_section_table sections_of[FP_RUN_PHASES];
    fp_section *parked_section; /* borrowed: see fp_thread_resume_section */
    int64_t parked_ticks;       /* of the parked entry */
    fp_section *touched;        /* sections that ran in the current step */
    int64_t bottom_since;       /* when open[0] came to the bottom */
    fp_steps *steps;            /* owned; NULL: the thread does not step */
    struct fp_split *split;     /* owned; the same; see steps_split.h */
    fp_waits waits;
    fp_phases phases;
    fp_counters counters;
    struct fp_outliers *outliers; /* owned; NULL: slow steps are not kept */
    fp_key *scratch; /* owned; keys or nodes, while the path is rebuilt */
    uint32_t scratch_capacity;
    uint64_t ident;         /* the owner's number of the thread */
    uint64_t serial;        /* order of first appearance */
    uint64_t native;        /* the kernel's number of the thread; or 0 */
    struct fp_trace *trace; /* owned; NULL: never traced; see trace.h */
    void *user;             /* the owner's; not used here */
    int32_t c_offset;       /* the owner's: see setprofile_events.c */
    const fp_node *c_node;  /* the same; borrowed */
    struct fp_thread *next; /* borrowed; the owner's list */
} fp_thread;

/* Creates a thread whose time starts at [now].  NULL: no memory. */
fp_thread *
fp_thread_create(const fp_alloc *a, fp_limits limits, int64_t now);

/* Frees [t] and everything it owns.  Accepts NULL. */
void
fp_thread_destroy(fp_thread *t);

/* ---- phases of the run ---- */

/* Time from [now] on belongs to [phase].  FP_ENOMEM: counted as dropped;
 * nothing has changed. */
fp_status
fp_thread_set_run_phase(fp_thread *t, fp_run_phase phase, int64_t now);

/* Takes the time from [since] to [now] out of the sections that were open at
 * [since] and still are: those in which a compiler ran do not take longer. */
void
fp_thread_leave_out(fp_thread *t, int64_t since, int64_t now);

/* The later of [now] and the time up to which [t] is charged.  [now] may be the
 * reading of another thread, made while [t] still ran. */
static inline int64_t
fp_thread_from(const fp_thread *t, int64_t now)
{
    return now > t->last ? now : t->last;
}

/* The sections that were used in [phase]. */
static inline fp_section_table
fp_thread_sections_of(const fp_thread *t, fp_run_phase phase)
{
    return phase == t->run_phase
               ? (fp_section_table){t->section, t->section_capacity}
               : t->sections_of[phase];
}

/* ---- merging ---- */

void
fp_counters_add(fp_counters *c, const fp_counters *more);

/* Adds the counts, times, sections and phases of [from] to [into].  FP_ENOMEM:
 * part of them is lost and counted as dropped.  Sets became[i] to the node of
 * [into] that node i of [from] became.  [became] holds from->tree.count zeroes
 * (node 0 is the root), or is NULL. */
fp_status
fp_thread_merge(fp_thread *into, const fp_thread *from, uint32_t *became);

/* Bytes of memory held. */
size_t
fp_thread_bytes(const fp_thread *t);

#endif
