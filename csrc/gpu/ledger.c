/* Creates and clears the ledger, and ages its waiting items. */

#include "gpu/ledger_parts.h"

#include <string.h>

/* Flush periods for which a launch waits for its activity; fewer if the table
 * may fill up. */
enum { LAUNCH_PATIENCE = 60, CROWDED_PATIENCE = 4 };
enum { CROWD = FP_LAUNCHES_MAX / 8 };

/* An activity may start earlier than its launch by SKEW_NS, because the
 * devices' clocks are adjusted to the host's.  After PATIENCE_NS the ledger no
 * longer waits for it. */
#define SKEW_NS INT64_C(1000000)
#define PATIENCE_NS INT64_C(60000000000)

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
    l->answered_ns = 0;
    memset(&l->counters, 0, sizeof(l->counters));
    l->cleared = ticks;
    if (l->begin_ns != 0) {
        fp_ledger_begin(l, fp_clock_map_to_gpu(&l->clock, ticks));
    }
}

/* ---- settling and ageing ---- */

void
fp_ledger_settle(fp_ledger *l)
{
    fp_ledger_settle_clones(l);
    fp_ledger_settle_launches(l, 0);
}

/* CUPTI keeps a buffer until its activities have ended, so on a busy device
 * records come seconds late. */
static void
fold(fp_ledger *l, int64_t until, int last)
{
    int64_t oldest = last ? INT64_MAX : fp_launches_oldest(&l->launches);
    int64_t least = until - PATIENCE_NS;
    if (oldest != INT64_MAX && oldest - SKEW_NS < until) {
        until = oldest - SKEW_NS > least ? oldest - SKEW_NS : least;
    }
    for (uint32_t i = 0; i < l->timelines; i++) {
        fp_timeline_fold(&l->timeline[i], until);
    }
}

void
fp_ledger_idle(fp_ledger *l, int64_t until)
{
    if (l->launches.count > CROWD) {
        fp_ledger_age(l, until, 0);
    }
    else {
        fold(l, until, 0);
    }
}

int
fp_ledger_expects(const fp_ledger *l)
{
    return l->outstanding != 0 &&
           fp_launches_newest(&l->launches) > l->answered_ns;
}

void
fp_ledger_age(fp_ledger *l, int64_t until, int last)
{
    fp_ledger_settle_launches(l, last);
    fp_ledger_retry_parked(l, last);
    uint32_t patience =
        l->launches.count > CROWD ? CROWDED_PATIENCE : LAUNCH_PATIENCE;
    uint64_t expired = fp_launches_age(&l->launches, last ? 0 : patience);
    l->counters.expired_launches += expired;
    l->outstanding -= expired;
    if (last) {
        fp_launches_clear(&l->launches); /* their ids may be used again */
        l->settled = 1;
    }
    fold(l, until, last);
    /* Older launches are settled and need no owner any more. */
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
