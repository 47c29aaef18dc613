/* owners: finds out for which thread another thread works.
 *
 * The autograd engine launches backward's kernels from its own threads while
 * the thread that called backward() waits.  A launch by a thread without a
 * section belongs to
 *
 *   1. the thread that is inside a backward call; of several, the one that
 *      opened a section last;
 *   2. else the thread that opened a section last, if that section is a
 *      backward phase or functions are not recorded (rule 1 cannot apply);
 *   3. else no thread: the launcher is a watchdog, or pins memory.
 *
 * The rule is applied inside a launch callback, to the present
 * (fp_owners_find), and while decoding, to an earlier time (fp_owner_log). */
#ifndef FP_GPU_OWNERS_H
#define FP_GPU_OWNERS_H

#include "core/alloc.h"
#include "gpu/site.h"

#include <stdatomic.h>

enum { FP_OWNERS = 64 };

/* The state of one thread at one time. */
typedef struct fp_owner_state {
    fp_place section;      /* node of its innermost section; 0: none */
    fp_place backward;     /* node of its open backward call; 0: none */
    uint64_t opened;       /* order in which the sections were opened */
    int is_backward_phase; /* the section's name means backward */
} fp_owner_state;

/* Applies the rule to [n] threads.  Returns a place; 0: no owner. */
fp_place
fp_owner_choose(const fp_owner_state *states, uint32_t n, int functions_known);

typedef struct fp_owner {
    _Atomic(const fp_thread *) thread;
    _Atomic fp_place section;
    _Atomic uint64_t opened;
    _Atomic int is_backward_phase;
} fp_owner;

typedef struct fp_owners {
    fp_owner slot[FP_OWNERS];
    _Atomic uint64_t count; /* sections opened so far */
    _Atomic int functions_known;
    /* Does this key's function run backward?  Any thread may call it. */
    int (*is_backward)(fp_key key);
} fp_owners;

/* The slot of [t], taken if needed; -1: no slot is free, so [t] cannot own
 * work.  Call it on [t]'s thread. */
int
fp_owners_join(fp_owners *o, const fp_thread *t);

/* Frees the slot of [t], if it has one. */
void
fp_owners_leave(fp_owners *o, const fp_thread *t);

/* The thread of [slot] is in [section] from now on (0: none). */
void
fp_owners_section(fp_owners *o, int slot, fp_place section, int backward);

/* The place for which [self] works now; [self] may be NULL.  Call it between
 * fp_lane_enter and fp_lane_exit. */
fp_place
fp_owners_find(const fp_owners *o, const fp_thread *self);

/* The innermost backward call at or above [n]; or NULL. */
const fp_node *
fp_owners_backward_node(const fp_owners *o, const fp_node *n);

/* ---- owners at an earlier time; one thread at a time ---- */

/* Slot of an event whose is_backward_phase says whether functions are
 * recorded. */
enum { FP_OWNER_FUNCTIONS = FP_OWNERS };

typedef struct fp_owner_event {
    int64_t at; /* device clock */
    fp_place section;
    fp_place backward;
    uint32_t slot;
    int is_backward_phase;
    uint32_t order; /* used while sorting */
} fp_owner_event;

enum { FP_OWNER_EVENTS = 1 << 16 };

typedef struct fp_owner_log {
    fp_alloc alloc;
    fp_owner_event *event; /* owned */
    uint32_t events;
    uint32_t capacity;
    int sorted;
    fp_owner_state state[FP_OWNERS + 1]; /* before event[0] */
    uint64_t opened; /* counts changes in `state` and the log */
    uint64_t lost;
} fp_owner_log;

void
fp_owner_log_init(fp_owner_log *l, const fp_alloc *a);

void
fp_owner_log_fini(fp_owner_log *l);

/* Adds an event.  Events of one slot come in order, those of different slots
 * in any order. */
void
fp_owner_log_add(fp_owner_log *l, const fp_owner_event *e);

typedef struct fp_owner_query {
    int64_t at;
    uint32_t tag;      /* the caller's */
    fp_place launcher; /* a place in the launching thread, which is no owner */
    fp_place answer;
} fp_owner_query;

/* Answers [n] queries and sorts them by time. */
void
fp_owner_log_ask(fp_owner_log *l, fp_owner_query *q, uint32_t n);

/* Nodes of thread [from] became nodes of thread [to]. */
void
fp_owner_log_rename(fp_owner_log *l, uint32_t from, uint32_t to,
                    const uint32_t *became, uint32_t nodes);

/* Drops events before [at]: no query will be earlier. */
void
fp_owner_log_forget(fp_owner_log *l, int64_t at);

#endif
