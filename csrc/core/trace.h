/* trace: when sections, functions and steps began and ended, for windows of
 * time; the last so many of all threads together.
 *
 * The tree has sums and no moments.  While a window is open, each thread has
 * beside its path a stack of the moments at which the path's elements were
 * entered:
 *
 *      path     root - f - section - g        (fp_thread)
 *      frames          10     12     57       (since when)
 *
 * fp_trace_moved() is called after the path has changed, compares the two and
 * makes them equal: what is no longer on the path has ended now, what is new on
 * it begins now.  So events of one thread are always nested, whatever happened
 * to the path (a generator that yields inside a section, calls closed because
 * their caller ended): a section that moves to another place of the path is
 * told in two parts.  What takes less than min_ticks is not kept, except for
 * sections; that is decided when it ends, so a short call costs no memory.
 *
 * Outside of windows nothing here is called.  Calls beyond the depth or node cap
 * are not told.  The same lock as for the threads' trees. */
#ifndef FP_CORE_TRACE_H
#define FP_CORE_TRACE_H

#include "core/ring.h"
#include "core/thread.h"

/* In events only, never in a tree: the step of that number. */
enum { FP_TAG_STEP = 6 };

typedef struct fp_trace_event {
    fp_key key;
    int64_t start;
    int64_t end;
    uint32_t thread; /* its serial number */
} fp_trace_event;

typedef struct fp_trace_frame {
    fp_node *node;
    int64_t since;
} fp_trace_frame;

/* Of one thread.  frame[i] is about the path's element at depth i + 1. */
typedef struct fp_trace {
    fp_alloc alloc;
    fp_trace_frame *frame; /* owned */
    uint32_t depth;
    uint32_t capacity;
    uint64_t window; /* that the frames are of; 0: none */
    int64_t last;    /* no time is told that is before this one */
} fp_trace;

typedef struct fp_trace_window {
    int64_t start;
    int64_t end; /* INT64_MAX while it is open */
    uint64_t first_step;
    int64_t wall_ns; /* of the wall clock, when it began; 0: not known */
} fp_trace_window;

/* Whose events are whose, when a thread's record is gone. */
typedef struct fp_trace_label {
    uint32_t thread;
    uint64_t ident;
    uint64_t native;
} fp_trace_label;

enum { FP_TRACE_WINDOWS = 1024, FP_TRACE_LABELS = 4096 };

typedef struct fp_trace_log {
    fp_alloc alloc;
    fp_ring events;
    int64_t min_ticks;
    uint64_t window; /* number of the one that is open, or was last */
    int is_open;
    fp_trace_window *windows; /* owned; the last ones, oldest first */
    uint32_t window_count;
    fp_trace_label *label; /* owned; of threads that have ended */
    uint32_t labels;
    uint32_t label_capacity;
    uint64_t kept;        /* events ever */
    uint64_t brief;       /* calls that took less than min_ticks */
    uint64_t lost;        /* events that newer ones took the place of */
    int64_t lost_until;   /* ... the end of the last one of them */
    uint64_t no_memory;   /* events or windows there was no memory for */
    uint64_t old_windows; /* forgotten, for there are too many */
} fp_trace_log;

/* Takes no memory so far. */
void
fp_trace_log_init(fp_trace_log *log, const fp_alloc *a, uint64_t max_events,
                  int64_t min_ticks);

void
fp_trace_log_fini(fp_trace_log *log);

/* Forgets events and windows; one that is open begins again at [now], with step
 * 0. */
void
fp_trace_log_clear(fp_trace_log *log, int64_t now, int64_t wall_ns);

/* A window begins; what is open now began before it.  FP_ENOMEM: none does. */
fp_status
fp_trace_open(fp_trace_log *log, int64_t now, uint64_t step, int64_t wall_ns);

/* It ends.  Before, fp_trace_end for every thread. */
void
fp_trace_close(fp_trace_log *log, int64_t now);

void
fp_trace_begin_slow(fp_trace_log *log, fp_thread *t);

/* Before the first change of [t]'s path in a window. */
static inline void
fp_trace_begin(fp_trace_log *log, fp_thread *t)
{
    if (FP_UNLIKELY(t->trace == NULL || t->trace->window != log->window)) {
        fp_trace_begin_slow(log, t);
    }
}

void
fp_trace_keep(fp_trace_log *log, const fp_thread *t, fp_key key, int64_t start,
              int64_t end);

void
fp_trace_moved_slow(fp_trace_log *log, fp_thread *t, int64_t now);

/* The last element has ended. */
static inline void
fp_trace_pop(fp_trace_log *log, fp_thread *t, int64_t now)
{
    const fp_trace_frame *f = &t->trace->frame[--t->trace->depth];
    if (now - f->since >= log->min_ticks ||
        fp_key_tag(f->node->key) == FP_TAG_SECTION) {
        fp_trace_keep(log, t, f->node->key, f->since, now);
    }
    else {
        log->brief++;
    }
}

/* The path of [t] has changed, at [now].  fp_trace_begin was called. */
static inline void
fp_trace_moved(fp_trace_log *log, fp_thread *t, int64_t now)
{
    fp_trace *tr = t->trace;
    if (FP_UNLIKELY(tr == NULL)) {
        return;
    }
    now = now > tr->last ? now : tr->last;
    tr->last = now;
    uint32_t depth = tr->depth;
    fp_node *n = t->cur;
    if (FP_LIKELY(t->over_len == 0 && depth > 0)) {
        if (n == tr->frame[depth - 1].node->parent) {
            fp_trace_pop(log, t, now);
            return;
        }
        if (n->parent == tr->frame[depth - 1].node && depth < tr->capacity) {
            tr->frame[tr->depth++] = (fp_trace_frame){n, now};
            return;
        }
    }
    fp_trace_moved_slow(log, t, now);
}

/* The run's phase has changed, and with it the nodes of [t]'s path; what is open
 * goes on. */
void
fp_trace_rehomed(fp_trace_log *log, fp_thread *t, int64_t now);

/* A step of [t] has ended. */
void
fp_trace_step(fp_trace_log *log, const fp_thread *t, uint64_t number,
              int64_t start, int64_t now);

/* What is open in [t] ends for this window. */
void
fp_trace_end(fp_trace_log *log, fp_thread *t, int64_t now);

/* The record of [t] is about to go. */
void
fp_trace_forget(fp_trace_log *log, fp_thread *t);

/* Frees what hangs on a thread; accepts one without a trace. */
void
fp_trace_free(fp_thread *t);

/* Bytes held, without what hangs on threads. */
size_t
fp_trace_bytes(const fp_trace_log *log);

#endif
