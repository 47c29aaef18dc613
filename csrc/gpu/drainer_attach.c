#define _POSIX_C_SOURCE 200809L

/* Switches CUPTI on and off. */
#include "gpu/cupti_abi.h"
#include "gpu/drainer.h"

#include <time.h>

/* ---- switching on ---- */

static const int activity_kinds[] = {FP_CUPTI_CONCURRENT_KERNEL,
                                     FP_CUPTI_MEMCPY, FP_CUPTI_MEMCPY2,
                                     FP_CUPTI_MEMSET};
enum { ACTIVITY_KINDS = sizeof(activity_kinds) / sizeof(activity_kinds[0]) };

static int
enable_activities(fp_gpu *g)
{
    int rc =
        fp_drainer_check(g, g->cupti.register_buffers(g->entries.on_request,
                                                      g->entries.on_complete));
    if (rc != FP_CUPTI_SUCCESS) {
        fp_drainer_say(g, "CUPTI rejected fastprof's buffers", rc);
        return -1;
    }
    if (g->kernels_left_on) {
        /* Records since the last attachment are useless: discard them. */
        fp_drainer_check(g, g->cupti.flush_all(FP_CUPTI_FLUSH_FORCED));
    }
    /* Records that another client lost are not ours. */
    (void)fp_drainer_take_dropped(g, NULL, 0);
    atomic_store(&g->buffers.closed, 0);
    fp_drainer_bound_memory(g);
    for (int i = 0; i < ACTIVITY_KINDS; i++) {
        rc = fp_drainer_check(g, g->cupti.enable(activity_kinds[i]));
        if (rc == FP_CUPTI_SUCCESS) {
            continue;
        }
        if (i == 0) { /* a recording without kernels is useless */
            fp_drainer_say(g, "CUPTI refused to record kernels", rc);
            fp_drainer_unbound_memory(g);
            return -1;
        }
    }
    fp_drainer_enable_graphs(g);
    return 0;
}

static void
disable_activities(fp_gpu *g)
{
    for (int i = 0; i < ACTIVITY_KINDS; i++) {
        if (activity_kinds[i] == FP_CUPTI_CONCURRENT_KERNEL &&
            g->cupti.version < FP_CUPTI_KERNELS_CAN_END) {
            g->kernels_left_on = 1;
            continue;
        }
        fp_drainer_check(g, g->cupti.disable(activity_kinds[i]));
    }
    fp_drainer_disable_graphs(g);
    fp_drainer_unbound_memory(g);
}

/* The lock is held. */
static void
count_pause(fp_gpu *g, int64_t now)
{
    if (g->detached_ns != 0) {
        g->paused_ns += now - g->detached_ns;
        fp_ledger_gap(&g->ledger, g->detached_ns, now);
        g->detached_ns = now; /* the pause continues if attaching fails */
    }
}

/* Starts the recording's time, or continues it after a pause. */
static int
begin_time(fp_gpu *g)
{
    if (fp_drainer_begin_clock(g) < 0) {
        return -1;
    }
    pthread_mutex_lock(&g->lock);
    int64_t now = fp_drainer_device_now(g);
    if (g->ledger.begin_ns == 0) {
        fp_ledger_begin(&g->ledger, now);
    }
    else {
        count_pause(g, now);
        g->ledger.end_ns = INT64_MAX;
        g->ledger.settled = 0;
    }
    pthread_mutex_unlock(&g->lock);
    return 0;
}

/* Discards buffers and events from before this recording. */
static void
discard_old(fp_gpu *g)
{
    fp_buffer *full[FP_BUFFERS];
    uint32_t n = fp_buffers_take_full(&g->buffers, full);
    for (uint32_t i = 0; i < n; i++) {
        (void)fp_drainer_take_dropped(g, full[i]->context, full[i]->stream);
        fp_buffers_give_back(full[i]);
    }
    for (fp_lane *lane = atomic_load(&g->lanes.first); lane != NULL;
         lane = lane->next) {
        while (fp_lane_read(lane) != NULL) {
        }
    }
}

