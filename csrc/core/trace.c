#include "core/trace.h"

#include <string.h>

/* ---- the log ---- */

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

/* ---- a thread ---- */

static fp_status
reserve(fp_trace *tr, uint32_t wanted)
{
    if (wanted <= tr->capacity) {
        return FP_OK;
    }
    uint32_t capacity = tr->capacity ? tr->capacity : 64;
    while (capacity < wanted) {
        capacity *= 2;
    }
    fp_trace_frame *frame = fp_alloc_grow(&tr->alloc, tr->frame, tr->capacity,
                                          capacity, sizeof(*frame));
    if (frame == NULL) {
        return FP_ENOMEM;
    }
    tr->frame = frame;
    tr->capacity = capacity;
    return FP_OK;
}

void
fp_trace_begin_slow(fp_trace_log *log, fp_thread *t)
{
    if (t->trace == NULL) {
        t->trace = fp_alloc_zeroed(&t->alloc, 1, sizeof(*t->trace));
        if (t->trace == NULL) {
            log->no_memory++;
            return;
        }
        t->trace->alloc = t->alloc;
    }
    t->trace->window = log->window;
    t->trace->depth = 0;
    int64_t opened = log->windows[log->window_count - 1].start;
    t->trace->last = opened;
    fp_trace_moved_slow(log, t, opened);
}

/* Where the thread stands, as far as the caps allow. */
static fp_node *
known(const fp_thread *t)
{
    return t->over_len != 0 ? t->over[0] : t->cur;
}

void
fp_trace_moved_slow(fp_trace_log *log, fp_thread *t, int64_t now)
{
    fp_trace *tr = t->trace;
    fp_node *here = known(t), *n = here;
    while (tr->depth > n->depth) {
        fp_trace_pop(log, t, now);
    }
    while (n->depth > tr->depth) {
        n = n->parent;
    }
    while (tr->depth > 0 && tr->frame[tr->depth - 1].node != n) {
        fp_trace_pop(log, t, now);
        n = n->parent;
    }
    if (reserve(tr, here->depth) != FP_OK) {
        log->no_memory++; /* the next change of the path tries again */
        return;
    }
    uint32_t common = tr->depth;
    tr->depth = here->depth;
    for (n = here; n->depth > common; n = n->parent) {
        tr->frame[n->depth - 1] = (fp_trace_frame){n, now};
    }
}

void
fp_trace_rehomed(fp_trace_log *log, fp_thread *t, int64_t now)
{
    fp_trace *tr = t->trace;
    fp_node *n = known(t);
    if (tr == NULL || tr->window != log->window) {
        return; /* it has no frames of this window yet */
    }
    if (tr->depth == n->depth) {
        for (; n->depth > 0; n = n->parent) {
            tr->frame[n->depth - 1].node = n;
        }
    }
    fp_trace_moved_slow(log, t, now > tr->last ? now : tr->last);
}

void
fp_trace_step(fp_trace_log *log, const fp_thread *t, uint64_t number,
              int64_t start, int64_t now)
{
    int64_t opened = log->windows[log->window_count - 1].start;
    start = start > opened ? start : opened;
    fp_trace_keep(log, t, (fp_key)(number << 3 | FP_TAG_STEP), start,
                  now > start ? now : start);
}

void
fp_trace_end(fp_trace_log *log, fp_thread *t, int64_t now)
{
    fp_trace_begin(log, t);
    if (t->trace != NULL && now < t->trace->last) {
        now = t->trace->last;
    }
    while (t->trace != NULL && t->trace->depth > 0) {
        fp_trace_pop(log, t, now);
    }
}

void
fp_trace_forget(fp_trace_log *log, fp_thread *t)
{
    if (t->trace == NULL) {
        return; /* it has no events */
    }
    if (log->labels == log->label_capacity &&
        log->label_capacity < FP_TRACE_LABELS) {
        uint32_t more = log->label_capacity ? log->label_capacity * 2 : 64;
        fp_trace_label *grown =
            fp_alloc_grow(&log->alloc, log->label, log->label_capacity, more,
                          sizeof(*grown));
        if (grown != NULL) {
            log->label = grown;
            log->label_capacity = more;
        }
    }
    if (log->labels < log->label_capacity) {
        log->label[log->labels++] =
            (fp_trace_label){(uint32_t)t->serial, t->ident, t->native};
    }
}

void
fp_trace_free(fp_thread *t)
{
    fp_trace *tr = t->trace;
    if (tr != NULL) {
        fp_alloc a = tr->alloc;
        t->trace = NULL;
        fp_alloc_give(&a, tr->frame, tr->capacity, sizeof(*tr->frame));
        fp_alloc_give(&a, tr, 1, sizeof(*tr));
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
