#include "gpu/ledger.h"

#include "gpu/api_calls.h"
#include "gpu/cupti_abi.h"

/* Flush periods that a launch may wait for its activity (less when so many do
 * that the table might fill up), and an activity for its launch. */
enum { LAUNCH_PATIENCE = 60, CROWDED_PATIENCE = 4, PARKED_PATIENCE = 3 };
enum { CROWD = FP_LAUNCHES_MAX / 8 };

/* Nothing takes two weeks; sums of what CUPTI makes up must not overflow. */
#define LONGEST_NS (INT64_C(1) << 50)

fp_status
fp_ledger_init(fp_ledger *l, const fp_alloc *a, uint32_t devices,
               double ns_per_tick)
{
    memset(l, 0, sizeof(*l));
    l->alloc = *a;
    l->timeline = fp_alloc_zeroed(a, devices, sizeof(*l->timeline));
    if (l->timeline == NULL) {
        return FP_ENOMEM;
    }
    l->timelines = devices;
    l->sections = 1;
    fp_clock_map_init(&l->clock, ns_per_tick);
    fp_launches_init(&l->launches, a);
    fp_kernels_init(&l->kernels, a);
    fp_sums_init(&l->sums, a);
    fp_graph_nodes_init(&l->graphs, a);
    fp_owner_log_init(&l->owners, a);
    fp_renames_init(&l->renames, a);
    return FP_OK;
}

void
fp_ledger_fini(fp_ledger *l)
{
    for (uint32_t i = 0; i < l->timelines; i++) {
        fp_timeline_fini(&l->timeline[i]);
    }
    const fp_alloc *a = &l->alloc;
    fp_alloc_give(a, l->timeline, l->timelines, sizeof(*l->timeline));
    fp_alloc_give(a, l->parked, l->parked_capacity, sizeof(*l->parked));
    fp_alloc_give(a, l->fresh, l->fresh_capacity, sizeof(*l->fresh));
    fp_launches_fini(&l->launches);
    fp_kernels_fini(&l->kernels);
    fp_sums_fini(&l->sums);
    fp_graph_nodes_fini(&l->graphs);
    fp_owner_log_fini(&l->owners);
    fp_renames_fini(&l->renames);
}

void
fp_ledger_begin(fp_ledger *l, int64_t begin_ns)
{
    l->begin_ns = begin_ns;
    l->end_ns = INT64_MAX;
    l->settled = 0;
    memset(l->aged, 0, sizeof(l->aged));
    for (uint32_t i = 0; i < l->timelines; i++) {
        fp_timeline_init(&l->timeline[i], &l->alloc, begin_ns);
    }
}

void
fp_ledger_clear(fp_ledger *l, int64_t ticks)
{
    for (uint32_t i = 0; i < l->timelines; i++) {
        fp_timeline_fini(&l->timeline[i]);
    }
    fp_sums_fini(&l->sums);
    fp_kernels_fini(&l->kernels);
    fp_graph_nodes_fini(&l->graphs);
    fp_launches_clear(&l->launches);
    fp_renames_fini(&l->renames);
    l->parked_count = l->fresh_count = l->clones = 0;
    l->outstanding = 0;
    memset(&l->counters, 0, sizeof(l->counters));
    if (l->begin_ns != 0) {
        fp_ledger_begin(l, fp_clock_map_to_gpu(&l->clock, ticks));
    }
}

/* ---- what lanes say ---- */

static int
is_outstanding(const fp_launch *e)
{
    return (e->flags & (FP_LAUNCH_GIVES | FP_LAUNCH_HIT)) == FP_LAUNCH_GIVES;
}

static void
called(fp_ledger *l, const fp_event *e, fp_trace_call_kind kind)
{
    if (FP_UNLIKELY(l->trace != NULL)) {
        fp_trace_records_call(l->trace, &(fp_trace_call){
                                            .start = e->ticks,
                                            .end = e->until,
                                            .corr = e->corr,
                                            .thread = (uint32_t)e->id,
                                            .kind = (uint8_t)kind,
                                        });
    }
}

