/* The part of the collector that runs inside CUPTI's callbacks, on the
 * program's threads and under any locks that they hold.  It writes only to the
 * thread's lane, never waits, and allocates only the lane's next chunk. */
#include "gpu/api_calls.h"
#include "gpu/collector.h"
#include "gpu/cupti_abi.h"

#include "core/path.h"

static uint64_t
recording_of(const fp_gpu *g, const fp_thread *self)
{
    return atomic_load_explicit(&g->recording, memory_order_relaxed) << 32 |
           (uint32_t)self->serial;
}

void
fp_gpu_lane_for(fp_gpu *g, fp_lane *lane, const fp_thread *self)
{
    uint64_t recording = recording_of(g, self);
    if (lane->recording != recording) {
        lane->recording = recording;
        lane->has_sections = 0;
        lane->outermost = 0;
        lane->owner = -1;
    }
    if (lane->owner < 0) {
        lane->owner = fp_owners_join(&g->owners, self);
    }
}

fp_site
fp_gpu_site(fp_gpu *g, fp_lane *lane, const fp_thread *self)
{
    fp_site site = {0, 0, FP_HOW_OWN};
    if (self != NULL) {
        fp_gpu_lane_for(g, lane, self);
        const fp_node *n = fp_thread_stands(self);
        if (lane->has_sections || n->depth != 0) {
            site.place = fp_place_of(self, n);
        }
        if (lane->has_sections) {
            return site;
        }
    }
    site.via = fp_owners_find(&g->owners, self);
    if (site.via != 0) {
        site.how = FP_HOW_INHERITED;
    }
    else if (site.place == 0) {
        site.how = FP_HOW_OTHER;
    }
    return site;
}

static void
write(fp_gpu *g, fp_lane *lane, const fp_event *e)
{
    if (FP_UNLIKELY(fp_lane_write(lane, e))) {
        fp_gpu_wake(g);
    }
}

/* fp_gpu_site, into the event.  The usual case is a thread that the lane knows
 * and that has sections. */
static inline void
write_site(fp_gpu *g, fp_lane *lane, const fp_thread *self, fp_event *e)
{
    if (FP_LIKELY(self != NULL && lane->has_sections &&
                  lane->recording == recording_of(g, self))) {
        e->place = fp_place_of(self, fp_thread_stands(self));
        e->via = 0;
        e->how = FP_HOW_OWN;
        return;
    }
    fp_site site = fp_gpu_site(g, lane, self);
    e->place = site.place;
    e->via = site.via;
    e->how = (uint8_t)site.how;
}

static inline void
write_launch(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
             uint32_t corr, int is_graph)
{
    lane->driver_inside = 0;
    lane->last_call = corr;
    lane->called = fp_clock_now(&g->clock);
    lane->caller = self != NULL ? (uint32_t)self->serial : 0;
    lane->call_is_graph = (uint8_t)is_graph;
    lane->call_domain = (uint8_t)domain;
    /* Filled in where the reader finds it: a copy waits for the stores before
     * it, which are narrower than its loads. */
    uint32_t n =
        atomic_load_explicit(&lane->tail->filled, memory_order_relaxed);
    fp_event *e = &lane->tail->event[n];
    if (FP_UNLIKELY(n == FP_LANE_CHUNK)) {
        n = 0;
        e = fp_lane_add_chunk(lane);
        if (e == NULL) {
            fp_gpu_wake(g);
            return;
        }
    }
    e->kind = is_graph ? FP_EVENT_GRAPH_LAUNCH : FP_EVENT_LAUNCH;
    e->corr = corr;
    e->ticks = lane->called;
    write_site(g, lane, self, e);
    atomic_store_explicit(&lane->tail->filled, n + 1, memory_order_release);
    if (FP_UNLIKELY(n + 1 == FP_LANE_CHUNK)) {
        fp_gpu_wake(g);
    }
}

/* The runtime's call ends: records whether it contained a driver's call. */
static void
learn(fp_gpu *g, const fp_lane *lane, uint32_t cbid, uint32_t corr)
{
    fp_gpu_nested *n = &g->nested[cbid % FP_API_CALLS];
    if (corr != lane->last_call ||
        lane->call_domain != FP_CUPTI_DOMAIN_RUNTIME) {
        return; /* its begin was not recorded */
    }
    if (!lane->driver_inside) {
        atomic_store_explicit(&n->alone, 1, memory_order_relaxed);
        return;
    }
    uint32_t so_far = atomic_load_explicit(&n->inside, memory_order_relaxed);
    atomic_store_explicit(&n->inside, so_far + (so_far < UINT32_MAX),
                          memory_order_relaxed);
}

/* Records the duration of the call for the trace. */
static FP_COLD void
write_call(fp_gpu *g, fp_lane *lane, int domain, uint32_t corr)
{
    if (corr != lane->last_call || domain != lane->call_domain) {
        return; /* the driver's call inside the runtime's */
    }
    write(g, lane,
          &(fp_event){.kind = FP_EVENT_CALL,
                      .corr = corr,
                      .ticks = lane->called,
                      .until = fp_clock_now(&g->clock),
                      .id = lane->caller,
                      .section = lane->call_is_graph});
}

