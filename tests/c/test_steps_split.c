/* Divides the time of steps by kind; the ring of single steps. */
#include "core/path.h"
#include "core/steps_split.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"

#include "thread_kit.h"

enum { DATA = 1, FORWARD = 2, SYNC = 3 };

/* CPU time, switches and faults, set by the test. */
static int64_t
told_cpu(void *ctx)
{
    return ((const fp_usage *)ctx)->cpu_ns;
}

/* The delay set by the test, and how often it was read. */
static int64_t told_delay_ns;
static int told_delays;

static int64_t
told_delay(void *ctx)
{
    (void)ctx;
    told_delays++;
    return told_delay_ns;
}

static void
told_counts(void *ctx, fp_usage *out)
{
    out->switches = ((const fp_usage *)ctx)->switches;
    out->waits = ((const fp_usage *)ctx)->waits;
    out->faults = ((const fp_usage *)ctx)->faults;
}

static fp_usage_source
told(fp_usage *usage)
{
    return (fp_usage_source){told_cpu, told_counts, told_delay, usage};
}

/* A thread whose first step begins at [now]. */
static fp_thread *
stepping(fake_memory *m, uint64_t skip, fp_usage *usage, int64_t now)
{
    fp_alloc a = fake_alloc(m);
    fp_thread *t = fp_thread_create(&a, kit_wide, now);
    CHECK(t != NULL);
    CHECK_INT(fp_thread_start_steps(t, skip, now), FP_OK);
    CHECK(t->split != NULL);
    fp_split_set_usage(t, told(usage), NULL, now);
    return t;
}

static void
finish(fp_thread *t, const fake_memory *m)
{
    check_consistent(t);
    CHECK_UINT(fp_thread_bytes(t), m->bytes);
    fp_thread_destroy(t);
    CHECK_UINT(m->bytes, 0);
}

/* Enters a function that waits, as the extension does. */
static void
enter_wait(fp_thread *t, uint32_t function, fp_kind kind, int64_t now)
{
    fp_key key = kit_function(function);
    fp_node *n = fp_thread_predict(t, key);
    n = n != NULL ? n : fp_thread_find(t, key);
    if (n == NULL) {
        n = fp_thread_add(t, key);
        fp_thread_list_wait(t, n, kind);
    }
    n->calls++;
    fp_waits_enter(&t->waits, n);
    fp_thread_enter(t, n, now);
}

static void
open_data(fp_thread *t, int64_t now)
{
    CHECK_INT(fp_thread_reserve_section(t, DATA), FP_OK);
    t->section[DATA]->cover = FP_KIND_DATA;
    CHECK_INT(fp_thread_open_section(t, DATA, FP_PHASE_DATA, NULL, now),
              FP_OK);
}

static int64_t
of(const fp_thread *t, fp_kind kind)
{
    return t->split->measured.sum.kind[kind];
}

static int64_t
at_place(const fp_thread *t, const fp_node *n, fp_kind kind)
{
    for (uint32_t i = 0; i < FP_SPLIT_PLACES; i++) {
        const fp_split_place *p = &t->split->place[i];
        if (p->node == n && p->kind == kind) {
            return p->sum_ticks;
        }
    }
    return -1;
}

FP_TEST(series_has_communication_and_autograd_where_functions_were_seen)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    fp_split *s = t->split;
    s->signals = s->signals_before = FP_SIGNAL_FUNCTIONS;
    enter_wait(t, 1, FP_KIND_COMMUNICATION, 10);
    fp_thread_leave(t, kit_function(1), 40);
    enter_wait(t, 3, FP_KIND_AUTOGRAD, 50);
    kit_enter(t, kit_function(0), 60); /* a hook written in Python */
    fp_thread_leave(t, kit_function(0), 75);
    fp_thread_leave(t, kit_function(3), 90);
    fp_thread_end_step(t, 100);
    CHECK_INT(s->measured.series.row[0].communication, 30);
    CHECK_INT(s->measured.series.row[0].autograd, 25);
    s->signals = 0;
    fp_thread_end_step(t, 200);
    CHECK_INT(s->measured.series.row[1].communication, -1);
    CHECK_INT(s->measured.series.row[1].autograd, -1);
    finish(t, &m);
}

