/* The limits: deep, wide, long, and far beyond 32 bits. */
#include "thread_kit.h"

#include "core/path.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"

enum { ENTRIES = 10000000, LONG_STEPS = 1000000 };
enum { OUTER = 8, RECURSIVE = 9, DEEP = 100000 };

static fp_thread *
capped_thread(fake_memory *m, uint32_t max_nodes, uint32_t max_depth)
{
    fp_alloc a = fake_alloc(m);
    fp_limits limits = {max_nodes, max_depth};
    fp_thread *t = fp_thread_create(&a, limits, 0);
    CHECK(t != NULL);
    return t;
}

static void
recurse(uint32_t max_depth)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000000, max_depth);
    int64_t now = 0;
    for (int i = 0; i < DEEP; i++) {
        kit_enter(t, kit_function(RECURSIVE), ++now);
    }
    CHECK_UINT(kit_path(t, NULL, 0), DEEP);
    for (int i = 0; i < DEEP; i++) {
        now += 2;
        fp_thread_leave(t, kit_function(RECURSIVE), now);
    }
    CHECK(t->cur == fp_tree_root(&t->tree));
    kit_sums sums = kit_sum(t, kit_function(RECURSIVE));
    CHECK_UINT(sums.calls, DEEP);
    CHECK_INT(sums.self_ticks, now - 1);
    CHECK_UINT(t->counters.truncated, DEEP - (max_depth - 1));
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    CHECK_UINT(t->counters.dropped, 0);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(limits_f29_recursion_100000_deep_is_exact)
{
    recurse(1024);
    recurse(60000);
    recurse(1);
}

FP_TEST(limits_f29_a_deep_stack_unwound_at_once_is_exact)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000000, 1024);
    kit_enter(t, kit_function(OUTER), 0);
    for (int64_t i = 0; i < DEEP; i++) {
        kit_enter(t, kit_function(RECURSIVE), 1 + i);
    }
    fp_thread_leave(t, kit_function(OUTER), DEEP + 10);
    CHECK(t->cur == fp_tree_root(&t->tree));
    CHECK_UINT(t->counters.unbalanced, DEEP);
    CHECK_UINT(kit_sum(t, kit_function(RECURSIVE)).calls, DEEP);
    check_complete(t, &m, DEEP + 10);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(limits_f31_a_million_functions_in_100_bytes_each)
{
    enum { COUNT = 1000000 };
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 2 * COUNT, 1024);
    int64_t now = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        kit_enter(t, kit_function(i), ++now);
        fp_thread_leave(t, kit_function(i), ++now);
        if (i % 512 == 0) {
            CHECK(m.bytes <= 100 * ((size_t)i + 1) + (1 << 20));
        }
    }
    CHECK(m.peak_bytes <= 100 * (size_t)COUNT + (1 << 20));
    CHECK_UINT(fp_thread_bytes(t), m.bytes);
    CHECK_UINT(t->tree.count, COUNT + 2);
    uint64_t takes = m.takes;
    for (uint32_t i = 0; i < COUNT; i++) {
        /* In the learned order: no search. */
        CHECK(i == 0 || fp_thread_predict(t, kit_function(i)) != NULL);
        fp_node *n = kit_enter(t, kit_function(i), ++now);
        CHECK_UINT(n->calls, 2);
        fp_thread_leave(t, kit_function(i), ++now);
        CHECK_INT(n->self_ticks, 2);
    }
    CHECK_UINT(m.takes, takes);
    CHECK_INT(kit_sum(t, 0).self_ticks, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(limits_the_node_cap_keeps_sums_and_most_names)
{
    enum { CAP = 100, COUNT = 1000 };
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, CAP, 1024);
    int64_t now = 0;
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            kit_enter(t, kit_function(i), ++now);
            kit_enter(t, kit_function(i + 1), ++now);
            fp_thread_leave(t, kit_function(i + 1), ++now);
            fp_thread_leave(t, kit_function(i), ++now);
            CHECK(t->cur == fp_tree_root(&t->tree));
        }
    }
    CHECK(t->tree.count <= 2 * CAP);
    CHECK_UINT(kit_sum(t, 0).calls, 3 * 2 * COUNT);
    CHECK_UINT(kit_sum(t, kit_function(1)).calls, 3 * 2);
    CHECK(fp_tree_truncated(&t->tree)->calls > 0);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* Without room for its name a section is still timed, and closing it takes no
 * other element off the path. */
