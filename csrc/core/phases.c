#include "core/phases.h"

void
fp_phases_fini(fp_phases *p, const fp_alloc *a)
{
    fp_alloc_give(a, p->loader, p->capacity, sizeof(*p->loader));
    p->loader = NULL;
    p->capacity = 0;
}

fp_status
fp_phases_reserve(fp_phases *p, const fp_alloc *a, int32_t tag)
{
    return fp_alloc_room(a, &p->loader, &p->capacity, (uint32_t)(tag + 2), 4,
                         sizeof(*p->loader));
}

/* If nothing marked the end of the last batch, it ended at the next
 * request. */
static void
end_unless_ended(fp_loader *ld, int64_t now)
{
    if (!ld->ended) {
        ld->batch_end = now;
        ld->ended = 1;
    }
}

void
fp_phases_ask(fp_phases *p, int32_t tag, int64_t now)
{
    fp_loader *ld = fp_phases_loader(p, tag);
    if (ld == NULL) {
        return;
    }
    end_unless_ended(ld, now);
    end_unless_ended(&p->loader[0], now);
}

static void
deliver(const fp_phases *p, fp_loader *ld, int64_t now)
{
    if (ld->delivered && ld->ended) {
        fp_loader_add(p, ld, FP_PHASE_BATCH_WAIT,
                      now > ld->batch_end ? now - ld->batch_end : 0);
    }
    ld->delivered = 1;
    ld->ended = 0;
}

void
fp_phases_deliver(fp_phases *p, int32_t tag, int64_t now)
{
    fp_loader *ld = fp_phases_loader(p, tag);
    if (ld == NULL) {
        return;
    }
    deliver(p, ld, now);
    if (ld != &p->loader[0]) {
        deliver(p, &p->loader[0], now);
    }
}

fp_status
fp_phases_merge(fp_phases *into, const fp_alloc *a, const fp_phases *from)
{
    if (from->capacity != 0 &&
        fp_phases_reserve(into, a, (int32_t)from->capacity - 2) != FP_OK) {
        return FP_ENOMEM;
    }
    for (uint32_t i = 0; i < from->capacity; i++) {
        for (int ph = 0; ph < FP_PHASE_SUMS; ph++) {
            const fp_loader *f = &from->loader[i];
            fp_loader *t = &into->loader[i];
            t->since_take[ph].ticks += f->since_take[ph].ticks;
            t->since_take[ph].count += f->since_take[ph].count;
            t->total[ph].ticks += f->total[ph].ticks;
            t->total[ph].count += f->total[ph].count;
        }
    }
    return FP_OK;
}
