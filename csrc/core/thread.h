/* thread: what one thread records: its tree, where it stands in it, the
 * sections it has open, its steps.  Only the thread itself enters and leaves;
 * it shares nothing with other threads, so there is no lock.
 *
 * The path is the chain from `cur` up to the root: functions and sections in
 * the order in which they were opened.  Time is charged to `cur` whenever the
 * path changes, so every tick belongs to exactly one node.
 *
 * Beyond the depth or node cap the path goes on as a stack (`over`) of flat
 * nodes under a truncated node: counts and self times stay exact, only the
 * context is lost.
 *
 *      root - f - g - (truncated) - f      cur = that f,
 *                                          over = [g, f, h, ...] below it
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

/* The thread stands in [n] from here on.  Another thread may look at any moment
 * (fp_thread_stands), and must then find the node complete; on x86 that is an
 * ordinary store. */
static inline void
fp_thread_stand(fp_thread *t, fp_node *n)
{
    __atomic_store_n(&t->cur, n, __ATOMIC_RELEASE);
}

/* For other threads: of the node, only key, parent, depth and index may be
 * read, and only while the trees are kept. */
static inline const fp_node *
fp_thread_stands(const fp_thread *t)
{
    return __atomic_load_n(&t->cur, __ATOMIC_ACQUIRE);
}

/* Charges the time up to [now] to where the thread stands. */
static inline void
fp_thread_charge(fp_thread *t, int64_t now)
{
    if (FP_UNLIKELY(now < t->last)) {
        t->counters.clock_back++;
    }
    else {
        /* Unsigned, because an external timer may answer anything and signed
         * overflow is undefined. */
        uint64_t ticks = (uint64_t)now - (uint64_t)t->last;
        ticks += (uint64_t)t->cur->self_ticks;
        t->cur->self_ticks = (int64_t)ticks;
    }
    t->last = now;
}

/* ---- functions ---- */

/* The child of the place where the thread stands; NULL: there is none yet. */
static inline fp_node *
fp_thread_predict(fp_thread *t, fp_key key)
{
    return fp_tree_predict(t->cur, key);
}

fp_node *
fp_thread_find(fp_thread *t, fp_key key);

/* Makes it (it must not exist).  Never NULL: without memory or beyond a cap the
 * node is a truncated one. */
fp_node *
fp_thread_add(fp_thread *t, fp_key key);

/* Steps into a node got from the three above, at [now]. */
static inline void
fp_thread_enter(fp_thread *t, fp_node *n, int64_t now)
{
    fp_thread_charge(t, now);
    fp_thread_stand(t, n);
}

/* The same for a node that is flat.  FP_ENOMEM: not entered, counted as
 * dropped. */
fp_status
fp_thread_enter_flat(fp_thread *t, fp_node *n, int64_t now);

static inline int
fp_node_is_flat(const fp_node *n)
{
    return (n->flags & FP_NODE_FLAT) != 0;
}

void
fp_thread_leave_slow(fp_thread *t, fp_key key, int64_t now);

/* The function [key] has ended at [now].  A return without a call is ignored
 * (and counted unless the call may have been before the recording). */
static inline void
fp_thread_leave(fp_thread *t, fp_key key, int64_t now)
{
    fp_node *n = t->cur;
    if (FP_LIKELY(n->key == key && t->over_len == 0)) {
        fp_thread_charge(t, now);
        fp_thread_stand(t, n->parent);
        return;
    }
    fp_thread_leave_slow(t, key, now);
}

/* Is any function open on the path? */
int
fp_thread_in_function(const fp_thread *t);

/* Closes every function at [now]; sections stay open. */
void
fp_thread_drop_functions(fp_thread *t, int64_t now);

/* ---- sections ---- */

/* Room for section [id]; FP_ENOMEM otherwise. */
fp_status
fp_thread_reserve_section(fp_thread *t, uint32_t id);

/* Opens section [id].  [owner] is compared, never followed.  FP_ENOMEM: it is
 * not open, and was counted as dropped. */
fp_status
fp_thread_open_section(fp_thread *t, uint32_t id, fp_phase phase,
                       const void *owner, int64_t now);

