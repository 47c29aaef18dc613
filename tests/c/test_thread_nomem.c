/* F36: a failing allocation costs data, never consistency. */
#include "thread_kit.h"

#include "core/path.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"

/* More elements than the first capacity of each array of a thread. */
enum { PILE = 150, SECTIONS = 40 };

static void
ok_or_nomem(fp_status status)
{
    CHECK(status == FP_OK || status == FP_ENOMEM);
}

static void
open_any(fp_thread *t, uint32_t id, fp_phase phase, int64_t now)
{
    uint32_t open = t->open_len;
    uint64_t dropped = t->counters.dropped;
    fp_status status = fp_thread_open_section(t, id, phase, NULL, now);
    ok_or_nomem(status);
    if (status == FP_OK) {
        CHECK_UINT(t->open_len, open + 1);
    }
    else {
        CHECK_UINT(t->open_len, open);
        CHECK_UINT(t->counters.dropped, dropped + 1);
    }
}

static void
close_any(fp_thread *t, uint32_t id, int64_t now)
{
    int was_open = fp_thread_has_open_section(t, id);
    CHECK_INT(fp_thread_close_section(t, id, NULL, 0, now),
              was_open ? FP_OK : FP_ENOTFOUND);
}

/* Uses every feature of a thread, so that each of its allocations happens. */
static int64_t
program(fp_thread *t, int64_t now)
{
    ok_or_nomem(fp_thread_reserve_section(t, 1));
    ok_or_nomem(fp_phases_reserve(&t->phases, &t->alloc, 9));
    if (t->steps == NULL) {
        ok_or_nomem(fp_thread_start_steps(t, 0, now));
    }
    open_any(t, 0, FP_PHASE_FORWARD, ++now);
    for (uint32_t i = 0; i < PILE; i++) {
        kit_enter(t, kit_function(i), now += 7);
        if (i % 8 == 0) {
            open_any(t, 1 + i / 8, FP_PHASE_NONE, now += 7);
        }
    }
    check_consistent(t);
    fp_phases_ask(&t->phases, 9, now);
    fp_phases_deliver(&t->phases, 9, now);
    close_any(t, 0, now += 70000); /* below everything */
    check_consistent(t);
    for (uint32_t i = PILE; i-- > PILE / 2;) {
        fp_thread_leave(t, kit_function(i), now += 7);
    }
    check_consistent(t);
    open_any(t, SECTIONS - 1, FP_PHASE_DATA, ++now);
    fp_thread_leave(t, kit_function(PILE / 4), now += 7); /* yields */
    close_any(t, 3, now += 1000000);
    check_consistent(t);
    fp_thread_drop_functions(t, ++now);
    check_consistent(t);
    if (t->steps != NULL) {
        fp_thread_end_step(t, now);
    }
    for (uint32_t i = 0; i < PILE; i++) {
        kit_enter(t, kit_function(3 * i), now += 7);
    }
    fp_thread_drop_sections(t, ++now);
    check_consistent(t);
    fp_thread_drop_functions(t, ++now);
    if (t->steps != NULL) {
        fp_thread_end_step(t, now);
    }
    fp_thread_charge(t, now);
    return now;
}

/* After a shortage the thread works as before. */
static int64_t
works_again(fp_thread *t, int64_t now)
{
    CHECK(t->cur == fp_tree_root(&t->tree));
    CHECK_UINT(t->open_len, 0);
    uint64_t count = t->section_capacity > 2 && t->section[2] != NULL
                         ? t->section[2]->count
                         : 0;
    uint64_t dropped = t->counters.dropped;
    fp_node *f = kit_enter(t, kit_function(1000), ++now);
    int64_t self = f->self_ticks;
    kit_open(t, 2, now += 10);
    /* Beyond twice the node cap a section's time stays with its caller. */
    int64_t inside = t->open[0].on_path ? 0 : 10;
    CHECK(inside == 0 || t->tree.count >= t->limits.max_nodes * 2);
    kit_close(t, 2, now += 10);
    fp_thread_leave(t, kit_function(1000), now += 10);
    CHECK_INT(f->self_ticks, self + 20 + inside);
    CHECK_UINT(t->section[2]->count, count + 1);
    CHECK_UINT(t->counters.dropped, dropped);
    CHECK(t->cur == fp_tree_root(&t->tree));
    return now;
}