void
fp_drainer_attach(fp_gpu *g)
{
    g->found.text[0] = '\0';
    g->refused = 0;
    atomic_store(&g->buffers.may_refuse,
                 g->cupti.version >= FP_CUPTI_MAY_BE_REFUSED_BUFFERS);
    if (g->ledger.begin_ns == 0) {
        discard_old(g);
    }
    fp_gpu_tier tier = fp_drainer_enable_correlation(g);
    if (tier == FP_TIER_NONE) {
        return;
    }
    if (begin_time(g) < 0 || enable_activities(g) < 0) {
        /* No kind is enabled by us.  Disabling one would disable it for all
         * clients. */
        fp_drainer_disable_correlation(g, tier);
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->used = tier;
    g->ledger.external = tier == FP_TIER_EXTERNAL;
    g->ledger.attachment = atomic_fetch_add(&g->attachments, 1) + 1;
    g->ledger.graph_ids_wrong =
        g->cupti.version < FP_CUPTI_GRAPHS_HAVE_THEIR_IDS &&
        (g->ledger.attachment > 1 || g->clocks_taken_back != 0);
    pthread_mutex_unlock(&g->lock);
    g->attached = 1;
    g->next_flush = fp_clock_monotonic_ns() + g->options.period_ns;
    atomic_store(&g->tier, tier);
    atomic_store(&g->accept, 1);
}

/* ---- switching off ---- */

typedef struct outlook {
    uint64_t records;
    int may_come; /* activities, as far as known */
    int must_come;
} outlook;

/* With external correlation, launches are known only when CUPTI returns their
 * buffer, and by then the activities in it have ended. */
static outlook
look_ahead(fp_gpu *g)
{
    outlook o;
    pthread_mutex_lock(&g->lock);
    o.records = g->ledger.counters.records;
    o.may_come = fp_ledger_unmatched(&g->ledger) != 0;
    o.may_come |= g->ledger.outstanding != 0;
    o.must_come = g->taken == 0 && fp_ledger_expects(&g->ledger);
    pthread_mutex_unlock(&g->lock);
    o.may_come |=
        g->used == FP_TIER_EXTERNAL && fp_buffers_lent(&g->buffers) != 0;
    return o;
}

/* Waits for the activities of known launches, without synchronizing: until
 * they have come, no more come, or the time is over.  A deep queue delivers
 * nothing until it has finished.  A launch older than an answered one may have
 * had no work. */
static void
await_activities(fp_gpu *g)
{
    enum { NAP_NS = 2000000 };
    const int64_t quiet_ns =
        g->used == FP_TIER_EXTERNAL ? 1000000000 : 200000000;
    const struct timespec nap = {0, NAP_NS};
    int64_t begin = fp_clock_monotonic_ns(), heard = begin;
    uint64_t records = 0;
    for (;;) {
        fp_drainer_flush(g, 0);
        int64_t now = fp_clock_monotonic_ns();
        outlook o = look_ahead(g);
        if (o.records != records) {
            records = o.records;
            heard = now;
        }
        if (!o.may_come || now - begin >= g->grace_ns ||
            (!o.must_come && now - heard >= quiet_ns)) {
            return;
        }
        nanosleep(&nap, NULL);
    }
}

void
fp_drainer_detach(fp_gpu *g)
{
    if (!g->attached) {
        return;
    }
    atomic_store(&g->accept, 0);
    fp_drainer_sample_clock(g);
    pthread_mutex_lock(&g->lock);
    g->ledger.end_ns = g->detached_ns = fp_drainer_device_now(g);
    pthread_mutex_unlock(&g->lock);
    await_activities(g);
    fp_drainer_flush(g, FP_CUPTI_FLUSH_FORCED);
    /* Only now: disabling a kind drops records that were not flushed. */
    disable_activities(g);
    fp_drainer_disable_correlation(g, g->used);
    fp_drainer_drain(g);
    atomic_store(&g->buffers.closed, 1);
    /* No buffer has returned since that could carry this number. */
    uint64_t dropped = fp_drainer_take_dropped(g, NULL, 0);
    pthread_mutex_lock(&g->lock);
    g->ledger.counters.dropped += dropped;
    fp_drainer_watch(g);
    fp_ledger_age(&g->ledger, g->detached_ns, 1);
    pthread_mutex_unlock(&g->lock);
    g->attached = 0;
}

void
fp_drainer_finish(fp_gpu *g)
{
    if (!g->attached) {
        pthread_mutex_lock(&g->lock);
        count_pause(g, fp_drainer_device_now(g));
        pthread_mutex_unlock(&g->lock);
    }
    fp_drainer_detach(g);
}

void
fp_drainer_read_while_paused(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    if (g->has_ledger && g->ledger.begin_ns != 0 && g->detached_ns != 0) {
        fp_drainer_read_lanes(g);
        count_pause(g, fp_drainer_device_now(g));
    }
    pthread_mutex_unlock(&g->lock);
}
