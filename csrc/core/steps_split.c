#include "core/steps_split.h"

#include "core/steps_pairs.h"
#include "core/path.h"

/* ---- waiting for a CPU ---- */

/* [after] - [before], or -1 if either is unknown. */
static int64_t
spent(int64_t before, int64_t after)
{
    return before < 0 || after < before ? -1 : after - before;
}

/* The delay since the last call; 0 if it is unknown. */
static int64_t
take_delay(fp_split *s)
{
    int64_t before = s->delay_at_ns;
    s->delay_at_ns = fp_usage_delay(&s->usage);
    int64_t ns = spent(before, s->delay_at_ns);
    return ns > 0 ? ns : 0;
}

/* The same, added to the step, unless a section has just read it: a wait is
 * not longer than the time since then. */
static void
read_delay(fp_split *s, int64_t now)
{
    if (now - s->delay_read_at > FP_DELAY_READ_EVERY * s->usage.near_ticks) {
        s->step.delay_ns += take_delay(s);
        s->delay_read_at = now;
    }
}

/* The delay of the current step so far. */
static int64_t
step_delay(const fp_split *s)
{
    return s->step.delay_ns + s->step.covered_delay_ns;
}

/* Gives the delay since the last call to [n]; NULL: the node is not known. */
static void
place_delay(fp_split *s, const fp_node *n)
{
    int64_t ns = step_delay(s) - s->placed_delay_ns;
    if (ns > 0 && n != NULL) {
        double each = s->usage.clock != NULL ? s->usage.ns_per_tick : 1.0;
        fp_split_add_place(s, n, FP_KIND_CPU, (int64_t)((double)ns / each));
    }
    s->placed_delay_ns = step_delay(s);
}

void
fp_split_open_bottom(fp_thread *t, int64_t now)
{
    read_delay(t->split, now);
    place_delay(t->split, t->cur->parent);
    t->split->bottom_node = t->cur;
}

void
fp_split_charge_bottom(fp_thread *t, int64_t now)
{
    read_delay(t->split, now);
    place_delay(t->split, t->split->bottom_node);
}

/* Ends a step.  Reading the delay is a system call.  Only a thread that was
 * off the CPU can have waited for one, so most steps skip it.  Covers skip it,
 * too, unless the last step was off the CPU; in the first step that was, the
 * delay of its covers counts for the step. */
static void
end_delay(fp_thread *t, const fp_usage *now)
{
    fp_split *s = t->split;
    uint8_t shared = s->shares_cpus;
    s->shares_cpus =
        now->switches != s->at.switches || now->waits != s->at.waits;
    if (s->shares_cpus != shared) {
        s->bottom_node = NULL; /* an open section has read nothing */
    }
    if (s->shares_cpus) {
        s->step.delay_ns += take_delay(s);
        if (shared && t->open_len == 0) {
            place_delay(s, t->cur);
        }
    }
}

/* ---- sections that cover their whole time ---- */

/* Is the CPU time of this cover only estimated? */
static int
estimates_cover(const fp_thread *t)
{
    return t->phases.plain && !t->split->cover_waits &&
           t->steps->count % FP_COVERS_READ_EVERY != 0;
}

/* For how long a reading of the CPU time holds at the begin and end of a
 * cover. */
static int64_t
cover_reach(const fp_thread *t)
{
    const fp_usage_meter *m = &t->split->usage;
    return estimates_cover(t) ? fp_usage_reach(m) : m->near_ticks;
}

static void
begin_cover(const fp_thread *t, const fp_node *n, int64_t now)
{
    fp_split *s = t->split;
    s->cover_since = now;
    s->cover_cpu_ns = fp_usage_cpu(&s->usage, now, cover_reach(t));
    s->cover_node = n;
    if (s->shares_cpus) {
        s->step.delay_ns += take_delay(s);
        s->delay_read_at = now;
    }
}

/* Reads the CPU time after a long cover and estimates it after a short one.  A
 * long cover may have waited, and a later reading cannot tell in which
 * section. */
