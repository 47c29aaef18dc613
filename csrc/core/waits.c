#include "core/waits.h"

void
fp_waits_fini(fp_waits *w, const fp_alloc *a)
{
    fp_alloc_give(a, w->wait, w->capacity, sizeof(*w->wait));
    w->wait = NULL;
    w->count = w->capacity = w->entered = 0;
}

void
fp_waits_add(fp_waits *w, const fp_alloc *a, fp_node *n, fp_kind kind)
{
    if (w->count == FP_WAITS_MAX ||
        fp_alloc_room(a, &w->wait, &w->capacity, w->count + 1, 16,
                      sizeof(*w->wait)) != FP_OK) {
        w->left_out++;
        return;
    }
    w->wait[w->count++] = (fp_wait){
        .node = n, .seen_ticks = n->self_ticks, .kind = (uint8_t)kind};
    n->flags = (uint16_t)(n->flags | w->count << FP_NODE_FLAG_BITS);
}

void
fp_waits_end_step(fp_waits *w, int64_t step[FP_KIND_COUNT], int measured)
{
    uint32_t before = 0; /* last one that stays entered, by its number */
    for (uint32_t at = w->entered; at != 0;) {
        fp_wait *wait = &w->wait[at - 1];
        uint32_t next = wait->next;
        int64_t ticks = wait->node->self_ticks - wait->seen_ticks;
        wait->seen_ticks = wait->node->self_ticks;
        step[wait->kind] += ticks;
        wait->sum_ticks += measured ? ticks : 0;
        /* The function may still be open: check it again in the next step. */
        if (ticks != 0) {
            before = at;
        }
        else {
            wait->entered = 0;
            if (before == 0) {
                w->entered = next;
            }
            else {
                w->wait[before - 1].next = (uint16_t)next;
            }
        }
        at = next;
    }
}
