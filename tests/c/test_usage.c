/* The operating system is asked rarely, and the estimates are never far
 * off. */
#include "core/usage.h"
#include "fake.h"

/* The life of a thread: on the CPU or off it. */
typedef struct life {
    fp_clock clock;
    int64_t now;    /* ticks of 1/2 ns */
    int64_t cpu_ns; /* -1: unknown */
    int64_t switches;
    uint64_t readings;
    uint64_t counts;
    int64_t late; /* ticks that a reading takes */
} life;

static int64_t
read_cpu(void *ctx)
{
    life *l = ctx;
    l->readings++;
    l->now += l->late;
    l->cpu_ns += l->cpu_ns >= 0 ? l->late / 2 : 0;
    return l->cpu_ns;
}

static void
read_counts(void *ctx, fp_usage *out)
{
    life *l = ctx;
    l->counts++;
    out->switches = l->switches;
    out->faults = 0;
}

static int64_t
read_delay(void *ctx)
{
    (void)ctx;
    return -1;
}

/* The meter reads the fields of a real-time clock; here they belong to a clock
 * that the test moves. */
static fp_usage_meter
meter(life *l)
{
    fp_usage_meter m;
    fp_usage_init(&m, (fp_usage_source){read_cpu, read_counts, read_delay, l},
                  NULL);
    m.ns_per_tick = 0.5;
    m.near_ticks = m.end_ticks = FP_USAGE_NEAR_NS * 2;
    m.clock = &l->clock;
    return m;
}

static int64_t
read_life(void *ctx)
{
    return ((life *)ctx)->now;
}

static void
init_life(life *l)
{
    *l = (life){.now = 1000000, .cpu_ns = 5000};
    fp_clock_init_reader(&l->clock, read_life, l, 0.5);
}

static void
pass(life *l, int64_t ns, bool on_cpu)
{
    l->now += ns * 2;
    l->cpu_ns += on_cpu ? ns : 0;
}

FP_TEST(usage_extrapolates_from_a_near_reading)
{
    life l;
    init_life(&l);
    fp_usage_meter m = meter(&l);
    fp_usage at = fp_usage_begin(&m, l.now);
    CHECK_INT(at.cpu_ns, 5000);
    for (int i = 0; i < 19; i++) {
        pass(&l, 1000, true);
        CHECK_INT(fp_usage_cpu(&m, l.now, m.near_ticks), l.cpu_ns);
    }
    CHECK_UINT(l.readings, 1);
    CHECK_UINT(m.reckoned, 19);
    pass(&l, 1000, true);
    CHECK_INT(fp_usage_cpu(&m, l.now, m.near_ticks), l.cpu_ns);
    CHECK_UINT(l.readings, 2);
    /* A new start drops the last reading. */
    (void)fp_usage_begin(&m, l.now);
    CHECK_UINT(l.readings, 3);
}

FP_TEST(usage_estimates_are_close_and_never_go_back)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        life l;
        init_life(&l);
        fp_usage_meter m = meter(&l);
        uint64_t state = seed;
        int64_t last = fp_usage_begin(&m, l.now).cpu_ns;
        l.late = (int64_t)fake_below(&state, 3) * 1000;
        for (int i = 0; i < 2000; i++) {
            pass(&l, fake_below(&state, 9000), fake_below(&state, 2) == 0);
            int64_t now = l.now, truth = l.cpu_ns;
            int64_t said = fp_usage_cpu(&m, now, m.near_ticks);
            CHECK(said >= last);
            CHECK(said >= truth - FP_USAGE_NEAR_NS);
            CHECK(said <= truth + FP_USAGE_NEAR_NS + l.late);
            last = said;
        }
        CHECK(l.readings < 1000 && m.reckoned + l.readings == 2001);
    }
}

static fp_usage
one_step(life *l, fp_usage_meter *m, fp_usage at, int64_t on_ns,
         int64_t off_ns)
{
    pass(l, on_ns, true);
    pass(l, off_ns, false);
    return fp_usage_end(m, &at, (on_ns + off_ns) * 2, l->now, 0);
}

FP_TEST(usage_counts_are_read_when_the_thread_was_off_the_cpu)
{
    life l;
    init_life(&l);
    fp_usage_meter m = meter(&l);
    fp_usage at = fp_usage_begin(&m, l.now);
    l.switches = 3;
    /* Within 20 us and 1/1024 of the step. */
    at = one_step(&l, &m, at, 10000000, 25000);
    CHECK_UINT(l.counts, 1);
    CHECK_INT(at.switches, 0);
    at = one_step(&l, &m, at, 10000000, 35000);
    CHECK_UINT(l.counts, 2);
    CHECK_INT(at.switches, 3); /* including those of the step before */
    /* Short absences add up: none is reported later than that. */
    at = one_step(&l, &m, at, 1000000, 15000);
    CHECK_UINT(l.counts, 2);
    at = one_step(&l, &m, at, 1000000, 15000);
    CHECK_UINT(l.counts, 3);
    /* A clock that runs ahead of the other gives no credit. */
    for (int i = 0; i < 100; i++) {
        pass(&l, 1000000, true);
        at = fp_usage_end(&m, &at, 999000 * 2, l.now, 0);
    }
    CHECK_UINT(l.counts, 3);
    at = one_step(&l, &m, at, 1000000, 35000);
    CHECK_UINT(l.counts, 4);
}