static void
launched(fp_ledger *l, const fp_event *e)
{
    fp_site site = {e->place, e->via, (fp_how)e->how};
    uint32_t row = UINT32_MAX;
    fp_sums_host_near(&l->sums, &site, &row)->launches++;
    l->counters.launches++;
    l->counters.graph_launches += e->kind == FP_EVENT_GRAPH_LAUNCH;
    fp_launch *launch = fp_launches_put(&l->launches, e->corr);
    if (launch == NULL) {
        return; /* counted there */
    }
    /* An id that is used again after 2^32 others is a new launch. */
    l->outstanding += (uint64_t)!is_outstanding(launch);
    launch->flags = FP_LAUNCH_HAS_SITE | FP_LAUNCH_HAS_TIME |
                    FP_LAUNCH_COUNTED | FP_LAUNCH_GIVES;
    launch->place = e->place;
    launch->via = e->via;
    launch->how = e->how;
    launch->host_row = row;
    launch->at_ns = fp_clock_map_to_gpu(&l->clock, e->ticks);
}

static void
waited(fp_ledger *l, const fp_event *e)
{
    fp_site site = {e->place, e->via, (fp_how)e->how};
    fp_host_sum *host = fp_sums_host(&l->sums, &site);
    host->syncs++;
    /* By our clock: the device's may be stepped meanwhile. */
    double ns = (double)(e->until - e->ticks) * l->clock.slope;
    host->blocked_ns += ns > 0 ? (int64_t)(ns + 0.5) : 0;
    l->counters.syncs++;
}

/* The timelines' number of a section. */
static uint32_t
section_slot(fp_ledger *l, uint16_t section)
{
    if (section == 0) {
        return 0;
    }
    for (uint32_t i = 1; i < l->sections; i++) {
        if (l->section[i] == section) {
            return i;
        }
    }
    if (l->sections == FP_TIMELINE_SECTIONS) {
        return FP_TIMELINE_SECTIONS - 1;
    }
    /* The last slot is for all that have none. */
    l->section[l->sections] =
        l->sections == FP_TIMELINE_SECTIONS - 1 ? UINT16_MAX : section;
    return l->sections++;
}

static void
host_moved(fp_ledger *l, const fp_event *e)
{
    int64_t at = fp_clock_map_to_gpu(&l->clock, e->ticks);
    uint32_t slot =
        e->kind == FP_EVENT_SECTION ? section_slot(l, e->section) : 0;
    for (uint32_t i = 0; i < l->timelines; i++) {
        if (e->kind == FP_EVENT_STEP) {
            fp_timeline_step(&l->timeline[i], at, e->section);
        }
        else {
            fp_timeline_section(&l->timeline[i], at, slot);
        }
    }
}

static void
cloned(fp_ledger *l, const fp_graph_clone *c)
{
    fp_place place = fp_graph_nodes_find(&l->graphs, c->original);
    if (place != 0) {
        fp_graph_nodes_put(&l->graphs, c->id, place);
    }
    else if (l->clones < FP_CLONES_WAITING) {
        l->clone[l->clones++] = *c;
    }
}

/* Those whose originals did not come either have none that is known. */
static void
settle_clones(fp_ledger *l)
{
    uint32_t n = l->clones;
    l->clones = FP_CLONES_WAITING; /* none waits again */
    for (uint32_t i = 0; i < n; i++) {
        cloned(l, &l->clone[i]);
    }
    l->clones = 0;
}

void
fp_ledger_event(fp_ledger *l, const fp_event *said)
{
    fp_event now = *said, *e = &now;
    e->place = fp_renames_apply(&l->renames, e->place);
    e->via = fp_renames_apply(&l->renames, e->via);
    switch ((fp_event_kind)e->kind) {
    case FP_EVENT_LAUNCH:
    case FP_EVENT_GRAPH_LAUNCH:
        launched(l, e);
        break;
    case FP_EVENT_SYNC:
        waited(l, e);
        called(l, e, FP_TRACE_SYNC);
        break;
    case FP_EVENT_SECTION:
    case FP_EVENT_STEP:
        host_moved(l, e);
        break;
    case FP_EVENT_OWNER:
        fp_owner_log_add(&l->owners,
                         &(fp_owner_event){
                             .at = fp_clock_map_to_gpu(&l->clock, e->ticks),
                             .section = e->place,
                             .backward = e->via,
                             .slot = e->corr,
                             .is_backward_phase = e->section,
                         });
        break;
    case FP_EVENT_CAPTURE:
        fp_graph_nodes_put(&l->graphs, e->id, e->place);
        break;
    case FP_EVENT_CLONE:
        cloned(l, &(fp_graph_clone){e->id, (uint64_t)e->until});
        break;
    case FP_EVENT_CALL:
        called(l, e, e->section ? FP_TRACE_GRAPH : FP_TRACE_LAUNCH);
        break;
    }
}

