#include "core/phases.h"
#include "fake.h"

static fp_phases
phases_for(const fp_alloc *a, int32_t highest_tag)
{
    fp_phases p = {.tag = -1};
    CHECK_INT(fp_phases_reserve(&p, a, highest_tag), FP_OK);
    return p;
}

/* Row of [tag]. */
static const fp_loader *
row(const fp_phases *p, int32_t tag)
{
    return &p->loader[tag + 1];
}

static void
check_sum(fp_sum got, int64_t ticks, uint64_t count)
{
    CHECK_INT(got.ticks, ticks);
    CHECK_UINT(got.count, count);
}

static void
check_wait(const fp_phases *p, int32_t tag, int64_t ticks, uint64_t count)
{
    check_sum(row(p, tag)->total[FP_PHASE_BATCH_WAIT], ticks, count);
}

/* next() of [tag] begins at [now] and delivers after [takes]. */
static int64_t
next_batch(fp_phases *p, int32_t tag, int64_t now, int64_t takes)
{
    fp_phases_ask(p, tag, now);
    fp_phases_deliver(p, tag, now + takes);
    p->tag = tag;
    return now + takes;
}

FP_TEST(phases_add_to_the_loader_at_work)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 1);
    fp_phases_add(&p, FP_PHASE_FORWARD, 5);
    p.tag = 1;
    fp_phases_add(&p, FP_PHASE_FORWARD, 7);
    fp_phases_add(&p, FP_PHASE_FORWARD, 8);
    fp_phases_add(&p, FP_PHASE_BACKWARD, 20);
    check_sum(row(&p, -1)->total[FP_PHASE_FORWARD], 5, 1);
    check_sum(row(&p, 1)->total[FP_PHASE_FORWARD], 15, 2);
    check_sum(row(&p, 1)->since_take[FP_PHASE_FORWARD], 15, 2);
    check_sum(row(&p, 1)->total[FP_PHASE_BACKWARD], 20, 1);
    check_sum(row(&p, 0)->total[FP_PHASE_FORWARD], 0, 0);
    p.tag = 1000; /* without room: dropped, nothing changed */
    fp_phases_add(&p, FP_PHASE_FORWARD, 1);
    fp_phases_mark_end(&p, 3);
    fp_phases_ask(&p, 1000, 3);
    fp_phases_deliver(&p, 1000, 4);
    check_wait(&p, -1, 0, 0);
    fp_phases_fini(&p, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(phases_s4_04_wait_is_from_the_end_of_a_batch_to_the_next)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 0);
    int64_t now = next_batch(&p, 0, 1000, 300); /* the first: no wait */
    check_wait(&p, 0, 0, 0);
    check_wait(&p, -1, 0, 0);
    fp_phases_mark_end(&p, now + 50); /* end of forward */
    /* end of the optimizer: the later one counts */
    fp_phases_mark_end(&p, now + 90);
    now = next_batch(&p, 0, now + 100, 20); /* requested 10 after the end */
    check_wait(&p, 0, 30, 1);
    check_wait(&p, -1, 30, 1);
    fp_phases_mark_end(&p, now + 5);
    next_batch(&p, 0, now + 5, 7);
    check_wait(&p, 0, 37, 2);
    check_wait(&p, -1, 37, 2);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_s4_04_without_work_a_batch_ends_at_the_next_request)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 0);
    int64_t now = next_batch(&p, 0, 0, 10);
    now = next_batch(&p, 0, now + 1000, 25);
    check_wait(&p, 0, 25, 1);
    /* An end before the delivery does not belong to this batch. */
    next_batch(&p, 0, now + 500, 5);
    check_wait(&p, 0, 30, 2);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_e13_without_work_any_batch_ends_at_any_request)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 1);
    int64_t now = next_batch(&p, 0, 0, 10);
    now = next_batch(&p, 1, now + 1000, 25);
    check_wait(&p, 1, 0, 0);
    check_wait(&p, -1, 25, 1);
    next_batch(&p, 0, now + 1000, 5);
    check_wait(&p, 0, 5, 1); /* no work on its batch was recorded */
    check_wait(&p, -1, 30, 2);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_s4_04_a_second_request_does_not_move_the_end_of_a_batch)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 0);
    int64_t now = next_batch(&p, 0, 0, 10);
    fp_phases_mark_end(&p, now + 10);
    fp_phases_ask(&p, 0, now + 20);   /* StopIteration: nothing delivered */
    next_batch(&p, 0, now + 100, 30); /* the next epoch's first */
    check_wait(&p, 0, 120, 1);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_e13_interleaved_loaders_wait_for_each_other)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 1);
    int64_t now = next_batch(&p, 0, 0, 10);
    fp_phases_mark_end(&p, now + 100);     /* work on 0's batch: 100 */
    now = next_batch(&p, 1, now + 100, 4); /* 1's first batch */
    check_wait(&p, 1, 0, 0);
    check_wait(&p, -1, 4, 1);          /* but not the first of all loaders */
    fp_phases_mark_end(&p, now + 200); /* work on 1's batch: 200 */
    now = next_batch(&p, 0, now + 200, 6);
    check_wait(&p, 0, 4 + 200 + 6, 1); /* contains 1's work, as documented */
    check_wait(&p, -1, 10, 2);         /* the global wait does not */
    fp_phases_mark_end(&p, now + 100);
    next_batch(&p, 1, now + 100, 8);
    check_wait(&p, 1, 6 + 100 + 8, 1);
    check_wait(&p, -1, 18, 3);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_e11_the_wait_is_emitted_for_every_batch_but_the_first)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 3);
    int64_t now = 0;
    for (int i = 0; i < 100; i++) {
        now = next_batch(&p, i % 4, now, 1);
        fp_phases_mark_end(&p, now + 2);
        now += 2;
    }
    for (int32_t tag = 0; tag < 4; tag++) {
        CHECK_UINT(row(&p, tag)->total[FP_PHASE_BATCH_WAIT].count, 24);
        CHECK_UINT(row(&p, tag)->since_take[FP_PHASE_BATCH_WAIT].count, 24);
    }
    check_wait(&p, -1, 99, 99);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_f34_a_clock_that_goes_back_gives_no_negative_wait)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 0);
    next_batch(&p, 0, 1000, 10);
    fp_phases_mark_end(&p, 2000);
    next_batch(&p, 0, 500, 10);
    check_wait(&p, 0, 0, 1);
    fp_phases_fini(&p, &a);
}