FP_TEST(usage_of_short_steps_on_the_cpu_is_read_once_per_millisecond)
{
    life l;
    init_life(&l);
    fp_usage_meter m = meter(&l);
    fp_usage at = fp_usage_begin(&m, l.now);
    for (int i = 0; i < 100; i++) {
        at = one_step(&l, &m, at, 100000, 0);
    }
    uint64_t before = l.readings;
    for (int i = 0; i < 1000; i++) {
        at = one_step(&l, &m, at, 100000, 0);
        CHECK_INT(at.cpu_ns, l.cpu_ns);
    }
    CHECK_UINT(l.readings - before, 100);
    /* A longer step is always read, so it has its own wait; then every step
     * is, until the thread keeps the CPU again. */
    at = one_step(&l, &m, at, 100000, 5000000);
    CHECK_INT(at.cpu_ns, l.cpu_ns);
    before = l.readings;
    for (int i = 0; i < 10; i++) {
        at = one_step(&l, &m, at, 100000, 50000);
        CHECK_INT(at.cpu_ns, l.cpu_ns);
    }
    CHECK_UINT(l.readings - before, 10);
}

/* A step without the function hook, of 1 ms and an absence. */
static fp_usage
one_plain(life *l, fp_usage_meter *m, fp_usage at, int64_t off_ns)
{
    pass(l, 1000000, true);
    pass(l, off_ns, false);
    return fp_usage_end(m, &at, (1000000 + off_ns) * 2, l->now, 1);
}

FP_TEST(usage_of_steps_without_the_hook_is_read_once_in_four_milliseconds)
{
    life l;
    init_life(&l);
    fp_usage_meter m = meter(&l);
    fp_usage at = fp_usage_begin(&m, l.now);
    for (int i = 0; i < 100; i++) {
        at = one_plain(&l, &m, at, 0);
    }
    uint64_t before = l.readings;
    for (int i = 0; i < 400; i++) {
        at = one_plain(&l, &m, at, 0);
        CHECK_INT(at.cpu_ns, l.cpu_ns);
    }
    CHECK_UINT(l.readings - before, 100);
    /* An absence belongs to its step, however short the last reading was
     * ago. */
    for (int i = 0; i < 8; i++) {
        at = one_plain(&l, &m, at, 0);
        int64_t cpu_ns = at.cpu_ns;
        at = one_plain(&l, &m, at, 300000);
        CHECK_INT(at.cpu_ns - cpu_ns, 1000000);
        for (int j = 0; j < 20; j++) {
            at = one_plain(&l, &m, at, 0);
        }
    }
}

FP_TEST(usage_never_goes_back_if_a_short_step_waits)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        life l;
        init_life(&l);
        fp_usage_meter m = meter(&l);
        uint64_t state = seed;
        fp_usage at = fp_usage_begin(&m, l.now);
        int64_t last = at.cpu_ns;
        for (int i = 0; i < 2000; i++) {
            at = one_step(
                &l, &m, at, 1 + fake_below(&state, 90000),
                fake_below(&state, 20) == 0 ? fake_below(&state, 900000) : 0);
            CHECK(at.cpu_ns >= last);
            CHECK(at.cpu_ns >= l.cpu_ns - FP_USAGE_NEAR_NS);
            CHECK(at.cpu_ns <= l.cpu_ns + FP_USAGE_FAR_NS);
            last = at.cpu_ns;
        }
        /* The sum is right once the thread has had the CPU for a while. */
        pass(&l, FP_USAGE_FAR_NS, true);
        at = one_step(&l, &m, at, FP_USAGE_FAR_NS, 0);
        CHECK_INT(at.cpu_ns, l.cpu_ns);
    }
}

FP_TEST(usage_without_a_clock_always_reads)
{
    life l;
    init_life(&l);
    fp_usage_meter m;
    fp_usage_init(&m, (fp_usage_source){read_cpu, read_counts, read_delay, &l},
                  &l.clock);
    CHECK(m.clock == NULL); /* an external timer is not real time */
    fp_usage at = fp_usage_begin(&m, l.now);
    CHECK_INT(fp_usage_cpu(&m, l.now, m.near_ticks), 5000);
    (void)fp_usage_end(&m, &at, 0, l.now, 0);
    CHECK_UINT(l.readings, 3);
    CHECK_UINT(l.counts, 2);
    CHECK_UINT(m.reckoned, 0);
}

FP_TEST(usage_does_not_extrapolate_unknown_values)
{
    life l;
    init_life(&l);
    fp_usage_meter m = meter(&l);
    l.cpu_ns = -1;
    fp_usage at = fp_usage_begin(&m, l.now);
    CHECK_INT(at.cpu_ns, -1);
    CHECK_INT(fp_usage_cpu(&m, l.now + 2, m.near_ticks), -1);
    CHECK_UINT(m.reckoned, 0);
    /* Another thread's clock, as after a fork, starts again. */
    l.cpu_ns = 90000000;
    CHECK_INT(fp_usage_cpu(&m, l.now, m.near_ticks), 90000000);
    l.cpu_ns = 0;
    pass(&l, 50000, true);
    CHECK_INT(fp_usage_cpu(&m, l.now, m.near_ticks), 50000);
}