FP_TEST(split_each_tick_has_one_kind)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    open_data(t, 10);
    enter_wait(t, 1, FP_KIND_LOCK, 20); /* within data: data */
    fp_thread_leave(t, kit_function(1), 50);
    fp_thread_close_section(t, DATA, NULL, 0, 110); /* data: 100 */
    enter_wait(t, 3, FP_KIND_LOCK, 120);
    fp_thread_leave(t, kit_function(3), 150); /* lock: 30 */
    enter_wait(t, 5, FP_KIND_IO, 150);
    kit_enter(t, kit_function(0), 155); /* not part of the wait */
    fp_thread_leave(t, kit_function(0), 165);
    fp_thread_leave(t, kit_function(5), 170); /* io: 10 */
    fp_split_gc_begin(t, 170);
    fp_split_gc_end(t, 175, 2); /* gc: 5 */
    fp_split_gpu(t, 7);
    fp_thread_end_step(t, 200);
    CHECK_INT(of(t, FP_KIND_DATA), 100);
    CHECK_INT(of(t, FP_KIND_LOCK), 30);
    CHECK_INT(of(t, FP_KIND_IO), 10);
    CHECK_INT(of(t, FP_KIND_GC), 5);
    CHECK_INT(of(t, FP_KIND_GPU), 7);
    CHECK_INT(of(t, FP_KIND_COMMUNICATION), 0);
    CHECK_INT(t->split->measured.sum.covered_ticks, 100);
    CHECK_UINT(t->split->measured.sum.gc_runs[2], 1);
    CHECK_UINT(t->waits.count, 2);
    CHECK_INT(t->waits.wait[0].sum_ticks, 30);
    CHECK_INT(t->waits.wait[1].sum_ticks, 10);
    finish(t, &m);
}

FP_TEST(split_a_kind_takes_from_what_it_interrupts)
{
    fake_memory m = {0};
    fp_usage u = {1000, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    open_data(t, 0);
    const fp_node *data = t->cur;
    fp_split_gc_begin(t, 10);
    u.cpu_ns = 1020;
    fp_split_gc_end(t, 30, 0);
    fp_split_gpu(t, 5); /* it stays data */
    u.cpu_ns = 1050;
    fp_thread_close_section(t, DATA, NULL, 0, 100);
    enter_wait(t, 1, FP_KIND_LOCK, 100);
    const fp_node *lock = t->cur;
    fp_split_gc_begin(t, 110);
    fp_split_gc_begin(t, 115); /* ignored: reported twice */
    fp_split_gc_end(t, 120, 1);
    fp_split_gc_end(t, 125, 1); /* ignored: its begin was not reported */
    fp_split_gpu(t, 40);
    fp_thread_leave(t, kit_function(1), 200);
    fp_thread_end_step(t, 200);
    CHECK_INT(of(t, FP_KIND_DATA), 80);
    CHECK_INT(at_place(t, data, FP_KIND_DATA), 80);
    CHECK_INT(t->split->measured.sum.covered_cpu_ns, 30);
    CHECK_INT(of(t, FP_KIND_GC), 30);
    CHECK_INT(t->split->measured.sum.gc_cpu_ns, 20);
    CHECK_INT(at_place(t, data, FP_KIND_GC), 20);
    CHECK_INT(at_place(t, lock, FP_KIND_GC), 10);
    CHECK_INT(of(t, FP_KIND_GPU), 40);
    CHECK_INT(of(t, FP_KIND_LOCK), 50);
    CHECK_UINT(t->split->measured.sum.gc_runs[0], 1);
    CHECK_UINT(t->split->measured.sum.gc_runs[1], 1);
    finish(t, &m);
}

FP_TEST(split_of_sections_that_cover_the_outer_one_counts)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    CHECK_INT(fp_thread_reserve_section(t, SYNC), FP_OK);
    t->section[SYNC]->cover = FP_KIND_COMMUNICATION;
    kit_open(t, SYNC, 10);
    open_data(t, 20);
    fp_thread_close_section(t, DATA, NULL, 0, 30);
    kit_close(t, SYNC, 60);
    kit_open(t, FORWARD, 60);
    open_data(t, 70); /* in a section that does not cover */
    fp_thread_end_step(t, 80);
    CHECK_INT(of(t, FP_KIND_COMMUNICATION), 50);
    CHECK_INT(of(t, FP_KIND_DATA), 10);
    fp_thread_end_step(t, 90);
    CHECK_INT(of(t, FP_KIND_DATA), 20);
    fp_thread_drop_sections(t, 95);
    CHECK_UINT(t->split->covers, 0);
    fp_thread_end_step(t, 100);
    CHECK_INT(of(t, FP_KIND_DATA), 25);
    finish(t, &m);
}

