/* trace: when sections, functions and steps began and ended, during windows of
 * time.
 *
 * The tree stores sums, not moments.  While a window is open, each thread
 * keeps a stack of frames next to its path: the moment at which each element
 * was entered.
 *
 *      path     root - f - section - g        (fp_thread)
 *      frames          10     12     57       (entered at)
 *
 * After a change of the path, fp_trace_moved() compares the two and makes them
 * equal: elements that left the path end now, new elements begin now.  So the
 * events of a thread are always nested, whatever happened to its path (a
 * generator that yields inside a section, calls closed because their caller
 * ended).  A section that moves to another place on the path becomes two
 * events.  Events shorter than min_ticks are dropped, except sections; this is
 * decided at the end of the event, so a short call takes no memory.
 *
 * No function here is called outside of windows.  Calls beyond the depth or
 * node cap are not traced.  The lock of the threads' trees guards the
 * frames. */
#ifndef FP_CORE_TRACE_H
#define FP_CORE_TRACE_H

#include "core/trace_log.h"

typedef struct fp_trace_frame {
    fp_node *node;
    int64_t since;
} fp_trace_frame;

/* The frames of one thread.  frame[i] belongs to the path's element at depth i
 * + 1. */
typedef struct fp_trace {
    fp_alloc alloc;
    fp_trace_frame *frame; /* owned */
    uint32_t depth;
    uint32_t capacity;
    uint64_t window; /* window of the frames; 0: none */
    int64_t last;    /* no event begins or ends before this time */
} fp_trace;

void
fp_trace_begin_slow(fp_trace_log *log, fp_thread *t);

/* Call this before the first change of [t]'s path in a window. */
static inline void
fp_trace_begin(fp_trace_log *log, fp_thread *t)
{
    if (FP_UNLIKELY(t->trace == NULL || t->trace->window != log->window)) {
        fp_trace_begin_slow(log, t);
    }
}

void
fp_trace_moved_slow(fp_trace_log *log, fp_thread *t, int64_t now);

/* Ends the last frame. */
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

/* The path of [t] has changed at [now].  fp_trace_begin was called. */
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

/* The phase of the run has changed, and with it the nodes of [t]'s path.  Open
 * calls and sections continue. */
void
fp_trace_rehomed(fp_trace_log *log, fp_thread *t, int64_t now);

/* Step [number] of [t] ends at [now]. */
void
fp_trace_step(fp_trace_log *log, const fp_thread *t, uint64_t number,
              int64_t start, int64_t now);

/* Ends all frames of [t] for this window. */
void
fp_trace_end(fp_trace_log *log, fp_thread *t, int64_t now);

/* Frees the frames of [t].  Accepts a thread without frames. */
void
fp_trace_free(fp_thread *t);

#endif
