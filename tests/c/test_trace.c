#include "core/path.h"
#include "core/thread_sections.h"
#include "core/trace.h"
#include "thread_kit.h"

enum { F = 0, G = 2, MANY = 100000 };

typedef struct traced {
    fake_memory memory;
    fp_alloc alloc;
    fp_trace_log log;
    fp_thread *t;
} traced;

static void
begin_limited(traced *x, uint64_t max_events, int64_t min_ticks,
              fp_limits limits)
{
    *x = (traced){.memory = {0}};
    x->alloc = fake_alloc(&x->memory);
    fp_trace_log_init(&x->log, &x->alloc, max_events, min_ticks);
    x->t = fp_thread_create(&x->alloc, limits, 0);
    x->t->serial = 1;
}

static void
begin(traced *x, uint64_t max_events, int64_t min_ticks)
{
    begin_limited(x, max_events, min_ticks, kit_wide);
}

static void
end(traced *x)
{
    fp_thread_destroy(x->t);
    fp_trace_log_fini(&x->log);
    CHECK_UINT(x->memory.bytes, 0);
}

static void
open_window(traced *x, int64_t now)
{
    CHECK_INT(fp_trace_open(&x->log, now, 0, 0), FP_OK);
}

static void
close_window(traced *x, int64_t now)
{
    fp_trace_end(&x->log, x->t, now);
    fp_trace_close(&x->log, now);
}

static void
enter(traced *x, uint32_t f, int64_t now)
{
    fp_trace_begin(&x->log, x->t);
    kit_enter(x->t, kit_function(f), now);
    fp_trace_moved(&x->log, x->t, now);
}

static void
leave(traced *x, uint32_t f, int64_t now)
{
    fp_trace_begin(&x->log, x->t);
    fp_thread_leave(x->t, kit_function(f), now);
    fp_trace_moved(&x->log, x->t, now);
}

static void
open_section(traced *x, uint32_t id, int64_t now)
{
    fp_trace_begin(&x->log, x->t);
    kit_open(x->t, id, now);
    fp_trace_moved(&x->log, x->t, now);
}

static void
close_section(traced *x, uint32_t id, int64_t now)
{
    fp_trace_begin(&x->log, x->t);
    kit_close(x->t, id, now);
    fp_trace_moved(&x->log, x->t, now);
}

static const fp_trace_event *
event(const traced *x, uint64_t i)
{
    CHECK(i < fp_ring_count(&x->log.events));
    return fp_ring_at(&x->log.events, i);
}

static void
check_event(const traced *x, uint64_t i, fp_key key, int64_t start,
            int64_t stop)
{
    const fp_trace_event *e = event(x, i);
    CHECK_UINT(e->key, key);
    CHECK_INT(e->start, start);
    CHECK_INT(e->end, stop);
    CHECK_UINT(e->thread, 1);
}

/* Checks that of two events one contains the other, or they do not overlap. */
static void
check_nested(const traced *x)
{
    uint64_t n = fp_ring_count(&x->log.events);
    for (uint64_t i = 0; i < n; i++) {
        const fp_trace_event *e = event(x, i);
        CHECK(e->end >= e->start);
        for (uint64_t j = i + 1; j < n; j++) {
            const fp_trace_event *later = event(x, j);
            CHECK(later->end >= e->end);
            CHECK(later->start >= e->end || later->start <= e->start);
        }
    }
}

FP_TEST(trace_records_calls_and_sections_with_their_times)
{
    traced x;
    begin(&x, MANY, 10);
    open_window(&x, 5);
    enter(&x, F, 10);
    open_section(&x, 3, 12);
    enter(&x, G, 15);
    leave(&x, G, 20); /* brief */
    enter(&x, G, 21);
    leave(&x, G, 31);
    close_section(&x, 3, 33);
    leave(&x, F, 40);
    open_section(&x, 4, 41);
    close_section(&x, 4, 41); /* sections are always kept */
    close_window(&x, 50);
    CHECK_UINT(fp_ring_count(&x.log.events), 4);
    check_event(&x, 0, kit_function(G), 21, 31);
    check_event(&x, 1, fp_key_section(3), 12, 33);
    check_event(&x, 2, kit_function(F), 10, 40);
    check_event(&x, 3, fp_key_section(4), 41, 41);
    CHECK_UINT(x.log.brief, 1);
    CHECK_UINT(x.log.kept, 4);
    CHECK_INT(x.log.windows[0].start, 5);
    CHECK_INT(x.log.windows[0].end, 50);
    end(&x);
}

FP_TEST(trace_open_calls_are_cut_at_the_window)
{
    traced x;
    begin(&x, MANY, 0);
    kit_enter(x.t, kit_function(F), 10);
    kit_open(x.t, 1, 11);
    open_window(&x, 100);
    enter(&x, G, 120);
    close_window(&x, 200);
    leave(&x, G, 250); /* not called between windows */
    x.t->trace->window = 0;
    open_window(&x, 300);
    close_window(&x, 310); /* a thread without calls in it */
    CHECK_UINT(fp_ring_count(&x.log.events), 5);
    check_event(&x, 0, kit_function(G), 120, 200);
    check_event(&x, 1, fp_key_section(1), 100, 200);
    check_event(&x, 2, kit_function(F), 100, 200);
    check_event(&x, 3, fp_key_section(1), 300, 310);
    check_event(&x, 4, kit_function(F), 300, 310);
    end(&x);
}