FP_TEST(split_excludes_warm_up_and_dropped_steps)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 1, &u, 0);
    for (int64_t at = 0; at < 300; at += 100) {
        open_data(t, at);
        fp_thread_close_section(t, DATA, NULL, 0, at + 10);
        enter_wait(t, 1, FP_KIND_LOCK, at + 10);
        fp_thread_leave(t, kit_function(1), at + 30);
        fp_split_gc_begin(t, at + 30);
        fp_split_gc_end(t, at + 34, 0);
        if (at == 100) {
            CHECK_INT(fp_thread_start_steps(t, 1, at + 100), FP_OK);
        }
        else {
            fp_thread_end_step(t, at + 100);
        }
    }
    CHECK_UINT(t->steps->measured.count, 1);
    CHECK_INT(of(t, FP_KIND_DATA), 10);
    CHECK_INT(of(t, FP_KIND_LOCK), 20);
    CHECK_INT(of(t, FP_KIND_GC), 4);
    CHECK_UINT(t->split->measured.sum.gc_runs[0], 1);
    CHECK_INT(t->waits.wait[0].sum_ticks, 20);
    finish(t, &m);
}

FP_TEST(split_excludes_waits_before_the_first_step)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    enter_wait(t, 1, FP_KIND_LOCK, 0);
    fp_thread_leave(t, kit_function(1), 50);
    open_data(t, 50);
    CHECK_INT(fp_thread_start_steps(t, 0, 100), FP_OK);
    fp_split_set_usage(t, told(&u), NULL, 0);
    fp_thread_close_section(t, DATA, NULL, 0, 130);
    enter_wait(t, 1, FP_KIND_LOCK, 130);
    fp_thread_leave(t, kit_function(1), 131);
    fp_thread_end_step(t, 200);
    CHECK_INT(of(t, FP_KIND_DATA), 30);
    CHECK_INT(of(t, FP_KIND_LOCK), 1);
    finish(t, &m);
}

FP_TEST(split_counts_the_sources_that_observed_each_step)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 1, &u, 0);
    static const unsigned told_at[] = {0, FP_SIGNAL_GC, 7, 7,
                                       FP_SIGNAL_FUNCTIONS};
    for (int i = 0; i < 5; i++) {
        t->split->signals = told_at[i];
        fp_thread_end_step(t, 10 * i + 10);
    }
    /* A source observed a step if it was on at both ends. */
    CHECK_UINT(t->split->measured.signal_steps[0], 2);
    CHECK_UINT(t->split->measured.signal_steps[1], 2);
    CHECK_UINT(t->split->measured.signal_steps[2], 1);
    finish(t, &m);
}

