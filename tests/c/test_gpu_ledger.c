#include "gpu_kit.h"

/* The device's clock is BASE_NS + ticks. */
static const int64_t BASE_NS = 1700000000000000000;

enum { CBID_LAUNCH = 211, CBID_DRIVER_LAUNCH = 307, CBID_GRAPH = 311 };
enum { CBID_MEMCPY = 31, CBID_DRIVER_MEMCPY = 276, CBID_SYNC = 165 };

typedef struct setting {
    fake_memory memory;
    fp_alloc alloc;
    fp_ledger ledger;
} setting;

static fp_ledger *
set_up(setting *s, int external)
{
    memset(&s->memory, 0, sizeof(s->memory));
    s->alloc = fake_alloc(&s->memory);
    CHECK_INT(fp_ledger_init(&s->ledger, &s->alloc, 2, 1.0), FP_OK);
    fp_clock_map_add(&s->ledger.clock, 0, BASE_NS);
    fp_ledger_begin(&s->ledger, BASE_NS);
    s->ledger.external = external;
    s->ledger.attachment = 3;
    return &s->ledger;
}

static void
check_whole(const fp_ledger *l)
{
    CHECK_INT(kit_sum_rows(&l->sums).ns, l->sums.total_ns);
}

static void
tear_down(setting *s)
{
    check_whole(&s->ledger);
    fp_ledger_fini(&s->ledger);
    CHECK_UINT(s->memory.bytes, 0);
}

static void
launch_at(fp_ledger *l, uint32_t corr, fp_site site, int64_t ticks)
{
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_LAUNCH,
                                   .corr = corr,
                                   .ticks = ticks,
                                   .place = site.place,
                                   .via = site.via,
                                   .how = (uint8_t)site.how});
}

static void
record(fp_ledger *l, kit_record r)
{
    fp_ledger_record(l, r.byte);
}

static void
correlate(fp_ledger *l, kit_record r)
{
    fp_ledger_correlate(l, r.byte);
}

static fp_site
own(uint32_t thread, uint32_t node)
{
    return (fp_site){kit_place(thread, node), 0, FP_HOW_OWN};
}

static const fp_site nowhere = {0, 0, FP_HOW_UNKNOWN};

FP_TEST(gpu_ledger_every_kind_of_record_is_read_where_its_fields_are)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    for (uint32_t i = 1; i <= 4; i++) {
        launch_at(l, i, own(1, i), 100 * i);
    }
    CHECK_UINT(l->outstanding, 4);
    int64_t at = BASE_NS + 1000;
    record(l, kit_kernel(1, at, at + 50, "gemm"));
    record(l, kit_memcpy(2, at, at + 60, FP_COPY_HTOD, 4096));
    record(l, kit_memcpy2(3, at, at + 70, 8192));
    record(l, kit_memset(4, at, at + 80, 512));
    record(l, kit_kernel(99, at, at + 5, NULL));
    CHECK_UINT(l->outstanding, 0);
    const fp_activity_sum *a = kit_activity(&l->sums, own(1, 1), 0);
    CHECK_INT(a->ns, 50);
    CHECK_UINT(a->bytes, 0);
    a = kit_activity(&l->sums, own(1, 2), FP_WHAT_HTOD);
    CHECK_INT(a->ns, 60);
    CHECK_UINT(a->bytes, 4096);
    a = kit_activity(&l->sums, own(1, 3), FP_WHAT_PTOP);
    CHECK_INT(a->ns, 70);
    CHECK_UINT(a->bytes, 8192);
    a = kit_activity(&l->sums, own(1, 4), FP_WHAT_MEMSET);
    CHECK_INT(a->ns, 80);
    CHECK_UINT(a->bytes, 512);
    CHECK_INT(kit_activity(&l->sums, nowhere, 1)->ns, 5);
    CHECK_INT(l->sums.total_ns, 265);
    const fp_kernel *k = &l->kernels.row[0];
    CHECK_STR(k->name, "gemm");
    CHECK_UINT(k->shape.registers, 32);
    CHECK_UINT(k->shape.static_shared, 16);
    CHECK_UINT(k->shape.dynamic_shared, 0);
    CHECK_INT(k->shape.block[2], 4);
    CHECK_INT(k->grid[1], 2);
    CHECK_NEAR(k->blocks_ns, 8 * 50, 0);
    const fp_host_sum *h = kit_host(&l->sums, own(1, 3));
    CHECK_UINT(h->launches, 1);
    CHECK_UINT(h->delays, 1);
    CHECK_INT(h->delay_ns, 700);
    CHECK_INT(h->delay_max_ns, 700);
    const fp_gpu_counters *c = &l->counters;
    CHECK_UINT(c->records, 5);
    CHECK_UINT(c->kernels, 2);
    CHECK_UINT(c->copies, 2);
    CHECK_UINT(c->memsets, 1);
    CHECK_UINT(c->launches, 4);
    fp_ledger_age(l, at + 100, 0);
    CHECK_INT(l->timeline[0].whole.busy_ns, 80);
    CHECK_INT(l->timeline[1].whole.busy_ns, 0);
    tear_down(&s);
}

/* With a million launches a second and a patience of four seconds, growing and
 * ageing the table takes longer than CUPTI's buffers last. */
FP_TEST(gpu_ledger_a_finished_kernel_frees_its_launch)
{
    enum { COUNT = 200000, UNDER_WAY = 1000 };
    setting s;
    fp_ledger *l = set_up(&s, 0);
    for (uint32_t i = 1; i <= COUNT + UNDER_WAY; i++) {
        if (i <= COUNT) {
            launch_at(l, i, own(1, 1), i);
        }
        if (i > UNDER_WAY) {
            int64_t at = BASE_NS + i;
            record(l, kit_kernel(i - UNDER_WAY, at, at + 1, "k"));
        }
        CHECK(l->launches.count <= UNDER_WAY);
    }
    CHECK_UINT(l->launches.capacity, 4096);
    CHECK_UINT(l->outstanding, 0);
    CHECK_UINT(kit_host(&l->sums, own(1, 1))->delays, COUNT);
    CHECK_INT(kit_activity(&l->sums, own(1, 1), 0)->ns, COUNT);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_launch_with_possible_further_activities_stays)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    launch_at(l, 1, own(1, 1), 0);
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_GRAPH_LAUNCH,
                                   .corr = 2,
                                   .place = kit_place(1, 2)});
    for (int64_t at = BASE_NS + 1; at < BASE_NS + 4; at++) {
        record(l, kit_memcpy(1, at, at + 1, FP_COPY_HTOD, 10));
        record(l, kit_kernel(2, at, at + 1, "k"));
    }
    CHECK_INT(kit_activity(&l->sums, own(1, 1), FP_WHAT_HTOD)->ns, 3);
    CHECK_INT(kit_activity(&l->sums, own(1, 2), 0)->ns, 3);
    CHECK_UINT(l->launches.count, 2);
    tear_down(&s);
}