FP_TEST(trace_a_section_that_outlives_its_frame_becomes_two_events)
{
    traced x;
    begin(&x, MANY, 0);
    open_window(&x, 0);
    enter(&x, F, 10); /* a generator */
    open_section(&x, 7, 12);
    leave(&x, F, 20); /* yields inside the section */
    close_section(&x, 7, 30);
    close_window(&x, 40);
    CHECK_UINT(fp_ring_count(&x.log.events), 3);
    check_event(&x, 0, fp_key_section(7), 12, 20);
    check_event(&x, 1, kit_function(F), 10, 20);
    check_event(&x, 2, fp_key_section(7), 20, 30);
    end(&x);
}

FP_TEST(trace_f1_calls_closed_with_their_caller_end_with_it)
{
    traced x;
    begin(&x, MANY, 0);
    open_window(&x, 0);
    enter(&x, F, 10);
    enter(&x, G, 20);
    enter(&x, G, 30);
    leave(&x, F, 40); /* an exception that was not reported */
    leave(&x, G, 50); /* never entered */
    close_window(&x, 60);
    CHECK_UINT(fp_ring_count(&x.log.events), 3);
    check_event(&x, 0, kit_function(G), 30, 40);
    check_event(&x, 1, kit_function(G), 20, 40);
    check_event(&x, 2, kit_function(F), 10, 40);
    end(&x);
}

FP_TEST(trace_s0_steps_begin_with_the_window_at_the_earliest)
{
    traced x;
    begin(&x, MANY, 1000);
    open_window(&x, 100);
    fp_trace_step(&x.log, x.t, 8, 50, 120);
    fp_trace_step(&x.log, x.t, 9, 120, 90); /* F34 */
    close_window(&x, 200);
    check_event(&x, 0, (fp_key)(8 << 3 | FP_TAG_STEP), 100, 120);
    check_event(&x, 1, (fp_key)(9 << 3 | FP_TAG_STEP), 120, 120);
    end(&x);
}

FP_TEST(trace_f34_a_clock_that_goes_back_leaves_events_nested)
{
    traced x;
    begin(&x, MANY, 0);
    open_window(&x, 100);
    enter(&x, F, 200);
    enter(&x, G, 150);
    leave(&x, G, 210);
    enter(&x, G, 50);
    leave(&x, G, 60);
    leave(&x, F, 70);
    close_window(&x, 80);
    check_nested(&x);
    check_event(&x, 0, kit_function(G), 200, 210);
    check_event(&x, 1, kit_function(G), 210, 210);
    check_event(&x, 2, kit_function(F), 200, 210);
    end(&x);
}

FP_TEST(trace_f32_a_full_ring_counts_lost_events_and_their_last_end)
{
    traced x;
    begin(&x, 300, 0);
    open_window(&x, 0);
    for (int64_t i = 0; i < 1000; i++) {
        enter(&x, F, i * 10);
        leave(&x, F, i * 10 + 4);
    }
    close_window(&x, 10000);
    CHECK_UINT(fp_ring_count(&x.log.events), 300);
    CHECK_UINT(x.log.kept, 1000);
    CHECK_UINT(x.log.lost, 700);
    CHECK_INT(x.log.lost_until, 699 * 10 + 4);
    check_event(&x, 0, kit_function(F), 7000, 7004);
    end(&x);
}

FP_TEST(trace_f32_of_many_windows_the_last_are_known)
{
    traced x;
    begin(&x, MANY, 0);
    for (int64_t i = 0; i < FP_TRACE_WINDOWS + 10; i++) {
        open_window(&x, i * 100);
        close_window(&x, i * 100 + 50);
    }
    CHECK_UINT(x.log.window_count, FP_TRACE_WINDOWS);
    CHECK_UINT(x.log.old_windows, 10);
    CHECK_INT(x.log.windows[0].start, 1000);
    CHECK_INT(x.log.windows[FP_TRACE_WINDOWS - 1].end,
              (FP_TRACE_WINDOWS + 9) * 100 + 50);
    end(&x);
}

FP_TEST(trace_calls_beyond_the_depth_cap_are_not_recorded)
{
    traced x;
    begin_limited(&x, MANY, 0, (fp_limits){1000, 4});
    open_window(&x, 0);
    for (int i = 0; i < 10; i++) {
        enter(&x, F, i * 10);
    }
    for (int i = 0; i < 10; i++) {
        leave(&x, F, 100 + i * 10);
    }
    close_window(&x, 300);
    CHECK_UINT(fp_ring_count(&x.log.events), 3);
    check_event(&x, 2, kit_function(F), 0, 190);
    check_nested(&x);
    end(&x);
}