FP_TEST(series_has_a_row_per_measured_step)
{
    fake_memory m = {0};
    fp_usage u = {100, 5, 0, 1};
    fp_thread *t = stepping(&m, 1, &u, 0);
    const fp_series *s = &t->split->measured.series;
    for (int64_t i = 0; i < FP_STEPS_RECENT + 10; i++) {
        int64_t at = i * 100;
        u.cpu_ns += i;
        u.switches += i % 3;
        u.faults += i % 2;
        if (i >= 20) { /* a later section */
            kit_open(t, FORWARD, at);
            kit_close(t, FORWARD, at + i % 7);
        }
        fp_thread_end_step(t, at + 100);
        if (i == 0) {
            continue;
        }
        uint32_t row = (uint32_t)((i - 1) % FP_STEPS_RECENT);
        CHECK_INT(s->row[row].start, at);
        CHECK_INT(s->row[row].cpu_ns, i);
        CHECK_INT(s->row[row].switches, i % 3);
        CHECK_INT(s->row[row].faults, i % 2);
        CHECK_INT(t->steps->measured.recent[row], 100);
        CHECK_UINT(s->columns, i >= 20);
        CHECK_INT(i >= 20 ? s->column[0].ticks[row] : 0, i >= 20 ? i % 7 : 0);
    }

    CHECK_UINT(t->split->measured.cpu_steps, FP_STEPS_RECENT + 9);
    finish(t, &m);
}

FP_TEST(series_marks_unknown_values)
{
    fake_memory m = {0};
    fp_usage u = {-1, -1, 0, 3};
    fp_thread *t = stepping(&m, 0, &u, 0);
    fp_thread_end_step(t, 100);
    CHECK_INT(t->split->measured.series.row[0].cpu_ns, -1);
    CHECK_INT(t->split->measured.series.row[0].switches, -1);
    CHECK_INT(t->split->measured.series.row[0].faults, 0);
    CHECK_UINT(t->split->measured.cpu_steps, 0);
    finish(t, &m);
}

FP_TEST(series_f32_sections_beyond_its_columns_are_counted)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    for (uint32_t id = 0; id < FP_SERIES_COLUMNS + 6; id++) {
        for (int again = 0; again < 2; again++) {
            kit_open(t, id, id);
            kit_close(t, id, id);
        }
    }
    fp_thread_end_step(t, 1000);
    CHECK_UINT(t->split->measured.series.columns, FP_SERIES_COLUMNS);
    CHECK_UINT(t->split->measured.series.left_out, 6);
    finish(t, &m);
}

FP_TEST(split_f36_without_memory_steps_are_still_counted)
{
    for (uint64_t fail = 1; fail < 12; fail++) {
        fake_memory m = {0};
        fp_alloc a = fake_alloc(&m);
        fp_thread *t = fp_thread_create(&a, kit_wide, 0);
        m.fail_at = m.takes + fail;
        m.fail_on = true;
        if (fp_thread_start_steps(t, 0, 0) == FP_OK) {
            enter_wait(t, 1, FP_KIND_LOCK, 10);
            fp_thread_leave_slow(t, kit_function(1), 20);
            (void)fp_thread_open_section(t, DATA, FP_PHASE_DATA, NULL, 20);
            (void)fp_thread_close_section(t, DATA, NULL, 0, 30);
            fp_thread_end_step(t, 100);
            CHECK_INT(t->steps->measured.sum_ticks, 100);
        }
        check_consistent(t);
        CHECK_UINT(fp_thread_bytes(t), m.bytes);
        fp_thread_destroy(t);
        CHECK_UINT(m.bytes, 0);
    }
}

FP_TEST(waits_f32_beyond_the_list_are_counted)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    for (uint32_t i = 0; i < FP_WAITS_MAX + 3; i++) {
        enter_wait(t, i, FP_KIND_IO, i);
        fp_thread_leave(t, kit_function(i), i + 1);
    }
    fp_thread_end_step(t, FP_WAITS_MAX + 3);
    CHECK_UINT(t->waits.count, FP_WAITS_MAX);
    CHECK_UINT(t->waits.left_out, 3);
    CHECK_INT(of(t, FP_KIND_IO), FP_WAITS_MAX);
    finish(t, &m);
}

