#include "gpu/collector.h"
#include "gpu/drainer.h"
#include "gpu_kit.h"
#include "thread_kit.h"

#include "core/path.h"

/* Callbacks without CUPTI: a collector whose thread never runs. */

enum { LAUNCH = 211, DRIVER_LAUNCH = 307, GRAPH = 311, MEMCPY = 31 };
enum { DRIVER_MEMCPY = 276, DEVICE_SYNC = 165, CONTEXT_SYNC = 17 };

static const fp_key backward_key = (fp_key)99 << 6 | FP_TAG_C;

static int
is_backward(fp_key key)
{
    return key == backward_key;
}

typedef struct setting {
    fake_memory memory;
    fp_alloc alloc;
    int64_t now;
    fp_gpu *g;
    fp_lane *lane;
    fp_thread *self;
    fp_thread *other;
} setting;

static int
node_id(void *node, uint64_t *id)
{
    if (node == NULL) {
        return FP_CUPTI_INVALID_PARAMETER;
    }
    *id = *(uint64_t *)node;
    return FP_CUPTI_SUCCESS;
}

static void
set_up(setting *s)
{
    memset(s, 0, sizeof(*s));
    s->alloc = fake_alloc(&s->memory);
    s->g = malloc(sizeof(*s->g));
    fp_clock clock;
    fp_clock_init_reader(&clock, fake_clock_read, &s->now, 1.0);
    fp_gpu_entries entries = {NULL, NULL, NULL};
    CHECK_INT(fp_gpu_init(s->g, &s->alloc, &clock, &entries, is_backward),
              FP_OK);
    s->g->cupti.get_graph_node_id = node_id;
    atomic_store(&s->g->recording, 1);
    atomic_store(&s->g->attachments, 1);
    s->lane = fp_lane_create(&s->g->lanes);
    s->self = fp_thread_create(&s->alloc, kit_wide, 0);
    s->other = fp_thread_create(&s->alloc, kit_wide, 0);
    s->self->serial = 4;
    s->other->serial = 5;
}

static void
tear_down(setting *s)
{
    CHECK(fp_lane_read(s->lane) == NULL);
    fp_thread_destroy(s->self);
    fp_thread_destroy(s->other);
    fp_lanes_fini(&s->g->lanes);
    fp_buffers_fini(&s->g->buffers);
    CHECK_UINT(s->memory.bytes, 0);
    free(s->g);
}

static int64_t
call_by(setting *s, const fp_thread *self, int domain, uint32_t cbid, int site,
        uint32_t corr)
{
    fp_cupti_call call = {.site = site, .correlation = corr};
    return fp_gpu_on_call(s->g, s->lane, self, domain, cbid, &call);
}

static int64_t
runtime(setting *s, uint32_t cbid, int site, uint32_t corr)
{
    return call_by(s, s->self, FP_CUPTI_DOMAIN_RUNTIME, cbid, site, corr);
}

static int64_t
driver(setting *s, uint32_t cbid, int site, uint32_t corr)
{
    return call_by(s, s->self, FP_CUPTI_DOMAIN_DRIVER, cbid, site, corr);
}

static fp_event
next(setting *s)
{
    const fp_event *e = fp_lane_read(s->lane);
    CHECK(e != NULL);
    return *e;
}

FP_TEST(gpu_calls_a_launch_is_recorded_once_with_place_and_time)
{
    setting s;
    set_up(&s);
    fp_node *n = kit_enter(s.self, kit_function(3), 0);
    s.lane->has_sections = 0;
    s.now = 77;
    CHECK_INT(runtime(&s, LAUNCH, FP_CUPTI_API_ENTER, 9), 0);
    CHECK_INT(driver(&s, DRIVER_LAUNCH, FP_CUPTI_API_ENTER, 9), 0);
    CHECK_INT(driver(&s, DRIVER_LAUNCH, FP_CUPTI_API_EXIT, 9), 0);
    CHECK_INT(runtime(&s, LAUNCH, FP_CUPTI_API_EXIT, 9), 0);
    fp_event e = next(&s);
    CHECK_INT(e.kind, FP_EVENT_LAUNCH);
    CHECK_UINT(e.corr, 9);
    CHECK_INT(e.ticks, 77);
    CHECK_UINT(e.place, fp_place_of(s.self, n));
    CHECK_UINT(e.via, 0);
    CHECK_INT(e.how, FP_HOW_OWN);
    CHECK(fp_lane_read(s.lane) == NULL);
    /* The driver's own launches count; 0 and 2^32 - 1 are valid ids. */
    CHECK_INT(driver(&s, DRIVER_LAUNCH, FP_CUPTI_API_ENTER, UINT32_MAX), 0);
    CHECK_UINT(next(&s).corr, UINT32_MAX);
    CHECK_INT(runtime(&s, GRAPH, FP_CUPTI_API_ENTER, 0), 0);
    e = next(&s);
    CHECK_INT(e.kind, FP_EVENT_GRAPH_LAUNCH);
    CHECK_UINT(e.corr, 0);
    /* After detaching and attaching, ids start again. */
    atomic_fetch_add(&s.g->attachments, 1);
    CHECK_INT(runtime(&s, LAUNCH, FP_CUPTI_API_ENTER, 0), 0);
    CHECK_UINT(next(&s).corr, 0);
    tear_down(&s);
}

