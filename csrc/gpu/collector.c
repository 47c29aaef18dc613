#define _POSIX_C_SOURCE 200809L

#include "gpu/collector.h"
#include "gpu/worker.h"

#include <string.h>

fp_status
fp_gpu_init(fp_gpu *g, const fp_alloc *a, const fp_clock *clock,
            const fp_gpu_entries *entries, int (*is_backward)(fp_key))
{
    memset(g, 0, sizeof(*g));
    g->alloc = *a;
    g->clock = *clock;
    g->entries = *entries;
    g->owners.is_backward = is_backward;
    fp_lanes_init(&g->lanes, a);
    if (fp_buffers_init(&g->buffers, a) != FP_OK) {
        return FP_ENOMEM;
    }
    if (pthread_mutex_init(&g->control, NULL) != 0 ||
        pthread_mutex_init(&g->lock, NULL) != 0 ||
        pthread_mutex_init(&g->talk, NULL) != 0 ||
        pthread_cond_init(&g->answer, NULL) != 0) {
        return FP_ENOMEM;
    }
    return FP_OK;
}

void
fp_gpu_wake(fp_gpu *g)
{
    fp_worker_wake(&g->woken);
}

/* ---- requests to the thread ---- */

/* Sends a request and waits for the answer.  -1: no answer in time, by the wall
 * clock, which every condition variable supports; if it is stepped, the wait is
 * shorter or longer, not endless. */
static int
ask(fp_gpu *g, fp_gpu_request request, int64_t patience_ns)
{
    struct timespec until = fp_worker_deadline(CLOCK_REALTIME, patience_ns);
    int rc = 0;
    pthread_mutex_lock(&g->talk);
    while (g->answered != g->asked && rc == 0) {
        rc = pthread_cond_timedwait(&g->answer, &g->talk, &until);
    }
    if (rc == 0) {
        g->request = request;
        g->asked++;
        fp_gpu_wake(g);
    }
    while (g->answered != g->asked && rc == 0) {
        rc = pthread_cond_timedwait(&g->answer, &g->talk, &until);
    }
    pthread_mutex_unlock(&g->talk);
    return rc == 0 ? 0 : -1;
}

/* The thread hangs inside CUPTI.  It may return at any time, so nothing that
 * it uses is freed, and it gets no further request. */
static void
abandon(fp_gpu *g, const char *doing)
{
    atomic_store(&g->accept, 0);
    atomic_store(&g->state, FP_GPU_DEAD);
    fp_why_set(&g->why,
               "CUPTI did not answer while %s, so GPU recording stopped there",
               doing);
}

/* Asks for [request], whose name for users is [doing].  -1: abandoned. */
static int
ask_or_abandon(fp_gpu *g, fp_gpu_request request, int64_t patience_ns,
               const char *doing)
{
    int rc = ask(g, request, patience_ns);
    if (rc != 0) {
        abandon(g, doing);
    }
    return rc;
}

static int
begin_ledger(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    if (g->has_ledger) {
        fp_ledger_fini(&g->ledger);
    }
    fp_trace_records_fini(&g->trace);
    atomic_store(&g->tracing, 0);
    uint32_t devices = (uint32_t)g->driver.devices;
    devices = devices < FP_GPU_DEVICES ? devices : FP_GPU_DEVICES;
    g->has_ledger = fp_ledger_init(&g->ledger, &g->alloc, devices,
                                   fp_clock_ns_per_tick(&g->clock)) == FP_OK;
    g->cupti_errors = g->taken = g->pauses = 0;
    g->clocks_taken_back = g->seen_misdated = g->seen_orphans = 0;
    g->paused_ns = g->detached_ns = 0;
    g->seen_records = g->seen_launches = 0;
    g->silent_periods = 0;
    g->seen_nodes = g->seen_untimed_nodes = 0;
    g->aged_records = g->heard_records = g->heard_pushes = g->unheard = 0;
    g->unheard_periods = 0;
    atomic_store(&g->lanes.lost, 0);
    atomic_store(&g->buffers.discarded, 0);
    g->why.text[0] = '\0';
    atomic_fetch_add(&g->recording, 1);
    atomic_store(&g->push_errors, 0);
    pthread_mutex_unlock(&g->lock);
    return g->has_ledger ? 0 : -1;
}

int
fp_gpu_start(fp_gpu *g, const fp_gpu_options *o)
{
    pthread_mutex_lock(&g->control);
    int rc = -1;
    if (atomic_load(&g->state) != FP_GPU_OFF) {
        rc = atomic_load(&g->state) == FP_GPU_DEAD ? -1 : 0;
        goto out;
    }
    g->options = *o;
    if (begin_ledger(g) < 0) {
        fp_why_set(&g->why, "out of memory for GPU records");
        goto out;
    }
    if (fp_gpu_begin_thread(g) != 0) {
        fp_why_set(&g->why,
                   "the thread that reads GPU records could not be started");
        goto out;
    }
    if (ask_or_abandon(g, FP_GPU_ATTACH, o->patience_ns,
                       "being switched on") != 0) {
        goto out;
    }
    g->why = g->found;
    if (g->attached) {
        atomic_store(&g->state, FP_GPU_ON);
        rc = 0;
        goto out;
    }
    if (ask_or_abandon(g, FP_GPU_FINISH, o->patience_ns,
                       "being switched off") == 0) {
        pthread_join(g->thread, NULL);
    }
out:
    pthread_mutex_unlock(&g->control);
    return rc;
}

