/* owners: whose work does a thread do that has no section of its own?
 *
 * The autograd engine launches backward's kernels from threads of its own while
 * the thread that called backward() waits.  A launch from such a thread belongs
 * to
 *   1. the thread that is inside a backward call (of several, the one that
 *      opened a section last);
 *   2. if functions are not recorded, so that nobody can tell, or that thread's
 *      section is a backward phase: the thread that opened a section last;
 *   3. nobody: a watchdog or a thread that pins memory.
 *
 * The rule is asked at two moments: inside a launch callback, about now
 * (fp_owners_find), and while decoding, about some time ago (fp_owner_log). */
#ifndef FP_GPU_OWNERS_H
#define FP_GPU_OWNERS_H

#include "core/alloc.h"
#include "gpu/site.h"

#include <stdatomic.h>

enum { FP_OWNERS = 64 };

/* What is known about one thread at one moment. */
typedef struct fp_owner_state {
    fp_place section;      /* node of its innermost section; 0: none open */
    fp_place backward;     /* node of the backward call it is in; 0: none */
    uint64_t opened;       /* when its section was opened: greater is later */
    int is_backward_phase; /* that section is named as backward */
} fp_owner_state;

/* The place that the rule gives; 0: nobody's. */
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
    _Atomic uint64_t count; /* of sections opened */
    _Atomic int functions_known;
    /* Is it the key of a function that runs backward?  Any thread. */
    int (*is_backward)(fp_key key);
} fp_owners;

/* The slot of [t], taken if it has none; -1: none is free, [t] is no owner.
 * Only on [t]'s own thread. */
int
fp_owners_join(fp_owners *o, const fp_thread *t);

void
fp_owners_leave(fp_owners *o, const fp_thread *t);

/* The thread of [slot] stands in [section] now (0: in none). */
void
fp_owners_section(fp_owners *o, int slot, fp_place section, int backward);

/* Whose work a thread does that is not [self] (or NULL).  Any thread that is
 * inside fp_lane_enter. */
fp_place
fp_owners_find(const fp_owners *o, const fp_thread *self);

/* The node of the backward call that [n] is in, itself included; or NULL. */
const fp_node *
fp_owners_backward_node(const fp_owners *o, const fp_node *n);

/* ---- as it was some time ago; one thread at a time ---- */

/* Slot of an event that tells, as is_backward_phase, whether functions are
 * recorded. */
enum { FP_OWNER_FUNCTIONS = FP_OWNERS };

typedef struct fp_owner_event {
    int64_t at; /* device clock */
    fp_place section;
    fp_place backward;
    uint32_t slot;
    int is_backward_phase;
    uint32_t order; /* the log's, while it sorts */
} fp_owner_event;

enum { FP_OWNER_EVENTS = 1 << 16 };

typedef struct fp_owner_log {
    fp_alloc alloc;
    fp_owner_event *event; /* owned */
    uint32_t events;
    uint32_t capacity;
    int sorted;
    fp_owner_state state[FP_OWNERS + 1]; /* before event[0] */
    uint64_t opened; /* counts within `state` and the log */
    uint64_t lost;
} fp_owner_log;

void
fp_owner_log_init(fp_owner_log *l, const fp_alloc *a);

void
fp_owner_log_fini(fp_owner_log *l);

/* Events of one slot come in order, those of different slots in any. */
void
fp_owner_log_add(fp_owner_log *l, const fp_owner_event *e);

typedef struct fp_owner_query {
    int64_t at;
    uint32_t tag;      /* the asker's */
    fp_place launcher; /* a place in the launching thread: it is no owner */
    fp_place answer;
} fp_owner_query;

/* Answers [n] queries; they are left in the order of their times. */
void
fp_owner_log_ask(fp_owner_log *l, fp_owner_query *q, uint32_t n);

/* Nodes of thread [from] are now nodes of thread [to]. */
void
fp_owner_log_rename(fp_owner_log *l, uint32_t from, uint32_t to,
                    const uint32_t *became, uint32_t nodes);

/* Nobody will ask about times before [at] any more. */
void
fp_owner_log_forget(fp_owner_log *l, int64_t at);

#endif
