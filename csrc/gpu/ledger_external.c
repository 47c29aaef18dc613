/* External correlation: builds launches from records of API calls and of
 * pushed ids, then counts them. */
#include "gpu/ledger_parts.h"

#include "gpu/api_calls.h"
#include "gpu/cupti_abi.h"
#include "gpu/cupti_records.h"

enum { NODE_BITS = 28, THREAD_BITS = 24, ATTACHMENT_BITS = 11 };

#define LOW_BITS(n) (((uint64_t)1 << (n)) - 1)

uint64_t
fp_external_id(uint32_t attachment, fp_place place, int alone)
{
    uint64_t thread = fp_place_thread(place), node = fp_place_node(place);
    if (thread > LOW_BITS(THREAD_BITS) || node > LOW_BITS(NODE_BITS)) {
        thread = node = 0; /* too large: pushed as an unknown place */
        alone = 1;
    }
    return (uint64_t)(alone != 0) << 63 |
           (attachment & LOW_BITS(ATTACHMENT_BITS))
               << (THREAD_BITS + NODE_BITS) |
           thread << NODE_BITS | node;
}

static void
external_record(fp_ledger *l, const uint8_t *record)
{
    uint64_t id = fp_read_u64(record, FP_AT_EXTERNAL_ID);
    uint64_t attachment = id >> (THREAD_BITS + NODE_BITS);
    if (fp_read_u32(record, FP_AT_EXTERNAL_KIND) !=
            FP_CUPTI_EXTERNAL_CUSTOM2 ||
        ((attachment ^ l->attachment) & LOW_BITS(ATTACHMENT_BITS)) != 0) {
        return; /* another client's, or from an earlier attachment */
    }
    fp_launch *e = fp_launches_put(
        &l->launches, fp_read_u32(record, FP_AT_EXTERNAL_CORRELATION));
    if (e != NULL && !(e->flags & FP_LAUNCH_COUNTED)) {
        fp_place place = (id >> NODE_BITS & LOW_BITS(THREAD_BITS)) << 32 |
                         (id & LOW_BITS(NODE_BITS));
        e->place = fp_renames_apply(&l->renames, place);
        e->flags |= FP_LAUNCH_HAS_SITE;
        e->flags |= id >> 63 ? FP_LAUNCH_ALONE : 0;
    }
}

static void
refresh(fp_ledger *l, uint32_t corr)
{
    if (fp_alloc_room(&l->alloc, &l->fresh, &l->fresh_capacity,
                      l->fresh_count + 1, 1024, sizeof(*l->fresh)) != FP_OK) {
        return; /* its activities will have no place */
    }
    l->fresh[l->fresh_count++] = (fp_fresh){corr, l->launches.generation};
}

/* Adds the call to the trace.  Only the place can tell its thread. */
static FP_COLD void
trace_api(fp_ledger *l, uint32_t corr, fp_api_class what, int64_t start,
          int64_t end)
{
    fp_trace_call call = {
        .start = fp_clock_map_to_ticks(&l->clock, start),
        .end = fp_clock_map_to_ticks(&l->clock, end),
        .corr = corr,
        .kind = what == FP_API_SYNC    ? FP_TRACE_SYNC
                : what == FP_API_GRAPH ? FP_TRACE_GRAPH
                                       : FP_TRACE_LAUNCH,
    };
    fp_trace_records_call(l->trace, &call);
}

