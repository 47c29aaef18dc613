/* Compares steps without the function hook to steps with it. */
#include "core/steps_pairs.h"
#include "core/steps_split.h"
#include "core/thread_steps.h"
#include "thread_kit.h"

enum { FORWARD = 1, SKIP = 1 };

/* A step of [ticks], of which the section has half. */
static void
step(fp_thread *t, int64_t *now, int64_t ticks)
{
    kit_open(t, FORWARD, *now);
    kit_close(t, FORWARD, *now += ticks / 2);
    fp_thread_end_step(t, *now += ticks - ticks / 2);
}

static int64_t
nothing_known(void *ctx)
{
    (void)ctx;
    return -1;
}

static void
no_counts(void *ctx, fp_usage *out)
{
    (void)ctx;
    (void)out;
}

/* A thread whose steps but the first [skip] are measured.  It never waits for a
 * CPU, whatever the thread of the test does. */
static fp_thread *
stepping(fake_memory *m, uint64_t skip, int64_t now)
{
    fp_alloc a = fake_alloc(m);
    fp_thread *t = fp_thread_create(&a, kit_wide, now);
    CHECK(t != NULL);
    CHECK_INT(fp_thread_start_steps(t, skip, now), FP_OK);
    fp_usage_source source = {nothing_known, no_counts, nothing_known, NULL};
    fp_split_set_usage(t, source, NULL, now);
    return t;
}

/* Destroys [t], which had all that was taken of [m]. */
static void
destroy(fp_thread *t, const fake_memory *m)
{
    fp_thread_destroy(t);
    CHECK_UINT(m->bytes, 0);
}

static void
begin(fp_thread *t, uint32_t settle, int64_t now)
{
    CHECK_INT(fp_thread_begin_unprofiled(t, settle), FP_OK);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_UNPROFILED, now), FP_OK);
}

static void
end(fp_thread *t, int valid, int64_t now)
{
    fp_thread_end_unprofiled(t, valid, now);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, now), FP_OK);
}

FP_TEST(pairs_leave_out_the_step_after_each_change)
{
    fake_memory m = {0};
    int64_t now = 1000;
    fp_thread *t = stepping(&m, SKIP, now);
    step(t, &now, 7);
    for (int i = 0; i < 6; i++) {
        step(t, &now, 100 + i);
    }
    begin(t, 1, now);
    for (int i = 0; i < 4; i++) {
        step(t, &now, 50 + i);
    }
    now += 1000; /* reinstalling the hook */
    end(t, 1, now);
    for (int i = 0; i < 7; i++) {
        step(t, &now, 200 + i);
    }
    const fp_pairs *p = t->split->pairs;
    CHECK_UINT(p->blocks, 1);
    const fp_pair_block *b = &p->block[0];
    CHECK_UINT(b->first, 7);
    CHECK_UINT(b->plain_count, 3);
    CHECK_INT(b->plain[0].ticks, 51);
    CHECK_INT(b->plain[1].ticks, 52);
    CHECK_INT(b->plain[1].section[0], 26);
    CHECK_UINT(b->near_count, 8);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(b->near[i].ticks, 105 - i);
        CHECK_INT(b->near[i].section[0], (105 - i) / 2);
        CHECK_INT(b->near[4 + i].ticks, 201 + i);
    }
    CHECK_UINT(t->steps->count, 18);
    CHECK_UINT(t->steps->apart, 4);
    CHECK_UINT(t->steps->measured.count, 13);
    CHECK_INT(t->steps->measured.sum_ticks, 6 * 100 + 15 + 7 * 200 + 21);
    CHECK_INT(t->split->measured.series.row[5].number, 6);
    CHECK_INT(t->split->measured.series.row[6].number, 11);
    destroy(t, &m);
}

/* Ticks of the nth step after a change: 40, and more at first. */
static int64_t
settling(int nth)
{
    return 40 + 140 / (nth * nth + 1);
}

static int64_t delay_ns, waits; /* of the thread, so far */

static int64_t
told_cpu(void *ctx)
{
    (void)ctx;
    return 0;
}

static void
told_counts(void *ctx, fp_usage *out)
{
    (void)ctx;
    out->switches = out->waits = waits;
    out->faults = 0;
}

static int64_t
told_delay(void *ctx)
{
    (void)ctx;
    return delay_ns;
}

