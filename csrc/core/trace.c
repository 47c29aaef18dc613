#include "core/trace.h"

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

/* The innermost element of the path below the caps. */
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
    if (fp_alloc_room(&tr->alloc, &tr->frame, &tr->capacity, here->depth, 64,
                      sizeof(*tr->frame)) != FP_OK) {
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
