/* The slowest steps keep the places where they spent their time. */
#include "core/outliers.h"
#include "core/path.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"
#include "thread_kit.h"

/* A clock that takes [per_reading] ticks to read, which a look costs. */
typedef struct slow_clock {
    fp_clock clock;
    int64_t now;
    int64_t per_reading;
    uint64_t readings;
} slow_clock;

static int64_t
read_slowly(void *ctx)
{
    slow_clock *c = ctx;
    c->readings++;
    c->now += c->per_reading;
    return c->now;
}

static void
init_clock(slow_clock *c, int64_t per_reading)
{
    *c = (slow_clock){.per_reading = per_reading};
    fp_clock_init_reader(&c->clock, read_slowly, c, 1.0);
}

static fp_thread *
stepping(fake_memory *m, const slow_clock *c, uint64_t skip, uint32_t limit)
{
    fp_alloc a = fake_alloc(m);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    CHECK(t != NULL);
    CHECK_INT(fp_thread_start_steps(t, skip, 0), FP_OK);
    CHECK_INT(fp_thread_keep_outliers(t, limit, &c->clock, 0), FP_OK);
    return t;
}

static int64_t
sum_of_rows(const fp_outlier *kept)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < kept->row_count; i++) {
        CHECK(kept->row[i].ticks > 0);
        CHECK(i == 0 || kept->row[i].ticks >= kept->row[(i - 1) / 2].ticks);
        sum += kept->row[i].ticks;
    }
    return sum;
}

static void
check_outliers(const fp_thread *t)
{
    const fp_outliers *o = t->outliers;
    CHECK(o->count <= o->limit);
    for (uint32_t i = 0; i < o->count; i++) {
        const fp_outlier *kept = &o->kept[i];
        CHECK(kept->index < t->steps->count);
        CHECK(kept->index >= t->steps->skip);
        int64_t sections = 0;
        for (uint32_t k = 0; k < kept->section_count; k++) {
            sections += kept->section[k].ticks;
        }
        CHECK(sections <= kept->ticks);
        CHECK(sum_of_rows(kept) <= kept->window_ticks);
        CHECK(kept->steps == 0 ? kept->row_count == 0
                               : kept->window_ticks >= kept->ticks);
        for (uint32_t k = 0; k < i; k++) {
            CHECK(o->kept[k].index != kept->index);
        }
    }
}

/* NULL if the step was not kept. */
static const fp_outlier *
kept_step(const fp_thread *t, uint64_t index)
{
    for (uint32_t i = 0; i < t->outliers->count; i++) {
        if (t->outliers->kept[i].index == index) {
            return &t->outliers->kept[i];
        }
    }
    return NULL;
}

static fp_outlier_row
row_of(const fp_outlier *kept, uint32_t node)
{
    for (uint32_t i = 0; i < kept->row_count; i++) {
        if (kept->row[i].node == node) {
            return kept->row[i];
        }
    }
    return (fp_outlier_row){.node = node};
}

/* A step of [ticks] in function 0, of which [inside] in function 1 below it. */
static int64_t
one_step(fp_thread *t, int64_t now, int64_t ticks, int64_t inside)
{
    kit_enter(t, kit_function(0), now);
    kit_enter(t, kit_function(1), now);
    fp_thread_leave(t, kit_function(1), now + inside);
    fp_thread_leave(t, kit_function(0), now + ticks);
    fp_thread_end_step(t, now + ticks);
    return now + ticks;
}