FP_TEST(trace_f15_threads_that_ended_keep_their_names)
{
    traced x;
    begin(&x, MANY, 0);
    x.t->ident = 77;
    x.t->native = 88;
    open_window(&x, 0);
    enter(&x, F, 1);
    fp_trace_end(&x.log, x.t, 5);
    fp_trace_forget(&x.log, x.t);
    fp_trace_close(&x.log, 9);
    CHECK_UINT(x.log.labels, 1);
    CHECK_UINT(x.log.label[0].ident, 77);
    CHECK_UINT(x.log.label[0].native, 88);
    check_event(&x, 0, kit_function(F), 1, 5);
    end(&x);
}

FP_TEST(trace_clear_within_a_window_restarts_it)
{
    traced x;
    begin(&x, MANY, 0);
    open_window(&x, 0);
    enter(&x, F, 10);
    enter(&x, G, 20);
    leave(&x, G, 30);
    fp_trace_log_clear(&x.log, 40, 4711);
    CHECK_UINT(fp_ring_count(&x.log.events), 0);
    leave(&x, F, 50);
    close_window(&x, 60);
    CHECK_UINT(fp_ring_count(&x.log.events), 1);
    check_event(&x, 0, kit_function(F), 40, 50);
    CHECK_UINT(x.log.window_count, 1);
    CHECK_INT(x.log.windows[0].wall_ns, 4711);
    end(&x);
}

static int64_t
inclusive(const fp_thread *t, const fp_node *of)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < t->tree.count; i++) {
        const fp_node *n = fp_tree_node(&t->tree, i);
        for (const fp_node *up = n; up != NULL; up = up->parent) {
            if (up == of) {
                sum += n->self_ticks;
                break;
            }
        }
    }
    return sum;
}

/* The events of a key add up to its time in the tree. */
static void
check_adds_up(const traced *x, fp_key key)
{
    int64_t told = 0, known = 0;
    for (uint64_t i = 0; i < fp_ring_count(&x->log.events); i++) {
        const fp_trace_event *e = event(x, i);
        told += e->key == key ? e->end - e->start : 0;
    }
    for (uint32_t i = 0; i < x->t->tree.count; i++) {
        const fp_node *n = fp_tree_node(&x->t->tree, i);
        known += n->key == key ? inclusive(x->t, n) : 0;
    }
    CHECK_INT(told, known);
}

static void
random_move(traced *x, uint64_t *state, int64_t now)
{
    uint32_t f = fake_below(state, 4), id = fake_below(state, 3);
    switch (fake_below(state, 5)) {
    case 0:
    case 1:
        enter(x, f, now);
        break;
    case 2: /* any of them: most do not pair */
        leave(x, f, now);
        break;
    case 3:
        if (x->t->open_len < 6) {
            open_section(x, id, now);
        }
        break;
    default:
        if (fp_thread_has_open_section(x->t, id)) {
            close_section(x, id, now);
        }
    }
}

FP_TEST(trace_events_are_always_nested_and_add_up)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        traced x;
        uint64_t state = seed;
        begin(&x, MANY, 0);
        open_window(&x, 0);
        int64_t now = 0;
        for (int i = 0; i < 400; i++) {
            now += fake_below(&state, 20);
            random_move(&x, &state, now);
            check_consistent(x.t);
        }
        fp_thread_charge(x.t, now);
        close_window(&x, now);
        check_nested(&x);
        for (uint32_t f = 0; f < 4; f++) {
            check_adds_up(&x, kit_function(f));
        }
        for (uint32_t id = 0; id < 3; id++) {
            check_adds_up(&x, fp_key_section(id));
        }
        end(&x);
    }
}

FP_TEST(trace_f36_random_failures_cost_events_only)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        traced x;
        uint64_t state = seed;
        begin(&x, 500, 0);
        x.memory.random_state = seed;
        int64_t now = 0;
        for (int i = 0; i < 300; i++) {
            now += fake_below(&state, 20);
            x.memory.fail_one_in = 0;
            fp_thread_reserve_section(x.t, 2);
            x.memory.fail_one_in = 2;
            if (!x.log.is_open) {
                (void)fp_trace_open(&x.log, now, 0, 0);
                continue;
            }
            fp_trace_begin(&x.log, x.t);
            fp_key key = kit_function(fake_below(&state, 100));
            x.memory.fail_one_in = 0;
            fp_node *n = kit_enter(x.t, key, now);
            x.memory.fail_one_in = 2;
            fp_trace_moved(&x.log, x.t, now);
            if (i % 3 == 0) {
                fp_thread_leave(x.t, n->key, now + 1);
                fp_trace_moved(&x.log, x.t, now + 1);
            }
        }
        if (x.log.is_open) {
            close_window(&x, now + 5);
        }
        check_nested(&x);
        x.memory.fail_one_in = 0;
        end(&x);
    }
}