enum {
    FP_EXIT_ERROR = 1,     /* left by an exception */
    FP_EXIT_CANCEL = 2,    /* keep its time on the path, but it is no sample */
    FP_EXIT_ELSEWHERE = 4, /* another thread calls */
    FP_EXIT_PARK = 8,      /* no sample yet: it is resumed, or ended, later */
};

/* Closes the innermost open entry of section [id], one of [owner]'s if there
 * is one.  FP_ENOTFOUND: this thread has none open; nothing changed. */
fp_status
fp_thread_close_section(fp_thread *t, uint32_t id, const void *owner,
                        unsigned flags, int64_t now);

int
fp_thread_has_open_section(const fp_thread *t, uint32_t id);

/* Opens again the section that was closed with FP_EXIT_PARK: what follows is
 * part of the same entry, not another call. */
fp_status
fp_thread_resume_section(fp_thread *t, uint32_t id, fp_phase phase,
                         const void *owner, int64_t now);

/* The entry that was closed with FP_EXIT_PARK, and not resumed, is a sample: of the
 * phase of the run in which it was closed. */
void
fp_thread_end_parked_section(fp_thread *t, fp_phase phase);

/* Forgets the open sections at [now]; their entries stay counted as open. */
void
fp_thread_drop_sections(fp_thread *t, int64_t now);

/* What is kept in this phase of the run of the section at the bottom of the stack,
 * which may have been opened in another one; it is one of the step under way. */
fp_section *
fp_thread_touch_bottom(fp_thread *t);

/* Time of the section at the bottom of the stack, for the step's rows. */
static inline void
fp_thread_charge_bottom(fp_thread *t, int64_t now)
{
    if (t->steps == NULL || t->steps->paused) {
        return; /* resuming the step sets bottom_since */
    }
    fp_section *s = t->open[0].section;
    if (FP_UNLIKELY(!s->touched || s->id >= t->section_capacity ||
                    t->section[s->id] != s)) {
        s = fp_thread_touch_bottom(t);
    }
    if (now > t->bottom_since) {
        s->step_ticks += now - t->bottom_since;
    }
    t->bottom_since = now;
}

/* A phase inside the same phase (`forward` in `forward_pass`) is one sample. */
static inline int
fp_thread_phase_is_open(const fp_thread *t, fp_phase phase)
{
    for (uint32_t i = 0; i < t->open_len; i++) {
        if (t->open[i].phase == phase) {
            return 1;
        }
    }
    return 0;
}

/* For thread_sections.c.  Takes the section of entry [i], which is on the path,
 * off it; what lies above moves down.  The sections on the path are the entries
 * that say so, in the same order: that is how its node is found, and must hold
 * afterwards.  So without memory to remember the calls above, those are closed
 * and counted as dropped. */
void
fp_thread_take_off_path(fp_thread *t, uint32_t i);

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

/* For run_phases.c: copies the nodes of the path to `scratch`, the last one first,
 * without the base; *length is how many. */
fp_status
fp_thread_copy_path(fp_thread *t, uint32_t *length);

/* ---- steps ---- */

/* The step under way stands still from [now] on, and goes on; what happens in
 * between is no part of it.  Steps have begun. */
void
fp_thread_pause_step(fp_thread *t, int64_t now);

void
fp_thread_resume_step(fp_thread *t, int64_t now);

/* A step begins at [now]: the first, or one instead of the step under way. */
fp_status
fp_thread_start_steps(fp_thread *t, uint64_t skip, int64_t now);

/* Keeps the [limit] slowest steps from here on, with the first one beginning at
 * [now]; [clock] stays as long as the thread.  FP_ENOMEM: counted as dropped. */
fp_status
fp_thread_keep_outliers(fp_thread *t, uint32_t limit, const fp_clock *clock,
                        int64_t now);

/* The step that begins now and those that follow are not measured, and are recorded
 * without the function hook: see steps_pairs.h.  FP_ENOTFOUND: not during the warm-up.
 * The caller changes the phase of the run to FP_RUN_UNPROFILED. */
fp_status
fp_thread_begin_unprofiled(fp_thread *t);

/* ... until here, where a measured step begins at [now].  Not [valid]: what took
 * place meanwhile was no step like the others. */
void
fp_thread_end_unprofiled(fp_thread *t, int valid, int64_t now);

/* Ends a step.  fp_thread_start_steps was called. */
void
fp_thread_end_step(fp_thread *t, int64_t now);

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