FP_TEST(split_f34_a_clock_that_goes_back_takes_nothing_away)
{
    fake_memory m = {0};
    fp_usage u = {50, 9, 0, 9};
    fp_thread *t = stepping(&m, 0, &u, 1000);
    open_data(t, 900);
    u = (fp_usage){10, 3, 0, 3};
    fp_split_gc_begin(t, 800);
    fp_split_gc_end(t, 700, 0);
    fp_thread_close_section(t, DATA, NULL, 0, 600);
    enter_wait(t, 1, FP_KIND_LOCK, 500);
    fp_thread_leave(t, kit_function(1), 400);
    fp_split_gpu(t, -5);
    fp_thread_end_step(t, 300);
    for (int k = 0; k < FP_KIND_COUNT; k++) {
        CHECK_INT(of(t, (fp_kind)k), 0);
    }
    CHECK_INT(t->split->measured.series.row[0].cpu_ns, -1);
    CHECK_INT(t->split->measured.series.row[0].switches, -1);
    finish(t, &m);
}

FP_TEST(split_a_cover_that_another_thread_ends_had_no_cpu_time)
{
    fake_memory m = {0};
    fp_usage u = {1000, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    open_data(t, 0);
    u.cpu_ns = 1000000; /* of that thread */
    fp_thread_close_section(t, DATA, NULL, FP_EXIT_ELSEWHERE, 100);
    u.cpu_ns = 1040;
    open_data(t, 100);
    u.cpu_ns = 1060;
    fp_thread_close_section(t, DATA, NULL, 0, 200);
    fp_thread_end_step(t, 200);
    CHECK_INT(of(t, FP_KIND_DATA), 200);
    CHECK_INT(t->split->measured.sum.covered_cpu_ns, 20);
    finish(t, &m);
}

static int64_t
read_ticks(void *ctx)
{
    return *(const int64_t *)ctx;
}

/* A stepping thread whose readings are extrapolated by [clock], of [now] in
 * ns. */
static fp_thread *
extrapolating(fake_memory *m, fp_usage *u, fp_clock *clock, int64_t *now)
{
    fp_clock_init_reader(clock, read_ticks, now, 1e-9);
    fp_thread *t = stepping(m, 0, u, 0);
    fp_usage_meter *meter = &t->split->usage;
    meter->clock = clock;
    meter->ns_per_tick = 1;
    meter->near_ticks = meter->end_ticks = FP_USAGE_NEAR_NS;
    return t;
}

/* A reading is extrapolated as if the thread had the CPU. */
FP_TEST(split_a_short_data_section_that_waits_had_no_cpu_time)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    int64_t now = 0;
    fp_clock clock;
    fp_thread *t = extrapolating(&m, &u, &clock, &now);
    fp_usage_meter *meter = &t->split->usage;
    for (int step = 0; step < 10; step++) {
        now += 100;
        u.cpu_ns += 100;
        open_data(t, now);
        now += 15000;
        fp_thread_close_section(t, DATA, NULL, 0, now);
        now += 84900;
        u.cpu_ns += 84900;
        fp_thread_end_step(t, now);
    }
    CHECK_INT(of(t, FP_KIND_DATA), 150000);
    CHECK_INT(t->split->measured.sum.covered_cpu_ns, 0);
    CHECK_INT(t->split->measured.cpu_ns, u.cpu_ns);
    CHECK(meter->reckoned >= 10); /* at the begin of each */
    finish(t, &m);
}

/* A thread without the function hook, whose steps take 85 us after a data
 * section of 100 us.  The section waits if [waits].  Counts the readings of
 * the CPU time in the last 160 of 200 steps. */
static int64_t
readings_in_plain_steps(int waits, int64_t *covered_cpu_ns)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    int64_t now = 0;
    fp_clock clock;
    fp_thread *t = extrapolating(&m, &u, &clock, &now);
    fp_usage_meter *meter = &t->split->usage;
    CHECK_INT(fp_thread_begin_unprofiled(t, 0), FP_OK);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_UNPROFILED, now), FP_OK);
    int64_t readings = 0;
    for (int step = 0; step < 200; step++) {
        uint64_t reckoned = meter->reckoned;
        now += 1000;
        u.cpu_ns += 1000;
        open_data(t, now);
        now += 100000;
        u.cpu_ns += waits ? 0 : 100000;
        fp_thread_close_section(t, DATA, NULL, 0, now);
        now += 84000;
        u.cpu_ns += 84000;
        fp_thread_end_step(t, now);
        readings += step < 40 ? 0 : 3 - (int64_t)(meter->reckoned - reckoned);
    }
    *covered_cpu_ns = t->split->plain->sum.covered_cpu_ns;
    CHECK_INT(t->split->plain->sum.kind[FP_KIND_DATA], 200 * 100000);
    fp_thread_end_unprofiled(t, 1, now);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, now), FP_OK);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
    return readings;
}

