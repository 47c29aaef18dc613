/* The owner of the collector, and the thread records that launch callbacks
 * see. */
#include "py/gpu_layer_parts.h"
#include "py/gpu_probe.h"

fp_recorder *fp_gpu_owner;

void
fp_gpu_layer_set_reason(fp_recorder *r, const char *text)
{
    PyObject *reason = fp_text_of(text);
    if (reason == NULL) {
        PyErr_Clear();
    }
    Py_XSETREF(r->gpu.reason, reason);
}

void
fp_gpu_layer_epochs(fp_recorder *r)
{
    if (r != fp_gpu_owner || !r->gpu_on) {
        return;
    }
    fp_gpu *g = fp_gpu_if_any();
    int known = r->functions_on && !r->paused && r->config.builtins;
    atomic_store(&g->owners.functions_known, known);
    fp_gpu_set_epochs(r->function_epoch, r->section_epoch);
    fp_lane *lane = fp_gpu_own_lane(g);
    if (lane != NULL) {
        fp_gpu_layer_tell(g, lane,
                          &(fp_event){.kind = FP_EVENT_OWNER,
                                      .ticks = fp_clock_now(&r->clock),
                                      .corr = FP_OWNER_FUNCTIONS,
                                      .section = (uint16_t)known});
    }
}

static void
wait_for_callbacks(fp_gpu *g)
{
    /* The drain thread frees lanes under this lock; it never takes the GIL. */
    pthread_mutex_lock(&g->lock);
    fp_lanes_quiesce(&g->lanes, fp_this_thread->lane);
    pthread_mutex_unlock(&g->lock);
}

static void
empty_slots(fp_gpu *g, const fp_recorder *r)
{
    for (const fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_owners_leave(&g->owners, t);
    }
}

void
fp_gpu_layer_hide_all(fp_recorder *r)
{
    if (r != fp_gpu_owner) {
        return;
    }
    fp_gpu *g = fp_gpu_if_any();
    fp_gpu_set_epochs(FP_EPOCH_OFF, FP_EPOCH_OFF);
    wait_for_callbacks(g); /* a running one may still join the owners */
    empty_slots(g, r);
    wait_for_callbacks(g);
    /* A callback that had already found its record may have taken a slot. */
    empty_slots(g, r);
}

void
fp_gpu_layer_hide(fp_recorder *r, fp_thread *t)
{
    if (r == fp_gpu_owner) {
        fp_gpu *g = fp_gpu_if_any();
        fp_owners_leave(&g->owners, t);
        wait_for_callbacks(g);
    }
}

void
fp_gpu_layer_renamed(fp_recorder *r, const fp_thread *from,
                     const fp_thread *to, const uint32_t *became)
{
    fp_gpu *g = fp_gpu_if_any();
    if (r == fp_gpu_owner && g->has_ledger) {
        pthread_mutex_lock(&g->lock);
        fp_ledger_rename(&g->ledger, (uint32_t)from->serial,
                         (uint32_t)to->serial, became, from->tree.count);
        pthread_mutex_unlock(&g->lock);
    }
}

void
fp_gpu_layer_traced(fp_recorder *r, int64_t now)
{
    if (r != fp_gpu_owner) {
        return;
    }
    if (r->tracing && r->gpu_on) {
        fp_gpu_trace_open(fp_gpu_if_any(), r->trace.log.events.limit, now);
    }
    else {
        fp_gpu_trace_close(fp_gpu_if_any(), now);
    }
}
