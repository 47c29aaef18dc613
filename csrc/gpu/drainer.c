#define _POSIX_C_SOURCE 200809L

/* The collector's thread: answers requests, and drains otherwise. */
#include "gpu/api_calls.h"
#include "gpu/drainer.h"
#include "gpu/worker.h"

static void
answer(fp_gpu *g)
{
    pthread_mutex_lock(&g->talk);
    g->request = FP_GPU_NOTHING;
    g->answered = g->asked;
    pthread_cond_broadcast(&g->answer);
    pthread_mutex_unlock(&g->talk);
}

static fp_gpu_request
asked_for(fp_gpu *g)
{
    pthread_mutex_lock(&g->talk);
    fp_gpu_request request = g->request;
    pthread_mutex_unlock(&g->talk);
    return request;
}

static void
sleep_until_needed(fp_gpu *g)
{
    int64_t left_ns = -1;
    if (g->attached) {
        left_ns = g->next_flush - fp_clock_monotonic_ns();
        left_ns = left_ns < 0 ? 0 : left_ns;
    }
    fp_worker_sleep(&g->woken, left_ns);
}

/* Activities are final this long after their end: a partly filled buffer comes
 * with the flush after next. */
enum { FOLD_PERIODS = 2 };

/* CUPTI may never write into a buffer that it has held for this long. */
#define PATIENCE_NS INT64_C(60000000000)
#define MARGIN_NS INT64_C(1000000)

static void
switch_callback(fp_gpu *g, const fp_api_call *call, int on)
{
    g->nested[call->cbid].is_off = !on;
    fp_drainer_check(g, g->cupti.enable_callback((uint32_t)on, g->subscriber,
                                                 call->domain, call->cbid));
}

/* Since the last call of this function, has an activity come without a
 * reported launch, though no event was lost? */
static int
missed_a_launch(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    int missed = g->ledger.orphans != g->seen_orphans &&
                 atomic_load(&g->lanes.lost) == 0 &&
                 g->ledger.launches.lost == 0;
    g->seen_orphans = g->ledger.orphans;
    pthread_mutex_unlock(&g->lock);
    return missed;
}

/* Switches off callbacks of launches only: the end of a wait in progress would
 * not be reported. */
void
fp_drainer_thin_out(fp_gpu *g)
{
    int missed = missed_a_launch(g);
    for (uint32_t i = 0; g->subscriber != NULL && i < fp_api_call_count; i++) {
        const fp_api_call *call = &fp_api_calls[i];
        if (call->domain != FP_CUPTI_DOMAIN_RUNTIME) {
            continue;
        }
        fp_gpu_nested *n = &g->nested[call->cbid];
        if (n->is_off && missed) {
            atomic_store(&n->alone, 1);
            switch_callback(g, call, 1);
        }
        else if (!n->is_off && !atomic_load(&n->alone) &&
                 atomic_load(&n->inside) >= FP_GPU_NESTED_ENOUGH) {
            switch_callback(g, call, 0);
        }
    }
}

/* Nothing earlier than this will come.  With external correlation launches
 * come in the same buffer as their activities. */
static int64_t
settled_until(const fp_gpu *g)
{
    int64_t now = fp_drainer_device_now(g);
    int64_t until = now - FOLD_PERIODS * g->options.period_ns;
    int64_t lent = g->used == FP_TIER_EXTERNAL ? fp_buffers_oldest(&g->buffers)
                                               : INT64_MAX;
    if (lent != INT64_MAX) {
        /* The call that requested the buffer, and its kernel, began before it
         * got it. */
        int64_t at = fp_clock_map_to_gpu(&g->ledger.clock, lent) - MARGIN_NS;
        at = at > now - PATIENCE_NS ? at : now - PATIENCE_NS;
        until = at < until ? at : until;
    }
    return until;
}

/* Ends a flush period. */
static void
end_period(fp_gpu *g)
{
    fp_drainer_flush(g, 0);
    fp_drainer_watch_clock(g);
    pthread_mutex_lock(&g->lock);
    fp_drainer_watch(g);
    int64_t until = settled_until(g);
    if (g->ledger.counters.records != g->aged_records) {
        g->aged_records = g->ledger.counters.records;
        fp_ledger_age(&g->ledger, until, 0);
    }
    else {
        fp_ledger_idle(&g->ledger, until);
    }
    pthread_mutex_unlock(&g->lock);
    fp_drainer_watch_graphs(g);
    fp_drainer_thin_out(g);
    g->next_flush = fp_clock_monotonic_ns() + g->options.period_ns;
}

/* While it records, this thread goes before others that want the same
 * processor: on a busy machine the program would otherwise fill all buffers
 * before this thread gets its turn.  It needs a sixth of a processor for a
 * million launches per second. */
enum { RECORDING_NICE = -10 };

static void *
run(void *collector)
{
    fp_gpu *g = collector;
    const int nice = fp_worker_nice();
    for (;;) {
        fp_gpu_request request = asked_for(g);
        switch (request) {
        case FP_GPU_ATTACH:
            fp_drainer_attach(g);
            /* Only now: threads that CUPTI starts have the program's value. */
            fp_worker_set_nice(nice + (g->attached ? RECORDING_NICE : 0));
            break;
        case FP_GPU_DETACH:
            fp_drainer_detach(g);
            fp_worker_set_nice(nice);
            g->pauses++;
            break;
        case FP_GPU_FLUSH:
            fp_drainer_flush(g, 0);
            break;
        case FP_GPU_FINISH:
            fp_drainer_finish(g);
            break;
        case FP_GPU_NOTHING:
            break;
        }
        if (request != FP_GPU_NOTHING) {
            answer(g);
        }
        if (request == FP_GPU_FINISH) {
            return NULL;
        }
        if (atomic_load(&g->state) == FP_GPU_DEAD) {
            fp_drainer_detach(g); /* no caller waits any more */
            return NULL;
        }
        sleep_until_needed(g);
        if (!g->attached) {
            fp_drainer_read_while_paused(g);
            continue;
        }
        if (fp_clock_monotonic_ns() >= g->next_flush) {
            end_period(g);
        }
        else {
            fp_drainer_drain(g);
        }
    }
}

int
fp_gpu_begin_thread(fp_gpu *g)
{
    return fp_worker_begin(&g->thread, run, g);
}
