#include "core/steps_split_places.h"

#include "core/steps_split.h"

/* The slot of (node, kind); NULL: the table is full. */
static fp_split_place *
place_of(fp_split *s, const fp_node *n, fp_kind kind)
{
    enum { MASK = FP_SPLIT_PLACES - 1 };
    uint32_t i = (n->index * 2654435761u >> 16) + (uint32_t)kind;
    for (uint32_t tries = 0; tries < FP_SPLIT_PLACES; tries++, i++) {
        fp_split_place *p = &s->place[i & MASK];
        if (p->node == n && p->kind == kind) {
            return p;
        }
        if (p->node == NULL) {
            /* In a nearly full table a search takes too long. */
            if (s->places == FP_SPLIT_PLACES - FP_SPLIT_PLACES / 8) {
                return NULL;
            }
            s->places++;
            p->node = n;
            p->kind = (uint8_t)kind;
            return p;
        }
    }
    return NULL;
}

void
fp_split_add_place(fp_split *s, const fp_node *n, fp_kind kind, int64_t ticks)
{
    s->step.kind[kind] += ticks;
    fp_split_place *p = place_of(s, n, kind);
    if (p == NULL) {
        return;
    }
    p->step_ticks += ticks;
    if (!p->used) {
        p->used = 1;
        p->next = s->used;
        s->used = (uint16_t)(p - s->place + 1);
    }
}

void
fp_split_end_places(fp_split *s, int measured)
{
    for (uint32_t at = s->used; at != 0;) {
        fp_split_place *p = &s->place[at - 1];
        p->sum_ticks += measured ? p->step_ticks : 0;
        p->step_ticks = 0;
        p->used = 0;
        at = p->next;
    }
    s->used = 0;
}