FP_TEST(outliers_the_slowest_steps_keep_the_time_of_each_node)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 2, 3);
    int64_t now = 0;
    for (uint64_t i = 0; i < 100; i++) {
        int64_t extra = i == 40 ? 500 : i == 70 ? 900 : i == 1 ? 5000 : 0;
        now = one_step(t, now, 100 + extra, 30 + extra);
    }
    check_outliers(t);
    CHECK_UINT(t->outliers->count, 3);
    CHECK(kept_step(t, 1) == NULL); /* warm-up */
    fp_key path[2] = {kit_function(0), kit_function(1)};
    uint32_t outer = kit_at(t, path, 1)->index;
    uint32_t inner = kit_at(t, path, 2)->index;
    const fp_outlier *kept = kept_step(t, 70);
    CHECK(kept != NULL && kept->steps == 1 && !kept->usual);
    CHECK_INT(kept->ticks, 1000);
    CHECK_INT(kept->start, 5100 + 600 + 100 * 68);
    CHECK_UINT(kept->row_count, 2);
    CHECK_INT(row_of(kept, outer).ticks, 70);
    CHECK_INT(row_of(kept, inner).ticks, 930);
    CHECK_UINT(row_of(kept, inner).calls, 1);
    CHECK_INT(row_of(kept_step(t, 40), inner).ticks, 530);
    /* Neither the slow steps nor the warm-up are usual. */
    CHECK_UINT(t->outliers->usual_steps, 96);
    CHECK_INT(t->outliers->usual_ticks, 9600);
    CHECK_UINT(t->outliers->seen_steps, 96);
    CHECK_INT(fp_outliers_usual(t->outliers, inner).ticks, 96 * 30);
    CHECK_UINT(fp_outliers_usual(t->outliers, inner).calls, 96);
    CHECK_INT(fp_outliers_usual(t->outliers, 1u << 20).ticks, 0);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(outliers_a_slow_first_step_is_kept)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 1);
    int64_t now = one_step(t, 0, 10000, 9000);
    for (int i = 0; i < 20; i++) {
        now = one_step(t, now, 100, 30);
    }
    const fp_outlier *kept = kept_step(t, 0);
    CHECK(kept != NULL && kept->usual && kept->rows_usual);
    CHECK_INT(sum_of_rows(kept), 10000);
    CHECK_UINT(t->outliers->usual_steps, 21);
    check_outliers(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* A call open at a boundary is split there, and so is a step within a
 * section. */
FP_TEST(outliers_a_call_open_over_a_boundary_is_split_there)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 2);
    kit_open(t, 3, 10);
    kit_enter(t, kit_function(0), 20);
    fp_thread_end_step(t, 100);
    fp_thread_end_step(t, 200);
    fp_key path[2] = {fp_key_section(3), kit_function(0)};
    uint32_t section = kit_at(t, path, 1)->index;
    uint32_t function = kit_at(t, path, 2)->index;
    const fp_outlier *first = kept_step(t, 0), *second = kept_step(t, 1);
    CHECK_INT(row_of(first, 0).ticks, 10);
    CHECK_INT(row_of(first, section).ticks, 10);
    CHECK_INT(row_of(first, function).ticks, 80);
    CHECK_UINT(row_of(first, function).calls, 1);
    CHECK_UINT(first->section_count, 1);
    CHECK_INT(first->section[0].ticks, 90);
    CHECK_UINT(first->section[0].id, 3);
    CHECK_UINT(second->row_count, 1);
    CHECK_INT(row_of(second, function).ticks, 100);
    CHECK_UINT(row_of(second, function).calls, 0);
    CHECK_INT(t->section[3]->usual_ticks, 190);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* The current step is dropped: its time is in no row and not usual. */
FP_TEST(outliers_a_dropped_step_leaves_nothing)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 2);
    kit_enter(t, kit_function(0), 0);
    CHECK_INT(fp_thread_start_steps(t, 0, 7000), FP_OK);
    CHECK_INT(fp_thread_keep_outliers(t, 5, &c.clock, 7000), FP_OK);
    fp_thread_end_step(t, 7100);
    CHECK_UINT(t->outliers->limit, 2); /* kept from the start */
    const fp_outlier *kept = kept_step(t, 0);
    CHECK_INT(kept->ticks, 100);
    CHECK_INT(sum_of_rows(kept), 100);
    CHECK_INT(fp_outliers_usual(t->outliers, kept->row[0].node).ticks, 100);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* One random action of a program. */