FP_TEST(split_plain_steps_seldom_read_the_cpu_time_of_data_sections)
{
    int64_t cpu_ns;
    CHECK(readings_in_plain_steps(0, &cpu_ns) < 60); /* of 480 */
    CHECK_INT(cpu_ns, 200 * 100000);
    CHECK(readings_in_plain_steps(1, &cpu_ns) >= 160);
    CHECK(cpu_ns >= 0 && cpu_ns < 200000);
}

FP_TEST(split_a_collection_without_a_reported_end_is_dropped)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    fp_split_gc_begin(t, 10);
    fp_split_gc_forget(t);
    enter_wait(t, 1, FP_KIND_LOCK, 20);
    fp_thread_leave(t, kit_function(1), 50);
    fp_split_gc_end(t, 60, 0);
    fp_thread_end_step(t, 100);
    CHECK_INT(of(t, FP_KIND_GC), 0);
    CHECK_INT(of(t, FP_KIND_LOCK), 30);
    CHECK_UINT(t->split->measured.sum.gc_runs[0], 0);
    finish(t, &m);
}

FP_TEST(split_f8_a_collection_whose_hook_was_removed_takes_no_step)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    t->split->signals = FP_SIGNAL_GC;
    fp_split_gc_begin(t, 10);
    t->split->signals = 0;
    fp_thread_end_step(t, 100);
    enter_wait(t, 1, FP_KIND_LOCK, 120);
    fp_thread_leave(t, kit_function(1), 150);
    fp_thread_end_step(t, 200);
    CHECK_INT(of(t, FP_KIND_GC), 0);
    CHECK_INT(of(t, FP_KIND_LOCK), 30);
    finish(t, &m);
}

FP_TEST(split_f8_a_collection_is_part_of_two_steps_at_most)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    fp_thread *t = stepping(&m, 0, &u, 0);
    t->split->signals = FP_SIGNAL_GC;
    fp_split_gc_begin(t, 10);
    fp_thread_end_step(t, 100);
    fp_thread_end_step(t, 200); /* the hook was reinstalled after its end */
    enter_wait(t, 1, FP_KIND_LOCK, 220);
    fp_thread_leave(t, kit_function(1), 250);
    fp_thread_end_step(t, 300);
    CHECK_INT(of(t, FP_KIND_GC), 90);
    CHECK_INT(of(t, FP_KIND_LOCK), 30);
    fp_split_gc_begin(t, 310);
    fp_thread_end_step(t, 400);
    fp_split_gc_end(t, 405, 0);
    fp_thread_end_step(t, 500);
    CHECK_INT(of(t, FP_KIND_GC), 90 + 95);
    CHECK_UINT(t->split->measured.sum.gc_runs[0], 1);
    finish(t, &m);
}

/* Steps, waits, collections and covers at random: the kinds never exceed the
 * wall time, and no interval counts twice. */
