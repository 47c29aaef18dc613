#include "fake.h"
#include "gpu/clock_map.h"

static const int64_t NOW_NS = 1700000000123456789;
enum { TICKS_PER_SECOND = 1000000000 };

/* Both clocks; each reading advances them by its cost.  The reader of the
 * device's clock gets no context, so this is a variable. */
typedef struct fake_clocks {
    int64_t ticks;
    int64_t gpu_offset;
    double gpu_per_tick;
    uint64_t state;
    uint32_t jitter;    /* most ticks that a reading takes */
    int fail_after;     /* fail after so many readings; 0: never */
    int readings;       /* of it */
    int64_t ticks_back; /* our readings go back by this each time */
} fake_clocks;

static fake_clocks clocks;

static int64_t
gpu_now(void)
{
    return clocks.gpu_offset +
           (int64_t)((double)clocks.ticks * clocks.gpu_per_tick);
}

static void
pass_a_reading(void)
{
    clocks.ticks += clocks.jitter == 0
                        ? 0
                        : (int64_t)fake_below(&clocks.state, clocks.jitter);
}

static int64_t
read_ours(void *ctx)
{
    (void)ctx;
    pass_a_reading();
    clocks.ticks -= clocks.ticks_back;
    return clocks.ticks;
}

static int
read_theirs(uint64_t *ns)
{
    pass_a_reading();
    *ns = (uint64_t)gpu_now();
    return ++clocks.readings == clocks.fail_after ? 999 : 0;
}

static fp_clock
start_clocks(double gpu_per_tick)
{
    clocks = (fake_clocks){
        .gpu_offset = NOW_NS, .gpu_per_tick = gpu_per_tick, .state = 5};
    fp_clock ours;
    fp_clock_init_reader(&ours, read_ours, NULL, 1.0);
    return ours;
}

FP_TEST(clock_map_without_a_pair_says_0)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    CHECK_INT(fp_clock_map_to_gpu(&m, 12345), 0);
}

FP_TEST(clock_map_one_pair_goes_on_at_the_given_scale)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 0.5);
    fp_clock_map_add(&m, 1000, NOW_NS);
    CHECK_INT(fp_clock_map_to_gpu(&m, 1000), NOW_NS);
    CHECK_INT(fp_clock_map_to_gpu(&m, 1002), NOW_NS + 1);
    CHECK_INT(fp_clock_map_to_gpu(&m, 998), NOW_NS - 1);
    CHECK_INT(fp_clock_map_to_gpu(&m, 997), NOW_NS - 2); /* rounded */
    CHECK_INT(fp_clock_map_to_gpu(&m, 7200000001000), NOW_NS + 3600000000000);
}

FP_TEST(clock_map_a_constant_drift_is_exact_to_the_ns)
{
    fp_clock ours = start_clocks(1.0 + 1.0 / (1 << 15)); /* 30 ppm */
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    for (int second = 0; second < 10; second++) {
        CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), 0);
        clocks.ticks += TICKS_PER_SECOND;
    }
    CHECK_UINT(m.pairs, 10);
    CHECK_UINT(m.steps, 0);
    CHECK_UINT(m.worst_gap_ticks, 0);
    for (int64_t ticks = -2000000000; ticks < 20000000000; ticks += 9999991) {
        clocks.ticks = ticks;
        CHECK_NEAR(fp_clock_map_to_gpu(&m, ticks) - gpu_now(), 0, 1);
    }
}

FP_TEST(clock_map_pairs_are_met_exactly_and_results_ascend)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    fp_clock_pair pair[FP_CLOCK_PAIRS];
    int64_t ticks = INT64_MAX / 2, ns = NOW_NS;
    uint64_t state = 3;
    for (int i = 0; i < FP_CLOCK_PAIRS; i++) {
        pair[i] = (fp_clock_pair){ticks, ns};
        fp_clock_map_add(&m, ticks, ns);
        int64_t more = 1000000000 + (int64_t)fake_below(&state, 1000000000);
        ticks += more;
        ns += more + (int64_t)fake_below(&state, 2000) - 1000;
    }
    CHECK_UINT(m.steps, 0);
    for (int i = 0; i < FP_CLOCK_PAIRS; i++) {
        CHECK_INT(fp_clock_map_to_gpu(&m, pair[i].ticks), pair[i].gpu_ns);
    }
    int64_t before = 0;
    for (int64_t at = pair[0].ticks - 5000; at < pair[3].ticks;) {
        int64_t gpu = fp_clock_map_to_gpu(&m, at);
        CHECK(gpu >= before);
        before = gpu;
        at += fake_below(&state, 3) != 0 ? 1 : 3999999;
    }
    /* Close to the ends of a segment, tick by tick. */
    for (int i = 1; i < FP_CLOCK_PAIRS; i++) {
        before = fp_clock_map_to_gpu(&m, pair[i].ticks - 10);
        for (int64_t at = -9; at < 10; at++) {
            int64_t gpu = fp_clock_map_to_gpu(&m, pair[i].ticks + at);
            CHECK(gpu >= before && gpu <= before + 2);
            before = gpu;
        }
    }
}