FP_TEST(gpu_ledger_copies_are_told_apart_by_direction)
{
    static const int32_t what[] = {FP_WHAT_COPY, FP_WHAT_HTOD, FP_WHAT_DTOH,
                                   FP_WHAT_HTOD, FP_WHAT_DTOH, FP_WHAT_DTOD,
                                   FP_WHAT_DTOD, FP_WHAT_DTOD, FP_WHAT_DTOD,
                                   FP_WHAT_HTOH, FP_WHAT_PTOP, FP_WHAT_COPY};
    setting s;
    fp_ledger *l = set_up(&s, 0);
    for (uint8_t kind = 0; kind < 12; kind++) {
        launch_at(l, kind, own(1, kind + 1u), 0);
        record(l, kit_memcpy(kind, BASE_NS + 1, BASE_NS + 2, kind, 10));
        CHECK(kit_activity(&l->sums, own(1, kind + 1u), what[kind]) != NULL);
    }
    launch_at(l, 300, own(1, 300), 0);
    record(l, kit_memcpy(300, BASE_NS + 1, BASE_NS + 2, 255, 10));
    CHECK(kit_activity(&l->sums, own(1, 300), FP_WHAT_COPY) != NULL);
    tear_down(&s);
}

FP_TEST(gpu_ledger_invalid_times_are_counted_not_added)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    int64_t at = BASE_NS + 1000;
    launch_at(l, 1, own(1, 1), 0);
    record(l, kit_kernel(1, 0, at, "k"));
    record(l, kit_kernel(1, 0, 0, "k"));
    record(l, kit_kernel(1, at, 0, "k"));
    record(l, kit_kernel(1, at, at - 1, "k"));
    record(l, kit_kernel(1, -5, -1, "k"));
    record(l, kit_kernel(1, at, -1, "k"));
    record(l, kit_kernel(1, 1, INT64_MAX, "k")); /* 292 years */
    record(l, kit_kernel(1, 1, INT64_MAX, "k"));
    record(l, kit_kernel(1, BASE_NS - 9, BASE_NS - 1, "k"));
    CHECK_UINT(l->counters.zero_time, 2);
    CHECK_UINT(l->counters.incomplete, 1);
    CHECK_UINT(l->counters.invalid, 5);
    CHECK_UINT(l->counters.stale, 1);
    CHECK_UINT(l->counters.records, 9);
    CHECK_INT(l->sums.total_ns, 0);
    CHECK_UINT(l->kernels.count, 0);
    /* it came, although its times are invalid */
    CHECK_UINT(l->outstanding, 0);
    /* ends after the beginning */
    record(l, kit_kernel(1, BASE_NS - 10, BASE_NS, "k"));
    record(l, kit_kernel(1, at, at, "k"));
    CHECK_INT(kit_own_ns(&l->sums, kit_place(1, 1), 0), 10);
    CHECK_UINT(l->outstanding, 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_an_error_of_the_clocks_is_no_negative_delay)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    double scale = l->clock.ns_per_tick;
    l->clock.worst_gap_ticks = (uint64_t)(50 / scale);
    launch_at(l, 1, own(1, 1), 500);
    launch_at(l, 2, own(1, 1), 500);
    record(l, kit_kernel(1, BASE_NS + 475, BASE_NS + 600, "k"));
    CHECK_UINT(l->counters.negative_delay, 0);
    CHECK_INT(kit_host(&l->sums, own(1, 1))->delay_ns, 0);
    record(l, kit_kernel(2, BASE_NS + 425, BASE_NS + 600, "k"));
    CHECK_UINT(l->counters.negative_delay, 1);
    CHECK_INT(kit_host(&l->sums, own(1, 1))->delay_ns, 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_delay_is_never_negative)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    launch_at(l, 1, own(1, 1), 500);
    launch_at(l, 2, own(1, 1), 500);
    launch_at(l, 3, own(1, 1), 500);
    record(l, kit_kernel(1, BASE_NS + 400, BASE_NS + 600, "k"));
    record(l, kit_kernel(2, BASE_NS + 530, BASE_NS + 600, "k"));
    const fp_host_sum *h = kit_host(&l->sums, own(1, 1));
    CHECK_UINT(h->delays, 2);
    CHECK_INT(h->delay_ns, 30);
    CHECK_INT(h->delay_max_ns, 30);
    CHECK_UINT(l->counters.negative_delay, 1);
    /* Nor with a length that no queue has. */
    for (int i = 0; i < 3; i++) {
        record(l, kit_kernel(3, INT64_MAX - 10, INT64_MAX - 5, "k"));
    }
    CHECK(h->delay_max_ns < INT64_C(1) << 60);
    CHECK(h->delay_ns >= 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_f34_waits_are_measured_by_our_clock)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    fp_event wait = {.kind = FP_EVENT_SYNC,
                     .ticks = 1000000,
                     .until = 3000000,
                     .place = kit_place(1, 1)};
    fp_ledger_event(l, &wait);
    CHECK_INT(kit_host(&l->sums, own(1, 1))->blocked_ns, 2000000);
    /* The device's clock is set back or forth by an hour meanwhile. */
    fp_clock_map_add(&l->clock, 4000000, BASE_NS - 3600000000000);
    wait = (fp_event){.kind = FP_EVENT_SYNC,
                      .ticks = 1900000,
                      .until = 3900000,
                      .place = kit_place(1, 2)};
    fp_ledger_event(l, &wait);
    CHECK_NEAR(kit_host(&l->sums, own(1, 2))->blocked_ns, 2000000, 1);
    fp_clock_map_add(&l->clock, 8000000, BASE_NS);
    wait = (fp_event){.kind = FP_EVENT_SYNC,
                      .ticks = 4900000,
                      .until = 6900000,
                      .place = kit_place(1, 3)};
    fp_ledger_event(l, &wait);
    CHECK_NEAR(kit_host(&l->sums, own(1, 3))->blocked_ns, 2000000, 1);
    CHECK_UINT(l->counters.syncs, 3);
    tear_down(&s);
}

