#include "gpu/trace_records.h"

#include <string.h>

void
fp_trace_records_init(fp_trace_records *t, const fp_alloc *a, uint64_t limit)
{
    *t = (fp_trace_records){.spans = 0};
    fp_ring_init(&t->record, a, sizeof(fp_trace_record), limit);
    fp_ring_init(&t->call, a, sizeof(fp_trace_call), limit);
}

void
fp_trace_records_fini(fp_trace_records *t)
{
    fp_ring_fini(&t->record);
    fp_ring_fini(&t->call);
    t->spans = 0;
}

void
fp_trace_records_clear(fp_trace_records *t, int64_t now)
{
    fp_ring_clear(&t->record);
    fp_ring_clear(&t->call);
    t->lost = t->no_memory = 0;
    t->lost_until = 0;
    int open = t->spans != 0 && t->span[t->spans - 1].to == INT64_MAX;
    t->spans = 0;
    if (open) {
        fp_trace_records_open(t, now);
    }
}

void
fp_trace_records_open(fp_trace_records *t, int64_t now)
{
    fp_trace_records_close(t, now);
    if (t->spans == FP_TRACE_SPANS) {
        t->spans--;
        memmove(&t->span[0], &t->span[1], t->spans * sizeof(t->span[0]));
    }
    t->span[t->spans].from = now;
    t->span[t->spans++].to = INT64_MAX;
}

void
fp_trace_records_close(fp_trace_records *t, int64_t now)
{
    if (t->spans != 0 && t->span[t->spans - 1].to == INT64_MAX) {
        t->span[t->spans - 1].to = now;
    }
}

int
fp_trace_records_want(const fp_trace_records *t, int64_t ticks)
{
    for (uint32_t i = t->spans; i > 0; i--) {
        if (ticks >= t->span[i - 1].from) {
            return ticks < t->span[i - 1].to;
        }
    }
    return 0;
}

/* The place of a new item of [r]; NULL: no memory. */
static void *
place(fp_trace_records *t, fp_ring *r, int *lost)
{
    void *item = fp_ring_push(r, lost);
    t->no_memory += item == NULL;
    t->lost += item != NULL && *lost;
    return item;
}

static void
note_lost(fp_trace_records *t, int64_t end)
{
    t->lost_until = end > t->lost_until ? end : t->lost_until;
}

void
fp_trace_records_call(fp_trace_records *t, const fp_trace_call *call)
{
    int lost;
    if (!fp_trace_records_want(t, call->start)) {
        return;
    }
    fp_trace_call *item = place(t, &t->call, &lost);
    if (item == NULL) {
        return;
    }
    if (lost) {
        note_lost(t, item->end);
    }
    *item = *call;
    item->end = call->end > call->start ? call->end : call->start;
}

void
fp_trace_records_add(fp_trace_records *t, const fp_trace_record *r,
                     int64_t launched)
{
    int lost;
    if (!fp_trace_records_want(t,
                               launched == INT64_MIN ? r->start : launched)) {
        return;
    }
    fp_trace_record *item = place(t, &t->record, &lost);
    if (item == NULL) {
        return;
    }
    if (lost) {
        note_lost(t, item->end);
    }
    *item = *r;
}
