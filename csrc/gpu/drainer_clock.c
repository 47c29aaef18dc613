#define _POSIX_C_SOURCE 200809L

/* CUPTI's clock.  It belongs to the process, and any library can replace it
 * for good: Kineto installs a counter that does not count nanoseconds. */
#include "gpu/cupti_abi.h"
#include "gpu/drainer.h"

#include <time.h>

int64_t
fp_drainer_device_now(const fp_gpu *g)
{
    return fp_clock_map_to_gpu(&g->ledger.clock, fp_clock_now(&g->clock));
}

int
fp_drainer_check(fp_gpu *g, int result)
{
    if (result != FP_CUPTI_SUCCESS) {
        g->cupti_errors++;
    }
    return result;
}

static uint64_t
wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Is [ns] the system's wall clock? */
static int
is_wall_clock(uint64_t ns)
{
    const uint64_t second = 1000000000;
    uint64_t wall = wall_ns();
    return ns < wall + second && wall < ns + second;
}

/* Does CUPTI's clock count nanoseconds?  -1: it cannot be read. */
static int
runs_in_ns(fp_gpu *g)
{
    uint64_t ns;
    if (g->cupti.get_timestamp(&ns) != 0) {
        return -1;
    }
    if (is_wall_clock(ns)) {
        return 1;
    }
    /* Another zero does no harm; another unit does. */
    double scale = fp_clock_ns_per_tick(&g->clock);
    fp_clock_map first, last;
    fp_clock_map_init(&first, scale);
    fp_clock_map_init(&last, scale);
    int rc = fp_clock_map_sample(&first, &g->clock, g->cupti.get_timestamp);
    nanosleep(&(struct timespec){0, 2000000}, NULL);
    rc |= fp_clock_map_sample(&last, &g->clock, g->cupti.get_timestamp);
    if (rc != 0) {
        return -1;
    }
    double ours = (double)(last.pair[0].ticks - first.pair[0].ticks) * scale;
    double theirs = (double)(last.pair[0].gpu_ns - first.pair[0].gpu_ns);
    return theirs > 0.9 * ours && theirs < 1.1 * ours;
}

/* Replaces CUPTI's clock by the wall clock.  Returns 0 on success. */
static int
take_back(fp_gpu *g)
{
    if (g->clock_is_ours || g->cupti.register_clock == NULL ||
        fp_drainer_check(g, g->cupti.register_clock(wall_ns)) != 0) {
        return -1;
    }
    pthread_mutex_lock(&g->lock);
    g->clock_is_ours = 1;
    g->clocks_taken_back++;
    pthread_mutex_unlock(&g->lock);
    return runs_in_ns(g) == 1 ? 0 : -1;
}

/* Reads CUPTI's clock without the lock: other threads wait for the lock while
 * they hold the GIL.  Only this thread changes the map. */
void
fp_drainer_sample_clock(fp_gpu *g)
{
    fp_clock_map map = g->ledger.clock;
    int rc = fp_clock_map_sample(&map, &g->clock, g->cupti.get_timestamp);
    if (rc == 0 && map.steps != g->ledger.clock.steps && runs_in_ns(g) == 0) {
        map = g->ledger.clock;
        rc = take_back(g) < 0 ? -1
                              : fp_clock_map_sample(&map, &g->clock,
                                                    g->cupti.get_timestamp);
    }
    if (rc != 0) {
        g->cupti_errors++;
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->ledger.clock = map;
    pthread_mutex_unlock(&g->lock);
}

int
fp_drainer_begin_clock(fp_gpu *g)
{
    g->clock_is_ours = 0;
    if (runs_in_ns(g) == 0 && take_back(g) < 0) {
        fp_why_set(&g->found,
                   "another profiler of this process replaced CUPTI's "
                   "clock with one that does not count nanoseconds, and "
                   "fastprof could not restore it");
        return -1;
    }
    fp_drainer_sample_clock(g);
    if (g->ledger.clock.pairs == 0) {
        fp_why_set(&g->found,
                   "CUPTI's clock cannot be read, so the times of GPU work "
                   "are unknown");
        return -1;
    }
    return 0;
}

void
fp_drainer_watch_clock(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    int more = g->ledger.counters.misdated > g->seen_misdated;
    g->seen_misdated = g->ledger.counters.misdated;
    pthread_mutex_unlock(&g->lock);
    if (more && !g->clock_is_ours) {
        (void)take_back(g); /* reading the clock does not show the other one */
    }
}