FP_TEST(clock_map_the_tightest_bracket_wins)
{
    fp_clock ours = start_clocks(1.0);
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    clocks.jitter = 100000;
    uint64_t widest = 0;
    for (int second = 0; second < 20; second++) {
        m.worst_gap_ticks = 0;
        CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), 0);
        uint64_t gap = m.worst_gap_ticks;
        widest = gap > widest ? gap : widest;
        const fp_clock_pair *p = &m.pair[m.pairs - 1];
        CHECK_NEAR(p->gpu_ns - NOW_NS - p->ticks, 0, (gap + 1) / 2);
        clocks.ticks += TICKS_PER_SECOND;
    }
    CHECK_UINT(m.pairs, 20);
    /* A bracket is as wide as two readings, on average 100000. */
    CHECK(widest > 0 && widest < 60000);
}

FP_TEST(clock_map_the_worst_bracket_is_kept)
{
    fp_clock ours = start_clocks(1.0);
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    uint64_t worst = 0;
    for (uint32_t i = 1; i < 20; i++) {
        clocks.jitter = 1000 * (i % 7);
        fp_clock_map before = m;
        CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), 0);
        CHECK(m.worst_gap_ticks >= before.worst_gap_ticks);
        worst = m.worst_gap_ticks;
        clocks.ticks += TICKS_PER_SECOND;
    }
    CHECK(worst > 0);
}

FP_TEST(clock_map_a_reader_that_fails_adds_nothing)
{
    fp_clock ours = start_clocks(1.0);
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    for (int after = 1; after < 10; after++) {
        clocks.readings = 0;
        clocks.fail_after = after;
        CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), -1);
        CHECK_UINT(m.pairs, 0);
        CHECK_UINT(m.worst_gap_ticks, 0);
    }
    clocks.fail_after = 0;
    clocks.ticks_back = 10;
    CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), -1);
    CHECK_UINT(m.pairs, 0);
    clocks.ticks_back = 0;
    CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), 0);
    CHECK_UINT(m.pairs, 1);
}

FP_TEST(clock_map_a_pair_that_does_not_ascend_is_refused)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    fp_clock_map_add(&m, 1000, NOW_NS);
    fp_clock_map_add(&m, 1000, NOW_NS + 5);
    fp_clock_map_add(&m, 999, NOW_NS - 7);
    CHECK_UINT(m.pairs, 1);
    CHECK_INT(fp_clock_map_to_gpu(&m, 1000), NOW_NS);
    /* Jitter between two close readings is not a step. */
    fp_clock_map_add(&m, 1001, NOW_NS + 80);
    CHECK_UINT(m.pairs, 2);
    CHECK_UINT(m.steps, 0);
    /* A device's clock that goes back always is one. */
    fp_clock_map_add(&m, 1002, NOW_NS + 79);
    CHECK_UINT(m.pairs, 3);
    CHECK_UINT(m.steps, 1);
}

/* The device's clock is stepped by [by] ns at 5.7 s and sampled every
 * second. */
static fp_clock_map
sample_with_a_step(int64_t by)
{
    fp_clock ours = start_clocks(1.0 + 1.0 / (1 << 15));
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    for (int second = 0; second < 12; second++) {
        clocks.ticks = (int64_t)second * TICKS_PER_SECOND;
        clocks.gpu_offset = NOW_NS + (second > 5 ? by : 0);
        CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), 0);
    }
    CHECK_UINT(m.pairs, 12);
    CHECK_UINT(m.steps, 1);
    return m;
}

