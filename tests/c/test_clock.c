#define _POSIX_C_SOURCE 200809L

#include "core/clock.h"
#include "fake.h"

#include <time.h>

FP_TEST(clock_reads_the_supplied_reader)
{
    int64_t now = 42;
    fp_clock c;
    fp_clock_init_reader(&c, fake_clock_read, &now, 0.25);
    CHECK_INT(fp_clock_now(&c), 42);
    now = -7; /* a clock that goes back is passed on unchanged */
    CHECK_INT(fp_clock_now(&c), -7);
    now = INT64_MAX;
    CHECK_INT(fp_clock_now(&c), INT64_MAX);
    CHECK_NEAR(fp_clock_ns_per_tick(&c), 0.25, 0);
    CHECK_STR(fp_clock_name(&c), "external");
}

static int64_t
monotonic_ns(void)
{
    struct timespec ts;
    CHECK_INT(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* An interval by the clock lies between the tightest and the loosest interval
 * by the system's clock, on a slow machine, too. */
static void
agrees_with_the_system(const fp_clock *c)
{
    int64_t a0 = monotonic_ns();
    int64_t begin = fp_clock_now(c);
    int64_t a1 = monotonic_ns();
    while (monotonic_ns() - a1 < 20000000) {
    }
    int64_t b0 = monotonic_ns();
    int64_t end = fp_clock_now(c);
    int64_t b1 = monotonic_ns();
    double ns = (double)(end - begin) * fp_clock_ns_per_tick(c);
    CHECK(ns >= 0.99 * (double)(b0 - a1));
    CHECK(ns <= 1.01 * (double)(b1 - a0));
}

FP_TEST(clock_of_this_machine_agrees_with_the_system)
{
    fp_clock c;
    fp_clock_init(&c);
    CHECK(c.kind != FP_CLOCK_READER);
    CHECK(strcmp(fp_clock_name(&c), "external") != 0);
    agrees_with_the_system(&c);
}

FP_TEST(clock_keeps_its_scale_when_one_of_the_two_clocks_jumps)
{
    const int64_t s = 1000000000;
    fp_clock c;
    fp_clock_init(&c);
    CHECK_NEAR(fp_clock_scale(&c, 3 * s, s), 1.0 / 3.0, 1e-12);
    c.scale = 1.0 / 3.0;
    /* Drift improves the scale over a longer time ... */
    CHECK_NEAR(fp_clock_scale(&c, 300030000000, 100 * s), 0.3333, 1e-6);
    /* ... but a suspension in which the counter continued does not, */
    CHECK_NEAR(fp_clock_scale(&c, 9000 * s, 100 * s), 1.0 / 3.0, 1e-12);
    /* nor does one that reset the counter, or a clock that stands still. */
    CHECK_NEAR(fp_clock_scale(&c, -5, 100 * s), 1.0 / 3.0, 1e-12);
    CHECK_NEAR(fp_clock_scale(&c, 3 * s, 0), 1.0 / 3.0, 1e-12);
}

FP_TEST(clock_detects_a_jump)
{
    fp_clock c;
    fp_clock_init(&c);
    if (c.kind != FP_CLOCK_COUNTER) {
        return;
    }
    (void)fp_clock_ns_per_tick(&c); /* waits until there is a scale */
    fp_clock_learn(&c);
    CHECK(c.scale > 0.0);
    CHECK_INT(fp_clock_has_jumped(&c), 0);
    double before = c.scale;
    c.base_ns -= 3600000000000; /* an hour that the counter did not count */
    CHECK_INT(fp_clock_has_jumped(&c), 1);
    CHECK_NEAR(fp_clock_ns_per_tick(&c), before, 0);
}

FP_TEST(clock_does_not_wait_for_one_that_stands_still)
{
    fp_clock c;
    fp_clock_init(&c);
    if (c.kind == FP_CLOCK_COUNTER) {
        /* the clock seems to stand still for years */
        c.base_ns += (int64_t)1 << 60;
        CHECK_NEAR(fp_clock_ns_per_tick(&c), 1.0, 0);
    }
}

FP_TEST(clock_without_a_counter_is_the_monotonic_one)
{
    fp_clock c;
    fp_clock_init(&c);
    c.kind = FP_CLOCK_MONOTONIC;
    CHECK_STR(fp_clock_name(&c), "monotonic");
    CHECK_NEAR(fp_clock_ns_per_tick(&c), 1.0, 0);
    int64_t before = monotonic_ns();
    int64_t now = fp_clock_now(&c);
    CHECK(before <= now && now <= monotonic_ns());
    agrees_with_the_system(&c);
}