static void
anything(fp_thread *t, uint64_t *state, int64_t now)
{
    uint32_t k = fake_below(state, 9);
    switch (fake_below(state, 12)) {
    default:
        if (kit_path(t, NULL, 0) < 40) {
            kit_enter(t, kit_function(k), now);
        }
        break;
    case 5:
    case 6:
    case 7:
        fp_thread_leave(t, kit_function(k), now);
        break;
    case 8:
        (void)fp_thread_open_section(t, k, FP_PHASE_NONE, NULL, now);
        break;
    case 9:
        (void)fp_thread_close_section(t, k, NULL, 0, now);
        break;
    case 10:
        fp_thread_drop_functions(t, now);
        break;
    case 11:
        if (k == 0) {
            fp_thread_drop_sections(t, now);
        }
    }
}

typedef struct node_sums {
    int64_t ticks[4096];
    uint64_t calls[4096];
} node_sums;

static void
sums_of(const fp_thread *t, node_sums *sums)
{
    memset(sums, 0, sizeof(*sums));
    for (uint32_t i = 0; i < t->tree.count && i < 4096; i++) {
        sums->ticks[i] = fp_tree_node(&t->tree, i)->self_ticks;
        sums->calls[i] = fp_tree_node(&t->tree, i)->calls;
    }
}

/* Compared to copies of all counters at every boundary. */
FP_TEST(outliers_rows_are_the_difference_of_two_copies)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        fake_memory m = {0};
        slow_clock c;
        init_clock(&c, 0);
        fp_alloc a = fake_alloc(&m);
        fp_limits limits = seed % 2 ? kit_wide : (fp_limits){60, 12};
        fp_thread *t = fp_thread_create(&a, limits, 0);
        CHECK_INT(fp_thread_start_steps(t, 1, 0), FP_OK);
        CHECK_INT(fp_thread_keep_outliers(t, 4, &c.clock, 0), FP_OK);
        static node_sums before, after;
        uint64_t state = seed;
        int64_t now = 0;
        sums_of(t, &before);
        for (uint64_t step = 0; step < 60; step++) {
            for (uint32_t i = fake_below(&state, 60); i > 0; i--) {
                now += (int64_t)fake_below(&state, 100);
                anything(t, &state, now);
            }
            fp_thread_end_step(t, now += 5);
            fp_thread_charge(t, now);
            sums_of(t, &after);
            const fp_outlier *kept = kept_step(t, step);
            CHECK(t->tree.count < 4096);
            for (uint32_t i = 0; kept != NULL && i < t->tree.count; i++) {
                fp_outlier_row row = row_of(kept, i);
                int64_t ticks = after.ticks[i] - before.ticks[i];
                CHECK_INT(row.ticks, ticks);
                if (ticks != 0) {
                    CHECK_UINT(row.calls, after.calls[i] - before.calls[i]);
                }
            }
            if (kept != NULL) {
                CHECK_UINT(kept->steps, 1);
                CHECK_INT(sum_of_rows(kept), kept->ticks);
            }
            before = after;
        }
        CHECK_UINT(t->outliers->count, 4);
        check_outliers(t);
        check_complete(t, &m, now);
        fp_thread_destroy(t);
        CHECK_UINT(m.bytes, 0);
    }
}

/* Calls functions until the tree has [count] nodes. */
static int64_t
fill(fp_thread *t, uint32_t count, int64_t now)
{
    for (uint32_t i = 10; t->tree.count < count; i++) {
        kit_enter(t, kit_function(i), now);
        fp_thread_leave(t, kit_function(i), ++now);
    }
    return now;
}

/* A section that moves down to a caller gets a node that was never entered,
 * here beyond the last mark.  Calls inside it must be found. */