/* ---- external correlation ---- */

enum { NODE_BITS = 28, THREAD_BITS = 24, ATTACHMENT_BITS = 11 };

#define LOW_BITS(n) (((uint64_t)1 << (n)) - 1)

uint64_t
fp_external_id(uint32_t attachment, fp_place place, int alone)
{
    uint64_t thread = fp_place_thread(place), node = fp_place_node(place);
    if (thread > LOW_BITS(THREAD_BITS) || node > LOW_BITS(NODE_BITS)) {
        thread = node = 0; /* told as one that nothing is known about */
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
        return; /* somebody else's, or an old one */
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
    if (l->fresh_count == l->fresh_capacity) {
        uint32_t more = l->fresh_capacity != 0 ? l->fresh_capacity * 2 : 1024;
        fp_fresh *grown = fp_alloc_grow(&l->alloc, l->fresh, l->fresh_capacity,
                                        more, sizeof(*grown));
        if (grown == NULL) {
            return; /* its activities will be unattributed */
        }
        l->fresh = grown;
        l->fresh_capacity = more;
    }
    l->fresh[l->fresh_count++] = (fp_fresh){corr, l->launches.generation};
}

/* For the trace; whose thread it was is told by the place, if at all. */
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
    int64_t start = (int64_t)fp_read_u64(record, FP_AT_API_START);
    int64_t end = (int64_t)fp_read_u64(record, FP_AT_API_END);
    if (start < l->begin_ns) {
        l->counters.stale++;
        return;
    }
    fp_launch *e = fp_launches_put(&l->launches, corr);
    if (e == NULL) {
        return;
    }
    /* A driver call inside a runtime call has the same id: the outer counts. */
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
    l->outstanding +=
        what != FP_API_SYNC && !(e->flags & (FP_LAUNCH_GIVES | FP_LAUNCH_HIT));
    e->flags |= FP_LAUNCH_HAS_TIME;
    e->flags |=
        what == FP_API_SYNC || what == FP_API_COPY_SYNC ? FP_LAUNCH_WAITED : 0;
    e->flags |= what != FP_API_SYNC ? FP_LAUNCH_GIVES : 0;
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

/* Launches of threads without a section ask whose work they did. */
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

static void
settle_launches(fp_ledger *l, int last)
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

void
fp_ledger_settle(fp_ledger *l)
{
    settle_clones(l);
    settle_launches(l, 0);
}

/* ---- activities ---- */

typedef struct activity {
    int64_t start;
    int64_t ns;
    uint64_t bytes;
    uint64_t graph_node;
    uint32_t corr;
    int32_t what;
} activity;

static void
hit(fp_ledger *l, fp_launch *e, const activity *a)
{
    l->outstanding -= (uint64_t)is_outstanding(e);
    e->flags |= FP_LAUNCH_HIT;
    fp_site site = {e->place, e->via, (fp_how)e->how};
    fp_host_sum *host = fp_sums_host_near(&l->sums, &site, &e->host_row);
    int64_t delay = a->start - e->at_ns;
    if (FP_UNLIKELY(delay < 0 || delay > LONGEST_NS)) {
        l->counters.negative_delay += delay < 0;
        delay = 0;
    }
    host->delays++;
    host->delay_ns += delay;
    host->delay_max_ns =
        delay > host->delay_max_ns ? delay : host->delay_max_ns;
    fp_place captured = fp_graph_nodes_find(&l->graphs, a->graph_node);
    if (captured != 0 && site.how == FP_HOW_OWN) {
        site.how = FP_HOW_CAPTURED;
        site.via = captured;
    }
    fp_sums_activity(&l->sums, &site, a->what, a->ns, a->bytes);
}

static void
unattributed(fp_ledger *l, const activity *a)
{
    if (a->start >= l->end_ns) {
        l->counters.stale++; /* launched while the recording was ending */
        return;
    }
    const fp_site nowhere = {0, 0, FP_HOW_UNKNOWN};
    fp_sums_activity(&l->sums, &nowhere, a->what, a->ns, a->bytes);
}

static int
park(fp_ledger *l, const activity *a)
{
    if (l->parked_count == l->parked_capacity) {
        uint32_t more = l->parked_capacity ? l->parked_capacity * 2 : 1024;
        fp_parked *grown =
            more > FP_PARKED_MAX
                ? NULL
                : fp_alloc_grow(&l->alloc, l->parked, l->parked_capacity, more,
                                sizeof(*grown));
        if (grown == NULL) {
            return -1;
        }
        l->parked = grown;
        l->parked_capacity = more;
    }
    l->parked[l->parked_count++] = (fp_parked){
        a->start,
        a->ns,
        a->bytes,
        a->graph_node,
        a->corr,
        a->what,
        l->launches.generation,
    };
    return 0;
}

static void
attribute(fp_ledger *l, const activity *a)
{
    fp_launch *e = fp_launches_find(&l->launches, a->corr);
    if (FP_LIKELY(e != NULL && (e->flags & FP_LAUNCH_COUNTED))) {
        hit(l, e, a);
    }
    else if (!l->external || park(l, a) < 0) {
        unattributed(l, a);
    }
}

static void
retry_parked(fp_ledger *l, int last)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->parked_count; i++) {
        const fp_parked *p = &l->parked[i];
        const activity a = {p->start,      p->ns,   p->bytes,
                            p->graph_node, p->corr, p->what};
        fp_launch *e = fp_launches_find(&l->launches, p->corr);
        if (e != NULL && (e->flags & FP_LAUNCH_COUNTED)) {
            hit(l, e, &a);
        }
        else if (last ||
                 l->launches.generation - p->generation >= PARKED_PATIENCE) {
            unattributed(l, &a);
        }
        else {
            l->parked[kept++] = *p;
        }
    }
    l->parked_count = kept;
}