static int64_t
cpu_after(const fp_thread *t, int64_t ticks, int64_t now)
{
    fp_split *s = t->split;
    int64_t reach = cover_reach(t);
    if (ticks <= (estimates_cover(t) ? reach : reach / 4)) {
        return fp_usage_cpu(&s->usage, now, reach);
    }
    int64_t cpu_ns = fp_usage_cpu_read(&s->usage);
    double on_ns = (double)(cpu_ns - s->cover_cpu_ns);
    s->cover_waits = on_ns < 0.875 * (double)ticks * s->usage.ns_per_tick;
    return cpu_ns;
}

/* Charges the cover from its begin to [now].  With [elsewhere] another thread
 * calls: the CPU time is unknown. */
static void
end_cover(const fp_thread *t, int64_t now, int elsewhere)
{
    fp_split *s = t->split;
    int64_t end = s->in_gc ? s->gc_since : now;
    int64_t ticks = end > s->cover_since ? end - s->cover_since : 0;
    int64_t cpu_ns =
        elsewhere ? 0 : cpu_after(t, ticks, now) - s->cover_cpu_ns;
    fp_split_add_place(s, s->cover_node, s->cover_kind, ticks);
    s->step.covered_ticks += ticks;
    s->step.covered_cpu_ns += cpu_ns > 0 ? cpu_ns : 0;
    if (s->shares_cpus) {
        s->step.covered_delay_ns += take_delay(s);
        s->delay_read_at = now;
    }
}

void
fp_split_cover(fp_thread *t, fp_kind kind, int64_t now)
{
    fp_split *s = t->split;
    if (s->covers++ == 0) {
        s->cover_kind = kind;
        begin_cover(t, t->cur, now);
    }
}

void
fp_split_uncover(fp_thread *t, int64_t now, int elsewhere)
{
    fp_split *s = t->split;
    if (--s->covers == 0) {
        end_cover(t, now, elsewhere);
    }
}

/* Recounts the covers among the open sections. */
static void
find_covers(fp_thread *t)
{
    fp_split *s = t->split;
    s->covers = 0;
    for (uint32_t i = 0; i < t->open_len; i++) {
        if (t->open[i].cover != FP_KIND_NONE && s->covers++ == 0) {
            s->cover_kind = (fp_kind)t->open[i].cover;
        }
    }
}

/* ---- the GPU ---- */

void
fp_split_gpu(fp_thread *t, int64_t ticks)
{
    fp_split *s = t->split;
    if (s->covers == 0 && ticks > 0) {
        s->step.kind[FP_KIND_GPU] += ticks;
        fp_waits_take(&t->waits, fp_thread_stands(t), ticks);
    }
}

/* ---- functions that wait ---- */

void
fp_thread_list_wait(fp_thread *t, fp_node *n, fp_kind kind)
{
    if (n->key == FP_KEY_TRUNCATED || fp_waits_number(n) != 0) {
        return; /* a node shared by many calls, or already listed */
    }
    for (uint32_t i = 0; i < t->open_len; i++) {
        if (t->open[i].cover != FP_KIND_NONE) {
            return; /* a node is one path: it will always be covered */
        }
    }
    fp_waits_add(&t->waits, &t->alloc, n, kind);
}

/* ---- steps ---- */

/* Can the end of the collection still be reported?  The hook that reported its
 * begin may have been removed since, or reinstalled too late.  A step can end
 * inside a collection only once: in a finalizer that steps. */
static int
may_end(fp_split *s)
{
    return (s->signals & FP_SIGNAL_GC) != 0 && s->gc_steps++ == 0;
}

/* Brings all sums of the current step up to [now]. */
static void
charge_all(fp_thread *t, int64_t now, int measured)
{
    fp_split *s = t->split;
    if (now > t->last) {
        fp_thread_charge(t, now);
    }
    if (s->in_gc && !may_end(s)) {
        fp_split_gc_forget(t);
    }
    if (s->in_gc) {
        fp_split_gc_charge(t, now);
    }
    if (s->covers != 0) {
        end_cover(t, now, 0);
        begin_cover(t, s->cover_node, now);
    }
    fp_waits_end_step(&t->waits, s->step.kind, measured);
    fp_split_end_places(s, measured);
}