void
fp_gpu_stop(fp_gpu *g, int64_t grace_ns)
{
    pthread_mutex_lock(&g->control);
    int state = atomic_load(&g->state);
    if (state == FP_GPU_ON || state == FP_GPU_PAUSED) {
        g->grace_ns = grace_ns;
        if (ask_or_abandon(g, FP_GPU_FINISH, grace_ns + g->options.patience_ns,
                           "being switched off") == 0) {
            pthread_join(g->thread, NULL);
            atomic_store(&g->state, FP_GPU_OFF);
        }
    }
    pthread_mutex_unlock(&g->control);
}

void
fp_gpu_pause(fp_gpu *g, int64_t grace_ns)
{
    pthread_mutex_lock(&g->control);
    if (atomic_load(&g->state) == FP_GPU_ON) {
        g->grace_ns = grace_ns;
        if (ask_or_abandon(g, FP_GPU_DETACH, grace_ns + g->options.patience_ns,
                           "being released for another profiler") == 0) {
            atomic_store(&g->state, FP_GPU_PAUSED);
        }
    }
    pthread_mutex_unlock(&g->control);
}

void
fp_gpu_resume(fp_gpu *g)
{
    pthread_mutex_lock(&g->control);
    if (atomic_load(&g->state) == FP_GPU_PAUSED) {
        if (ask_or_abandon(g, FP_GPU_ATTACH, g->options.patience_ns,
                           "being switched on again") == 0) {
            g->why = g->found;
            atomic_store(&g->state, g->attached ? FP_GPU_ON : FP_GPU_PAUSED);
        }
    }
    pthread_mutex_unlock(&g->control);
}

int
fp_gpu_flush(fp_gpu *g, int64_t patience_ns)
{
    int rc = -1;
    /* A concurrent start or stop flushes by itself. */
    if (pthread_mutex_trylock(&g->control) != 0) {
        return -1;
    }
    if (atomic_load(&g->state) == FP_GPU_ON) {
        rc = ask(g, FP_GPU_FLUSH, patience_ns);
    }
    pthread_mutex_unlock(&g->control);
    return rc;
}

void
fp_gpu_forked(fp_gpu *g)
{
    atomic_store(&g->accept, 0);
    atomic_store(&g->tier, FP_TIER_NONE);
    atomic_store(&g->state, FP_GPU_DEAD);
    fp_why_set(&g->why,
               "CUDA does not work in this process: it was forked from "
               "one that recorded the GPU");
    /* Callbacks of other threads never end in this process. */
    atomic_store(&g->lanes.first, NULL);
    /* The threads that held these locks do not exist in this process. */
    pthread_mutex_init(&g->control, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->talk, NULL);
}

void
fp_gpu_clear(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    if (g->has_ledger) {
        int64_t now = fp_clock_now(&g->clock);
        fp_ledger_clear(&g->ledger, now);
        fp_trace_records_clear(&g->trace, now);
        g->seen_nodes = g->seen_untimed_nodes = 0;
        g->detached_ns = g->ledger.begin_ns; /* a pause counts from here on */
        atomic_store(&g->lanes.lost, 0);
        atomic_store(&g->buffers.discarded, 0);
        g->cupti_errors = g->taken = g->pauses = 0;
        g->clocks_taken_back = g->seen_misdated = 0;
        g->paused_ns = 0;
    }
    pthread_mutex_unlock(&g->lock);
}

void
fp_gpu_trace_open(fp_gpu *g, uint64_t limit, int64_t now)
{
    pthread_mutex_lock(&g->lock);
    if (g->has_ledger) {
        if (g->ledger.trace == NULL) {
            fp_trace_records_init(&g->trace, &g->alloc, limit);
            g->ledger.trace = &g->trace;
        }
        fp_trace_records_open(&g->trace, now);
        atomic_store(&g->tracing, 1);
    }
    pthread_mutex_unlock(&g->lock);
}

void
fp_gpu_trace_close(fp_gpu *g, int64_t now)
{
    pthread_mutex_lock(&g->lock);
    fp_trace_records_close(&g->trace, now);
    atomic_store(&g->tracing, 0);
    pthread_mutex_unlock(&g->lock);
}

void
fp_gpu_forget(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    if (g->has_ledger && atomic_load(&g->state) == FP_GPU_OFF) {
        fp_ledger_fini(&g->ledger);
        fp_trace_records_fini(&g->trace);
        g->has_ledger = 0;
    }
    pthread_mutex_unlock(&g->lock);
}
