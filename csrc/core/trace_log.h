/* trace_log: the events of all threads' traces, and the windows of time in which they
 * were recorded.  The lock of the threads' trees guards it. */
#ifndef FP_CORE_TRACE_LOG_H
#define FP_CORE_TRACE_LOG_H

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
fp_trace_keep(fp_trace_log *log, const fp_thread *t, fp_key key, int64_t start,
              int64_t end);

/* The record of [t] is about to go. */
void
fp_trace_forget(fp_trace_log *log, fp_thread *t);

/* Bytes held, without what hangs on threads. */
size_t
fp_trace_bytes(const fp_trace_log *log);

#endif
