/* Decodes the records of activities and finds their launches. */
#include "gpu/ledger_parts.h"

#include "gpu/cupti_abi.h"
#include "gpu/cupti_records.h"

#include <string.h>

/* Flush periods for which an activity waits for its launch. */
enum { PARKED_PATIENCE = 3 };

static void
answer(fp_ledger *l, fp_launch *e)
{
    l->outstanding -= (uint64_t)fp_launch_is_outstanding(e);
    l->answered_ns = e->at_ns > l->answered_ns ? e->at_ns : l->answered_ns;
    e->flags |= FP_LAUNCH_HIT;
}

static void
hit(fp_ledger *l, fp_launch *e, const fp_activity *a)
{
    answer(l, e);
    fp_site site = {e->place, e->via, (fp_how)e->how};
    fp_host_sum *host = fp_sums_host_near(&l->sums, &site, &e->host_row);
    int64_t delay = a->start - e->at_ns;
    if (FP_UNLIKELY(delay < 0 || delay > FP_LONGEST_NS)) {
        l->counters.negative_delay +=
            delay < -fp_clock_map_error_ns(&l->clock);
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
    int is_kernel = a->what >= 0 || a->what == FP_WHAT_KERNEL;
    if (is_kernel && !l->external && !(e->flags & FP_LAUNCH_GRAPH)) {
        /* The launch of a single kernel has no other activity.  Keeping the
         * entry costs the thread time, and CUPTI may run out of buffers
         * meanwhile. */
        fp_launches_remove(&l->launches, e);
    }
}

static void
unattributed(fp_ledger *l, const fp_activity *a)
{
    if (a->start >= l->end_ns) {
        l->counters.stale++; /* launched while the recording ended */
        return;
    }
    const fp_site nowhere = {0, 0, FP_HOW_UNKNOWN};
    fp_sums_activity(&l->sums, &nowhere, a->what, a->ns, a->bytes);
}

static int
park(fp_ledger *l, const fp_activity *a)
{
    if (l->parked_count == FP_PARKED_MAX ||
        fp_alloc_room(&l->alloc, &l->parked, &l->parked_capacity,
                      l->parked_count + 1, 1024,
                      sizeof(*l->parked)) != FP_OK) {
        return -1;
    }
    l->parked[l->parked_count++] = (fp_parked){*a, l->launches.generation};
    return 0;
}

/* The launch of [a]'s id is [e].  Some releases of CUPTI give a graph's
 * activities the id of another call; in a release not known for this defect,
 * an id of a call that launched no graph reveals it. */
static void
attribute_to(fp_ledger *l, fp_launch *e, const fp_activity *a)
{
    if (FP_UNLIKELY(a->graph_node != 0 && !(e->flags & FP_LAUNCH_GRAPH))) {
        l->graph_ids_wrong = 1;
        l->counters.graph_ids++;
        unattributed(l, a);
        return;
    }
    hit(l, e, a);
}

static void
attribute(fp_ledger *l, const fp_activity *a)
{
    if (FP_UNLIKELY(l->graph_ids_wrong && a->graph_node != 0)) {
        l->counters.graph_ids++;
        unattributed(l, a);
        return;
    }
    fp_launch *e = fp_launches_find(&l->launches, a->corr);
    if (FP_LIKELY(e != NULL && (e->flags & FP_LAUNCH_COUNTED))) {
        attribute_to(l, e, a);
    }
    else if (!l->external || park(l, a) < 0) {
        l->orphans += a->graph_node == 0;
        unattributed(l, a);
    }
}

void
fp_ledger_retry_parked(fp_ledger *l, int last)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->parked_count; i++) {
        const fp_parked *p = &l->parked[i];
        fp_launch *e = fp_launches_find(&l->launches, p->activity.corr);
        if (e != NULL && (e->flags & FP_LAUNCH_COUNTED)) {
            attribute_to(l, e, &p->activity);
        }
        else if (last ||
                 l->launches.generation - p->generation >= PARKED_PATIENCE) {
            unattributed(l, &p->activity);
        }
        else {
            l->parked[kept++] = *p;
        }
    }
    l->parked_count = kept;
}

uint32_t
fp_ledger_unmatched(fp_ledger *l)
{
    uint32_t unmatched = 0;
    for (uint32_t i = 0; i < l->parked_count; i++) {
        fp_launch *e =
            fp_launches_find(&l->launches, l->parked[i].activity.corr);
        if (e != NULL) {
            answer(l, e);
        }
        unmatched += e == NULL;
    }
    return unmatched;
}

/* ---- records ---- */

/* Offsets of the fields that all records share. */
typedef struct layout {
    uint16_t start, end, device, stream, correlation;
    uint16_t graph_node, grid; /* 0: it has none */
} layout;

#define LAYOUT(record, grid) \
    {FP_AT_##record##_START, \
     FP_AT_##record##_END, \
     FP_AT_##record##_DEVICE, \
     FP_AT_##record##_STREAM, \
     FP_AT_##record##_CORRELATION, \
     FP_AT_##record##_GRAPH_NODE, \
     grid}