static FP_COLD int64_t
write_sync(fp_gpu *g, fp_lane *lane, const fp_thread *self)
{
    int64_t now = fp_clock_now(&g->clock);
    fp_site site = fp_gpu_site(g, lane, self);
    write(g, lane,
          &(fp_event){
              .kind = FP_EVENT_SYNC,
              .ticks = lane->sync_since,
              .until = now,
              .id = self != NULL ? (uint32_t)self->serial : 0,
              .place = site.place,
              .via = site.via,
              .how = (uint8_t)site.how,
          });
    return now - lane->sync_since;
}

/* Detaching resets CUPTI's correlation ids, and the end of a wait in progress
 * is never reported. */
static void
forget_calls_of_before(const fp_gpu *g, fp_lane *lane)
{
    uint32_t now = atomic_load_explicit(&g->attachments, memory_order_relaxed);
    if (FP_UNLIKELY(lane->attachment != now)) {
        lane->attachment = now;
        lane->last_call = UINT64_MAX;
        lane->sync_depth = 0;
        lane->calls = 0;
    }
}

static void
enter(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
      fp_api_class what, const fp_cupti_call *call)
{
    if (what != FP_API_SYNC) {
        int is_graph = what == FP_API_GRAPH;
        if (call->correlation == lane->last_call) {
            /* The driver's call inside the runtime's call; it may also call
             * itself. */
            lane->driver_inside |= domain == FP_CUPTI_DOMAIN_DRIVER &&
                                   is_graph == lane->call_is_graph;
            lane->calls++;
        }
        else {
            write_launch(g, lane, self, domain, call->correlation, is_graph);
            /* Restart at 1: a call that was open when its callback was
             * switched off never reports its end. */
            lane->calls = 1;
        }
    }
    if (fp_api_waits(what) && lane->sync_depth++ == 0) {
        lane->sync_since = fp_clock_now(&g->clock);
    }
}

static int64_t
leave(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
      uint32_t cbid, fp_api_class what, const fp_cupti_call *call)
{
    int64_t blocked = 0;
    int waits = fp_api_waits(what);
    if (domain == FP_CUPTI_DOMAIN_RUNTIME && !waits) {
        learn(g, lane, cbid, call->correlation);
    }
    if (what != FP_API_SYNC && lane->calls != 0) {
        lane->calls--;
    }
    if (waits && lane->sync_depth != 0 && --lane->sync_depth == 0) {
        blocked = write_sync(g, lane, self);
    }
    if (what != FP_API_SYNC && FP_UNLIKELY(atomic_load(&g->tracing))) {
        write_call(g, lane, domain, call->correlation);
    }
    return blocked;
}

static FP_COLD void
on_graph_node(fp_gpu *g, fp_lane *lane, const fp_thread *self, uint32_t cbid,
              const fp_cupti_resource *resource)
{
    const fp_cupti_graph *graph = resource->descriptor;
    uint64_t id = 0, original = 0;
    if (g->cupti.get_graph_node_id == NULL || graph == NULL ||
        g->cupti.get_graph_node_id(graph->node, &id) != FP_CUPTI_SUCCESS) {
        return;
    }
    if (cbid == FP_CUPTI_GRAPHNODE_CREATED) {
        fp_site site = fp_gpu_site(g, lane, self);
        write(g, lane,
              &(fp_event){.kind = FP_EVENT_CAPTURE,
                          .id = id,
                          .corr = (uint32_t)lane->last_call,
                          .section = lane->calls != 0,
                          .place = site.place != 0 ? site.place : site.via});
    }
    else if (g->cupti.get_graph_node_id(graph->original_node, &original) ==
             FP_CUPTI_SUCCESS) {
        write(g, lane,
              &(fp_event){.kind = FP_EVENT_CLONE,
                          .id = id,
                          .until = (int64_t)original});
    }
}

int64_t
fp_gpu_on_call(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
               uint32_t cbid, const void *data)
{
    if (domain == FP_CUPTI_DOMAIN_RESOURCE) {
        if (cbid == FP_CUPTI_GRAPHNODE_CREATED ||
            cbid == FP_CUPTI_GRAPHNODE_CLONED) {
            on_graph_node(g, lane, self, cbid, data);
        }
        return 0;
    }
    fp_api_class what = fp_api_class_of(domain, cbid);
    if (what == FP_API_NONE) {
        return 0;
    }
    const fp_cupti_call *call = data;
    forget_calls_of_before(g, lane);
    if (call->site == FP_CUPTI_API_ENTER) {
        enter(g, lane, self, domain, what, call);
        return 0;
    }
    if (FP_LIKELY(domain == FP_CUPTI_DOMAIN_DRIVER && !fp_api_waits(what) &&
                  !atomic_load_explicit(&g->tracing, memory_order_relaxed))) {
        lane->calls = (uint8_t)(lane->calls - (lane->calls != 0));
        return 0;
    }
    return leave(g, lane, self, domain, cbid, what, call);
}
