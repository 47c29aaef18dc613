/* The log part of owners.h: finds the owner of an earlier launch. */
#include "gpu/owners.h"

#include <stdlib.h>
#include <string.h>

void
fp_owner_log_init(fp_owner_log *l, const fp_alloc *a)
{
    *l = (fp_owner_log){.alloc = *a, .sorted = 1};
}

void
fp_owner_log_fini(fp_owner_log *l)
{
    fp_alloc_give(&l->alloc, l->event, l->capacity, sizeof(*l->event));
    *l = (fp_owner_log){.alloc = l->alloc, .sorted = 1};
}

static void
apply(fp_owner_log *l, fp_owner_state *state, const fp_owner_event *e)
{
    fp_owner_state *s = &state[e->slot];
    if (e->section != s->section) {
        s->opened = ++l->opened;
    }
    s->section = e->section;
    s->backward = e->backward;
    s->is_backward_phase = e->is_backward_phase;
}

static void
drop_first(fp_owner_log *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        apply(l, l->state, &l->event[i]);
    }
    memmove(l->event, l->event + n, (l->events - n) * sizeof(*l->event));
    l->events -= n;
}

static int
event_order(const void *a, const void *b)
{
    const fp_owner_event *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->order > y->order) - (x->order < y->order);
}

/* Stable: events of one thread at equal times keep their order. */
static void
sort_events(fp_owner_log *l)
{
    if (l->sorted) {
        return;
    }
    for (uint32_t i = 0; i < l->events; i++) {
        l->event[i].order = i;
    }
    qsort(l->event, l->events, sizeof(*l->event), event_order);
    l->sorted = 1;
}

void
fp_owner_log_add(fp_owner_log *l, const fp_owner_event *e)
{
    if (l->events < FP_OWNER_EVENTS) { /* without memory the oldest go */
        (void)fp_alloc_room(&l->alloc, &l->event, &l->capacity, l->events + 1,
                            256, sizeof(*l->event));
    }
    if (l->events == l->capacity) {
        if (l->events == 0) {
            l->lost++;
            return;
        }
        sort_events(l);
        uint32_t half = (l->events + 1) / 2;
        l->lost += half;
        drop_first(l, half);
    }
    if (l->events != 0 && l->event[l->events - 1].at > e->at) {
        l->sorted = 0;
    }
    l->event[l->events++] = *e;
}

static int
query_order(const void *a, const void *b)
{
    int64_t x = ((const fp_owner_query *)a)->at;
    int64_t y = ((const fp_owner_query *)b)->at;
    return (x > y) - (x < y);
}

/* fp_owner_choose without the launching thread itself. */
static fp_place
choose_but(const fp_owner_state *state, fp_place launcher)
{
    fp_owner_state others[FP_OWNERS];
    uint32_t n = 0, self = fp_place_thread(launcher);
    for (uint32_t i = 0; i < FP_OWNERS; i++) {
        if (self == 0 || (fp_place_thread(state[i].section) != self &&
                          fp_place_thread(state[i].backward) != self)) {
            others[n++] = state[i];
        }
    }
    return fp_owner_choose(others, n,
                           state[FP_OWNER_FUNCTIONS].is_backward_phase);
}

void
fp_owner_log_ask(fp_owner_log *l, fp_owner_query *q, uint32_t n)
{
    sort_events(l);
    qsort(q, n, sizeof(*q), query_order);
    fp_owner_state state[FP_OWNERS + 1];
    memcpy(state, l->state, sizeof(state));
    uint64_t opened = l->opened;
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (next < l->events && l->event[next].at <= q[i].at) {
            apply(l, state, &l->event[next++]);
        }
        q[i].answer = choose_but(state, q[i].launcher);
    }
    l->opened = opened; /* undo the replay's count */
}

void
fp_owner_log_forget(fp_owner_log *l, int64_t at)
{
    sort_events(l);
    uint32_t n = 0;
    while (n < l->events && l->event[n].at < at) {
        n++;
    }
    if (n != 0) {
        drop_first(l, n);
    }
}

void
fp_owner_log_rename(fp_owner_log *l, uint32_t from, uint32_t to,
                    const uint32_t *became, uint32_t nodes)
{
    for (uint32_t i = 0; i < FP_OWNERS; i++) {
        fp_owner_state *s = &l->state[i];
        s->section = fp_place_renamed(s->section, from, to, became, nodes);
        s->backward = fp_place_renamed(s->backward, from, to, became, nodes);
    }
    for (uint32_t i = 0; i < l->events; i++) {
        fp_owner_event *e = &l->event[i];
        e->section = fp_place_renamed(e->section, from, to, became, nodes);
        e->backward = fp_place_renamed(e->backward, from, to, became, nodes);
    }
}