FP_TEST(outliers_calls_below_a_node_that_was_not_entered_are_seen)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 3);
    kit_enter(t, kit_function(0), 0);
    kit_open(t, 3, 1);
    int64_t now = fill(t, 1024, 2);
    fp_thread_end_step(t, now);
    CHECK_UINT(t->outliers->marks, 1024);
    CHECK_UINT(t->tree.count, 1024);
    fp_thread_leave(t, kit_function(0), now); /* the section stays open */
    fp_key path[2] = {fp_key_section(3), kit_function(5)};
    CHECK_UINT(kit_at(t, path, 1)->index, 1024);
    CHECK_UINT(kit_at(t, path, 1)->calls, 0);
    for (uint64_t step = 1; step < 3; step++) {
        kit_enter(t, kit_function(5), now + 10);
        fp_thread_leave(t, kit_function(5), now + 40);
        fp_thread_end_step(t, now += 50);
        const fp_outlier *kept = kept_step(t, step);
        CHECK_INT(row_of(kept, kit_at(t, path, 2)->index).ticks, 30);
        CHECK_INT(sum_of_rows(kept), 50);
    }
    kit_close(t, 3, now);
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* The same below a call that was open while its mark had no memory. */
FP_TEST(outliers_calls_below_a_node_without_a_mark_are_seen)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 3);
    int64_t now = fill(t, 1000, 0);
    fp_thread_end_step(t, now);
    now = fill(t, 1100, now);
    kit_enter(t, kit_function(0), now); /* and stays open */
    m.fail_at = 1;
    m.fail_on = true;
    fp_thread_end_step(t, now);
    CHECK(m.failures >= 1);
    CHECK_UINT(t->outliers->marks, 1024);
    m.fail_at = 0;
    kit_enter(t, kit_function(1), now + 10);
    fp_thread_leave(t, kit_function(1), now + 40);
    fp_thread_end_step(t, now += 50);
    CHECK_UINT(t->outliers->marks, 2048);
    fp_key path[2] = {kit_function(0), kit_function(1)};
    CHECK_INT(row_of(kept_step(t, 2), kit_at(t, path, 2)->index).ticks, 30);
    fp_thread_end_step(t, now += 5000);
    CHECK_INT(sum_of_rows(kept_step(t, 3)), 5000);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* However expensive a look is, all looks take a small part of the time plus a
 * few looks.  Rows belong to a window and add up to its time. */
FP_TEST(outliers_expensive_looks_are_delayed)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 50);
    fp_thread *t = stepping(&m, &c, 0, 5);
    int64_t now = 0;
    enum { STEPS = 20000 };
    for (int i = 0; i < STEPS; i++) {
        now = one_step(t, now, i % 5000 == 4999 ? 40000 : 1000, 300);
    }
    uint64_t looks = c.readings / 2;
    CHECK(looks * 50 <= (uint64_t)now / FP_OUTLIERS_SHARE + 6 * 50);
    CHECK(looks * 50 >= (uint64_t)now / FP_OUTLIERS_SHARE / 2);
    check_outliers(t);
    uint32_t slow = 0;
    for (uint32_t i = 0; i < t->outliers->count; i++) {
        const fp_outlier *kept = &t->outliers->kept[i];
        if (kept->ticks < 40000) {
            continue;
        }
        slow++;
        CHECK(kept->steps > 1 && kept->steps <= 64);
        CHECK_INT(kept->window_ticks,
                  40000 + 1000 * (int64_t)(kept->steps - 1));
        CHECK_INT(sum_of_rows(kept), kept->window_ticks);
        CHECK(!kept->rows_usual);
    }
    CHECK_UINT(slow, 4);
    const fp_outliers *o = t->outliers;
    CHECK_UINT(o->usual_steps, STEPS - 4);
    /* Usual windows show the time of usual steps. */
    CHECK(o->seen_steps > STEPS - 5 * 64);
    CHECK_INT(fp_outliers_usual(o, 3).ticks, 300 * (int64_t)o->seen_steps);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* Not even a slow step may exceed that: it is kept without rows. */
