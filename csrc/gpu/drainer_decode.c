/* Brings the content of lanes and buffers to the ledger. */
#include "gpu/cupti_abi.h"
#include "gpu/cupti_records.h"
#include "gpu/drainer.h"

enum { SILENCE_PERIODS = 2, UNHEARD_PERIODS = 10 };

/* No activity ends later than now by this much: the correction of the devices'
 * clocks to the host's is smaller. */
#define FUTURE_NS INT64_C(1000000000)

/* Reads only events that exist now: a thread that launches faster than this
 * reads must not block everything else. */
void
fp_drainer_read_lanes(fp_gpu *g)
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

/* Passes each record of a buffer to [read].  The iterator ends in the same way
 * for a complete buffer and for one that was cut inside a record.  The size of
 * the last record, known from earlier records of its kind, distinguishes
 * the two. */
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
        return; /* counted in the second pass, which every buffer has */
    }
    size_t rest =
        b->valid - (size_t)((last != NULL ? last : b->data) - b->data);
    if (result != FP_CUPTI_MAX_LIMIT_REACHED ||
        (last == NULL ? rest != 0 : *size != 0 && rest > (size_t)*size)) {
        g->ledger.counters.truncated++;
    }
}

uint64_t
fp_drainer_take_dropped(fp_gpu *g, void *context, uint32_t stream)
{
    size_t dropped = 0;
    int rc = fp_drainer_check(g, g->cupti.dropped(context, stream, &dropped));
    return rc == FP_CUPTI_SUCCESS ? dropped : 0;
}

/* Lanes are read after the buffers were taken, so every launch of an activity
 * in them is known. */
void
fp_drainer_drain(fp_gpu *g)
{
    fp_buffer *full[FP_BUFFERS];
    uint32_t n = fp_buffers_take_full(&g->buffers, full);
    pthread_mutex_lock(&g->lock);
    g->ledger.latest_ns = fp_drainer_device_now(g) + FUTURE_NS;
    fp_drainer_read_lanes(g);
    if (g->used == FP_TIER_EXTERNAL) {
        for (uint32_t i = 0; i < n; i++) {
            walk(g, full[i], fp_ledger_correlate);
        }
    }
    fp_ledger_settle(&g->ledger);
    pthread_mutex_unlock(&g->lock);
    for (uint32_t i = 0; i < n; i++) {
        /* may wait, so without the lock */
        uint64_t dropped =
            fp_drainer_take_dropped(g, full[i]->context, full[i]->stream);
        pthread_mutex_lock(&g->lock);
        fp_ledger_begin_buffer(&g->ledger);
        walk(g, full[i], fp_ledger_record);
        g->ledger.counters.dropped += dropped;
        pthread_mutex_unlock(&g->lock);
        fp_buffers_give_back(full[i]);
    }
}

/* Without launch callbacks launches are unknown; pushed ids show that the
 * program works. */
static void
watch_pushes(fp_gpu *g)
{
    uint64_t pushes = 0;
    for (fp_lane *lane = atomic_load(&g->lanes.first); lane != NULL;
         lane = lane->next) {
        pushes += atomic_load_explicit(&lane->pushes, memory_order_relaxed);
    }
    if (g->ledger.counters.records != g->heard_records) {
        g->unheard_periods = 0;
    }
    else if (pushes != g->heard_pushes) {
        g->unheard_periods++;
    }
    g->heard_records = g->ledger.counters.records;
    g->heard_pushes = pushes;
    g->unheard = g->unheard_periods > UNHEARD_PERIODS ? g->unheard_periods : 0;
}

/* Launches without any record: another client gets the records. */
void
fp_drainer_watch(fp_gpu *g)
{
    if (g->used == FP_TIER_EXTERNAL) {
        watch_pushes(g);
    }
    const fp_gpu_counters *c = &g->ledger.counters;
    uint64_t records = c->kernels + c->copies + c->memsets + c->whole_graphs;
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

void
fp_drainer_flush(fp_gpu *g, uint32_t how)
{
    fp_drainer_check(g, g->cupti.flush_all(how));
    fp_drainer_sample_clock(g);
    fp_drainer_drain(g);
}