FP_TEST(phases_reserve_keeps_the_sums_or_fails_whole)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, -1);
    fp_phases_add(&p, FP_PHASE_DATA, 3);
    CHECK_INT(fp_phases_reserve(&p, &a, 70), FP_OK);
    check_sum(row(&p, -1)->total[FP_PHASE_DATA], 3, 1);
    check_sum(row(&p, 70)->total[FP_PHASE_DATA], 0, 0);
    m.fail_at = m.takes + 1;
    CHECK_INT(fp_phases_reserve(&p, &a, 5000), FP_ENOMEM);
    CHECK_INT(fp_phases_reserve(&p, &a, 70), FP_OK); /* unchanged */
    check_sum(row(&p, -1)->total[FP_PHASE_DATA], 3, 1);
    CHECK_INT(fp_phases_reserve(&p, &a, 65535), FP_OK);
    check_sum(row(&p, 65535)->total[FP_PHASE_DATA], 0, 0);
    fp_phases_fini(&p, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(phases_of_plain_steps_have_sums_as_well)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases p = phases_for(&a, 0), into = phases_for(&a, 0);
    int64_t now = next_batch(&p, 0, 0, 3);
    fp_phases_add(&p, FP_PHASE_FORWARD, 50);
    fp_phases_mark_end(&p, now + 50);
    p.plain = 1;
    fp_phases_add(&p, FP_PHASE_FORWARD, 20);
    next_batch(&p, 0, now + 60, 10);
    fp_phases_merge(&into, &a, &p);
    check_sum(row(&into, 0)->total[FP_PHASE_FORWARD], 70, 2);
    check_sum(row(&into, 0)->total[FP_PHASE_COUNT + FP_PHASE_FORWARD], 20, 1);
    check_sum(row(&into, 0)->since_take[FP_PHASE_COUNT + FP_PHASE_FORWARD], 20,
              1);
    check_sum(row(&into, 0)->total[FP_PHASE_COUNT + FP_PHASE_BATCH_WAIT], 20,
              1);
    check_sum(row(&into, -1)->total[FP_PHASE_COUNT + FP_PHASE_BATCH_WAIT], 20,
              1);
    fp_phases_fini(&p, &a);
    fp_phases_fini(&into, &a);
}

FP_TEST(phases_merge_is_the_sum)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_phases into = phases_for(&a, 0), from = phases_for(&a, 9), none = {0};
    into.tag = 0;
    fp_phases_add(&into, FP_PHASE_DATA, 5);
    from.tag = 0;
    fp_phases_add(&from, FP_PHASE_DATA, 6);
    from.tag = 9;
    fp_phases_add(&from, FP_PHASE_OPTIMIZER, 7);
    from.loader[10].since_take[FP_PHASE_OPTIMIZER].count = 0; /* taken */
    fp_phases_merge(&into, &a, &from);
    fp_phases_merge(&into, &a, &none);
    check_sum(row(&into, 0)->total[FP_PHASE_DATA], 11, 2);
    check_sum(row(&into, 0)->since_take[FP_PHASE_DATA], 11, 2);
    check_sum(row(&into, 9)->total[FP_PHASE_OPTIMIZER], 7, 1);
    check_sum(row(&into, 9)->since_take[FP_PHASE_OPTIMIZER], 7, 0);
    CHECK_INT(into.tag, 0);
    fp_phases_fini(&into, &a);
    fp_phases_fini(&from, &a);
    CHECK_UINT(m.bytes, 0);
}
