/* trace_log: the traced events of all threads, and the windows of time in
 * which they were recorded.  A full log drops its oldest events.  The lock of
 * the threads' trees guards it. */
#ifndef FP_CORE_TRACE_LOG_H
#define FP_CORE_TRACE_LOG_H

#include "core/ring.h"
#include "core/thread.h"

/* The step with that number.  Used in events only, never in a tree. */
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
    int64_t wall_ns; /* wall clock at the start; 0: unknown */
} fp_trace_window;

/* Identity of a thread whose record was freed. */
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
    uint64_t window; /* number of the open or last window */
    int is_open;
    fp_trace_window *windows; /* owned; oldest first */
    uint32_t window_count;
    fp_trace_label *label; /* owned; threads that have ended */
    uint32_t labels;
    uint32_t label_capacity;
    uint64_t kept;        /* all events ever kept */
    uint64_t brief;       /* calls shorter than min_ticks */
    uint64_t lost;        /* events that newer ones replaced */
    int64_t lost_until;   /* end of the last one that was lost */
    uint64_t no_memory;   /* events or windows lost: no memory */
    uint64_t old_windows; /* windows forgotten: too many */
} fp_trace_log;

/* Allocates nothing yet.  [max_events] is the limit of events. */
void
fp_trace_log_init(fp_trace_log *log, const fp_alloc *a, uint64_t max_events,
                  int64_t min_ticks);

/* Frees all events, windows and labels. */
void
fp_trace_log_fini(fp_trace_log *log);

/* Forgets events and windows.  An open window begins again at [now], with step
 * 0. */
void
fp_trace_log_clear(fp_trace_log *log, int64_t now, int64_t wall_ns);

/* Opens a window at [now].  Calls that are open now began before it.
 * FP_ENOMEM: no window is open. */
fp_status
fp_trace_open(fp_trace_log *log, int64_t now, uint64_t step, int64_t wall_ns);

/* Closes the window at [now].  Call fp_trace_end for every thread first. */
void
fp_trace_close(fp_trace_log *log, int64_t now);

/* Stores an event of [t], and counts an older one that it replaces. */
void
fp_trace_keep(fp_trace_log *log, const fp_thread *t, fp_key key, int64_t start,
              int64_t end);

/* Notes the identity of [t], whose record will be freed. */
void
fp_trace_forget(fp_trace_log *log, fp_thread *t);

/* Bytes of memory held, without the threads' frames. */
size_t
fp_trace_bytes(const fp_trace_log *log);

#endif