static void
add_sums(fp_split_sums *into, const fp_split_sums *from)
{
    for (int k = 0; k < FP_KIND_COUNT; k++) {
        into->kind[k] += from->kind[k];
    }
    into->covered_ticks += from->covered_ticks;
    into->covered_cpu_ns += from->covered_cpu_ns;
    into->gc_cpu_ns += from->gc_cpu_ns;
    into->delay_ns += from->delay_ns;
    into->covered_delay_ns += from->covered_delay_ns;
    for (int g = 0; g < FP_GC_GENERATIONS; g++) {
        into->gc_runs[g] += from->gc_runs[g];
    }
}

static void
put_row(const fp_split *s, fp_split_steps *of, uint32_t row, uint64_t number,
        int64_t start, unsigned watched, const fp_usage *now)
{
    int64_t cpu_ns = spent(s->at.cpu_ns, now->cpu_ns);
    of->delay_steps += s->delay_at_ns >= 0;
    int seen = (watched & FP_SIGNAL_FUNCTIONS) != 0;
    /* A wait for the GPU during a collection is subtracted twice; a negative
     * sum must not look like -1, which means unknown. */
    int64_t communication = s->step.kind[FP_KIND_COMMUNICATION];
    int64_t autograd = s->step.kind[FP_KIND_AUTOGRAD];
    of->series.row[row] = (fp_series_row){
        .number = (int64_t)number,
        .start = start,
        .cpu_ns = cpu_ns,
        .gc_ticks = s->step.kind[FP_KIND_GC],
        .switches = spent(s->at.switches, now->switches),
        .faults = spent(s->at.faults, now->faults),
        .delay_ns = s->delay_at_ns < 0 ? -1 : step_delay(s),
        .communication = !seen               ? -1
                         : communication > 0 ? communication
                                             : 0,
        .autograd = !seen          ? -1
                    : autograd > 0 ? autograd
                                   : 0,
    };
    fp_series_put_sections(&of->series, row);
    if (cpu_ns >= 0) {
        of->cpu_ns += cpu_ns;
        of->cpu_steps++;
    }
}

void
fp_split_end_step(fp_thread *t, int64_t start, int64_t now, fp_step_kind kind)
{
    fp_split *s = t->split;
    int measured = kind == FP_STEP_MEASURED;
    fp_split_steps *of = measured                ? &s->measured
                         : kind == FP_STEP_PLAIN ? s->plain
                                                 : NULL;
    charge_all(t, now, measured);
    fp_usage usage = fp_usage_end(&s->usage, &s->at, t->steps->ticks, now,
                                  kind == FP_STEP_PLAIN);
    end_delay(t, &usage);
    unsigned watched = s->signals & s->signals_before;
    if (of != NULL) {
        add_sums(&of->sum, &s->step);
        for (int i = 0; i < FP_SIGNALS; i++) {
            of->signal_steps[i] += watched >> i & 1;
        }
        uint64_t n =
            measured ? t->steps->measured.count : t->steps->plain.count;
        put_row(s, of, (uint32_t)((n - 1) % FP_STEPS_RECENT),
                t->steps->count - 1, start, watched, &usage);
    }
    if (s->pairs != NULL) {
        fp_pairs_end_step(s->pairs, t, kind);
    }
    s->at = s->paused_at = usage;
    s->signals_before = s->signals;
    s->step = s->kept = (fp_split_sums){{0}, 0, 0, 0, 0, 0, {0}};
    s->placed_delay_ns = 0;
}

fp_status
fp_split_keep_plain(fp_thread *t)
{
    fp_split *s = t->split;
    if (s == NULL) {
        return FP_ENOTFOUND;
    }
    if (s->plain == NULL) {
        s->plain = fp_alloc_zeroed(&t->alloc, 1, sizeof(*s->plain));
    }
    return s->plain != NULL ? FP_OK : FP_ENOMEM;
}

fp_series *
fp_split_series(fp_split *s, fp_run_phase phase)
{
    return phase == FP_RUN_STEPS ? &s->measured.series
           : phase == FP_RUN_UNPROFILED && s->plain != NULL ? &s->plain->series
                                                            : NULL;
}