FP_TEST(split_kinds_never_exceed_the_wall_time)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fake_memory m = {0};
        fp_usage u = {0, 0, 0, 0};
        fp_thread *t = stepping(&m, 2, &u, 0);
        uint64_t state = seed;
        int64_t now = 0;
        const fp_node *gc_node = NULL;
        for (int i = 0; i < 3000; i++) {
            now += fake_below(&state, 50);
            u.cpu_ns += fake_below(&state, 20);
            /* Functions that run in the collector are called from there
             * only. */
            uint32_t f = fake_below(&state, 6) * 2 + 1;
            f += gc_node != NULL ? 20 : 0;
            switch (fake_below(&state, 9)) {
            case 0:
                if (t->open_len < 4 && gc_node == NULL) {
                    open_data(t, now);
                }
                break;
            case 1:
                if (gc_node == NULL) {
                    (void)fp_thread_close_section(t, DATA, NULL, 0, now);
                }
                break;
            case 2:
            case 3:
                enter_wait(t, f, f % 4 == 1 ? FP_KIND_LOCK : FP_KIND_IO, now);
                break;
            case 4:
            case 5:
                if (t->cur != gc_node && fp_key_tag(t->cur->key) == FP_TAG_C) {
                    fp_thread_leave(t, t->cur->key, now);
                }
                break;
            case 6:
                if (gc_node == NULL) {
                    gc_node = t->cur;
                    fp_split_gc_begin(t, now);
                }
                else if (t->cur == gc_node) {
                    gc_node = NULL;
                    fp_split_gc_end(t, now, 0);
                }
                break;
            case 7:
                if (fake_below(&state, 20) == 0) {
                    CHECK_INT(fp_thread_start_steps(t, 2, now), FP_OK);
                }
                break;
            default:
                t->split->signals = fake_below(&state, 4) ? FP_SIGNAL_GC : 0;
                fp_thread_end_step(t, now);
            }
        }
        int64_t all = 0;
        for (int k = 0; k < FP_KIND_COUNT; k++) {
            CHECK(of(t, (fp_kind)k) >= 0);
            all += of(t, (fp_kind)k);
        }
        CHECK(all <= t->steps->measured.sum_ticks);
        finish(t, &m);
    }
}

/* ---- waiting for a CPU ---- */

/* A step in which the thread waits [before], [in] and [after] a data section. */
static void
step_with_delays(fp_thread *t, fp_usage *u, int64_t now, int64_t before,
                 int64_t in, int64_t after)
{
    u->switches += before + in + after > 0;
    told_delay_ns += before;
    open_data(t, now + 10);
    told_delay_ns += in;
    kit_close(t, DATA, now + 20);
    told_delay_ns += after;
    fp_thread_end_step(t, now + 100);
}

FP_TEST(split_separates_cpu_waits_of_a_step_and_its_data_section)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    told_delay_ns = 5;
    fp_thread *t = stepping(&m, 0, &u, 0);
    const fp_split *s = t->split;
    told_delays = 0;
    step_with_delays(t, &u, 0, 0, 0, 0);
    CHECK_INT(told_delays, 0); /* never off the CPU: not read */
    CHECK_INT(s->measured.sum.delay_ns, 0);
    step_with_delays(t, &u, 100, 1, 2, 4);
    CHECK_INT(told_delays, 1);
    CHECK_INT(s->measured.sum.delay_ns,
              7); /* the first such step is not divided */
    CHECK_INT(s->measured.sum.covered_delay_ns, 0);
    step_with_delays(t, &u, 200, 10, 20, 40);
    CHECK_INT(told_delays, 4);
    CHECK_INT(s->measured.sum.delay_ns, 57);
    CHECK_INT(s->measured.sum.covered_delay_ns, 20);
    step_with_delays(t, &u, 300, 0, 0, 0);
    step_with_delays(t, &u, 400, 0, 0, 0);
    CHECK_INT(told_delays, 6); /* the sections do not read it any more */
    CHECK_UINT(s->measured.delay_steps, 5);
    CHECK_INT(s->measured.series.row[1].delay_ns, 7);
    CHECK_INT(s->measured.series.row[2].delay_ns, 70);
    CHECK_INT(s->measured.series.row[4].delay_ns, 0);
    u.waits++; /* voluntarily; then others had the CPU */
    told_delay_ns += 100;
    fp_thread_end_step(t, 600);
    CHECK_INT(s->measured.sum.delay_ns, 157);
    finish(t, &m);
}