FP_TEST(outliers_a_slow_step_gets_no_rows_if_looks_are_too_expensive)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 100);
    fp_thread *t = stepping(&m, &c, 0, 1);
    int64_t now = 0;
    for (int i = 0; i < 20; i++) {
        now = one_step(t, now, 1000, 300);
    }
    CHECK_INT(t->outliers->cost, 100);
    /* A few looks in advance: a run may begin with slow steps. */
    uint64_t index = 20;
    for (; index < 20 + FP_OUTLIERS_BEFOREHAND; index++) {
        now = one_step(t, now, 6000 + (int64_t)index, 300);
        CHECK_UINT(kept_step(t, index)->steps, index == 20 ? 21 : 1);
    }
    now = one_step(t, now, 7000, 300);
    CHECK_UINT(kept_step(t, index)->steps, 0);
    CHECK_UINT(kept_step(t, index)->row_count, 0);
    /* Until enough time has passed. */
    now = one_step(t, now, 100000, 300);
    CHECK_UINT(kept_step(t, index + 1)->steps, 2);
    CHECK_INT(sum_of_rows(kept_step(t, index + 1)), 107000);
    check_outliers(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* An interrupted look does not stop the next ones for long. */
FP_TEST(outliers_an_interrupted_look_delays_the_next_only_briefly)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 1);
    fp_thread *t = stepping(&m, &c, 0, 1);
    int64_t now = one_step(t, 0, 10000, 10);
    CHECK_INT(t->outliers->cost, 1);
    now = one_step(t, now, 10000, 10);
    CHECK_INT(t->outliers->cost, 1);
    c.per_reading = 1000000;
    now = one_step(t, now, 10000, 10);
    c.per_reading = 1;
    int64_t cost = t->outliers->cost;
    CHECK(cost > 1000 && cost < 2000); /* there are four nodes */
    uint64_t steps = (uint64_t)cost * FP_OUTLIERS_SHARE / 10000;
    for (uint64_t i = 1; i < steps; i++) {
        now = one_step(t, now, 10000, 10);
        CHECK_UINT(t->outliers->window_steps, i);
    }
    now = one_step(t, now, 10000, 10);
    CHECK_UINT(t->outliers->window_steps, 0);
    CHECK_INT(t->outliers->cost, 1);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

enum { MANY = 3000 };

FP_TEST(outliers_of_many_rows_the_largest_stay)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 1);
    int64_t now = 0, largest = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        int64_t ticks = 1 + (int64_t)(i * 7919u % MANY);
        largest += ticks > MANY - FP_OUTLIERS_ROWS ? ticks : 0;
        kit_enter(t, kit_function(i), now);
        fp_thread_leave(t, kit_function(i), now += ticks);
    }
    fp_thread_end_step(t, now);
    const fp_outlier *kept = kept_step(t, 0);
    CHECK_UINT(kept->row_count, FP_OUTLIERS_ROWS);
    CHECK_INT(kept->window_ticks, now);
    CHECK_INT(sum_of_rows(kept), largest);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(outliers_of_many_sections_the_largest_stay)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 1);
    int64_t now = 0, sum = 0;
    for (uint32_t i = 0; i < 100; i++) {
        kit_open(t, i, now);
        kit_close(t, i, now += 1 + (int64_t)(i * 37u % 100));
    }
    fp_thread_end_step(t, now);
    const fp_outlier *kept = kept_step(t, 0);
    CHECK_UINT(kept->section_count, FP_OUTLIERS_SECTIONS);
    for (uint32_t i = 0; i < kept->section_count; i++) {
        sum += kept->section[i].ticks;
    }
    CHECK_INT(sum, FP_OUTLIERS_SECTIONS * (69 + 100) / 2);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* Nodes without a mark are in no row; memory is limited. */