/* Where the times of a record are; the rest differs. */
typedef struct layout {
    uint16_t start, end, device, stream, correlation, graph_node;
    uint16_t grid; /* 0: has none */
} layout;

static const layout kernel_layout = {
    FP_AT_KERNEL_START,  FP_AT_KERNEL_END,         FP_AT_KERNEL_DEVICE,
    FP_AT_KERNEL_STREAM, FP_AT_KERNEL_CORRELATION, FP_AT_KERNEL_GRAPH_NODE,
    FP_AT_KERNEL_GRID};
static const layout memcpy_layout = {FP_AT_MEMCPY_START,
                                     FP_AT_MEMCPY_END,
                                     FP_AT_MEMCPY_DEVICE,
                                     FP_AT_MEMCPY_STREAM,
                                     FP_AT_MEMCPY_CORRELATION,
                                     FP_AT_MEMCPY_GRAPH_NODE,
                                     0};
static const layout memcpy2_layout = {FP_AT_MEMCPY2_START,
                                      FP_AT_MEMCPY2_END,
                                      FP_AT_MEMCPY2_DEVICE,
                                      FP_AT_MEMCPY2_STREAM,
                                      FP_AT_MEMCPY2_CORRELATION,
                                      FP_AT_MEMCPY2_GRAPH_NODE,
                                      0};
static const layout memset_layout = {FP_AT_MEMSET_START,
                                     FP_AT_MEMSET_END,
                                     FP_AT_MEMSET_DEVICE,
                                     FP_AT_MEMSET_STREAM,
                                     FP_AT_MEMSET_CORRELATION,
                                     FP_AT_MEMSET_GRAPH_NODE,
                                     0};

