#define _GNU_SOURCE /* RUSAGE_THREAD */

#include "core/usage.h"

#include <sys/resource.h>
#include <time.h>

static int64_t
thread_cpu_ns(void *ctx)
{
    (void)ctx;
    struct timespec ts;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) != 0) {
        return -1;
    }
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void
thread_counts(void *ctx, fp_usage *out)
{
    (void)ctx;
#ifdef RUSAGE_THREAD
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) == 0) {
        out->switches = usage.ru_nivcsw;
        out->waits = usage.ru_nvcsw;
        out->faults = usage.ru_majflt;
    }
#else
    (void)out;
#endif
}

static int64_t
thread_delay_ns(void *ctx)
{
    return fp_run_delay_ns(ctx);
}

fp_usage_source
fp_usage_of_thread(fp_run_delay *delay)
{
    return (fp_usage_source){thread_cpu_ns, thread_counts, thread_delay_ns,
                             delay};
}

void
fp_usage_init(fp_usage_meter *m, fp_usage_source source, const fp_clock *clock)
{
    *m = (fp_usage_meter){.source = source, .read_ns = -1, .told_ns = -1};
    if (clock != NULL && clock->kind != FP_CLOCK_READER) {
        m->clock = clock;
        m->ns_per_tick = fp_clock_ns_per_tick(clock);
        m->near_ticks = (int64_t)(FP_USAGE_NEAR_NS / m->ns_per_tick);
        m->end_ticks = m->near_ticks;
    }
}

static int64_t
reckon(const fp_usage_meter *m, int64_t now)
{
    return m->read_ns + (int64_t)((double)(now - m->read_at) * m->ns_per_tick);
}

static int64_t
told(fp_usage_meter *m, int64_t cpu_ns)
{
    /* The estimate was too high because the thread was off the CPU.  A larger
     * difference means another clock: a forked child's. */
    if (m->clock != NULL && cpu_ns >= 0 && cpu_ns < m->told_ns &&
        m->told_ns - cpu_ns <= FP_USAGE_FAR_NS) {
        cpu_ns = m->told_ns;
    }
    m->told_ns = cpu_ns;
    return cpu_ns;
}

/* Was the thread on the CPU since the last reading?  Then the next one may
 * come later. */
static void
adapt(fp_usage_meter *m, int64_t cpu_ns, int64_t now)
{
    int64_t off_ns = reckon(m, now) - cpu_ns;
    if (m->read_ns < 0 || off_ns < -FP_USAGE_NEAR_NS ||
        off_ns > FP_USAGE_NEAR_NS) {
        m->end_ticks = m->near_ticks;
    }
    else if (now - m->read_at >= m->end_ticks) {
        int64_t most = m->near_ticks * FP_USAGE_PLAIN *
                       (FP_USAGE_FAR_NS / FP_USAGE_NEAR_NS);
        m->end_ticks = m->end_ticks * 2 < most ? m->end_ticks * 2 : most;
    }
}

int64_t
fp_usage_cpu_read(fp_usage_meter *m)
{
    int64_t cpu_ns = m->source.cpu_ns(m->source.ctx);
    if (m->clock != NULL) {
        int64_t now = fp_clock_now(m->clock);
        adapt(m, cpu_ns, now);
        m->read_at = now;
    }
    m->read_ns = cpu_ns;
    return told(m, cpu_ns);
}

int64_t
fp_usage_cpu(fp_usage_meter *m, int64_t now, int64_t reach)
{
    if (m->read_ns < 0 || now >= m->read_at + reach ||
        now <= m->read_at - m->near_ticks) {
        return fp_usage_cpu_read(m);
    }
    m->reckoned++;
    return told(m, reckon(m, now));
}

fp_usage
fp_usage_begin(fp_usage_meter *m, int64_t now)
{
    m->read_ns = m->told_ns = -1;
    m->off_ns = 0;
    fp_usage usage = {fp_usage_cpu(m, now, m->near_ticks), -1, -1, -1};
    m->source.counts(m->source.ctx, &usage);
    return usage;
}

fp_usage
fp_usage_read(fp_usage_meter *m)
{
    fp_usage usage = {fp_usage_cpu_read(m), -1, -1, -1};
    m->source.counts(m->source.ctx, &usage);
    return usage;
}

/* The reach of a step without the function hook. */
static int64_t
plain_reach(fp_usage_meter *m, int64_t ticks)
{
    int64_t usual = m->usual_ticks;
    m->usual_ticks = usual == 0 ? ticks : usual + (ticks - usual) / 8;
    return ticks > usual + usual / 4 ? 0 : m->end_ticks;
}

fp_usage
fp_usage_end(fp_usage_meter *m, const fp_usage *before, int64_t ticks,
             int64_t now, int plain)
{
    fp_usage usage = *before;
    usage.cpu_ns = fp_usage_cpu(
        m, now, plain ? plain_reach(m, ticks) : fp_usage_reach(m));
    double wall_ns = (double)ticks * m->ns_per_tick;
    m->off_ns += wall_ns - (double)(usage.cpu_ns - before->cpu_ns);
    m->off_ns = m->off_ns > 0 ? m->off_ns : 0;
    if (m->clock == NULL || usage.cpu_ns < before->cpu_ns ||
        m->off_ns > FP_USAGE_NEAR_NS + wall_ns / 1024) {
        m->off_ns = 0;
        m->source.counts(m->source.ctx, &usage);
    }
    return usage;
}