FP_TEST(outliers_f35_memory_is_bounded_beyond_the_last_mark)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 5);
    int64_t now = 0;
    size_t bytes = 0;
    for (uint32_t step = 0; step < 5; step++) {
        for (uint32_t i = 0; i < FP_OUTLIERS_NODES / 2; i++) {
            fp_key key = kit_function(step * FP_OUTLIERS_NODES + i);
            kit_enter(t, key, now);
            fp_thread_leave(t, key, ++now);
        }
        fp_thread_end_step(t, now);
        CHECK(step < 3 || fp_outliers_bytes(t->outliers) == bytes);
        bytes = fp_outliers_bytes(t->outliers);
    }
    CHECK(bytes < (size_t)3800000 + 5 * 17800);
    CHECK_UINT(t->outliers->marks, FP_OUTLIERS_NODES);
    CHECK_UINT(kept_step(t, 0)->row_count, FP_OUTLIERS_ROWS);
    CHECK_UINT(kept_step(t, 4)->row_count, 0);
    CHECK_UINT(kept_step(t, 4)->steps, 1);
    check_outliers(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* Set-up creates more nodes than there are marks: importing torch 240 000. */
FP_TEST(outliers_set_up_takes_no_marks_from_steps)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_alloc a = fake_alloc(&m);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_SETUP, 0), FP_OK);
    int64_t now = 0;
    for (uint32_t i = 0; i < 2 * FP_OUTLIERS_NODES; i++) {
        kit_enter(t, kit_function(i), now);
        fp_thread_leave(t, kit_function(i), ++now);
    }
    CHECK_INT(fp_thread_start_steps(t, 0, now), FP_OK);
    CHECK_INT(fp_thread_keep_outliers(t, 5, &c.clock, now), FP_OK);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, now), FP_OK);
    for (uint32_t step = 0; step < 3; step++) {
        kit_enter(t, kit_function(step), now);
        fp_thread_leave(t, kit_function(step), now += 100);
        fp_thread_end_step(t, now);
    }
    CHECK_UINT(kept_step(t, 2)->row_count, 1);
    CHECK_INT(kept_step(t, 2)->row[0].ticks, 100);
    CHECK_UINT(t->outliers->marks, 1024);
    check_outliers(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(outliers_an_ordinary_step_allocates_nothing)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 1);
    fp_thread *t = stepping(&m, &c, 0, 5);
    int64_t now = 0;
    for (int i = 0; i < 10; i++) {
        now = one_step(t, now, 100 + i, 30);
    }
    uint64_t takes = m.takes;
    size_t bytes = m.bytes;
    for (int i = 0; i < 100000; i++) {
        /* Fills the octaves of the histogram. */
        now = one_step(t, now, 100 + i % 20, 30);
    }
    CHECK_UINT(m.takes, takes);
    CHECK_UINT(m.bytes, bytes);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(outliers_f34_a_clock_that_goes_back_leaves_no_wrong_rows)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 3);
    kit_enter(t, kit_function(0), 1500);
    kit_enter(t, kit_function(1), 1200);
    fp_thread_end_step(t, 1600);
    const fp_outlier *kept = kept_step(t, 0);
    CHECK_INT(kept->ticks, 1600);
    CHECK_UINT(kept->steps, 1);
    CHECK_INT(sum_of_rows(kept), 1600); /* not 1900: none twice */
    fp_thread_end_step(t, -100);
    fp_thread_end_step(t, 100);
    check_outliers(t);
    CHECK_INT(kept_step(t, 1)->ticks, 0);
    CHECK_INT(kept_step(t, 2)->ticks, 200);
    CHECK_INT(sum_of_rows(kept_step(t, 2)), 0); /* up to 1600 all is charged */
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

