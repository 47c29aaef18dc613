#define _POSIX_C_SOURCE 200809L

/* The collector's thread: every CUPTI call that can wait is made here. */
#include "gpu/api_calls.h"
#include "gpu/collector.h"
#include "gpu/cupti_abi.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Activities become final this long after their end: buffers that are not full
 * come with the flush after next. */
enum { FOLD_PERIODS = 2, SILENCE_PERIODS = 2 };

static int64_t
device_now(const fp_gpu *g)
{
    return fp_clock_map_to_gpu(&g->ledger.clock, fp_clock_now(&g->clock));
}

static int64_t
monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* 0 if a CUPTI call succeeded; else counts it. */
static int
check(fp_gpu *g, int result)
{
    if (result != FP_CUPTI_SUCCESS) {
        g->cupti_errors++;
    }
    return result;
}

/* The same for a call that is made for each CUDA call: a release need not know
 * all of them. */
static int
check_known(fp_gpu *g, int result)
{
    return result == FP_CUPTI_INVALID_PARAMETER ? result : check(g, result);
}

/* ---- decoding ---- */

/* What is there now, no further: who launches faster than this reads must not
 * keep it from everything else. */
static void
read_lanes(fp_gpu *g)
{
    int64_t now = fp_clock_now(&g->clock);
    uint64_t most = (uint64_t)atomic_load(&g->lanes.chunks) * FP_LANE_CHUNK;
    for (fp_lane *lane = atomic_load(&g->lanes.first); lane != NULL;
         lane = lane->next) {
        const fp_event *e;
        for (uint64_t n = 0; n < most && (e = fp_lane_read(lane)) != NULL;
             n++) {
            fp_ledger_event(&g->ledger, e);
            if (e->ticks > now) {
                break;
            }
        }
    }
    fp_lanes_sweep(&g->lanes);
}

typedef void (*record_reader)(fp_ledger *l, const uint8_t *record);

/* Walks a buffer.  The iterator ends a buffer that was cut inside a record as it
 * ends a whole one; the size of the last record, seen before between two others,
 * tells them apart. */
static void
walk(fp_gpu *g, const fp_buffer *b, record_reader read)
{
    uint8_t *record = NULL, *last = NULL;
    int32_t unknown = 0, *size = &unknown;
    int result;
    while ((result = g->cupti.next_record(b->data, b->valid, &record)) ==
           FP_CUPTI_SUCCESS) {
        if (last != NULL) {
            *size = (int32_t)(record - last);
        }
        uint32_t kind = fp_read_u32(record, FP_AT_KIND);
        size = kind < 64 ? &g->size_of_kind[kind] : &unknown;
        last = record;
        read(&g->ledger, record);
    }
    if (read != fp_ledger_record) {
        return; /* counted in the pass that every buffer has */
    }
    size_t rest =
        b->valid - (size_t)((last != NULL ? last : b->data) - b->data);
    if (result != FP_CUPTI_MAX_LIMIT_REACHED ||
        (last == NULL ? rest != 0 : *size != 0 && rest > (size_t)*size)) {
        g->ledger.counters.truncated++;
    }
}

static size_t
dropped_before(fp_gpu *g, const fp_buffer *b)
{
    size_t dropped = 0;
    int rc = check(g, g->cupti.dropped(b->context, b->stream, &dropped));
    return rc == FP_CUPTI_SUCCESS ? dropped : 0;
}

/* Decodes what CUPTI has given back.  Launches are read after the buffers were
 * taken: whatever is in them was launched before. */
static void
drain(fp_gpu *g)
{
    fp_buffer *full[FP_BUFFERS];
    uint32_t n = fp_buffers_take_full(&g->buffers, full);
    pthread_mutex_lock(&g->lock);
    read_lanes(g);
    if (g->used == FP_TIER_EXTERNAL) {
        for (uint32_t i = 0; i < n; i++) {
            walk(g, full[i], fp_ledger_correlate);
        }
    }
    fp_ledger_settle(&g->ledger);
    pthread_mutex_unlock(&g->lock);
    for (uint32_t i = 0; i < n; i++) {
        size_t dropped = dropped_before(g, full[i]); /* may wait: no lock */
        pthread_mutex_lock(&g->lock);
        walk(g, full[i], fp_ledger_record);
        g->ledger.counters.dropped += dropped;
        pthread_mutex_unlock(&g->lock);
        fp_buffers_give_back(full[i]);
    }
}