/* The wait for a CPU in the section [id], which is at the bottom. */
static int64_t
waited_in(const fp_thread *t, uint32_t id)
{
    for (uint32_t i = 0; i < FP_SPLIT_PLACES; i++) {
        const fp_split_place *p = &t->split->place[i];
        if (p->node != NULL && p->kind == FP_KIND_CPU &&
            p->node->key == fp_key_section(id)) {
            return p->sum_ticks;
        }
    }
    return 0;
}

FP_TEST(split_gives_each_section_its_wait_for_a_cpu)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    told_delay_ns = 5;
    fp_thread *t = stepping(&m, 0, &u, 0);
    const fp_split *s = t->split;
    for (int64_t now = 0; now < 300; now += 100) {
        u.switches++;
        told_delay_ns += 1; /* in no section */
        open_data(t, now + 10);
        told_delay_ns += 2;
        kit_close(t, DATA, now + 20);
        kit_open(t, FORWARD, now + 30);
        told_delay_ns += 4;
        kit_open(t, SYNC, now + 35); /* counts for the outermost section */
        told_delay_ns += 8;
        kit_close(t, SYNC, now + 40);
        told_delay_ns += 16;
        kit_close(t, FORWARD, now + 50);
        told_delay_ns += 32;
        fp_thread_end_step(t, now + 100);
    }
    CHECK_INT(s->measured.sum.delay_ns + s->measured.sum.covered_delay_ns,
              3 * 63);
    CHECK_INT(waited_in(t, DATA), 2 * 2); /* not in the first such step */
    CHECK_INT(waited_in(t, FORWARD), 2 * 28);
    CHECK_INT(s->measured.sum.kind[FP_KIND_CPU],
              2 * 63); /* the rest in no section */
    /* A section that is open across steps. */
    u.switches++;
    kit_open(t, FORWARD, 310);
    told_delay_ns += 100;
    fp_thread_end_step(t, 400);
    CHECK_INT(waited_in(t, FORWARD), 2 * 28 + 100);
    u.switches++;
    told_delay_ns += 1000;
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_VALIDATION, 450), FP_OK);
    told_delay_ns += 10000;
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, 460), FP_OK);
    kit_close(t, FORWARD, 470);
    fp_thread_end_step(t, 500);
    CHECK_INT(s->measured.sum.delay_ns + s->measured.sum.covered_delay_ns,
              3 * 63 + 1100);
    told_delay_ns = 0;
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(split_a_wait_before_the_pause_of_a_step_counts_for_it)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    told_delay_ns = 5;
    fp_thread *t = stepping(&m, 0, &u, 0);
    const fp_split *s = t->split;
    fp_thread_end_step(t, 100); /* never off the CPU */
    u.switches++;
    told_delay_ns += 10;
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_VALIDATION, 150), FP_OK);
    u.switches++;
    told_delay_ns += 1000;
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, 250), FP_OK);
    told_delay_ns += 20;
    fp_thread_end_step(t, 300);
    CHECK_INT(s->measured.sum.delay_ns, 30);
    told_delay_ns = 0;
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(split_an_unknown_delay_counts_as_none)
{
    fake_memory m = {0};
    fp_usage u = {0, 0, 0, 0};
    told_delay_ns = -1;
    fp_thread *t = stepping(&m, 0, &u, 0);
    const fp_split *s = t->split;
    step_with_delays(t, &u, 0, 0, 0, 0);
    CHECK_UINT(s->measured.delay_steps, 0);
    CHECK_INT(s->measured.series.row[0].delay_ns, -1);
    told_delay_ns = 50; /* known from now on */
    u.switches++;
    fp_thread_end_step(t, 200);
    told_delay_ns = 53;
    u.switches++;
    fp_thread_end_step(t, 300);
    CHECK_INT(s->measured.sum.delay_ns, 3);
    told_delay_ns = -1; /* unknown again, also for the time in between */
    u.switches++;
    fp_thread_end_step(t, 400);
    told_delay_ns = 90;
    u.switches++;
    fp_thread_end_step(t, 500);
    CHECK_INT(s->measured.sum.delay_ns, 3);
    CHECK_INT(s->measured.series.row[3].delay_ns, -1);
    told_delay_ns = 0;
    finish(t, &m);
}