static void
api_record(fp_ledger *l, const uint8_t *record, int domain)
{
    fp_api_class what =
        fp_api_class_of(domain, fp_read_u32(record, FP_AT_API_CBID));
    if (what == FP_API_NONE) {
        return;
    }
    uint32_t corr = fp_read_u32(record, FP_AT_API_CORRELATION);
    int64_t start = fp_clock_map_steady(
        &l->clock, (int64_t)fp_read_u64(record, FP_AT_API_START));
    int64_t end = fp_clock_map_steady(
        &l->clock, (int64_t)fp_read_u64(record, FP_AT_API_END));
    if (fp_ledger_is_misdated(l, start, end)) {
        l->counters.misdated++;
        return;
    }
    if (start < l->begin_ns) {
        l->counters.stale++;
        return;
    }
    fp_launch *e = fp_launches_put(&l->launches, corr);
    if (e == NULL) {
        return;
    }
    /* A driver's call inside a runtime's call has the same id; the outer one
     * counts. */
    if (!(e->flags & FP_LAUNCH_HAS_TIME) || start < e->at_ns) {
        e->at_ns = start;
        e->blocked_ns = end > start ? end - start : 0;
    }
    if (!(e->flags & FP_LAUNCH_HAS_TIME)) {
        refresh(l, corr);
    }
    if (FP_UNLIKELY(l->trace != NULL)) {
        trace_api(l, corr, what, start, end);
    }
    int gives =
        what != FP_API_SYNC && !(what == FP_API_GRAPH && l->graph_ids_wrong);
    l->outstanding += gives && !(e->flags & (FP_LAUNCH_GIVES | FP_LAUNCH_HIT));
    e->flags |= FP_LAUNCH_HAS_TIME;
    e->flags |=
        what == FP_API_SYNC || what == FP_API_COPY_SYNC ? FP_LAUNCH_WAITED : 0;
    e->flags |= gives ? FP_LAUNCH_GIVES : 0;
    l->counters.graph_launches +=
        what == FP_API_GRAPH && !(e->flags & FP_LAUNCH_GRAPH);
    e->flags |= what == FP_API_GRAPH ? FP_LAUNCH_GRAPH : 0;
}

void
fp_ledger_correlate(fp_ledger *l, const uint8_t *record)
{
    switch (fp_read_u32(record, FP_AT_KIND)) {
    case FP_CUPTI_RUNTIME:
        l->counters.records++;
        api_record(l, record, FP_CUPTI_DOMAIN_RUNTIME);
        break;
    case FP_CUPTI_DRIVER:
        l->counters.records++;
        api_record(l, record, FP_CUPTI_DOMAIN_DRIVER);
        break;
    case FP_CUPTI_EXTERNAL_CORRELATION:
        l->counters.records++;
        external_record(l, record);
        break;
    default:
        break;
    }
}

static void
count_launch(fp_ledger *l, fp_launch *e)
{
    fp_site site = {e->place, e->via, (fp_how)e->how};
    fp_host_sum *host = fp_sums_host(&l->sums, &site);
    if (e->flags & FP_LAUNCH_WAITED) {
        host->syncs++;
        host->blocked_ns += e->blocked_ns;
        l->counters.syncs++;
    }
    if (e->flags & FP_LAUNCH_GIVES) {
        host->launches++;
        l->counters.launches++;
    }
    e->flags |= FP_LAUNCH_HAS_SITE | FP_LAUNCH_COUNTED;
}

/* Finds the owners of launches by threads without a section. */
static void
ask_owners(fp_ledger *l, fp_owner_query *query, uint32_t n)
{
    fp_owner_log_ask(&l->owners, query, n);
    for (uint32_t i = 0; i < n; i++) {
        fp_launch *e = fp_launches_find(&l->launches, query[i].tag);
        if (e == NULL) {
            continue;
        }
        e->via = query[i].answer;
        e->how = (uint8_t)(e->via != 0     ? FP_HOW_INHERITED
                           : e->place != 0 ? FP_HOW_OWN
                                           : FP_HOW_OTHER);
        count_launch(l, e);
    }
}

void
fp_ledger_settle_launches(fp_ledger *l, int last)
{
    enum { BATCH = 256 };
    fp_owner_query query[BATCH];
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < l->fresh_count; i++) {
        fp_fresh f = l->fresh[i];
        fp_launch *e = fp_launches_find(&l->launches, f.corr);
        if (e == NULL || (e->flags & FP_LAUNCH_COUNTED)) {
            continue;
        }
        if ((e->flags & (FP_LAUNCH_HAS_SITE | FP_LAUNCH_ALONE)) ==
            FP_LAUNCH_HAS_SITE) {
            e->how = FP_HOW_OWN;
            count_launch(l, e);
            continue;
        }
        if (!(e->flags & FP_LAUNCH_HAS_SITE) && !last &&
            l->launches.generation - f.generation < FP_PLACE_PATIENCE) {
            l->fresh[kept++] = f;
            continue;
        }
        query[n++] = (fp_owner_query){
            .at = e->at_ns, .tag = e->corr, .launcher = e->place};
        if (n == BATCH) {
            ask_owners(l, query, n);
            n = 0;
        }
    }
    ask_owners(l, query, n);
    l->fresh_count = kept;
}