static const layout kernel_layout = LAYOUT(KERNEL, FP_AT_KERNEL_GRID);
static const layout memcpy_layout = LAYOUT(MEMCPY, 0);
static const layout memcpy2_layout = LAYOUT(MEMCPY2, 0);
static const layout memset_layout = LAYOUT(MEMSET, 0);
static const layout graph_layout = {
    FP_AT_GRAPH_START,
    FP_AT_GRAPH_END,
    FP_AT_GRAPH_DEVICE,
    FP_AT_GRAPH_STREAM,
    FP_AT_GRAPH_CORRELATION,
    0,
    0,
};
#undef LAYOUT

/* Adds the activity to the trace. */
static FP_COLD void
trace(fp_ledger *l, const uint8_t *record, const layout *at,
      const fp_activity *a)
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

/* Marks a launch as answered by an activity that is not counted. */
static void
answered(fp_ledger *l, uint32_t corr)
{
    fp_launch *e = fp_launches_find(&l->launches, corr);
    if (e != NULL) {
        answer(l, e);
    }
}

/* Reads the times of a record.  Returns 0 and counts the reason if they are
 * invalid. */
static int
have_times(fp_ledger *l, const uint8_t *record, const layout *at,
           fp_activity *a)
{
    uint64_t said_start = fp_read_u64(record, at->start);
    uint64_t said_end = fp_read_u64(record, at->end);
    fp_gpu_counters *c = &l->counters;
    if (FP_UNLIKELY(said_start == 0 || said_start > INT64_MAX ||
                    said_end > INT64_MAX)) {
        c->zero_time += said_start == 0;
        c->invalid += said_start != 0;
        return 0;
    }
    if (FP_UNLIKELY(said_end == 0 || said_end < said_start)) {
        c->incomplete += said_end == 0;
        c->invalid += said_end != 0;
        return 0;
    }
    int64_t start = fp_clock_map_steady(&l->clock, (int64_t)said_start);
    int64_t end = fp_clock_map_steady(&l->clock, (int64_t)said_end);
    if (FP_UNLIKELY(fp_ledger_is_misdated(l, start, end))) {
        c->misdated++;
        return 0;
    }
    if (FP_UNLIKELY(end < start || end - start > FP_LONGEST_NS)) {
        c->invalid++;
        return 0;
    }
    if (FP_UNLIKELY(end < l->begin_ns)) {
        c->stale++;
        return 0;
    }
    a->start = start;
    a->ns = end - start;
    return 1;
}

static int
read_times(fp_ledger *l, const uint8_t *record, const layout *at,
           fp_activity *a)
{
    a->corr = fp_read_u32(record, at->correlation);
    if (at->graph_node != 0) {
        a->graph_node = fp_read_u64(record, at->graph_node);
        l->counters.nodes += a->graph_node != 0;
    }
    if (FP_LIKELY(have_times(l, record, at, a))) {
        return 1;
    }
    l->counters.untimed_nodes +=
        a->graph_node != 0 && fp_read_u64(record, at->start) == 0;
    answered(l, a->corr);
    return 0;
}

static void
on_timeline(fp_ledger *l, const uint8_t *record, const layout *at,
            const fp_activity *a, fp_gpu_class c)
{
    uint32_t device = fp_read_u32(record, at->device);
    if (FP_LIKELY(device < l->timelines)) {
        fp_timeline_add(&l->timeline[device], a->start, a->start + a->ns, c);
    }
}

/* Counts an activity as a launch of the kernel of this name and shape. */
static void
count_kernel(fp_ledger *l, const uint8_t *record, const layout *at,
             fp_activity *a, const char *name, const fp_kernel_shape *shape,
             const int32_t grid[3])
{
    int32_t row = fp_kernels_find(&l->kernels, name, shape);
    fp_gpu_class c = FP_GPU_COMPUTE;
    a->what = FP_WHAT_KERNEL;
    if (FP_LIKELY(row >= 0)) {
        fp_kernel *k = &l->kernels.row[row];
        fp_kernels_count(k, grid, a->ns);
        a->what = row;
        c = (fp_gpu_class)k->communicates;
    }
    on_timeline(l, record, at, a, c);
    if (FP_UNLIKELY(l->trace != NULL)) {
        trace(l, record, at, a);
    }
    attribute(l, a);
}

static void
graph_record(fp_ledger *l, const uint8_t *record)
{
    static const int32_t no_grid[3];
    fp_activity a = {0};
    l->counters.whole_graphs++;
    if (read_times(l, record, &graph_layout, &a)) {
        fp_kernel_shape shape = {
            .device = fp_read_u32(record, FP_AT_GRAPH_DEVICE),
        };
        count_kernel(l, record, &graph_layout, &a, "whole CUDA graph", &shape,
                     no_grid);
    }
}

static void
kernel_record(fp_ledger *l, const uint8_t *record)
{
    fp_activity a = {0};
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
    count_kernel(l, record, &kernel_layout, &a, name, &shape, grid);
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
    fp_activity a = {0};
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
fp_ledger_begin_buffer(fp_ledger *l)
{
    fp_kernels_begin_buffer(&l->kernels);
}

void
fp_ledger_record(fp_ledger *l, const uint8_t *record)
{
    fp_gpu_counters *c = &l->counters;
    switch (fp_read_u32(record, FP_AT_KIND)) {
    case FP_CUPTI_CONCURRENT_KERNEL:
        kernel_record(l, record);
        break;
    case FP_CUPTI_GRAPH_TRACE:
        graph_record(l, record);
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
        /* Read in the first pass, or requested by another client. */
        return;
    default:
        c->unknown_kind++;
        break;
    }
    c->records++;
}