static void
step_that_waits(fp_thread *t, int64_t *now, int64_t ticks, int64_t waits_ns)
{
    delay_ns += waits_ns;
    waits += waits_ns != 0;
    step(t, now, ticks);
}

FP_TEST(pairs_know_how_long_each_step_waited_for_a_cpu)
{
    fake_memory m = {0};
    int64_t now = 1000;
    delay_ns = waits = 0;
    fp_thread *t = stepping(&m, SKIP, now);
    fp_usage_source source = {told_cpu, told_counts, told_delay, NULL};
    fp_split_set_usage(t, source, NULL, now);
    for (int i = 0; i < 5; i++) {
        step_that_waits(t, &now, 100, 10 * i);
    }
    begin(t, 1, now);
    for (int i = 0; i < 3; i++) {
        step_that_waits(t, &now, 100, 3 + 2 * i);
    }
    end(t, 1, now);
    step_that_waits(t, &now, 100, 8);
    step_that_waits(t, &now, 100, 9);
    const fp_pair_block *b = &t->split->pairs->block[0];
    CHECK_INT(b->plain[0].delay_ns, 5);
    CHECK_INT(b->plain[1].delay_ns, 7);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(b->near[i].delay_ns, 40 - 10 * i);
    }
    CHECK_INT(b->near[4].delay_ns, 9);
    destroy(t, &m);
}

FP_TEST(pairs_short_steps_are_used_after_they_have_settled)
{
    fake_memory m = {0};
    int64_t now = 1000;
    fp_thread *t = stepping(&m, SKIP, now);
    for (int i = 0; i < 7; i++) {
        step(t, &now, 60);
    }
    uint32_t settle = fp_pairs_settle(t->steps, 600);
    CHECK_UINT(settle, 10);
    begin(t, settle, now);
    for (uint32_t i = 0; i < fp_pairs_length(settle); i++) {
        step(t, &now, settling((int)i));
    }
    end(t, 1, now);
    for (int i = 0; i < 20; i++) {
        step(t, &now, 20 + settling(i));
    }
    const fp_pair_block *b = &t->split->pairs->block[0];
    CHECK_UINT(b->plain_count, FP_PAIRS_PLAIN);
    for (int i = 0; i < FP_PAIRS_PLAIN; i++) {
        CHECK_NEAR(b->plain[i].ticks, 40, 1);
    }
    CHECK_UINT(b->near_count, 2 * FP_PAIRS_NEAR);
    for (int i = 0; i < 2 * FP_PAIRS_NEAR; i++) {
        CHECK_NEAR(b->near[i].ticks, 60, 1);
    }
    destroy(t, &m);
}

FP_TEST(pairs_leave_out_one_long_step_and_at_most_24_short_ones)
{
    fp_steps s = {0};
    CHECK_UINT(fp_pairs_settle(&s, 100), 1); /* nothing is known */
    const int64_t steps[][2] = {{200, 1}, {100, 1}, {99, 2},
                                {34, 3},  {1, 24},  {0, 24}};
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        s.measured.recent[s.measured.count++] = steps[i][0];
        CHECK_UINT(fp_pairs_settle(&s, 100), steps[i][1]);
    }
    CHECK_UINT(fp_pairs_length(1), 3);
    CHECK_UINT(fp_pairs_length(24), 28);
}

FP_TEST(pairs_drop_invalid_blocks_and_keep_the_last_ones)
{
    fake_memory m = {0};
    int64_t now = 0;
    fp_thread *t = stepping(&m, SKIP, now);
    CHECK_INT(fp_thread_begin_unprofiled(t, 1), FP_ENOTFOUND); /* warm-up */
    for (int i = 0; i < FP_PAIRS_BLOCKS + 9; i++) {
        for (int k = 0; k < 6; k++) {
            step(t, &now, 10);
        }
        begin(t, 1, now);
        step(t, &now, 10);
        step(t, &now, 1000 + i);
        end(t, i % 10 != 9, now);
    }
    const fp_pairs *p = t->split->pairs;
    CHECK_UINT(p->blocks, FP_PAIRS_BLOCKS + 9 - 13);
    /* A kept block ended with the run: no steps after it. */
    CHECK_UINT(p->block[(p->blocks - 1) % FP_PAIRS_BLOCKS].near_count, 4);
    CHECK_INT(p->block[(p->blocks - 1) % FP_PAIRS_BLOCKS].plain[0].ticks,
              1000 + FP_PAIRS_BLOCKS + 8);
    CHECK_INT(p->block[9].plain[0].ticks, 1010);
    destroy(t, &m);
}