static uint32_t switched_off[8], switched;

static int
enable_callback(uint32_t on, void *subscriber, int domain, uint32_t cbid)
{
    (void)subscriber;
    CHECK_UINT(on, 0);
    CHECK_INT(domain, FP_CUPTI_DOMAIN_RUNTIME);
    switched_off[switched++ % 8] = cbid;
    return FP_CUPTI_SUCCESS;
}

static void
launch_through(setting *s, uint32_t runtime_cbid, uint32_t driver_cbid,
               uint32_t corr)
{
    runtime(s, runtime_cbid, FP_CUPTI_API_ENTER, corr);
    if (driver_cbid != 0) {
        driver(s, driver_cbid, FP_CUPTI_API_ENTER, corr);
        driver(s, driver_cbid, FP_CUPTI_API_EXIT, corr);
    }
    runtime(s, runtime_cbid, FP_CUPTI_API_EXIT, corr);
}

FP_TEST(gpu_calls_switch_off_runtime_callbacks_that_the_driver_repeats)
{
    enum { OTHER_LAUNCH = 430, OTHER_GRAPH = 312, DRIVER_GRAPH = 514 };
    setting s;
    set_up(&s);
    s.g->subscriber = s.g;
    s.g->cupti.enable_callback = enable_callback;
    uint32_t corr = 0;
    switched = 0;
    for (int i = 0; i < FP_GPU_NESTED_ENOUGH; i++) {
        fp_drainer_thin_out(s.g);
        CHECK_UINT(switched, 0); /* too few calls so far */
        launch_through(&s, LAUNCH, DRIVER_LAUNCH, corr++);
        launch_through(&s, GRAPH, DRIVER_LAUNCH, corr++); /* another class */
        launch_through(&s, OTHER_GRAPH, DRIVER_GRAPH, corr++);
        launch_through(&s, MEMCPY, DRIVER_MEMCPY, corr++); /* it waits */
        /* One of these calls did not reach the driver. */
        launch_through(&s, OTHER_LAUNCH, i == 700 ? 0 : DRIVER_LAUNCH, corr++);
    }
    fp_drainer_thin_out(s.g);
    fp_drainer_thin_out(s.g); /* the second call changes nothing */
    CHECK_UINT(switched, 2);
    CHECK_UINT(switched_off[0], LAUNCH);
    CHECK_UINT(switched_off[1], OTHER_GRAPH);
    while (fp_lane_read(s.lane) != NULL) {
    }
    /* It was switched off within a call, whose end is then not reported. */
    runtime(&s, LAUNCH, FP_CUPTI_API_ENTER, corr);
    driver(&s, DRIVER_LAUNCH, FP_CUPTI_API_ENTER, corr + 1);
    driver(&s, DRIVER_LAUNCH, FP_CUPTI_API_EXIT, corr + 1);
    CHECK_UINT(s.lane->calls, 0);
    CHECK_UINT(next(&s).corr, corr);
    CHECK_UINT(next(&s).corr, corr + 1);
    tear_down(&s);
}

FP_TEST(gpu_calls_ignore_other_calls)
{
    setting s;
    set_up(&s);
    CHECK_INT(runtime(&s, 17, FP_CUPTI_API_ENTER, 1), 0);
    CHECK_INT(driver(&s, 100000, FP_CUPTI_API_ENTER, 1), 0);
    CHECK_INT(call_by(&s, s.self, 0, LAUNCH, FP_CUPTI_API_ENTER, 1), 0);
    CHECK_INT(call_by(&s, s.self, 7, LAUNCH, FP_CUPTI_API_ENTER, 1), 0);
    fp_cupti_resource r = {0};
    CHECK_INT(
        fp_gpu_on_call(s.g, s.lane, s.self, FP_CUPTI_DOMAIN_RESOURCE, 1, &r),
        0);
    CHECK_INT(runtime(&s, DEVICE_SYNC, FP_CUPTI_API_EXIT, 1), 0);
    tear_down(&s);
}

