#include "py/in_use.h"

void
fp_recorder_use(fp_recorder *r, uint32_t *count)
{
    if (r->busy_timer == 0 && r->exporting == 0) {
        r->next_in_use = r->state->in_use;
        r->state->in_use = r;
    }
    ++*count;
}

void
fp_recorder_end_use(fp_recorder *r, uint32_t *count)
{
    --*count;
    if (r->busy_timer == 0 && r->exporting == 0) {
        fp_recorder **link = &r->state->in_use;
        while (*link != r) {
            link = &(*link)->next_in_use;
        }
        *link = r->next_in_use;
    }
}

void
fp_recorder_forked(fp_state *st)
{
    fp_recorder **link = &st->in_use;
    while (*link != NULL) {
        fp_recorder *r = *link;
        /* The calling thread's own exports and timer calls continue here. */
        r->busy_timer = fp_this_thread->in_timer ? r->busy_timer : 0;
        r->exporting = fp_this_thread->exporting ? r->exporting : 0;
        if (r->busy_timer == 0 && r->exporting == 0) {
            *link = r->next_in_use;
        }
        else {
            link = &r->next_in_use;
        }
    }
}
