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

#include "core/trace_log.h"

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

/* Frees what hangs on a thread; accepts one without a trace. */
void
fp_trace_free(fp_thread *t);

#endif
