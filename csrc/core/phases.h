/* phases: time per data loader and phase, for a trainer's metrics.
 *
 * A loader is a small number, its tag; tag -1 means "no loader".  Each sum is
 * kept twice: since the last take and since the start. */
#ifndef FP_CORE_PHASES_H
#define FP_CORE_PHASES_H

#include "core/alloc.h"
#include "core/base.h"

typedef enum fp_phase {
    FP_PHASE_NONE,
    FP_PHASE_DATA,
    FP_PHASE_FORWARD,
    FP_PHASE_BACKWARD,
    FP_PHASE_OPTIMIZER,
    /* From the end of this loader's last batch to its next batch.  With tag
     * -1: from the end of any batch to the next batch of any loader. */
    FP_PHASE_BATCH_WAIT,
    FP_PHASE_COUNT,
} fp_phase;

/* Those of all steps; those of steps without the hook follow. */
enum { FP_PHASE_SUMS = 2 * FP_PHASE_COUNT };

typedef struct fp_sum {
    int64_t ticks;
    uint64_t count;
} fp_sum;

typedef struct fp_loader {
    fp_sum since_take[FP_PHASE_SUMS];
    fp_sum total[FP_PHASE_SUMS];
    int64_t batch_end; /* in ticks; valid if ended */
    uint8_t delivered; /* has delivered a batch */
    uint8_t ended;     /* the work on that batch ended at batch_end */
} fp_loader;

typedef struct fp_phases {
    fp_loader *loader; /* owned; index is tag + 1 */
    uint32_t capacity;
    int32_t tag;   /* of the current batch */
    uint8_t plain; /* the current step has no hook */
} fp_phases;

/* Frees the table.  An empty table has zero bytes and tag = -1. */
void
fp_phases_fini(fp_phases *p, const fp_alloc *a);

/* Makes room for [tag], so that adding cannot fail.  Tags are below 2^16. */
fp_status
fp_phases_reserve(fp_phases *p, const fp_alloc *a, int32_t tag);

/* NULL: no room for [tag]. */
static inline fp_loader *
fp_phases_loader(fp_phases *p, int32_t tag)
{
    uint32_t i = (uint32_t)(tag + 1);
    return i < p->capacity ? &p->loader[i] : NULL;
}

static inline void
fp_loader_add(const fp_phases *p, fp_loader *ld, fp_phase phase, int64_t ticks)
{
    for (int i = (int)phase; i < FP_PHASE_SUMS; i += FP_PHASE_COUNT) {
        ld->since_take[i].ticks += ticks;
        ld->since_take[i].count++;
        ld->total[i].ticks += ticks;
        ld->total[i].count++;
        if (!p->plain) {
            return;
        }
    }
}

/* Adds [ticks] for the current tag; drops them if the tag has no room. */
static inline void
fp_phases_add(fp_phases *p, fp_phase phase, int64_t ticks)
{
    fp_loader *ld = fp_phases_loader(p, p->tag);
    if (ld != NULL) {
        fp_loader_add(p, ld, phase, ticks);
    }
}

/* The work on the current batch ended at [now]; a later call moves the end. */
static inline void
fp_phases_mark_end(fp_phases *p, int64_t now)
{
    fp_loader *ld = fp_phases_loader(p, p->tag);
    if (ld == NULL) {
        return;
    }
    ld->batch_end = now;
    ld->ended = 1;
    fp_loader *any = &p->loader[0];
    any->batch_end = now;
    any->ended = 1;
}

/* A loader's next() begins. */
void
fp_phases_ask(fp_phases *p, int32_t tag, int64_t now);

/* next() has delivered a batch. */
void
fp_phases_deliver(fp_phases *p, int32_t tag, int64_t now);

/* Adds the sums of [from].  FP_ENOMEM: they are lost. */
fp_status
fp_phases_merge(fp_phases *into, const fp_alloc *a, const fp_phases *from);

#endif
