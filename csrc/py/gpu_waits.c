/* gpu_waits: what the collector knows so far, for a fastprof thread next to the
 * training thread: how long devices waited for other ranks, and whether they
 * have work.  The lock is held while records are decoded, so it is not waited
 * for with the GIL. */
#include "py/gpu_layer.h"

int
fp_gpu_layer_is_busy(const fp_recorder *r)
{
    fp_gpu *g = fp_gpu_if_any();
    if (g == NULL || fp_gpu_owner != r) {
        return -1;
    }
    int busy = -1;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&g->lock);
    /* With external correlation, a launch becomes known when it has ended. */
    if (g->has_ledger && g->used == FP_TIER_CALLBACKS &&
        atomic_load(&g->state) == FP_GPU_ON && g->ledger.counters.launches) {
        busy = fp_ledger_expects(&g->ledger);
    }
    pthread_mutex_unlock(&g->lock);
    Py_END_ALLOW_THREADS
    return busy;
}

int64_t
fp_gpu_layer_waits(const fp_recorder *r, const int64_t *number, int64_t *ns,
                   int64_t *compute_ns, uint32_t count)
{
    fp_gpu *g = fp_gpu_if_any();
    if (g == NULL || fp_gpu_owner != r) {
        return -1;
    }
    int64_t last = -1;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&g->lock);
    const fp_ledger *l = &g->ledger;
    for (uint32_t i = 0; g->has_ledger && i < l->timelines; i++) {
        const fp_step_waits *w = &l->timeline[i].waits;
        fp_step_waits_read(w, number, ns, compute_ns, count);
        int64_t known = fp_step_waits_last(w);
        last = known > last ? known : last;
    }
    pthread_mutex_unlock(&g->lock);
    Py_END_ALLOW_THREADS
    return last;
}