/* For the trace. */
static FP_COLD void
trace(fp_ledger *l, const uint8_t *record, const layout *at, const activity *a)
{
    const fp_launch *e = fp_launches_find(&l->launches, a->corr);
    int64_t launched = INT64_MIN;
    if (e != NULL && (e->flags & FP_LAUNCH_HAS_TIME)) {
        launched = fp_clock_map_to_ticks(&l->clock, e->at_ns);
    }
    fp_trace_record r = {
        .start = fp_clock_map_to_ticks(&l->clock, a->start),
        .end = fp_clock_map_to_ticks(&l->clock, a->start + a->ns),
        .bytes = a->bytes,
        .corr = a->corr,
        .device = fp_read_u32(record, at->device),
        .stream = fp_read_u32(record, at->stream),
        .what = a->what,
    };
    if (at->grid != 0) {
        memcpy(r.grid, record + at->grid, sizeof(r.grid));
    }
    fp_trace_records_add(l->trace, &r, launched);
}

/* 0: its times are no times; counted. */
static int
read_times(fp_ledger *l, const uint8_t *record, const layout *at, activity *a)
{
    uint64_t start = fp_read_u64(record, at->start);
    uint64_t end = fp_read_u64(record, at->end);
    fp_gpu_counters *c = &l->counters;
    if (FP_UNLIKELY(start == 0 || start > INT64_MAX || end > INT64_MAX)) {
        c->zero_time += start == 0;
        c->invalid += start != 0;
        return 0;
    }
    if (FP_UNLIKELY(end == 0 || end < start ||
                    end - start > (uint64_t)LONGEST_NS)) {
        c->incomplete += end == 0;
        c->invalid += end != 0;
        return 0;
    }
    if (FP_UNLIKELY((int64_t)end < l->begin_ns)) {
        c->stale++;
        return 0;
    }
    a->start = (int64_t)start;
    a->ns = (int64_t)(end - start);
    a->corr = fp_read_u32(record, at->correlation);
    a->graph_node = fp_read_u64(record, at->graph_node);
    return 1;
}

static void
on_timeline(fp_ledger *l, const uint8_t *record, const layout *at,
            const activity *a, fp_gpu_class c)
{
    uint32_t device = fp_read_u32(record, at->device);
    if (FP_LIKELY(device < l->timelines)) {
        fp_timeline_add(&l->timeline[device], a->start, a->start + a->ns, c);
    }
}

static void
kernel_record(fp_ledger *l, const uint8_t *record)
{
    activity a = {0};
    l->counters.kernels++;
    if (!read_times(l, record, &kernel_layout, &a)) {
        return;
    }
    fp_kernel_shape shape = {
        .device = fp_read_u32(record, FP_AT_KERNEL_DEVICE),
        .registers = fp_read_u16(record, FP_AT_KERNEL_REGISTERS),
        .static_shared = fp_read_u32(record, FP_AT_KERNEL_STATIC_SHARED),
        .dynamic_shared = fp_read_u32(record, FP_AT_KERNEL_DYNAMIC_SHARED),
    };
    int32_t grid[3];
    memcpy(grid, record + FP_AT_KERNEL_GRID, sizeof(grid));
    memcpy(shape.block, record + FP_AT_KERNEL_BLOCK, sizeof(shape.block));
    const char *name;
    memcpy(&name, record + FP_AT_KERNEL_NAME, sizeof(name));
    int32_t row = fp_kernels_find(&l->kernels, name, &shape);
    fp_gpu_class c = FP_GPU_COMPUTE;
    a.what = FP_WHAT_KERNEL;
    if (FP_LIKELY(row >= 0)) {
        fp_kernel *k = &l->kernels.row[row];
        fp_kernels_count(k, grid, a.ns);
        a.what = row;
        c = k->communicates ? FP_GPU_COMMUNICATION : FP_GPU_COMPUTE;
    }
    on_timeline(l, record, &kernel_layout, &a, c);
    if (FP_UNLIKELY(l->trace != NULL)) {
        trace(l, record, &kernel_layout, &a);
    }
    attribute(l, &a);
}