FP_TEST(gpu_ledger_unknown_kinds_are_counted)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    record(l, kit_of_kind(3));
    record(l, kit_of_kind(0));
    record(l, kit_of_kind(UINT32_MAX));
    CHECK_UINT(l->counters.unknown_kind, 3);
    CHECK_UINT(l->counters.records, 3);
    /* Requested by another client; callbacks do not need it. */
    record(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 1, BASE_NS, BASE_NS));
    record(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2, 1, 1));
    CHECK_UINT(l->counters.unknown_kind, 3);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_graph_is_split_by_where_it_was_captured)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    fp_place captured = kit_place(1, 9);
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_CAPTURE, .id = 70, .place = captured});
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_CLONE, .id = 71, .until = 70});
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_CLONE, .id = 81, .until = 80});
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_GRAPH_LAUNCH,
                                   .corr = 5,
                                   .place = kit_place(1, 2)});
    CHECK_UINT(l->counters.graph_launches, 1);
    static const uint64_t nodes[] = {70, 71, 81, 0};
    for (int i = 0; i < 4; i++) {
        kit_record r = kit_kernel(5, BASE_NS + 10, BASE_NS + 20, "k");
        kit_u64(&r, FP_AT_KERNEL_GRAPH_NODE, nodes[i]);
        record(l, r);
    }
    fp_site from = {kit_place(1, 2), captured, FP_HOW_CAPTURED};
    CHECK_UINT(kit_activity(&l->sums, from, 0)->count, 2);
    CHECK_UINT(kit_activity(&l->sums, own(1, 2), 0)->count, 2);
    CHECK_UINT(kit_host(&l->sums, own(1, 2))->delays, 4);
    CHECK(kit_host(&l->sums, from) == NULL);
    CHECK_UINT(l->outstanding, 0);
    /* A launch by a thread without a section keeps its owner. */
    fp_site inherited = {0, kit_place(2, 3), FP_HOW_INHERITED};
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_GRAPH_LAUNCH,
                                   .corr = 6,
                                   .via = inherited.via,
                                   .how = FP_HOW_INHERITED});
    kit_record r = kit_memset(6, BASE_NS + 10, BASE_NS + 20, 4);
    kit_u64(&r, FP_AT_MEMSET_GRAPH_NODE, 70);
    record(l, r);
    CHECK(kit_activity(&l->sums, inherited, FP_WHAT_MEMSET) != NULL);
    CHECK_UINT(l->counters.graph_ids, 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_graph_with_the_id_of_another_launch_has_no_place)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    launch_at(l, 6, own(1, 2), 0);
    launch_at(l, 7, own(1, 2), 0);
    for (uint32_t id = 6; id < 8; id++) {
        kit_record r = kit_memset(id, BASE_NS + 10, BASE_NS + 20, 4);
        kit_u64(&r, FP_AT_MEMSET_GRAPH_NODE, 70);
        record(l, r);
        CHECK_UINT(l->counters.graph_ids, id - 5);
    }
    CHECK(kit_activity(&l->sums, own(1, 2), FP_WHAT_MEMSET) == NULL);
    CHECK_UINT(l->outstanding, 2); /* their own activities may still come */
    tear_down(&s);
}

/* ---- external correlation ---- */

static uint64_t
id_of(uint32_t thread, uint32_t node)
{
    return fp_external_id(3, kit_place(thread, node), 0);
}

FP_TEST(gpu_ledger_s1_external_ids_give_the_place)
{
    setting s;
    fp_ledger *l = set_up(&s, 1);
    correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2, id_of(1, 7), 10));
    correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 10, BASE_NS + 100,
                         BASE_NS + 190));
    /* Ids of other clients, of other kinds, and of another attachment. */
    for (uint32_t kind = 0; kind < 7; kind++) {
        if (kind != FP_CUPTI_EXTERNAL_CUSTOM2) {
            correlate(l, kit_external(kind, id_of(1, 8), 10));
        }
    }
    correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2,
                              fp_external_id(2, kit_place(1, 8), 0), 10));
    fp_ledger_settle(l);
    CHECK_UINT(l->outstanding, 1);
    record(l, kit_kernel(10, BASE_NS + 130, BASE_NS + 170, "k"));
    CHECK_INT(kit_own_ns(&l->sums, kit_place(1, 7), 0), 40);
    CHECK_INT(kit_host(&l->sums, own(1, 7))->delay_ns, 30);
    CHECK_UINT(l->counters.launches, 1);
    CHECK_UINT(l->outstanding, 0);
    CHECK_UINT(l->counters.unknown_kind, 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_driver_call_inside_a_runtime_call_is_one_launch)
{
    for (int outer_first = 0; outer_first < 2; outer_first++) {
        setting s;
        fp_ledger *l = set_up(&s, 1);
        kit_record outer = kit_api(FP_CUPTI_RUNTIME, CBID_MEMCPY, 4,
                                   BASE_NS + 100, BASE_NS + 900);
        kit_record inner = kit_api(FP_CUPTI_DRIVER, CBID_DRIVER_MEMCPY, 4,
                                   BASE_NS + 200, BASE_NS + 700);
        correlate(l, outer_first ? outer : inner);
        correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2, id_of(1, 7), 4));
        correlate(l, outer_first ? inner : outer);
        CHECK_UINT(l->outstanding, 1);
        fp_ledger_settle(l);
        const fp_host_sum *h = kit_host(&l->sums, own(1, 7));
        CHECK_UINT(h->launches, 1);
        CHECK_UINT(h->syncs, 1);
        CHECK_INT(h->blocked_ns, 800);
        record(l,
               kit_memcpy(4, BASE_NS + 300, BASE_NS + 400, FP_COPY_DTOH, 64));
        CHECK_INT(h->delay_ns, 200);
        tear_down(&s);
    }
}

