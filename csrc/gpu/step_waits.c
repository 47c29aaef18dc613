#include "gpu/step_waits.h"

void
fp_step_waits_begin(fp_step_waits *w, const fp_alloc *a)
{
    w->row = fp_alloc_zeroed(a, FP_STEPS_RECENT, sizeof(*w->row));
}

void
fp_step_waits_fini(fp_step_waits *w, const fp_alloc *a)
{
    fp_alloc_give(a, w->row, w->row != NULL ? FP_STEPS_RECENT : 0,
                  sizeof(*w->row));
    *w = (fp_step_waits){0};
}

void
fp_step_waits_put(fp_step_waits *w, const fp_step_wait *step)
{
    if (w->row != NULL) {
        w->row[w->count++ % FP_STEPS_RECENT] = *step;
    }
}

int64_t
fp_step_waits_last(const fp_step_waits *w)
{
    return w->count == 0
               ? -1
               : (int64_t)w->row[(w->count - 1) % FP_STEPS_RECENT].number;
}

void
fp_step_waits_read(const fp_step_waits *w, const int64_t *number, int64_t *ns,
                   int64_t *compute_ns, uint32_t count)
{
    uint64_t oldest =
        w->count < FP_STEPS_RECENT ? 0 : w->count - FP_STEPS_RECENT;
    uint64_t at = w->count;
    for (uint32_t i = count; i-- > 0;) {
        while (at > oldest && w->row[(at - 1) % FP_STEPS_RECENT].number >
                                  (uint64_t)number[i]) {
            at--;
        }
        if (at == oldest) {
            return;
        }
        const fp_step_wait *r = &w->row[(at - 1) % FP_STEPS_RECENT];
        if (r->number == (uint64_t)number[i]) {
            ns[i] = r->ns > ns[i] ? r->ns : ns[i];
            compute_ns[i] =
                r->compute_ns > compute_ns[i] ? r->compute_ns : compute_ns[i];
        }
    }
}