/* Returns false if nothing failed: there is no nth allocation. */
static bool
fails_at(uint64_t nth, bool fail_on, fp_limits limits)
{
    fake_memory m = {.fail_at = nth, .fail_on = fail_on};
    fp_alloc a = fake_alloc(&m);
    fp_thread *t = fp_thread_create(&a, limits, 0);
    if (t == NULL) {
        CHECK_UINT(m.bytes, 0);
        fp_thread_destroy(t); /* accepts NULL */
        return true;
    }
    int64_t now = program(t, 0);
    check_complete(t, &m, now);
    bool failed = m.failures != 0;
    if (!failed) {
        CHECK_UINT(t->counters.dropped, 0);
    }
    m.fail_at = 0;
    now = works_again(t, now);
    now = program(t, now);
    check_complete(t, &m, now);
    CHECK(t->steps != NULL && t->steps->count >= 2);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
    return failed;
}

static void
fail_each(fp_limits limits)
{
    for (int fail_on = 0; fail_on < 2; fail_on++) {
        uint64_t nth = 1;
        while (fails_at(nth, fail_on != 0, limits)) {
            nth++;
        }
        CHECK(nth > 30 && nth < 2000); /* the program did allocate */
    }
}

FP_TEST(nomem_f36_each_allocation_of_a_thread)
{
    fail_each(kit_wide);
}

FP_TEST(nomem_f36_each_allocation_beyond_the_depth_cap)
{
    fail_each((fp_limits){1000000, 5});
    fail_each((fp_limits){1000000, 90});
}

FP_TEST(nomem_f36_each_allocation_beyond_the_node_cap)
{
    fail_each((fp_limits){50, 1024});
    fail_each((fp_limits){200, 20});
}

/* Without memory to move the calls above a section, they are closed and
 * counted, and the sections among them stay. */
FP_TEST(nomem_f36_calls_above_a_section_are_dropped_by_number)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    CHECK(t != NULL);
    int64_t now = 0;
    kit_enter(t, kit_function(0), ++now);
    kit_open(t, 0, ++now);
    for (uint32_t i = 0; i < PILE; i++) {
        kit_enter(t, kit_function(1), ++now);
    }
    kit_open(t, 1, ++now);
    m.fail_at = m.takes + 1;
    kit_close(t, 0, now += 5);
    CHECK_UINT(m.failures, 1);
    CHECK_UINT(t->counters.dropped, PILE);
    fp_key path[2];
    CHECK_UINT(kit_path(t, path, 2), 2);
    CHECK(path[0] == fp_key_section(1) && path[1] == kit_function(0));
    CHECK_UINT(t->section[0]->count, 1);
    kit_close(t, 1, ++now);
    fp_thread_leave(t, kit_function(0), ++now);
    CHECK_UINT(t->counters.unbalanced, 0);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

static fp_thread *
recorded(fake_memory *m, uint32_t shift, int64_t *now)
{
    fp_alloc a = fake_alloc(m);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    CHECK(t != NULL);
    CHECK_INT(fp_phases_reserve(&t->phases, &a, 20), FP_OK);
    for (uint32_t i = 0; i < PILE; i++) {
        kit_open(t, i % SECTIONS, ++*now);
        kit_enter(t, kit_function(i + shift), ++*now);
        kit_close(t, i % SECTIONS, *now += (int64_t)1 << (i % 40));
        fp_thread_leave(t, kit_function(i + shift), ++*now);
    }
    fp_thread_charge(t, *now);
    return t;
}