/* Settles launches without a place, too: they wait for it at first. */
static void
settle_in_time(fp_ledger *l)
{
    fp_ledger_settle(l);
    for (int i = 0; i <= FP_PLACE_PATIENCE; i++) {
        fp_ledger_age(l, BASE_NS, 0);
    }
}

FP_TEST(gpu_ledger_a_place_may_come_after_its_launch)
{
    for (int late = 0; late <= FP_PLACE_PATIENCE; late++) {
        setting s;
        fp_ledger *l = set_up(&s, 1);
        correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 1, BASE_NS + 1,
                             BASE_NS + 2));
        fp_ledger_settle(l);
        record(l, kit_kernel(1, BASE_NS + 10, BASE_NS + 30, "k"));
        for (int i = 0; i < late; i++) {
            fp_ledger_age(l, BASE_NS, 0);
            fp_ledger_settle(l);
        }
        CHECK_UINT(l->counters.launches, late == FP_PLACE_PATIENCE);
        correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2, id_of(1, 7), 1));
        fp_ledger_settle(l);
        fp_ledger_age(l, BASE_NS, 1);
        CHECK_UINT(l->counters.launches, 1);
        const fp_site other = {0, 0, FP_HOW_OTHER};
        fp_site want = late < FP_PLACE_PATIENCE ? own(1, 7) : other;
        CHECK_INT(kit_activity(&l->sums, want, 0)->ns, 20);
        CHECK_UINT(kit_host(&l->sums, want)->launches, 1);
        tear_down(&s);
    }
}

FP_TEST(gpu_ledger_ignores_other_calls)
{
    setting s;
    fp_ledger *l = set_up(&s, 1);
    correlate(l, kit_api(FP_CUPTI_RUNTIME, 17, 1, BASE_NS + 1, BASE_NS + 2));
    correlate(l, kit_api(FP_CUPTI_DRIVER, UINT32_MAX, 2, BASE_NS, BASE_NS));
    correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 3, BASE_NS - 1,
                         BASE_NS + 5));
    CHECK_UINT(l->counters.stale, 1);
    correlate(l, kit_kernel(4, BASE_NS, BASE_NS + 1, "k"));
    CHECK_UINT(l->launches.count, 0);
    /* the kernel counts in the next pass */
    CHECK_UINT(l->counters.records, 3);
    /* A wait launches no work; a graph counts once. */
    correlate(
        l, kit_api(FP_CUPTI_RUNTIME, CBID_SYNC, 5, BASE_NS + 1, BASE_NS + 31));
    correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_GRAPH, 6, BASE_NS + 40,
                         BASE_NS + 50));
    correlate(l, kit_api(FP_CUPTI_DRIVER, 514, 6, BASE_NS + 41, BASE_NS + 49));
    settle_in_time(l);
    CHECK_UINT(l->outstanding, 1);
    CHECK_UINT(l->counters.launches, 1);
    CHECK_UINT(l->counters.graph_launches, 1);
    CHECK_UINT(l->counters.syncs, 1);
    const fp_site other = {0, 0, FP_HOW_OTHER};
    CHECK_INT(kit_host(&l->sums, other)->blocked_ns, 30);
    tear_down(&s);
}

static void
owner_at(fp_ledger *l, int64_t ticks, uint32_t slot, fp_place section,
         fp_place backward)
{
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_OWNER,
                                   .ticks = ticks,
                                   .corr = slot,
                                   .place = section,
                                   .via = backward});
}

FP_TEST(gpu_ledger_a_launch_without_a_section_belongs_to_its_owner)
{
    setting s;
    fp_ledger *l = set_up(&s, 1);
    fp_place section = kit_place(1, 5), backward = kit_place(1, 6);
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_OWNER,
                                   .corr = FP_OWNER_FUNCTIONS,
                                   .section = 1});
    owner_at(l, 100, 0, section, 0);
    owner_at(l, 200, 0, section, backward);
    owner_at(l, 300, 0, section, 0);
    for (uint32_t i = 1; i <= 4; i++) {
        /* 1 and 2 push nothing; 3 and 4 are in a function. */
        if (i > 2) {
            correlate(l,
                      kit_external(FP_CUPTI_EXTERNAL_CUSTOM2,
                                   fp_external_id(3, kit_place(2, i), 1), i));
        }
        int64_t at = BASE_NS + (i % 2 ? 250 : 150);
        correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, i, at, at + 1));
    }
    /* The owner does not own its launches through this rule. */
    correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2,
                              fp_external_id(3, kit_place(1, 2), 1), 9));
    correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 9, BASE_NS + 250,
                         BASE_NS + 251));
    settle_in_time(l);
    static const uint32_t all[] = {1, 2, 3, 4, 9};
    for (int i = 0; i < 5; i++) {
        record(l, kit_kernel(all[i], BASE_NS + 500, BASE_NS + 501, "k"));
    }
    fp_site want[] = {{0, backward, FP_HOW_INHERITED},
                      {0, 0, FP_HOW_OTHER},
                      {kit_place(2, 3), backward, FP_HOW_INHERITED},
                      {kit_place(2, 4), 0, FP_HOW_OWN},
                      {kit_place(1, 2), 0, FP_HOW_OWN}};
    for (int i = 0; i < 5; i++) {
        CHECK_UINT(kit_activity(&l->sums, want[i], 0)->count, 1);
        CHECK_UINT(kit_host(&l->sums, want[i])->launches, 1);
    }
    tear_down(&s);
}

