#include "core/trace_log.h"

#include <string.h>

void
fp_trace_log_init(fp_trace_log *log, const fp_alloc *a, uint64_t max_events,
                  int64_t min_ticks)
{
    *log = (fp_trace_log){.alloc = *a, .min_ticks = min_ticks};
    fp_ring_init(&log->events, a, sizeof(fp_trace_event), max_events);
}

void
fp_trace_log_fini(fp_trace_log *log)
{
    fp_ring_fini(&log->events);
    fp_alloc_give(&log->alloc, log->windows,
                  log->windows != NULL ? FP_TRACE_WINDOWS : 0,
                  sizeof(*log->windows));
    fp_alloc_give(&log->alloc, log->label, log->label_capacity,
                  sizeof(*log->label));
    fp_trace_log_init(log, &log->alloc, log->events.limit, log->min_ticks);
}

void
fp_trace_log_clear(fp_trace_log *log, int64_t now, int64_t wall_ns)
{
    fp_ring_clear(&log->events);
    fp_trace_window open = {now, INT64_MAX, 0, wall_ns};
    if (log->is_open) {
        log->windows[0] = open;
        log->window++;
    }
    log->window_count = log->is_open ? 1 : 0;
    log->labels = 0;
    log->kept = log->brief = log->lost = log->no_memory = 0;
    log->old_windows = 0;
    log->lost_until = 0;
}

fp_status
fp_trace_open(fp_trace_log *log, int64_t now, uint64_t step, int64_t wall_ns)
{
    if (log->windows == NULL) {
        log->windows = fp_alloc_zeroed(&log->alloc, FP_TRACE_WINDOWS,
                                       sizeof(*log->windows));
        if (log->windows == NULL) {
            log->no_memory++;
            return FP_ENOMEM;
        }
    }
    if (log->window_count == FP_TRACE_WINDOWS) {
        memmove(&log->windows[0], &log->windows[1],
                (FP_TRACE_WINDOWS - 1) * sizeof(*log->windows));
        log->window_count--;
        log->old_windows++;
    }
    log->windows[log->window_count++] =
        (fp_trace_window){now, INT64_MAX, step, wall_ns};
    log->window++;
    log->is_open = 1;
    return FP_OK;
}

void
fp_trace_close(fp_trace_log *log, int64_t now)
{
    if (log->is_open) {
        fp_trace_window *w = &log->windows[log->window_count - 1];
        w->end = now > w->start ? now : w->start;
        log->is_open = 0;
    }
}

void
fp_trace_keep(fp_trace_log *log, const fp_thread *t, fp_key key, int64_t start,
              int64_t end)
{
    int lost;
    fp_trace_event *e = fp_ring_push(&log->events, &lost);
    if (e == NULL) {
        log->no_memory++;
        return;
    }
    log->kept++;
    if (lost) {
        log->lost++;
        log->lost_until = e->end > log->lost_until ? e->end : log->lost_until;
    }
    *e = (fp_trace_event){key, start, end, (uint32_t)t->serial};
}

void
fp_trace_forget(fp_trace_log *log, fp_thread *t)
{
    if (t->trace == NULL) {
        return; /* it has no events */
    }
    if (log->labels == log->label_capacity &&
        log->label_capacity < FP_TRACE_LABELS) {
        (void)fp_alloc_room(&log->alloc, &log->label, &log->label_capacity,
                            log->labels + 1, 64, sizeof(*log->label));
    }
    if (log->labels < log->label_capacity) {
        log->label[log->labels++] =
            (fp_trace_label){(uint32_t)t->serial, t->ident, t->native};
    }
}

size_t
fp_trace_bytes(const fp_trace_log *log)
{
    return fp_ring_bytes(&log->events) +
           (log->windows != NULL ? FP_TRACE_WINDOWS * sizeof(*log->windows)
                                 : 0) +
           log->label_capacity * sizeof(*log->label);
}
