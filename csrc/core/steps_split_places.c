#include "core/steps_split_places.h"

#include "core/steps_split.h"

#include <string.h>

enum {
    /* In a nearly full table a search takes too long. */
    FULL = FP_SPLIT_PLACES - FP_SPLIT_PLACES / 8,
    /* The collector runs in any function; sections are few, and findings need
     * their places. */
    FULL_OF_GC = FP_SPLIT_PLACES / 2,
};

/* The slot of (node, kind), a new one if fewer than [full] are in use; else
 * NULL. */
static fp_split_place *
place_of(fp_split *s, const fp_node *n, fp_kind kind, uint32_t full)
{
    enum { MASK = FP_SPLIT_PLACES - 1 };
    uint32_t i = (n->index * 2654435761u >> 16) + (uint32_t)kind;
    for (uint32_t tries = 0; tries < FP_SPLIT_PLACES; tries++, i++) {
        fp_split_place *p = &s->place[i & MASK];
        if (p->node == n && p->kind == kind) {
            return p;
        }
        if (p->node == NULL) {
            if (s->places >= full) {
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
    uint32_t full = kind == FP_KIND_GC ? FULL_OF_GC : FULL;
    fp_split_place *p = place_of(s, n, kind, full);
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

/* Removes places without time in measured steps: imports have hundreds. */
static void
drop_unmeasured(fp_split *s)
{
    fp_split_place before[FP_SPLIT_PLACES];
    memcpy(before, s->place, sizeof(before));
    memset(s->place, 0, sizeof(s->place));
    s->places = 0;
    for (uint32_t i = 0; i < FP_SPLIT_PLACES; i++) {
        if (before[i].sum_ticks > 0) {
            const fp_split_place *p = &before[i];
            *place_of(s, p->node, (fp_kind)p->kind, FP_SPLIT_PLACES) = *p;
        }
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
    if (!measured && s->places >= FULL_OF_GC) {
        drop_unmeasured(s);
    }
}