FP_TEST(gpu_ledger_many_launches_query_owners_at_once)
{
    setting s;
    fp_ledger *l = set_up(&s, 1);
    owner_at(l, 0, 0, kit_place(1, 5), 0);
    for (uint32_t i = 0; i < 3000; i++) {
        correlate(l, kit_api(FP_CUPTI_DRIVER, CBID_DRIVER_LAUNCH, i,
                             BASE_NS + i, BASE_NS + i + 1));
    }
    settle_in_time(l);
    fp_site want = {0, kit_place(1, 5), FP_HOW_INHERITED};
    CHECK_UINT(kit_host(&l->sums, want)->launches, 3000);
    CHECK_UINT(l->outstanding, 3000);
    tear_down(&s);
}

FP_TEST(gpu_ledger_activities_wait_for_their_launch)
{
    setting s;
    fp_ledger *l = set_up(&s, 1);
    record(l, kit_kernel(1, BASE_NS + 10, BASE_NS + 30, "k"));
    record(l, kit_kernel(2, BASE_NS + 10, BASE_NS + 15, "k"));
    CHECK_UINT(l->parked_count, 2);
    CHECK_INT(l->sums.total_ns, 0);
    fp_ledger_age(l, BASE_NS, 0);
    fp_ledger_age(l, BASE_NS, 0);
    CHECK_UINT(l->parked_count, 2);
    correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2, id_of(1, 7), 1));
    correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 1, BASE_NS + 1,
                         BASE_NS + 2));
    fp_ledger_settle(l);
    fp_ledger_age(l, BASE_NS, 0);
    CHECK_INT(kit_own_ns(&l->sums, kit_place(1, 7), 0), 20);
    CHECK_UINT(l->outstanding, 0);
    fp_ledger_age(l, BASE_NS, 0);
    CHECK_UINT(l->parked_count, 0); /* waited long enough */
    CHECK_INT(kit_activity(&l->sums, nowhere, 0)->ns, 5);
    record(l, kit_kernel(3, BASE_NS + 10, BASE_NS + 17, "k"));
    fp_ledger_age(l, BASE_NS, 1); /* nothing may wait */
    CHECK_UINT(l->parked_count, 0);
    CHECK_INT(kit_activity(&l->sums, nowhere, 0)->ns, 12);
    tear_down(&s);
}

/* ---- ends and beginnings ---- */

FP_TEST(gpu_ledger_activities_after_the_end_are_stale)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    launch_at(l, 1, own(1, 1), 50);
    l->end_ns = BASE_NS + 100;
    record(l, kit_kernel(1, BASE_NS + 150, BASE_NS + 160, "k"));
    CHECK_INT(kit_own_ns(&l->sums, kit_place(1, 1), 0), 10);
    record(l, kit_kernel(2, BASE_NS + 150, BASE_NS + 160, "k"));
    record(l, kit_kernel(2, BASE_NS + 99, BASE_NS + 160, "k"));
    CHECK_UINT(l->counters.stale, 1);
    CHECK_INT(l->sums.total_ns, 71);
    tear_down(&s);
}

FP_TEST(gpu_ledger_reused_ids_are_new_launches)
{
    for (int external = 0; external < 2; external++) {
        setting s;
        fp_ledger *l = set_up(&s, external);
        for (uint32_t round = 1; round <= 2; round++) {
            int64_t at = BASE_NS + 1000 * round;
            if (external) {
                correlate(l, kit_external(FP_CUPTI_EXTERNAL_CUSTOM2,
                                          id_of(1, round), 1));
                correlate(
                    l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 1, at, at + 1));
                fp_ledger_settle(l);
            }
            else {
                launch_at(l, 1, own(1, round), 1000 * round);
            }
            CHECK_UINT(l->outstanding, 1);
            record(l, kit_kernel(1, at + 10, at + 20, "k"));
            CHECK_INT(kit_own_ns(&l->sums, kit_place(1, round), 0), 10);
            CHECK_INT(kit_host(&l->sums, own(1, round))->delay_ns, 10);
            fp_ledger_age(l, at + 100, 1); /* paused, resumed */
        }
        CHECK_UINT(l->counters.launches, 2);
        CHECK_UINT(l->counters.expired_launches, 0);
        tear_down(&s);
    }
}

FP_TEST(gpu_ledger_unanswered_launches_expire)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    launch_at(l, 1, own(1, 1), 0);
    launch_at(l, 2, own(1, 1), 0);
    launch_at(l, 2, own(1, 1), 0); /* the same id does not count twice */
    CHECK_UINT(l->outstanding, 2);
    for (int i = 0; i < 60; i++) {
        fp_ledger_age(l, BASE_NS, 0);
    }
    CHECK_UINT(l->counters.expired_launches, 0);
    record(l, kit_kernel(2, BASE_NS + 1, BASE_NS + 2, "k"));
    fp_ledger_age(l, BASE_NS, 0);
    CHECK_UINT(l->counters.expired_launches, 1);
    CHECK_UINT(l->outstanding, 0);
    launch_at(l, 3, own(1, 1), 0);
    fp_ledger_age(l, BASE_NS, 1);
    CHECK_UINT(l->counters.expired_launches, 2);
    CHECK_UINT(l->outstanding, 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_graph_may_be_copied_before_its_capture_is_read)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    fp_place captured = kit_place(1, 9);
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_CLONE, .id = 71, .until = 70});
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_CLONE, .id = 81, .until = 80});
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_CAPTURE, .id = 70, .place = captured});
    fp_ledger_settle(l);
    CHECK_UINT(fp_graph_nodes_find(&l->graphs, 71), captured);
    CHECK_UINT(fp_graph_nodes_find(&l->graphs, 81), 0);
    CHECK_UINT(l->clones, 0);
    for (uint32_t i = 0; i < 2 * FP_CLONES_WAITING; i++) {
        fp_ledger_event(
            l,
            &(fp_event){.kind = FP_EVENT_CLONE, .id = 1000 + i, .until = 9});
    }
    CHECK_UINT(l->clones, FP_CLONES_WAITING);
    tear_down(&s);
}