FP_TEST(limits_sections_beyond_twice_the_node_cap_are_still_timed)
{
    enum { CAP = 8 };
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, CAP, 1024);
    int64_t now = 0;
    kit_open(t, 0, ++now);
    for (uint32_t i = 0; i < 3 * CAP; i++) {
        kit_enter(t, kit_function(i), ++now);
        fp_thread_leave(t, kit_function(i), ++now);
    }
    CHECK_UINT(t->tree.count, 2 * CAP);
    const fp_node *inside = t->cur;
    kit_open(t, 1, ++now);
    kit_open(t, 2, ++now);
    check_complete(t, &m, now - 2); /* not charged yet */
    kit_close(t, 2, ++now);
    CHECK(t->cur == inside);
    kit_enter(t, kit_function(90), ++now); /* its name is lost */
    kit_close(t, 1, ++now);
    CHECK_UINT(kit_path(t, NULL, 0), 2);
    kit_close(t, 0, ++now); /* below a call without a name */
    CHECK_UINT(kit_path(t, NULL, 0), 1);
    check_consistent(t);
    fp_thread_leave(t, kit_function(90), ++now);
    CHECK(t->cur == fp_tree_root(&t->tree));
    CHECK_UINT(t->section[1]->count, 1);
    CHECK_INT(t->section[1]->sum_ticks, 4);
    CHECK_INT(t->section[2]->sum_ticks, 1);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    CHECK_UINT(t->counters.dropped, 0);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(limits_f35_times_are_exact_near_the_end_of_the_range)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000, 100);
    fp_node *f = kit_enter(t, kit_function(0), 10);
    kit_open(t, 0, 11);
    kit_close(t, 0, INT64_MAX - 5);
    fp_thread_leave(t, kit_function(0), INT64_MAX - 2);
    fp_thread_charge(t, INT64_MAX);
    CHECK_INT(f->self_ticks, 1 + 3);
    CHECK_INT(t->section[0]->sum_ticks, INT64_MAX - 5 - 11);
    CHECK_INT(t->section[0]->max_ticks, INT64_MAX - 5 - 11);
    CHECK_UINT(fp_hist_rows(&t->section[0]->hist, NULL, 0), 1);
    check_complete(t, &m, INT64_MAX);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* An external timer may return any value.  Nothing may be undefined (the
 * sanitizers check), and a jump back over the whole range still goes back. */
FP_TEST(limits_f35_a_timer_that_leaps_over_the_whole_range_is_survived)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000, 100);
    for (int i = 0; i < 10; i++) {
        kit_enter(t, kit_function(0), INT64_MAX);
        fp_thread_leave(t, kit_function(0), INT64_MIN + 1);
    }
    CHECK_UINT(t->counters.clock_back, 10);
    CHECK_UINT(kit_sum(t, 0).calls, 10);
    kit_check_path(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(limits_f35_counts_go_past_32_bits)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000, 100);
    fp_thread *sum = capped_thread(&m, 1000, 100);
    const uint64_t past = (uint64_t)1 << 32;
    fp_node *f = kit_enter(t, kit_function(0), 1);
    f->calls = UINT32_MAX;
    f->resumes = UINT32_MAX;
    kit_enter(t, kit_function(0), 2);
    fp_thread_leave(t, kit_function(0), 2);
    fp_thread_leave(t, kit_function(0), 2);
    CHECK(kit_enter(t, kit_function(0), 2) == f);
    CHECK_UINT(f->calls, past);
    fp_thread_leave(t, kit_function(0), 3);
    f->self_ticks = ((int64_t)1 << 53) + 1;
    kit_open(t, 0, 4);
    t->section[0]->count = UINT32_MAX;
    kit_close(t, 0, 5);
    CHECK_UINT(t->section[0]->count, past);
    t->counters.unmatched = UINT32_MAX;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fp_thread_merge(sum, t, NULL), FP_OK);
    }
    const fp_node *g =
        fp_tree_find(&sum->tree, fp_tree_root(&sum->tree), kit_function(0));
    CHECK_UINT(g->calls, 3 * past);
    CHECK_UINT(g->resumes, 3 * (uint64_t)UINT32_MAX);
    CHECK_INT(g->self_ticks, 3 * (((int64_t)1 << 53) + 1));
    CHECK_UINT(sum->section[0]->count, 3 * past);
    CHECK_UINT(sum->counters.unmatched, 3 * (uint64_t)UINT32_MAX);
    fp_thread_destroy(t);
    fp_thread_destroy(sum);
    CHECK_UINT(m.bytes, 0);
}