FP_TEST(nomem_f36_each_allocation_of_a_merge)
{
    fake_memory from_memory = {0};
    int64_t first_end = 0, second_end = 0;
    fp_thread *first = recorded(&from_memory, 0, &first_end);
    fp_thread *second = recorded(&from_memory, 90, &second_end);
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        fake_memory m = {0};
        fp_alloc a = fake_alloc(&m);
        fp_thread *into = fp_thread_create(&a, kit_wide, 0);
        CHECK(into != NULL);
        CHECK_INT(fp_thread_merge(into, first, NULL), FP_OK);
        m.fail_at = m.takes + nth;
        fp_status status = fp_thread_merge(into, second, NULL);
        failed = m.failures != 0;
        m.fail_at = 0;
        check_consistent(into);
        CHECK_UINT(fp_thread_bytes(into), m.bytes);
        uint64_t lost = 0;
        for (uint32_t id = 0; id < SECTIONS; id++) {
            lost += into->section[id]->hist.lost;
        }
        CHECK(!failed || status == FP_ENOMEM || into->counters.dropped > 0 ||
              lost > 0);
        if (status == FP_ENOMEM) {
            CHECK(failed && into->counters.dropped > 0);
        }
        if (!failed) {
            CHECK_INT(kit_sum(into, 0).self_ticks, first_end + second_end);
            CHECK_UINT(into->counters.dropped, 0);
        }
        /* It continues. */
        uint64_t calls = kit_sum(into, 0).calls;
        CHECK_INT(fp_thread_merge(into, first, NULL), FP_OK);
        CHECK_UINT(kit_sum(into, 0).calls, calls + kit_sum(first, 0).calls);
        fp_thread_destroy(into);
        CHECK_UINT(m.bytes, 0);
        CHECK(nth < 2000);
    }
    fp_thread_destroy(first);
    fp_thread_destroy(second);
    CHECK_UINT(from_memory.bytes, 0);
}

/* Memory comes and goes under a random program. */
FP_TEST(nomem_f36_random_failures_under_a_random_program)
{
    for (uint64_t seed = 1; seed <= 80; seed++) {
        fake_memory m = {.random_state = seed};
        fp_alloc a = fake_alloc(&m);
        uint64_t state = seed;
        fp_limits limits = {10 + fake_below(&state, 300),
                            2 + fake_below(&state, 90)};
        fp_thread *t = fp_thread_create(&a, limits, 0);
        CHECK(t != NULL);
        m.fail_one_in = 1 + fake_below(&state, 4);
        int64_t now = 0;
        for (int i = 0; i < 1500; i++) {
            now += (int64_t)fake_below(&state, 5000);
            uint32_t k = fake_below(&state, 12);
            switch (fake_below(&state, 16)) {
            default:
                kit_enter(t, kit_function(k), now);
                break;
            case 6:
            case 7:
            case 8:
                fp_thread_leave(t, kit_function(k), now);
                break;
            case 9:
            case 10:
            case 11:
                open_any(t, k, (fp_phase)(k % 5), now);
                break;
            case 12:
            case 13:
            case 14:
                close_any(t, k, now);
                break;
            case 15:
                if (k == 0) {
                    fp_thread_drop_functions(t, now);
                }
                else if (k == 1) {
                    fp_thread_drop_sections(t, now);
                }
                else if (t->steps != NULL) {
                    fp_thread_end_step(t, now);
                }
                else {
                    ok_or_nomem(fp_thread_start_steps(t, 1, now));
                }
            }
            kit_check_path(t);
        }
        fp_thread_charge(t, now);
        check_complete(t, &m, now);
        m.fail_one_in = 0;
        fp_thread_drop_sections(t, now);
        fp_thread_drop_functions(t, now);
        now = works_again(t, now);
        check_complete(t, &m, now);
        fp_thread_destroy(t);
        CHECK_UINT(m.bytes, 0);
    }
}