static int32_t
copy_direction(uint8_t kind)
{
    switch (kind) {
    case FP_COPY_HTOD:
    case FP_COPY_HTOA:
        return FP_WHAT_HTOD;
    case FP_COPY_DTOH:
    case FP_COPY_ATOH:
        return FP_WHAT_DTOH;
    case FP_COPY_DTOD:
    case FP_COPY_ATOA:
    case FP_COPY_ATOD:
    case FP_COPY_DTOA:
        return FP_WHAT_DTOD;
    case FP_COPY_HTOH:
        return FP_WHAT_HTOH;
    case FP_COPY_PTOP:
        return FP_WHAT_PTOP;
    default:
        return FP_WHAT_COPY;
    }
}

static void
copy_record(fp_ledger *l, const uint8_t *record, const layout *at,
            int32_t what, size_t bytes_at, fp_gpu_class c)
{
    activity a = {0};
    if (read_times(l, record, at, &a)) {
        a.what = what;
        a.bytes = fp_read_u64(record, bytes_at);
        on_timeline(l, record, at, &a, c);
        if (FP_UNLIKELY(l->trace != NULL)) {
            trace(l, record, at, &a);
        }
        attribute(l, &a);
    }
}

void
fp_ledger_record(fp_ledger *l, const uint8_t *record)
{
    fp_gpu_counters *c = &l->counters;
    switch (fp_read_u32(record, FP_AT_KIND)) {
    case FP_CUPTI_CONCURRENT_KERNEL:
        kernel_record(l, record);
        break;
    case FP_CUPTI_MEMCPY:
        c->copies++;
        copy_record(l, record, &memcpy_layout,
                    copy_direction(record[FP_AT_MEMCPY_COPY_KIND]),
                    FP_AT_MEMCPY_BYTES, FP_GPU_COPY);
        break;
    case FP_CUPTI_MEMCPY2:
        c->copies++;
        copy_record(l, record, &memcpy2_layout, FP_WHAT_PTOP,
                    FP_AT_MEMCPY2_BYTES, FP_GPU_COPY);
        break;
    case FP_CUPTI_MEMSET:
        c->memsets++;
        copy_record(l, record, &memset_layout, FP_WHAT_MEMSET,
                    FP_AT_MEMSET_BYTES, FP_GPU_MEMSET);
        break;
    case FP_CUPTI_RUNTIME:
    case FP_CUPTI_DRIVER:
    case FP_CUPTI_EXTERNAL_CORRELATION:
        /* Of interest in the first pass; another client may have asked for
         * them. */
        return;
    default:
        c->unknown_kind++;
        break;
    }
    c->records++;
}

/* ---- time goes by ---- */

void
fp_ledger_age(fp_ledger *l, int64_t until, int last)
{
    settle_launches(l, last);
    retry_parked(l, last);
    uint32_t patience =
        l->launches.count > CROWD ? CROWDED_PATIENCE : LAUNCH_PATIENCE;
    uint64_t expired = fp_launches_age(&l->launches, last ? 0 : patience);
    l->counters.expired_launches += expired;
    l->outstanding -= expired;
    if (last) {
        fp_launches_clear(&l->launches); /* their ids may be given anew */
        l->settled = 1;
    }
    for (uint32_t i = 0; i < l->timelines; i++) {
        fp_timeline_fold(&l->timeline[i], until);
    }
    /* Launches from before that have settled, so nobody asks. */
    fp_owner_log_forget(&l->owners, l->aged[0]);
    memmove(l->aged, l->aged + 1, sizeof(l->aged) - sizeof(l->aged[0]));
    l->aged[FP_PLACE_PATIENCE - 1] = until;
    fp_renames_age(&l->renames, LAUNCH_PATIENCE);
}

void
fp_ledger_gap(fp_ledger *l, int64_t from, int64_t to)
{
    for (uint32_t i = 0; i < l->timelines; i++) {
        fp_timeline_gap(&l->timeline[i], from, to);
    }
}

void
fp_ledger_rename(fp_ledger *l, uint32_t from, uint32_t to,
                 const uint32_t *became, uint32_t nodes)
{
    fp_sums_rename(&l->sums, from, to, became, nodes);
    fp_graph_nodes_rename(&l->graphs, from, to, became, nodes);
    fp_launches_rename(&l->launches, from, to, became, nodes);
    fp_owner_log_rename(&l->owners, from, to, became, nodes);
    if (!l->settled) {
        fp_renames_put(&l->renames, from, to, became, nodes);
    }
}