/* One step of a training loop with everything in it. */
static int64_t
training_step(fp_thread *t, int64_t now)
{
    fp_phases_ask(&t->phases, 0, now);
    for (uint32_t id = 0; id < 4; id++) {
        fp_phase phase = (fp_phase)(FP_PHASE_DATA + id);
        CHECK_INT(fp_thread_open_section(t, id, phase, NULL, now), FP_OK);
        kit_enter(t, kit_function(id), now + 10);
        kit_open(t, 5, now + 20);
        fp_thread_leave(t, kit_function(id), now + 30); /* yields */
        kit_close(t, 5, now + 40);
        kit_enter(t, kit_function(20), now + 50);
        kit_close(t, id, now + 1000 + (now & 1023));
        fp_thread_leave(t, kit_function(20), now + 2100);
        now += 2200;
        if (id == 0) {
            fp_phases_deliver(&t->phases, 0, now);
        }
    }
    fp_thread_end_step(t, now);
    return now;
}

FP_TEST(limits_memory_is_constant_over_a_million_steps)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000000, 1024);
    CHECK_INT(fp_phases_reserve(&t->phases, &t->alloc, 0), FP_OK);
    t->phases.tag = 0;
    CHECK_INT(fp_thread_start_steps(t, 3, 0), FP_OK);
    int64_t now = 0;
    for (int i = 0; i < 100; i++) {
        now = training_step(t, now);
    }
    uint64_t takes = m.takes;
    size_t bytes = m.bytes;
    for (int i = 100; i < LONG_STEPS; i++) {
        now = training_step(t, now);
    }
    CHECK_UINT(m.takes, takes);
    CHECK_UINT(m.bytes, bytes);
    CHECK_UINT(t->steps->count, LONG_STEPS);
    CHECK_UINT(t->section[5]->count, 4 * (uint64_t)LONG_STEPS);
    CHECK_UINT(t->section[5]->steps, 0); /* never at the bottom */
    CHECK_UINT(t->section[0]->steps, LONG_STEPS - 3);
    CHECK_UINT(t->phases.loader[1].total[FP_PHASE_BATCH_WAIT].count,
               LONG_STEPS - 1);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    fp_thread_charge(t, now);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(limits_f32_ten_million_section_entries_allocate_nothing)
{
    fake_memory m = {0};
    fp_thread *t = capped_thread(&m, 1000000, 1024);
    int64_t now = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        kit_open(t, i % 3, now);
        now += 100 + (i & 63);
        kit_close(t, i % 3, now);
    }
    uint64_t takes = m.takes;
    size_t bytes = m.bytes;
    for (uint32_t i = 1000; i < ENTRIES; i++) {
        kit_open(t, i % 3, now);
        now += 100 + (i & 63);
        kit_close(t, i % 3, now);
    }
    CHECK_UINT(m.takes, takes);
    CHECK_UINT(m.bytes, bytes);
    uint64_t count = 0;
    int64_t sum = 0;
    for (uint32_t id = 0; id < 3; id++) {
        count += t->section[id]->count;
        sum += t->section[id]->sum_ticks;
    }
    CHECK_UINT(count, ENTRIES);
    CHECK_INT(sum, now);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}