FP_TEST(clock_map_a_step_of_the_devices_clock_changes_no_time)
{
    const int64_t steps[] = {3600000000000, 300000000, -300000000,
                             -3600000000000, -1400000000};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        fp_clock_map m = sample_with_a_step(steps[i]);
        clocks.gpu_offset = NOW_NS;
        for (int64_t ticks = 0; ticks < 20000000000; ticks += 9999991) {
            clocks.ticks = ticks;
            CHECK_NEAR(fp_clock_map_to_gpu(&m, ticks) - gpu_now(), 0, 2000);
        }
    }
}

FP_TEST(clock_map_separates_times_before_and_after_a_step)
{
    const int64_t steps[] = {3600000000000, -3600000000000, 30000000000,
                             -30000000000};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        fp_clock_map m = sample_with_a_step(steps[i]);
        for (int64_t ticks = 0; ticks < 11000000000; ticks += 9999991) {
            clocks.ticks = ticks;
            clocks.gpu_offset = NOW_NS;
            int64_t is = gpu_now();
            int64_t said = is + (ticks > 5700000000 ? steps[i] : 0);
            CHECK_NEAR(fp_clock_map_steady(&m, said) - is, 0, 2000);
        }
    }
}

FP_TEST(clock_map_many_steps_are_counted_and_the_last_ones_kept)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    int64_t shift = 0;
    for (int64_t second = 0; second < 40; second++) {
        shift += second % 2 != 0 ? 100 * INT64_C(1000000000) : 0;
        fp_clock_map_add(&m, second * TICKS_PER_SECOND,
                         NOW_NS + second * TICKS_PER_SECOND + shift);
        CHECK_INT(fp_clock_map_steady(&m, NOW_NS + second * TICKS_PER_SECOND +
                                              shift),
                  NOW_NS + second * TICKS_PER_SECOND);
    }
    CHECK_UINT(m.steps, 20);
    CHECK_UINT(m.steps_kept, FP_CLOCK_STEPS);
}

FP_TEST(clock_map_slewing_is_followed_and_is_no_step)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    int64_t ns = NOW_NS;
    for (int64_t second = 0; second < 10; second++) {
        fp_clock_map_add(&m, second * TICKS_PER_SECOND, ns);
        ns += second == 4 ? 1083333333 : 1000000000; /* chrony's fastest */
    }
    CHECK_UINT(m.steps, 0);
    CHECK_INT(fp_clock_map_to_gpu(&m, 4500000000),
              NOW_NS + 4000000000 + 1083333333 / 2 + 1);
    CHECK_INT(fp_clock_map_to_gpu(&m, 6000000000), NOW_NS + 6083333333);
}

FP_TEST(clock_map_ignores_the_slope_of_a_short_time)
{
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    fp_clock_map_add(&m, 0, NOW_NS);
    fp_clock_map_add(&m, 1000, NOW_NS + 1090); /* 90 ns of jitter */
    CHECK_INT(fp_clock_map_to_gpu(&m, 1000001000), NOW_NS + 1000001090);
    fp_clock_map_add(&m, 200000000, NOW_NS + 200020000); /* 100 ppm */
    CHECK_INT(fp_clock_map_to_gpu(&m, 400000000), NOW_NS + 400040000);
}

FP_TEST(clock_map_beyond_the_last_pairs_old_and_new_ticks_still_map)
{
    fp_clock ours = start_clocks(1.0 + 1.0 / (1 << 15));
    fp_clock_map m;
    fp_clock_map_init(&m, 1.0);
    enum { SECONDS = 10 * FP_CLOCK_PAIRS };
    for (int second = 0; second < SECONDS; second++) {
        clocks.ticks = (int64_t)second * TICKS_PER_SECOND;
        CHECK_INT(fp_clock_map_sample(&m, &ours, read_theirs), 0);
    }
    CHECK_UINT(m.pairs, FP_CLOCK_PAIRS);
    CHECK_INT(m.pair[0].ticks,
              (int64_t)(SECONDS - FP_CLOCK_PAIRS) * TICKS_PER_SECOND);
    for (int64_t second = 0; second < SECONDS + 60; second++) {
        clocks.ticks = second * TICKS_PER_SECOND + 123456789;
        CHECK_NEAR(fp_clock_map_to_gpu(&m, clocks.ticks) - gpu_now(), 0, 20);
    }
}