FP_TEST(gpu_ledger_tables_of_ended_threads_are_bounded)
{
    enum { NODES = 1 << 20 };
    setting s;
    fp_ledger *l = set_up(&s, 0);
    fp_alloc a = fp_alloc_libc();
    uint32_t *became = fp_alloc_zeroed(&a, NODES, sizeof(*became));
    CHECK(became != NULL);
    for (uint32_t thread = 1; thread <= 10; thread++) {
        fp_ledger_rename(l, thread, 100, became, NODES);
    }
    CHECK(l->renames.bytes <= FP_RENAMES_BYTES);
    CHECK_UINT(l->renames.count, FP_RENAMES_BYTES / NODES / 4);
    /* With nothing in progress no event can need a map. */
    fp_renames_fini(&l->renames);
    fp_ledger_age(l, BASE_NS, 1);
    fp_ledger_rename(l, 11, 100, became, 1);
    CHECK_UINT(l->renames.count, 0);
    fp_alloc_give(&a, became, NODES, sizeof(*became));
    tear_down(&s);
}

FP_TEST(gpu_ledger_many_unanswered_launches_expire_sooner)
{
    enum { CROWD = 300000 };
    setting s;
    fp_ledger *l = set_up(&s, 0);
    for (uint32_t id = 1; id <= CROWD; id++) {
        launch_at(l, id, own(1, 1), 0);
    }
    for (int i = 0; i < 5; i++) {
        fp_ledger_age(l, BASE_NS, 0);
    }
    CHECK_UINT(l->counters.expired_launches, CROWD);
    CHECK_UINT(l->outstanding, 0);
    tear_down(&s);
}

FP_TEST(gpu_ledger_clear_starts_again)
{
    setting s;
    fp_ledger *l = set_up(&s, 1);
    correlate(l, kit_api(FP_CUPTI_RUNTIME, CBID_LAUNCH, 1, BASE_NS + 1,
                         BASE_NS + 2));
    fp_ledger_settle(l);
    record(l, kit_kernel(2, BASE_NS + 5, BASE_NS + 6, "k"));
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_SECTION, .ticks = 3, .section = 4});
    fp_ledger_clear(l, 1000);
    CHECK_INT(l->begin_ns, BASE_NS + 1000);
    CHECK_INT(l->end_ns, INT64_MAX);
    CHECK_UINT(l->outstanding, 0);
    CHECK_UINT(l->parked_count, 0);
    CHECK_UINT(l->launches.count, 0);
    CHECK_UINT(l->counters.records, 0);
    CHECK_UINT(l->sums.activity.count, 0);
    record(l, kit_kernel(3, BASE_NS + 5, BASE_NS + 999, "k"));
    CHECK_UINT(l->counters.stale, 1);
    record(l, kit_kernel(1, BASE_NS + 1100, BASE_NS + 1200, "k"));
    fp_ledger_age(l, BASE_NS + 2000, 1);
    CHECK_INT(l->sums.total_ns, 100);
    CHECK_INT(l->timeline[0].whole.wall_ns, 1000);
    CHECK_INT(l->timeline[0].whole.busy_ns, 100);
    tear_down(&s);
    /* Before the recording has begun. */
    s.alloc = fake_alloc(&s.memory);
    CHECK_INT(fp_ledger_init(l, &s.alloc, 2, 1.0), FP_OK);
    fp_ledger_clear(l, 5);
    CHECK_INT(l->begin_ns, 0);
    fp_ledger_fini(l);
    CHECK_UINT(s.memory.bytes, 0);
}

/* Lanes are read later: they may still hold what happened before clear(). */
FP_TEST(gpu_ledger_events_from_before_clear_are_not_counted)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    fp_ledger_clear(l, 1000);
    record(l, kit_kernel(9, BASE_NS + 1010, BASE_NS + 1020,
                         "ncclDevKernel_AllReduce"));
    launch_at(l, 1, own(4, 1), 999);
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_SYNC, .ticks = 900, .until = 999});
    fp_ledger_event(
        l, &(fp_event){
               .kind = FP_EVENT_STEP, .ticks = 999, .id = 70, .section = 1});
    CHECK_UINT(l->counters.launches, 0);
    CHECK_UINT(l->counters.stale, 1);
    CHECK_UINT(l->outstanding, 0);
    CHECK_UINT(l->counters.syncs, 0);
    CHECK_UINT(l->sums.host.count, 0);
    launch_at(l, 2, own(4, 1), 1000);
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_SYNC, .ticks = 900, .until = 1030});
    fp_ledger_event(
        l, &(fp_event){
               .kind = FP_EVENT_STEP, .ticks = 1040, .id = 2, .section = 1});
    fp_ledger_age(l, BASE_NS + 2000, 1);
    CHECK_UINT(l->counters.launches, 1);
    CHECK_UINT(l->counters.syncs, 1);
    CHECK_UINT(l->timeline[0].step_count, 1);
    CHECK_UINT(l->timeline[0].waits.count, 1);
    CHECK_INT(fp_step_waits_last(&l->timeline[0].waits), 2);
    tear_down(&s);
}

FP_TEST(gpu_ledger_renamed_nodes_are_found_everywhere)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    launch_at(l, 1, own(4, 1), 0);
    launch_at(l, 2, own(4, 2), 0);
    launch_at(l, 3, (fp_site){0, kit_place(4, 1), FP_HOW_INHERITED}, 0);
    launch_at(l, 4, own(4, 1), 0);
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_GRAPH_LAUNCH,
                                   .corr = 5,
                                   .place = kit_place(4, 2)});
    fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_CAPTURE,
                                   .id = 70,
                                   .place = kit_place(4, 2)});
    record(l, kit_kernel(1, BASE_NS + 1, BASE_NS + 3, "k"));
    const uint32_t became[] = {0, 11, 11};
    fp_ledger_rename(l, 4, 9, became, 3);
    /* Later activities find the new name as well. */
    record(l, kit_kernel(4, BASE_NS + 1, BASE_NS + 4, "k"));
    record(l, kit_kernel(2, BASE_NS + 1, BASE_NS + 5, "k"));
    record(l, kit_kernel(3, BASE_NS + 1, BASE_NS + 6, "k"));
    kit_record r = kit_kernel(5, BASE_NS + 1, BASE_NS + 7, "k");
    kit_u64(&r, FP_AT_KERNEL_GRAPH_NODE, 70);
    record(l, r);
    CHECK_INT(kit_own_ns(&l->sums, kit_place(9, 11), 0), 2 + 3 + 4);
    fp_site via = {0, kit_place(9, 11), FP_HOW_INHERITED};
    CHECK_INT(kit_activity(&l->sums, via, 0)->ns, 5);
    fp_site captured = {kit_place(9, 11), kit_place(9, 11), FP_HOW_CAPTURED};
    CHECK_INT(kit_activity(&l->sums, captured, 0)->ns, 6);
    CHECK_UINT(kit_host(&l->sums, own(9, 11))->launches, 4);
    tear_down(&s);
}