/* An allocation fails: steps continue, and rows never exceed the step. */
static bool
fails_at(uint64_t nth, bool fail_on)
{
    fake_memory m = {.fail_at = nth, .fail_on = fail_on};
    fp_alloc a = fake_alloc(&m);
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    if (t == NULL || fp_thread_start_steps(t, 0, 0) != FP_OK) {
        fp_thread_destroy(t);
        CHECK_UINT(m.bytes, 0);
        return true;
    }
    fp_status status = fp_thread_keep_outliers(t, 3, &c.clock, 0);
    CHECK((status == FP_OK) == (t->outliers != NULL));
    CHECK_UINT(t->counters.dropped, status != FP_OK);
    int64_t now = 0;
    for (uint32_t step = 0; step < 4; step++) {
        for (uint32_t i = 0; i < 1500; i++) {
            kit_enter(t, kit_function(step * 1500 + i), now);
            fp_thread_leave(t, kit_function(step * 1500 + i), now += 2);
        }
        fp_thread_end_step(t, ++now);
    }
    bool failed = m.failures != 0;
    m.fail_at = 0;
    fp_thread_end_step(t, now += 10000); /* now every node has a mark */
    fp_thread_end_step(t, now += 100000);
    fp_thread_charge(t, now);
    if (t->outliers != NULL) {
        check_outliers(t);
        CHECK_UINT(t->outliers->usual_steps, 4);
        CHECK_INT(sum_of_rows(kept_step(t, 5)), 100000);
        for (uint32_t i = 0; i < t->tree.count; i++) {
            CHECK(fp_outliers_usual(t->outliers, i).ticks >= 0);
        }
    }
    check_complete(t, &m, now);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
    return failed;
}

FP_TEST(outliers_f36_each_allocation)
{
    for (int fail_on = 0; fail_on < 2; fail_on++) {
        uint64_t nth = 1;
        while (fails_at(nth, fail_on != 0)) {
            nth++;
        }
        CHECK(nth > 10 && nth < 500);
    }
}

FP_TEST(outliers_f36_random_failures_under_a_random_program)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fake_memory m = {.random_state = seed};
        slow_clock c;
        uint64_t state = seed;
        init_clock(&c, (int64_t)fake_below(&state, 3));
        fp_thread *t = stepping(&m, &c, 0, 1 + fake_below(&state, 6));
        m.fail_one_in = 1 + fake_below(&state, 4);
        int64_t now = 0;
        for (uint32_t i = 0; i < 3000; i++) {
            now += (int64_t)fake_below(&state, 500);
            anything(t, &state, now);
            if (fake_below(&state, 40) == 0) {
                fp_thread_end_step(t, now);
            }
        }
        fp_thread_charge(t, now);
        check_outliers(t);
        check_complete(t, &m, now);
        fp_thread_destroy(t);
        CHECK_UINT(m.bytes, 0);
    }
}

FP_TEST(outliers_keep_slow_plain_steps_without_rows)
{
    fake_memory m = {0};
    slow_clock c;
    init_clock(&c, 0);
    fp_thread *t = stepping(&m, &c, 0, 2);
    int64_t now = 0;
    for (int i = 0; i < 8; i++) {
        fp_thread_end_step(t, now += 100);
    }
    CHECK_INT(fp_thread_begin_unprofiled(t, 0), FP_OK);
    for (int i = 0; i < 8; i++) {
        fp_thread_end_step(t, now += i == 5 ? 900 : 60);
    }
    fp_thread_end_unprofiled(t, 1, now);
    fp_thread_end_step(t, now += 100);
    const fp_outliers *o = t->outliers;
    CHECK_UINT(o->usual_steps, 9);
    int found = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        if (o->kept[i].plain) {
            found++;
            CHECK_UINT(o->kept[i].index, 13);
            CHECK_INT(o->kept[i].ticks, 900);
            CHECK_UINT(o->kept[i].row_count, 0);
            CHECK_UINT(o->kept[i].steps, 0);
        }
    }
    CHECK_INT(found, 1);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}