/* Launches, and never a record of them: somebody else gets the records. */
static void
watch(fp_gpu *g)
{
    const fp_gpu_counters *c = &g->ledger.counters;
    uint64_t records = c->kernels + c->copies + c->memsets;
    if (records != g->seen_records || g->ledger.outstanding == 0) {
        g->silent_periods = 0;
        g->taken = 0;
    }
    else if (c->launches != g->seen_launches || g->silent_periods != 0) {
        g->silent_periods++;
    }
    g->taken = g->silent_periods > SILENCE_PERIODS ? g->silent_periods : 0;
    g->seen_records = records;
    g->seen_launches = c->launches;
}

/* CUPTI is asked without the lock, which others wait for with the GIL.  Only this
 * thread changes the map. */
static void
sample_clock(fp_gpu *g)
{
    fp_clock_map map = g->ledger.clock;
    if (fp_clock_map_sample(&map, &g->clock, g->cupti.get_timestamp) != 0) {
        g->cupti_errors++;
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->ledger.clock = map;
    pthread_mutex_unlock(&g->lock);
}

static void
flush(fp_gpu *g, uint32_t how)
{
    check(g, g->cupti.flush_all(how));
    sample_clock(g);
    drain(g);
}

static void
period_ends(fp_gpu *g)
{
    flush(g, 0);
    pthread_mutex_lock(&g->lock);
    watch(g);
    fp_ledger_age(&g->ledger,
                  device_now(g) - FOLD_PERIODS * g->options.period_ns, 0);
    pthread_mutex_unlock(&g->lock);
    g->next_flush = monotonic_ns() + g->options.period_ns;
}

/* ---- switching on ---- */

static const int activity_kinds[] = {FP_CUPTI_CONCURRENT_KERNEL,
                                     FP_CUPTI_MEMCPY, FP_CUPTI_MEMCPY2,
                                     FP_CUPTI_MEMSET};
enum { ACTIVITY_KINDS = sizeof(activity_kinds) / sizeof(activity_kinds[0]) };

static void
say(fp_gpu *g, const char *what, int result)
{
    char error[96];
    fp_cupti_describe(&g->cupti, result, error, sizeof(error));
    fp_why_set(&g->found, "%s: CUPTI error %s", what, error);
}

/* The launch callbacks; nothing of it is left behind on failure. */
static int
enable_callbacks(fp_gpu *g)
{
    int rc = g->cupti.subscribe(&g->subscriber, g->entries.on_call, g);
    if (rc != FP_CUPTI_SUCCESS) {
        g->subscriber = NULL;
        say(g,
            rc == FP_CUPTI_MULTIPLE_SUBSCRIBERS
                ? "CUPTI's one subscriber slot is held by another client "
                  "(torch.profiler, Nsight or another profiler)"
                : "CUPTI refused to be subscribed to",
            rc);
        return -1;
    }
    uint32_t known = 0;
    for (uint32_t i = 0; i < fp_api_call_count; i++) {
        const fp_api_call *call = &fp_api_calls[i];
        rc = check_known(g, g->cupti.enable_callback(
                                1, g->subscriber, call->domain, call->cbid));
        known += rc == FP_CUPTI_SUCCESS;
    }
    if (known == 0) {
        say(g, "CUPTI refused every launch callback", rc);
        check(g, g->cupti.unsubscribe(g->subscriber));
        g->subscriber = NULL;
        return -1;
    }
    if (g->cupti.get_graph_node_id != NULL) {
        check(g, g->cupti.enable_callback(1, g->subscriber,
                                          FP_CUPTI_DOMAIN_RESOURCE,
                                          FP_CUPTI_GRAPHNODE_CREATED));
        check(g, g->cupti.enable_callback(1, g->subscriber,
                                          FP_CUPTI_DOMAIN_RESOURCE,
                                          FP_CUPTI_GRAPHNODE_CLONED));
    }
    return 0;
}

/* API records: of the calls that matter where CUPTI can tell them apart, else
 * of all. */
static int
enable_api_records(fp_gpu *g, int on)
{
    const fp_cupti *c = &g->cupti;
    if (c->enable_runtime_api == NULL || c->enable_driver_api == NULL) {
        int (*turn)(int) = on ? c->enable : c->disable;
        int runtime = turn(FP_CUPTI_RUNTIME), driver = turn(FP_CUPTI_DRIVER);
        return runtime != FP_CUPTI_SUCCESS ? runtime : driver;
    }
    int worked = 0, rc = FP_CUPTI_SUCCESS;
    for (uint32_t i = 0; i < fp_api_call_count; i++) {
        const fp_api_call *call = &fp_api_calls[i];
        int one = call->domain == FP_CUPTI_DOMAIN_RUNTIME
                      ? c->enable_runtime_api(call->cbid, (uint8_t)on)
                      : c->enable_driver_api(call->cbid, (uint8_t)on);
        worked += check_known(g, one) == FP_CUPTI_SUCCESS;
        rc = one != FP_CUPTI_SUCCESS ? one : rc;
    }
    return worked != 0 ? FP_CUPTI_SUCCESS : rc;
}

static int
enable_external(fp_gpu *g)
{
    const fp_cupti *c = &g->cupti;
    if (c->push_external == NULL || c->pop_external == NULL) {
        if (g->found.text[0] == '\0') {
            fp_why_set(&g->found, "this CUPTI knows no external correlation");
        }
        return -1;
    }
    int rc = c->enable(FP_CUPTI_EXTERNAL_CORRELATION);
    if (rc == FP_CUPTI_SUCCESS) {
        rc = enable_api_records(g, 1);
        if (rc != FP_CUPTI_SUCCESS) {
            (void)enable_api_records(g, 0);
            (void)c->disable(FP_CUPTI_EXTERNAL_CORRELATION);
        }
    }
    if (rc != FP_CUPTI_SUCCESS) {
        say(g, "CUPTI refused external correlation", rc);
        return -1;
    }
    return 0;
}

static fp_gpu_tier
enable_correlation(fp_gpu *g)
{
    fp_gpu_tier wanted = g->options.tier;
    if (wanted != FP_TIER_EXTERNAL && enable_callbacks(g) == 0) {
        return FP_TIER_CALLBACKS;
    }
    if (wanted != FP_TIER_CALLBACKS && enable_external(g) == 0) {
        return FP_TIER_EXTERNAL;
    }
    return FP_TIER_NONE;
}

static void
disable_correlation(fp_gpu *g, fp_gpu_tier tier)
{
    atomic_store(&g->tier, FP_TIER_NONE);
    if (tier == FP_TIER_CALLBACKS) {
        check(g, g->cupti.unsubscribe(g->subscriber));
        g->subscriber = NULL;
    }
    else if (tier == FP_TIER_EXTERNAL) {
        check(g, g->cupti.disable(FP_CUPTI_EXTERNAL_CORRELATION));
        check(g, enable_api_records(g, 0));
    }
}

static int
enable_activities(fp_gpu *g)
{
    int rc = check(g, g->cupti.register_buffers(g->entries.on_request,
                                                g->entries.on_complete));
    if (rc != FP_CUPTI_SUCCESS) {
        say(g, "CUPTI refused our buffers", rc);
        return -1;
    }
    for (int i = 0; i < ACTIVITY_KINDS; i++) {
        rc = check(g, g->cupti.enable(activity_kinds[i]));
        if (rc == FP_CUPTI_SUCCESS) {
            continue;
        }
        if (i == 0) { /* without kernels there is nothing to tell */
            say(g, "CUPTI refused to record kernels", rc);
            return -1;
        }
    }
    return 0;
}

static void
disable_activities(fp_gpu *g)
{
    for (int i = 0; i < ACTIVITY_KINDS; i++) {
        check(g, g->cupti.disable(activity_kinds[i]));
    }
}

/* The lock is held. */
static void
count_pause(fp_gpu *g, int64_t now)
{
    if (g->detached_ns != 0) {
        g->paused_ns += now - g->detached_ns;
        fp_ledger_gap(&g->ledger, g->detached_ns, now);
        g->detached_ns = now; /* the rest, should attaching fail */
    }
}

/* A recording begins, or goes on after a pause. */
static int
begin_time(fp_gpu *g)
{
    sample_clock(g);
    pthread_mutex_lock(&g->lock);
    if (g->ledger.clock.pairs == 0) {
        pthread_mutex_unlock(&g->lock);
        fp_why_set(&g->found,
                   "CUPTI does not tell its time, so nothing can be "
                   "said about when the GPU did what");
        return -1;
    }
    int64_t now = device_now(g);
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

/* Buffers and events from before this recording. */
static void
discard_old(fp_gpu *g)
{
    fp_buffer *full[FP_BUFFERS];
    uint32_t n = fp_buffers_take_full(&g->buffers, full);
    for (uint32_t i = 0; i < n; i++) {
        fp_buffers_give_back(full[i]);
    }
    for (fp_lane *lane = atomic_load(&g->lanes.first); lane != NULL;
         lane = lane->next) {
        while (fp_lane_read(lane) != NULL) {
        }
    }
}

static void
attach(fp_gpu *g)
{
    g->found.text[0] = '\0';
    if (g->ledger.begin_ns == 0) {
        discard_old(g);
    }
    fp_gpu_tier tier = enable_correlation(g);
    if (tier == FP_TIER_NONE) {
        return;
    }
    if (begin_time(g) < 0 || enable_activities(g) < 0) {
        /* No kind is on by us; disabled, it would be so for all clients. */
        disable_correlation(g, tier);
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->used = tier;
    g->ledger.external = tier == FP_TIER_EXTERNAL;
    g->ledger.attachment = atomic_fetch_add(&g->attachments, 1) + 1;
    pthread_mutex_unlock(&g->lock);
    g->attached = 1;
    g->next_flush = monotonic_ns() + g->options.period_ns;
    atomic_store(&g->tier, tier);
    atomic_store(&g->accept, 1);
}

/* ---- switching off ---- */

/* Of external correlation nothing is known before CUPTI gives the buffer back,
 * and that is when the activities in it are over. */
static int
something_is_outstanding(fp_gpu *g)
{
    if (g->used == FP_TIER_EXTERNAL && fp_buffers_lent(&g->buffers) != 0) {
        return 1;
    }
    pthread_mutex_lock(&g->lock);
    int outstanding =
        g->ledger.outstanding != 0 || g->ledger.parked_count != 0;
    pthread_mutex_unlock(&g->lock);
    return outstanding;
}

static uint64_t
count_records(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    uint64_t records = g->ledger.counters.records;
    pthread_mutex_unlock(&g->lock);
    return records;
}

/* Waits for activities of what was launched, without synchronizing: until they
 * have come, none comes any more, or the time is over. */
static void
await_activities(fp_gpu *g)
{
    enum { NAP_NS = 2000000, QUIET_NS = 200000000 };
    const struct timespec nap = {0, NAP_NS};
    int64_t begin = monotonic_ns(), heard = begin;
    uint64_t records = 0;
    for (;;) {
        flush(g, 0);
        int64_t now = monotonic_ns();
        if (count_records(g) != records) {
            records = count_records(g);
            heard = now;
        }
        if (!something_is_outstanding(g) || now - begin >= g->grace_ns ||
            now - heard >= QUIET_NS) {
            return;
        }
        nanosleep(&nap, NULL);
    }
}

static void
detach(fp_gpu *g)
{
    if (!g->attached) {
        return;
    }
    atomic_store(&g->accept, 0);
    sample_clock(g);
    pthread_mutex_lock(&g->lock);
    g->ledger.end_ns = g->detached_ns = device_now(g);
    pthread_mutex_unlock(&g->lock);
    await_activities(g);
    flush(g, FP_CUPTI_FLUSH_FORCED);
    /* Only now: disabling a kind drops what was not flushed. */
    disable_activities(g);
    disable_correlation(g, g->used);
    drain(g);
    pthread_mutex_lock(&g->lock);
    watch(g);
    fp_ledger_age(&g->ledger, g->detached_ns, 1);
    pthread_mutex_unlock(&g->lock);
    g->attached = 0;
}

static void
finish(fp_gpu *g)
{
    if (!g->attached) {
        pthread_mutex_lock(&g->lock);
        count_pause(g, device_now(g));
        pthread_mutex_unlock(&g->lock);
    }
    detach(g);
}

/* ---- the thread ---- */

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
    int64_t left_ms = -1;
    if (g->attached) {
        left_ms = (g->next_flush - monotonic_ns()) / 1000000 + 1;
        left_ms = left_ms < 0 ? 0 : left_ms;
    }
    struct pollfd fd = {.fd = g->wake[0], .events = POLLIN};
    if (poll(&fd, 1, (int)(left_ms < INT32_MAX ? left_ms : INT32_MAX)) > 0) {
        char bytes[64];
        while (read(g->wake[0], bytes, sizeof(bytes)) > 0) {
        }
    }
    atomic_store(&g->woken, 0);
}

/* Sections and steps go on in a pause, and must not fill the lanes. */
static void
read_while_paused(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    if (g->has_ledger && g->ledger.begin_ns != 0 && g->detached_ns != 0) {
        read_lanes(g);
        count_pause(g, device_now(g));
    }
    pthread_mutex_unlock(&g->lock);
}

static void *
run(void *collector)
{
    fp_gpu *g = collector;
    for (;;) {
        fp_gpu_request request = asked_for(g);
        switch (request) {
        case FP_GPU_ATTACH:
            attach(g);
            break;
        case FP_GPU_DETACH:
            detach(g);
            g->pauses++;
            break;
        case FP_GPU_FLUSH:
            flush(g, 0);
            break;
        case FP_GPU_FINISH:
            finish(g);
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
            detach(g); /* nobody waits for it any more */
            return NULL;
        }
        sleep_until_needed(g);
        if (!g->attached) {
            read_while_paused(g);
            continue;
        }
        if (monotonic_ns() >= g->next_flush) {
            period_ends(g);
        }
        else {
            drain(g);
        }
    }
}

int
fp_gpu_begin_thread(fp_gpu *g)
{
    /* Signals are for the program's threads, but for those that a fault in here
     * raises: blocked, they would end the process without a word. */
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&g->thread, NULL, run, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : -1;
}