/* ---- the host's sections and steps ---- */

FP_TEST(gpu_ledger_idle_time_is_split_by_section_and_step)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    for (uint16_t i = 0; i < 100; i++) {
        fp_ledger_event(l, &(fp_event){.kind = FP_EVENT_SECTION,
                                       .ticks = 1000 + 10 * i,
                                       .section = (uint16_t)(i + 500)});
    }
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_SECTION, .ticks = 2000, .section = 0});
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_STEP, .ticks = 2000, .section = 1});
    fp_ledger_event(
        l, &(fp_event){.kind = FP_EVENT_STEP, .ticks = 2500, .section = 0});
    /* The first slot is found again, and so is a section without a slot. */
    fp_ledger_event(
        l,
        &(fp_event){.kind = FP_EVENT_SECTION, .ticks = 2500, .section = 500});
    fp_ledger_event(
        l,
        &(fp_event){.kind = FP_EVENT_SECTION, .ticks = 2600, .section = 599});
    fp_ledger_age(l, BASE_NS + 2700, 0);
    for (int d = 0; d < 2; d++) {
        const fp_timeline *t = &l->timeline[d];
        CHECK_INT(t->whole.wall_ns, 2700);
        CHECK_INT(t->whole.idle_ns[0], 1500);
        CHECK_INT(t->whole.idle_ns[1], 110);
        CHECK_INT(t->whole.idle_ns[2], 10);
        CHECK_INT(t->whole.idle_ns[62], 10);
        CHECK_INT(t->whole.idle_ns[63], 380 + 100);
        CHECK_UINT(t->step_count, 1);
        CHECK_INT(t->steps.wall_ns, 2000);
        CHECK_INT(t->steps.idle_ns[0], 1000);
    }
    CHECK_UINT(l->sections, FP_TIMELINE_SECTIONS);
    CHECK_UINT(l->section[1], 500);
    CHECK_UINT(l->section[62], 561);
    CHECK_UINT(l->section[63], UINT16_MAX);
    tear_down(&s);
}

FP_TEST(gpu_ledger_a_device_beyond_the_timelines_is_in_the_sums)
{
    setting s;
    fp_ledger *l = set_up(&s, 0);
    kit_record r = kit_kernel(1, BASE_NS + 1, BASE_NS + 11, "k");
    kit_u32(&r, FP_AT_KERNEL_DEVICE, 2);
    record(l, r);
    kit_u32(&r, FP_AT_KERNEL_DEVICE, UINT32_MAX);
    record(l, r);
    kit_u32(&r, FP_AT_KERNEL_DEVICE, 1);
    record(l, r);
    fp_ledger_gap(l, BASE_NS + 100, BASE_NS + 200);
    fp_ledger_age(l, BASE_NS + 300, 0);
    CHECK_INT(l->sums.total_ns, 30);
    CHECK_INT(l->timeline[0].whole.busy_ns, 0);
    CHECK_INT(l->timeline[1].whole.busy_ns, 10);
    CHECK_INT(l->timeline[1].whole.wall_ns, 200);
    tear_down(&s);
}

/* ---- random records ---- */

static void
random_record(fp_ledger *l, uint64_t *state)
{
    static const char *const names[] = {"gemm", "ncclDevKernel", NULL, "add"};
    uint32_t corr = fake_below(state, 600);
    int64_t start = BASE_NS + fake_below(state, 100000);
    int64_t end = start + fake_below(state, 3000) - 100;
    if (fake_below(state, 50) == 0) {
        start = (int64_t)fake_random(state);
    }
    if (fake_below(state, 50) == 0) {
        end = (int64_t)fake_random(state);
    }
    kit_record r;
    switch (fake_below(state, 6)) {
    case 0:
        r = kit_memcpy(corr, start, end, (uint8_t)fake_below(state, 12), 8);
        break;
    case 1:
        r = kit_memcpy2(corr, start, end, 16);
        break;
    case 2:
        r = kit_memset(corr, start, end, 24);
        break;
    case 3:
        r = kit_of_kind(fake_below(state, 60));
        kit_u64(&r, 104, 0); /* a kernel without a name */
        break;
    default:
        r = kit_kernel(corr, start, end, names[fake_below(state, 4)]);
        kit_u64(&r, FP_AT_KERNEL_GRAPH_NODE, fake_below(state, 30));
        kit_u32(&r, FP_AT_KERNEL_DYNAMIC_SHARED, fake_below(state, 40));
        break;
    }
    fp_ledger_record(l, r.byte);
}

static void
random_event(fp_ledger *l, uint64_t *state)
{
    fp_event e = {
        .kind = (uint8_t)fake_below(state, FP_EVENT_CLONE + 1),
        .place = kit_place(1 + fake_below(state, 4), fake_below(state, 40)),
        .via = kit_place(fake_below(state, 4), fake_below(state, 40)),
        .ticks = fake_below(state, 100000),
        .id = fake_below(state, 30),
        .corr = fake_below(state, 600),
        .section = (uint16_t)fake_below(state, 90),
        .how = (uint8_t)fake_below(state, FP_HOW_UNKNOWN + 1),
    };
    e.until = e.kind == FP_EVENT_SYNC ? e.ticks + 50
                                      : (int64_t)fake_below(state, 30);
    if (e.kind == FP_EVENT_OWNER) {
        e.corr = fake_below(state, FP_OWNERS + 1);
    }
    fp_ledger_event(l, &e);
}