FP_TEST(pairs_a_dropped_block_replaces_no_kept_one)
{
    fake_memory m = {0};
    int64_t now = 0;
    fp_thread *t = stepping(&m, SKIP, now);
    for (int i = 0; i <= FP_PAIRS_BLOCKS; i++) {
        for (int k = 0; k < 6; k++) {
            step(t, &now, 10);
        }
        begin(t, 1, now);
        step(t, &now, 10);
        step(t, &now, 1000 + i);
        end(t, i < FP_PAIRS_BLOCKS, now);
    }
    const fp_pairs *p = t->split->pairs;
    CHECK_UINT(p->blocks, FP_PAIRS_BLOCKS);
    for (int i = 0; i < FP_PAIRS_BLOCKS; i++) {
        CHECK_INT(p->block[i].plain[0].ticks, 1000 + i);
    }
    destroy(t, &m);
}

FP_TEST(pairs_f36_without_memory_every_step_is_measured)
{
    fake_memory m = {0};
    int64_t now = 0;
    fp_thread *t = stepping(&m, 0, now);
    step(t, &now, 10);
    m.fail_at = m.takes + 1;
    CHECK_INT(fp_thread_begin_unprofiled(t, 1), FP_ENOMEM);
    step(t, &now, 10);
    CHECK_UINT(t->steps->measured.count, 2);
    CHECK_UINT(t->steps->apart, 0);
    destroy(t, &m);
}

FP_TEST(pairs_plain_steps_have_sums_and_a_series)
{
    fake_memory m = {0};
    int64_t now = 1000;
    fp_thread *t = stepping(&m, SKIP, now);
    step(t, &now, 7);
    step(t, &now, 100);
    begin(t, 2, now);
    step(t, &now, 90); /* two settle */
    step(t, &now, 80);
    for (int i = 0; i < 5; i++) {
        step(t, &now, 50 + i);
    }
    fp_thread_settle_hooked(t); /* the hook is set, and slows two steps */
    step(t, &now, 300);
    step(t, &now, 200);
    end(t, 1, now);
    step(t, &now, 110);
    const fp_steps *s = t->steps;
    CHECK_UINT(s->plain.count, 5);
    CHECK_INT(s->plain.sum_ticks, 5 * 50 + 10);
    CHECK_INT(s->plain.min_ticks, 50);
    CHECK_INT(s->plain.max_ticks, 54);
    CHECK_UINT(s->apart, 9);
    CHECK_UINT(s->measured.count, 2);
    CHECK_INT(s->measured.sum_ticks, 210);
    const fp_series *series = &t->split->plain->series;
    CHECK_INT(series->row[0].number, 4);
    CHECK_INT(series->row[4].number, 8);
    CHECK_UINT(series->columns, 1);
    CHECK_INT(series->column[0].ticks[1], 25);
    fp_section_table of = fp_thread_sections_of(t, FP_RUN_UNPROFILED);
    CHECK_UINT(of.section[FORWARD]->steps, 5);
    CHECK_INT(of.section[FORWARD]->steps_ticks, 25 + 25 + 26 + 26 + 27);
    int64_t plain, hooked;
    CHECK_UINT(fp_pairs_kept(t->split->pairs), 1);
    CHECK_INT(fp_pairs_medians(t->split->pairs, 0, 1.0, &plain, &hooked), 1);
    CHECK_INT(plain, 51);
    CHECK_INT(hooked, 100);
    destroy(t, &m);
}

FP_TEST(pairs_steps_after_the_hook_is_set_again_are_no_plain_ones)
{
    fake_memory m = {0};
    int64_t now = 1000;
    fp_thread *t = stepping(&m, SKIP, now);
    step(t, &now, 7);
    step(t, &now, 100);
    begin(t, 1, now);
    step(t, &now, 80); /* settles */
    step(t, &now, 50);
    step(t, &now, 60);
    fp_thread_settle_hooked(t);
    step(t, &now, 300);
    end(t, 1, now);
    const fp_pair_block *b = &t->split->pairs->block[0];
    CHECK_UINT(b->plain_count, 2);
    CHECK_INT(b->plain[1].ticks, 60);
    CHECK_UINT(t->steps->plain.count, 2);
    destroy(t, &m);
}