FP_TEST(gpu_calls_a_wait_is_as_long_as_the_outermost_call)
{
    setting s;
    set_up(&s);
    s.now = 100;
    (void)runtime(&s, DEVICE_SYNC, FP_CUPTI_API_ENTER, 1);
    s.now = 120;
    (void)driver(&s, CONTEXT_SYNC, FP_CUPTI_API_ENTER, 1);
    s.now = 180;
    CHECK_INT(driver(&s, CONTEXT_SYNC, FP_CUPTI_API_EXIT, 1), 0);
    s.now = 200;
    CHECK_INT(runtime(&s, DEVICE_SYNC, FP_CUPTI_API_EXIT, 1), 100);
    fp_event e = next(&s);
    CHECK_INT(e.kind, FP_EVENT_SYNC);
    CHECK_INT(e.ticks, 100);
    CHECK_INT(e.until, 200);
    CHECK(fp_lane_read(s.lane) == NULL);
    /* A copy that waits is a launch and a wait. */
    (void)runtime(&s, MEMCPY, FP_CUPTI_API_ENTER, 2);
    (void)driver(&s, DRIVER_MEMCPY, FP_CUPTI_API_ENTER, 2);
    s.now = 230;
    (void)driver(&s, DRIVER_MEMCPY, FP_CUPTI_API_EXIT, 2);
    CHECK_INT(runtime(&s, MEMCPY, FP_CUPTI_API_EXIT, 2), 30);
    CHECK_INT(next(&s).kind, FP_EVENT_LAUNCH);
    CHECK_INT(next(&s).kind, FP_EVENT_SYNC);
    /* The end of a wait is not reported if CUPTI was detached meanwhile. */
    (void)runtime(&s, DEVICE_SYNC, FP_CUPTI_API_ENTER, 3);
    atomic_fetch_add(&s.g->attachments, 1);
    CHECK_INT(runtime(&s, DEVICE_SYNC, FP_CUPTI_API_EXIT, 3), 0);
    s.now = 300;
    (void)runtime(&s, DEVICE_SYNC, FP_CUPTI_API_ENTER, 4);
    s.now = 301;
    CHECK_INT(runtime(&s, DEVICE_SYNC, FP_CUPTI_API_EXIT, 4), 1);
    CHECK_INT(next(&s).ticks, 300);
    tear_down(&s);
}

static fp_site
site_of(setting *s, const fp_thread *self)
{
    return fp_gpu_site(s->g, s->lane, self);
}

static void
check_site(fp_site got, fp_place place, fp_place via, fp_how how)
{
    CHECK_UINT(got.place, place);
    CHECK_UINT(got.via, via);
    CHECK_INT(got.how, how);
}

FP_TEST(gpu_calls_the_site_case_by_case)
{
    setting s;
    set_up(&s);
    fp_owners *o = &s.g->owners;
    /* No thread has a section. */
    check_site(site_of(&s, NULL), 0, 0, FP_HOW_OTHER);
    check_site(site_of(&s, s.self), 0, 0, FP_HOW_OTHER);
    fp_node *f = kit_enter(s.self, kit_function(1), 0);
    fp_place in_f = fp_place_of(s.self, f);
    check_site(site_of(&s, s.self), in_f, 0, FP_HOW_OWN);
    /* Another thread has one and may own the work. */
    int slot = fp_owners_join(o, s.other);
    fp_place theirs = kit_place(5, 9);
    fp_owners_section(o, slot, theirs, 0);
    check_site(site_of(&s, NULL), 0, theirs, FP_HOW_INHERITED);
    check_site(site_of(&s, s.self), in_f, theirs, FP_HOW_INHERITED);
    atomic_store(&o->functions_known, 1);
    check_site(site_of(&s, s.self), in_f, 0, FP_HOW_OWN);
    check_site(site_of(&s, NULL), 0, 0, FP_HOW_OTHER);
    fp_node *b = kit_enter(s.other, backward_key, 0);
    fp_place back = fp_place_of(s.other, b);
    check_site(site_of(&s, NULL), 0, back, FP_HOW_INHERITED);
    check_site(site_of(&s, s.self), in_f, back, FP_HOW_INHERITED);
    fp_thread_leave(s.self, kit_function(1), 0);
    check_site(site_of(&s, s.self), 0, back, FP_HOW_INHERITED);
    /* A thread that has opened a section owns its work, outside of the
     * section, too. */
    s.lane->has_sections = 1;
    check_site(site_of(&s, s.self), fp_place_of(s.self, s.self->cur), 0,
               FP_HOW_OWN);
    (void)kit_enter(s.self, kit_function(1), 0);
    check_site(site_of(&s, s.self), in_f, 0, FP_HOW_OWN);
    /* ... but only in this recording. */
    atomic_fetch_add(&s.g->recording, 1);
    check_site(site_of(&s, s.self), in_f, back, FP_HOW_INHERITED);
    tear_down(&s);
}

