#include "gpu/clock_map.h"

#include <string.h>

enum { TRIES = 32 };

/* A larger difference than slewing can cause is a step: chrony slews by at
 * most 1/12. */
enum { SLEW_PART = 10, STEP_NS = 100000 };

/* Brackets are about 100 ns wide; over this interval that is 1e-6, better than
 * the clock's first scale. */
enum { BASELINE_NS = 100000000 };

/* Records may be newer than the last pair by at most this. */
#define FUTURE_NS INT64_C(3000000000)

void
fp_clock_map_init(fp_clock_map *m, double ns_per_tick)
{
    *m = (fp_clock_map){.ns_per_tick = ns_per_tick, .slope = ns_per_tick};
}

int
fp_clock_map_sample(fp_clock_map *m, const fp_clock *ours,
                    fp_gpu_time_reader theirs)
{
    int64_t best_gap = INT64_MAX, ticks = 0;
    uint64_t gpu_ns = 0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t ns;
        int64_t before = fp_clock_now(ours);
        if (theirs(&ns) != 0) {
            return -1;
        }
        int64_t gap = fp_clock_now(ours) - before;
        if (gap >= 0 && gap < best_gap) {
            best_gap = gap;
            ticks = before + gap / 2;
            gpu_ns = ns;
        }
    }
    if (best_gap == INT64_MAX) {
        return -1;
    }
    if ((uint64_t)best_gap > m->worst_gap_ticks) {
        m->worst_gap_ticks = (uint64_t)best_gap;
    }
    fp_clock_map_add(m, ticks, (int64_t)gpu_ns);
    return 0;
}

static int
is_step(const fp_clock_map *m, const fp_clock_pair *a, int64_t ticks,
        int64_t gpu_ns)
{
    double ns = (double)(gpu_ns - a->gpu_ns);
    double expected = (double)(ticks - a->ticks) * m->ns_per_tick;
    double off = ns > expected ? ns - expected : expected - ns;
    return ns < 0 || off > expected / SLEW_PART + STEP_NS;
}

/* Converts only differences to floating point: for days they stay exact to far
 * less than 1 ns. */
static int64_t
along(const fp_clock_pair *from, int64_t ticks, double slope)
{
    double ns = (double)(ticks - from->ticks) * slope;
    int64_t nearest = ns < 0 ? -(int64_t)(0.5 - ns) : (int64_t)(ns + 0.5);
    return from->gpu_ns + nearest;
}

static void
measure_slope(fp_clock_map *m)
{
    const fp_clock_pair *last = &m->pair[m->pairs - 1], *first = m->pair;
    double ns = (double)(last->gpu_ns - first->gpu_ns);
    m->slope = ns >= BASELINE_NS ? ns / (double)(last->ticks - first->ticks)
                                 : m->ns_per_tick;
}

static void
keep_step(fp_clock_map *m, int64_t after, int64_t before)
{
    if (m->steps_kept == FP_CLOCK_STEPS) {
        m->steps_kept--;
        memmove(m->step, m->step + 1, m->steps_kept * sizeof(m->step[0]));
    }
    m->step[m->steps_kept++] = (fp_clock_step){after, before, m->shift};
    m->steps++;
}

void
fp_clock_map_add(fp_clock_map *m, int64_t ticks, int64_t gpu_ns)
{
    gpu_ns -= m->shift;
    if (m->pairs != 0) {
        const fp_clock_pair *last = &m->pair[m->pairs - 1];
        if (ticks <= last->ticks) {
            return;
        }
        if (is_step(m, last, ticks, gpu_ns)) {
            int64_t expected = along(last, ticks, m->slope);
            m->shift += gpu_ns - expected;
            gpu_ns = expected;
            keep_step(m, last->gpu_ns, expected);
        }
    }
    if (m->pairs == FP_CLOCK_PAIRS) {
        m->pairs--;
        memmove(m->pair, m->pair + 1, m->pairs * sizeof(m->pair[0]));
    }
    m->pair[m->pairs++] = (fp_clock_pair){ticks, gpu_ns};
    measure_slope(m);
}

/* Uses the newest shift whose result lies in the period of that shift and not
 * in the future. */
int64_t
fp_clock_map_find_steady(const fp_clock_map *m, int64_t gpu_ns)
{
    int64_t latest = m->pair[m->pairs - 1].gpu_ns + FUTURE_NS;
    for (uint32_t i = m->steps_kept; i-- > 0;) {
        const fp_clock_step *s = &m->step[i];
        int64_t at = gpu_ns - s->shift;
        if (at >= s->after && at <= latest) {
            return at;
        }
        latest = s->before;
    }
    int64_t first = m->steps == m->steps_kept ? 0 : m->step[0].shift;
    return gpu_ns - first <= latest ? gpu_ns - first : gpu_ns - m->shift;
}

static int64_t
between(const fp_clock_pair *a, const fp_clock_pair *b, int64_t ticks)
{
    double ns = (double)(b->gpu_ns - a->gpu_ns);
    return along(a, ticks, ns / (double)(b->ticks - a->ticks));
}

int64_t
fp_clock_map_to_gpu(const fp_clock_map *m, int64_t ticks)
{
    if (m->pairs == 0) {
        return 0;
    }
    /* From the back: callers ask about recent times. */
    uint32_t after = m->pairs;
    while (after > 0 && m->pair[after - 1].ticks > ticks) {
        after--;
    }
    if (after == 0) {
        return along(&m->pair[0], ticks, m->slope);
    }
    const fp_clock_pair *a = &m->pair[after - 1];
    if (after == m->pairs) {
        return along(a, ticks, m->slope);
    }
    return between(a, a + 1, ticks);
}

int64_t
fp_clock_map_to_ticks(const fp_clock_map *m, int64_t gpu_ns)
{
    if (m->pairs == 0) {
        return 0;
    }
    /* The slopes hardly differ, so each iteration is thousands of times
     * closer. */
    enum { GUESSES = 4 };
    int64_t ticks = m->pair[m->pairs - 1].ticks;
    for (int i = 0; i < GUESSES; i++) {
        double off = (double)(gpu_ns - fp_clock_map_to_gpu(m, ticks));
        off /= m->slope;
        ticks += (int64_t)(off < 0 ? off - 0.5 : off + 0.5);
    }
    return ticks;
}
