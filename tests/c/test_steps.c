#include "core/steps.h"
#include "fake.h"

enum { STEPS = 10000 };

FP_TEST(steps_are_counted_and_the_warm_up_is_not_measured)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_steps s = {.skip = 2, .start = 100};
    int64_t recent[8];
    CHECK_INT(fp_steps_end(&s, &a, 1100), 0); /* 1000, warm-up */
    CHECK_INT(fp_steps_end(&s, &a, 1101), 0);
    CHECK_UINT(s.measured.count, 0);
    CHECK_UINT(fp_step_times_recent(&s.measured, recent, 8), 0);
    CHECK_INT(fp_steps_end(&s, &a, 1111), 1);
    CHECK_INT(fp_steps_end(&s, &a, 1114), 1);
    CHECK_INT(fp_steps_end(&s, &a, 1134), 1);
    CHECK_UINT(s.count, 5);
    CHECK_UINT(s.measured.count, 3);
    CHECK_INT(s.measured.sum_ticks, 33);
    CHECK_NEAR(s.measured.sum_sq, 509, 0);
    CHECK_INT(s.measured.min_ticks, 3);
    CHECK_INT(s.measured.max_ticks, 20);
    CHECK_UINT(fp_step_times_recent(&s.measured, recent, 8), 3);
    CHECK(recent[0] == 10 && recent[1] == 3 && recent[2] == 20);
    fp_hist_fini(&s.measured.hist, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(steps_keep_the_last_durations_oldest_first)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_steps s = {.skip = 3};
    int64_t ticks[STEPS], recent[FP_STEPS_RECENT + 1], now = 0, sum = 0;
    uint64_t state = 21;
    for (uint32_t i = 0; i < STEPS; i++) {
        ticks[i] = (int64_t)fake_below(&state, 1000000);
        now += ticks[i];
        CHECK_INT(fp_steps_end(&s, &a, now), i >= 3);
        sum += i >= 3 ? ticks[i] : 0;
        if (i % 997 != 0 && i != STEPS - 1) {
            continue;
        }
        uint32_t capacity = i == STEPS - 1 ? FP_STEPS_RECENT + 1 : 100;
        uint32_t measured = i >= 3 ? i - 2 : 0;
        uint32_t kept = measured;
        kept = kept < FP_STEPS_RECENT ? kept : FP_STEPS_RECENT;
        kept = kept < capacity ? kept : capacity;
        recent[kept] = -1;
        CHECK_UINT(fp_step_times_recent(&s.measured, recent, capacity), kept);
        for (uint32_t k = 0; k < kept; k++) {
            CHECK_INT(recent[k], ticks[i - kept + 1 + k]);
        }
        CHECK_INT(recent[kept], -1);
    }
    CHECK_INT(s.measured.sum_ticks, sum);
    fp_hist_row rows[2000];
    uint32_t n = fp_hist_rows(&s.measured.hist, rows, 2000);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        total += rows[i].count;
    }
    CHECK_UINT(total, STEPS - 3);
    fp_hist_fini(&s.measured.hist, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(steps_f34_a_clock_that_goes_back_gives_no_negative_step)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_steps s = {.start = 1000};
    fp_steps_end(&s, &a, 400);
    fp_steps_end(&s, &a, 410);
    fp_steps_end(&s, &a, -5);
    int64_t recent[3];
    CHECK_UINT(fp_step_times_recent(&s.measured, recent, 3), 3);
    CHECK(recent[0] == 0 && recent[1] == 10 && recent[2] == 0);
    CHECK_INT(s.measured.sum_ticks, 10);
    CHECK_INT(s.measured.min_ticks, 0);
    fp_hist_fini(&s.measured.hist, &a);
}

FP_TEST(steps_f35_count_past_32_bits)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_steps s = {
        .count = UINT32_MAX, .skip = 3, .measured.count = UINT32_MAX - 3};
    CHECK_INT(fp_steps_end(&s, &a, INT64_MAX), 1);
    CHECK_UINT(s.count, (uint64_t)1 << 32);
    CHECK_UINT(s.measured.count, ((uint64_t)1 << 32) - 3);
    CHECK_INT(s.measured.sum_ticks, INT64_MAX);
    int64_t last;
    CHECK_UINT(fp_step_times_recent(&s.measured, &last, 1), 1);
    CHECK_INT(last, INT64_MAX);
    fp_hist_fini(&s.measured.hist, &a);
}