static void
random_correlation(fp_ledger *l, uint64_t *state)
{
    uint32_t corr = fake_below(state, 600);
    if (fake_below(state, 3) == 0) {
        uint64_t id = fp_external_id(
            3, kit_place(1 + fake_below(state, 4), fake_below(state, 40)),
            (int)fake_below(state, 2));
        correlate(l, kit_external(3 + fake_below(state, 4), id, corr));
        return;
    }
    static const uint32_t cbids[] = {CBID_LAUNCH, CBID_MEMCPY, CBID_GRAPH,
                                     CBID_SYNC, 1};
    int64_t start = BASE_NS + fake_below(state, 100000) - 100;
    correlate(l, kit_api(FP_CUPTI_RUNTIME, cbids[fake_below(state, 5)], corr,
                         start, start + fake_below(state, 200) - 10));
}

/* Counts the outstanding launches one by one. */
static uint64_t
count_outstanding(const fp_ledger *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->launches.capacity; i++) {
        const fp_launch *e = &l->launches.slot[i];
        n += e->occupied && (e->flags & FP_LAUNCH_GIVES) &&
             !(e->flags & FP_LAUNCH_HIT);
    }
    return n;
}

static void
check_timelines(const fp_ledger *l)
{
    for (uint32_t i = 0; i < l->timelines; i++) {
        const fp_timeline_sums *t = &l->timeline[i].whole;
        int64_t idle = 0;
        for (int k = 0; k < FP_TIMELINE_SECTIONS; k++) {
            idle += t->idle_ns[k];
        }
        CHECK_INT(t->wall_ns, t->busy_ns + idle);
    }
}

/* Returns the largest number of rows. */
static uint32_t
run_random(setting *s, uint64_t seed, int steps)
{
    uint32_t rows = 0;
    fp_ledger *l = &s->ledger;
    uint64_t state = seed;
    uint32_t became[40];
    for (int i = 0; i < steps; i++) {
        uint32_t what = fake_below(&state, 1000);
        if (what < 550) {
            random_record(l, &state);
        }
        else if (what < 980) {
            if (l->external && fake_below(&state, 4) != 0) {
                random_correlation(l, &state);
            }
            else {
                random_event(l, &state);
            }
        }
        else if (what < 990) {
            fp_ledger_settle(l);
        }
        else if (what < 997) {
            fp_ledger_age(l, BASE_NS + fake_below(&state, 100000),
                          fake_below(&state, 20) == 0);
        }
        else if (what < 999) {
            for (int k = 0; k < 40; k++) {
                became[k] = fake_below(&state, 40);
            }
            fp_ledger_rename(l, 1 + fake_below(&state, 4),
                             1 + fake_below(&state, 4), became, 40);
        }
        else if (fake_below(&state, 4) == 0) {
            fp_ledger_clear(l, fake_below(&state, 1000));
        }
        if (i % 64 == 0) {
            check_whole(l);
            check_timelines(l);
        }
        rows = l->sums.activity.count > rows ? l->sums.activity.count : rows;
    }
    check_whole(l);
    return rows;
}

FP_TEST(gpu_ledger_rows_always_add_up_to_the_total)
{
    setting s;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        fp_ledger *l = set_up(&s, seed % 2 != 0);
        CHECK(run_random(&s, seed, 6000) > 100);
        CHECK_UINT(l->outstanding, count_outstanding(l));
        CHECK_UINT(l->sums.dropped, 0);
        fp_ledger_age(l, BASE_NS + 200000, 1);
        CHECK_UINT(l->outstanding, 0);
        CHECK_UINT(l->parked_count, 0);
        tear_down(&s);
    }
}

FP_TEST(gpu_ledger_a_million_random_records_add_up)
{
#if defined(__SANITIZE_THREAD__) || defined(FP_TEST_UNDER_VALGRIND)
    enum { RECORDS = 100000 }; /* more take minutes and find no more errors */
#else
    enum { RECORDS = 1000000 };
#endif
    setting s;
    for (int external = 0; external < 2; external++) {
        fp_ledger *l = set_up(&s, external);
        uint64_t state = 42;
        for (int i = 0; i < RECORDS; i++) {
            if (external && i % 2 == 0) {
                random_correlation(l, &state);
            }
            else if (i % 2 == 0) {
                random_event(l, &state);
            }
            random_record(l, &state);
            if (i % 4096 == 0) {
                fp_ledger_settle(l);
                fp_ledger_age(l, BASE_NS, 0);
            }
        }
        fp_ledger_age(l, BASE_NS + 200000, 1);
        check_whole(l);
        check_timelines(l);
        CHECK(l->counters.records > RECORDS / 4);
        CHECK_UINT(l->parked_count, 0);
        CHECK_UINT(l->outstanding, 0);
        tear_down(&s);
    }
}

FP_TEST(gpu_ledger_f36_random_failures_leave_the_total_whole)
{
    setting s;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        fp_ledger *l = set_up(&s, seed % 2 != 0);
        s.memory.fail_one_in = 1 + seed / 2;
        s.memory.random_state = seed;
        (void)run_random(&s, seed + 100, 3000);
        s.memory.fail_one_in = 0;
        fp_ledger_age(l, BASE_NS + 200000, 1);
        CHECK_UINT(l->parked_count, 0);
        tear_down(&s);
    }
}

FP_TEST(gpu_ledger_f36_each_allocation)
{
    setting s;
    for (uint64_t at = 1; at < 60; at++) {
        fp_ledger *l = set_up(&s, at % 2 != 0);
        s.memory.takes = 0;
        s.memory.fail_at = at / 2 + 1;
        (void)run_random(&s, 7, 900);
        fp_ledger_age(l, BASE_NS + 200000, 1);
        tear_down(&s);
    }
    fake_memory memory = {.fail_at = 1};
    fp_alloc a = fake_alloc(&memory);
    CHECK_INT(fp_ledger_init(&s.ledger, &a, 2, 1.0), FP_ENOMEM);
    CHECK_UINT(memory.bytes, 0);
}