void
fp_split_start(fp_thread *t, int64_t now)
{
    if (t->split == NULL) {
        t->split = fp_alloc_zeroed(&t->alloc, 1, sizeof(*t->split));
        if (t->split == NULL) {
            return;
        }
        fp_usage_init(&t->split->usage, fp_usage_of_thread(&t->split->delay),
                      NULL);
        find_covers(t);
        begin_cover(t, t->cur, now);
    }
    if (t->split->delay.file == 0) {
        fp_run_delay_open(&t->split->delay);
    }
    charge_all(t, now, 0);
    t->split->step = t->split->kept = (fp_split_sums){{0}, 0, 0, 0, 0, 0, {0}};
    t->split->placed_delay_ns = 0;
    t->split->bottom_node = NULL;
    t->split->signals_before = t->split->signals;
    t->split->at = t->split->paused_at = fp_usage_begin(&t->split->usage, now);
    t->split->delay_at_ns = fp_usage_delay(&t->split->usage);
}

static int64_t
moved(int64_t at, int64_t from, int64_t to)
{
    return at < 0 || from < 0 || to < from ? at : at + (to - from);
}

void
fp_split_pause(fp_thread *t, int64_t now)
{
    fp_split *s = t->split;
    if (s == NULL) {
        return;
    }
    charge_all(t, now, t->run_phase == FP_RUN_STEPS);
    s->paused_at = fp_usage_read(&s->usage);
    /* Here the first wait of a step becomes known.  Waiting that happens until
     * the step resumes does not belong to it. */
    if (s->shares_cpus || s->paused_at.switches != s->at.switches ||
        s->paused_at.waits != s->at.waits) {
        s->step.delay_ns += take_delay(s);
    }
    s->kept = s->step;
}

void
fp_split_resume(fp_thread *t, int64_t now)
{
    fp_split *s = t->split;
    if (s == NULL) {
        return;
    }
    charge_all(t, now, 0);
    s->step = s->kept;
    s->placed_delay_ns = step_delay(s);
    fp_usage usage = fp_usage_read(&s->usage);
    s->at.cpu_ns = moved(s->at.cpu_ns, s->paused_at.cpu_ns, usage.cpu_ns);
    s->at.switches =
        moved(s->at.switches, s->paused_at.switches, usage.switches);
    s->at.waits = moved(s->at.waits, s->paused_at.waits, usage.waits);
    s->at.faults = moved(s->at.faults, s->paused_at.faults, usage.faults);
    s->delay_at_ns = fp_usage_delay(&s->usage);
}

void
fp_split_set_usage(fp_thread *t, fp_usage_source source, const fp_clock *clock,
                   int64_t now)
{
    fp_usage_init(&t->split->usage, source, clock);
    t->split->at = t->split->paused_at = fp_usage_begin(&t->split->usage, now);
    t->split->cover_cpu_ns = t->split->at.cpu_ns;
    t->split->delay_at_ns = fp_usage_delay(&t->split->usage);
}

void
fp_split_set_clock(fp_thread *t, const fp_clock *clock, int64_t now)
{
    if (t->split->usage.clock == NULL) {
        fp_split_set_usage(t, t->split->usage.source, clock, now);
    }
}

void
fp_split_stop(fp_thread *t)
{
    if (t->split != NULL) {
        fp_split_gc_forget(t);
        fp_own_file_close(&t->split->delay);
    }
}

void
fp_split_destroy(fp_thread *t)
{
    if (t->split != NULL) {
        fp_own_file_close(&t->split->delay);
        fp_series_fini(&t->split->measured.series, &t->alloc);
        if (t->split->plain != NULL) {
            fp_series_fini(&t->split->plain->series, &t->alloc);
            fp_alloc_give(&t->alloc, t->split->plain, 1,
                          sizeof(fp_split_steps));
        }
        fp_alloc_give(&t->alloc, t->split->pairs, 1, sizeof(fp_pairs));
        fp_alloc_give(&t->alloc, t->split, 1, sizeof(*t->split));
        t->split = NULL;
    }
}

static size_t
column_bytes(const fp_series *s)
{
    return s->columns * FP_STEPS_RECENT * sizeof(int64_t);
}

size_t
fp_split_bytes(const fp_split *s)
{
    size_t bytes = sizeof(*s) + column_bytes(&s->measured.series) +
                   (s->pairs != NULL ? sizeof(*s->pairs) : 0);
    if (s->plain != NULL) {
        bytes += sizeof(*s->plain) + column_bytes(&s->plain->series);
    }
    return bytes;
}
