/* Handles the events of lanes: launches, waits, sections, steps. */
#include "gpu/ledger_parts.h"

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

/* The call added a node to a graph instead of launching work: it has no
 * activities. */
static void
captured(fp_ledger *l, uint32_t corr)
{
    fp_launch *e = fp_launches_find(&l->launches, corr);
    if (e != NULL) {
        l->outstanding -= (uint64_t)fp_launch_is_outstanding(e);
        e->flags &= (uint8_t)~FP_LAUNCH_GIVES;
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
        return; /* put counted it */
    }
    /* An id that comes again after 2^32 others is a new launch. */
    l->outstanding += (uint64_t)!fp_launch_is_outstanding(launch);
    launch->flags = FP_LAUNCH_HAS_SITE | FP_LAUNCH_HAS_TIME |
                    FP_LAUNCH_COUNTED | FP_LAUNCH_GIVES;
    launch->flags |= e->kind == FP_EVENT_GRAPH_LAUNCH ? FP_LAUNCH_GRAPH : 0;
    if (e->kind == FP_EVENT_GRAPH_LAUNCH && l->graph_ids_wrong) {
        captured(l, e->corr); /* its activities look like others */
    }
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
    /* By our clock: the device's clock may be stepped meanwhile. */
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
    /* The last slot is shared by all further sections. */
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
            fp_timeline_step(&l->timeline[i], at, e->id, e->section);
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

/* A copy whose original is still missing gets no place. */
void
fp_ledger_settle_clones(fp_ledger *l)
{
    uint32_t n = l->clones;
    l->clones = FP_CLONES_WAITING; /* none may wait again */
    for (uint32_t i = 0; i < n; i++) {
        cloned(l, &l->clone[i]);
    }
    l->clones = 0;
}

/* Lanes are read later: they may still hold what happened before clear(). */
static int
is_cleared(const fp_ledger *l, const fp_event *e)
{
    switch ((fp_event_kind)e->kind) {
    case FP_EVENT_LAUNCH:
    case FP_EVENT_GRAPH_LAUNCH:
    case FP_EVENT_STEP:
        return e->ticks < l->cleared;
    case FP_EVENT_SYNC:
        return e->until < l->cleared;
    default:
        return 0;
    }
}

void
fp_ledger_event(fp_ledger *l, const fp_event *said)
{
    fp_event now = *said, *e = &now;
    if (FP_UNLIKELY(is_cleared(l, e))) {
        l->counters.stale +=
            e->kind == FP_EVENT_LAUNCH || e->kind == FP_EVENT_GRAPH_LAUNCH;
        return;
    }
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
        if (e->section) {
            captured(l, e->corr);
        }
        break;
    case FP_EVENT_CLONE:
        cloned(l, &(fp_graph_clone){e->id, (uint64_t)e->until});
        break;
    case FP_EVENT_CALL:
        called(l, e, e->section ? FP_TRACE_GRAPH : FP_TRACE_LAUNCH);
        break;
    }
}