FP_TEST(gpu_calls_a_thread_in_backward_is_not_its_own_owner)
{
    setting s;
    set_up(&s);
    atomic_store(&s.g->owners.functions_known, 1);
    fp_node *b = kit_enter(s.self, backward_key, 0);
    check_site(site_of(&s, s.self), fp_place_of(s.self, b), 0, FP_HOW_OWN);
    CHECK_INT(s.lane->owner, 0); /* but others see it as an owner */
    check_site(site_of(&s, s.other), 0, fp_place_of(s.self, b),
               FP_HOW_INHERITED);
    tear_down(&s);
}

FP_TEST(gpu_calls_a_lane_forgets_the_thread_before)
{
    setting s;
    set_up(&s);
    fp_gpu_lane_for(s.g, s.lane, s.self);
    CHECK_INT(s.lane->owner, 0);
    s.lane->has_sections = 1;
    s.lane->outermost = 7;
    fp_gpu_lane_for(s.g, s.lane, s.self);
    CHECK_INT(s.lane->has_sections, 1);
    fp_gpu_lane_for(s.g, s.lane, s.other); /* a new record */
    CHECK_INT(s.lane->has_sections, 0);
    CHECK_UINT(s.lane->outermost, 0);
    CHECK_INT(s.lane->owner, 1);
    fp_gpu_lane_for(s.g, s.lane, s.self);
    CHECK_INT(s.lane->owner, 0); /* it still has its slot */
    tear_down(&s);
}

static void
graph_node(setting *s, uint32_t cbid, uint64_t *node, uint64_t *original)
{
    fp_cupti_graph graph = {.node = node, .original_node = original};
    fp_cupti_resource r = {.descriptor = &graph};
    CHECK_INT(fp_gpu_on_call(s->g, s->lane, s->self, FP_CUPTI_DOMAIN_RESOURCE,
                             cbid, &r),
              0);
}

FP_TEST(gpu_calls_graph_nodes_are_recorded_with_their_place)
{
    setting s;
    set_up(&s);
    uint64_t one = 11, two = 22;
    fp_node *n = kit_enter(s.self, kit_function(1), 0);
    graph_node(&s, FP_CUPTI_GRAPHNODE_CREATED, &one, NULL);
    fp_event e = next(&s);
    CHECK_INT(e.kind, FP_EVENT_CAPTURE);
    CHECK_UINT(e.id, 11);
    CHECK_UINT(e.place, fp_place_of(s.self, n));
    graph_node(&s, FP_CUPTI_GRAPHNODE_CLONED, &two, &one);
    e = next(&s);
    CHECK_INT(e.kind, FP_EVENT_CLONE);
    CHECK_UINT(e.id, 22);
    CHECK_INT(e.until, 11);
    /* Nodes unknown to CUPTI are not recorded. */
    graph_node(&s, FP_CUPTI_GRAPHNODE_CREATED, NULL, NULL);
    graph_node(&s, FP_CUPTI_GRAPHNODE_CLONED, &two, NULL);
    fp_cupti_resource none = {0};
    (void)fp_gpu_on_call(s.g, s.lane, s.self, FP_CUPTI_DOMAIN_RESOURCE,
                         FP_CUPTI_GRAPHNODE_CREATED, &none);
    s.g->cupti.get_graph_node_id = NULL;
    graph_node(&s, FP_CUPTI_GRAPHNODE_CREATED, &one, NULL);
    tear_down(&s);
}

FP_TEST(gpu_calls_f36_without_memory_launches_are_lost_and_counted)
{
    setting s;
    set_up(&s);
    s.memory.fail_at = s.memory.takes + 1;
    s.memory.fail_on = true;
    uint32_t all = 2 * FP_LANE_CHUNK;
    for (uint32_t i = 0; i < all; i++) {
        (void)runtime(&s, LAUNCH, FP_CUPTI_API_ENTER, i);
    }
    CHECK_UINT(s.g->lanes.lost, FP_LANE_CHUNK);
    for (uint32_t i = 0; i < FP_LANE_CHUNK; i++) {
        CHECK_UINT(next(&s).corr, i);
    }
    tear_down(&s);
}
