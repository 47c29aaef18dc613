/* thread: what one thread records: its tree, where it stands in it, the
 * sections it has open, its steps.  Only the thread itself enters and leaves;
 * it shares nothing with other threads, so there is no lock.
 *
 *   thread.c           its life
 *   path.c             where it stands
 *   path_rebuild.c     ... while calls are not recorded
 *   thread_sections.c  what is open
 *   thread_steps.c     the step under way
 *   thread_merge.c     joined into another one
 */
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
    uint64_t unbalanced;   /* calls closed because a caller of theirs ended */
    uint64_t unmatched;    /* returns of calls that were never seen */
    uint64_t dropped;      /* events lost for want of memory */
    uint64_t truncated;    /* calls beyond the depth or node cap */
    uint64_t out_of_order; /* sections left while an inner one was open */
    uint64_t stray_exit;   /* section exits without an entry */
    uint64_t wrong_thread; /* ... whose entry was in another thread */
    uint64_t clock_back;   /* negative intervals, taken as 0 */
} fp_counters;

typedef struct fp_open {
    fp_section *section; /* borrowed */
    fp_key key;
    int64_t start;
    const void *owner; /* never followed: tells tasks of one thread apart */
    uint8_t on_path;   /* has a node on the path */
    uint8_t phase;     /* fp_phase */
    uint8_t cover;     /* fp_kind; see steps_split.h */
} fp_open;

/* The sections of one phase of the run; index is the section id. */
typedef struct fp_section_table {
    fp_section **section; /* owned; NULL if unused */
    uint32_t capacity;
} fp_section_table;

typedef struct fp_thread {
    fp_node *cur; /* borrowed from tree */
    int64_t last; /* ticks up to which time is charged */
    uint32_t over_len;
    uint32_t open_len;
    fp_node **over; /* owned */
    fp_open *open;  /* owned */
    uint32_t over_capacity;
    uint32_t open_capacity;
    /* See path_rebuild.h. */
    fp_node *parked;      /* top of the path; NULL: the thread is not parked */
    uint32_t parked_over; /* over_len of that path */
    uint32_t unseen;      /* calls that go on and are not on the path ... */
    uint8_t stale;        /* ... their number is not known */
    uint16_t refound;     /* depth up to which calls were put back */
    uint32_t before;      /* calls below the path; UINT32_MAX: not known */
    fp_tree tree;
    fp_alloc alloc;
    fp_limits limits;
    fp_section **section; /* owned; those of run_phase, as in a table */
    uint32_t section_capacity;
    fp_run_phase run_phase;
    fp_node *base;           /* where the path begins: the base of run_phase */
    fp_node *base_truncated; /* the truncated node under it */
    /* Those of the other phases; that of run_phase is out of date. */
    fp_section_table sections_of[FP_RUN_PHASES];
    fp_section *parked_section; /* borrowed: see fp_thread_resume_section */
    int64_t parked_ticks;       /* of its entry that was parked */
    fp_section *touched;        /* sections that ran in the step under way */
    int64_t bottom_since;       /* since when open[0] is at the bottom */
    fp_steps *steps;            /* owned; NULL in threads that do not step */
    struct fp_split *split;     /* owned; the same; see steps_split.h */
    fp_waits waits;
    fp_phases phases;
    fp_counters counters;
    struct fp_outliers *outliers; /* owned; NULL: no slow step is kept */
    fp_key *
        scratch; /* owned; path elements (keys or nodes) while the path is rebuilt */
    uint32_t scratch_capacity;
    uint64_t ident;  /* of the thread, as its owner counts them */
    uint64_t serial; /* order of first appearance */
    uint64_t native; /* of the thread, as the kernel counts them; or 0 */
    struct fp_trace *trace; /* owned; NULL: never traced; see trace.h */
    void *user;             /* the owner's; not touched here */
    uint32_t looked_at;     /* the owner's, too: of the tree, so many nodes */
    struct fp_thread *next; /* borrowed; the owner's list */
} fp_thread;

/* NULL: no memory. */
fp_thread *
fp_thread_create(const fp_alloc *a, fp_limits limits, int64_t now);

/* Accepts NULL. */
void
fp_thread_destroy(fp_thread *t);

/* ---- phases of the run ---- */

/* The moments from [now] on belong to [phase].  FP_ENOMEM: counted as dropped, and
 * nothing has changed. */
fp_status
fp_thread_set_run_phase(fp_thread *t, fp_run_phase phase, int64_t now);

/* The sections that were used in [phase]. */
static inline fp_section_table
fp_thread_sections_of(const fp_thread *t, fp_run_phase phase)
{
    return phase == t->run_phase
               ? (fp_section_table){t->section, t->section_capacity}
               : t->sections_of[phase];
}

/* ---- joining ---- */

/* Adds what [from] recorded to [into] (counts, times, sections, phases).
 * FP_ENOMEM: part of it was lost and counted as dropped. */
fp_status
fp_thread_merge(fp_thread *into, const fp_thread *from);

/* The same; node i of [from] has become node became[i] of [into].  [became] has
 * from->tree.count zeroes before (node 0 is the root); may be NULL. */
fp_status
fp_thread_merge_mapped(fp_thread *into, const fp_thread *from,
                       uint32_t *became);

/* Bytes held. */
size_t
fp_thread_bytes(const fp_thread *t);

#endif
