#include "gpu/timeline.h"

#include "gpu/timeline_order.h"

#include <string.h>

enum {
    FIRST_CAPACITY = 1024,
    /* Streams run in parallel, so neighbours are swapped.  An interval that
     * belongs further back comes from another buffer: left to the merge
     * sort. */
    MOVES = 16,
    /* Unordered intervals are sorted in batches of this size.  Sorting all of
     * them at the end of a period would delay CUPTI's buffers. */
    BATCH = 1 << 14,
};

void
fp_timeline_init(fp_timeline *t, const fp_alloc *a, int64_t begin)
{
    *t = (fp_timeline){.alloc = *a, .folded = begin};
    for (int u = 0; u < FP_TIMELINE_UNIONS; u++) {
        t->busy_until[u] = begin;
    }
}

void
fp_timeline_fini(fp_timeline *t)
{
    fp_alloc_give(&t->alloc, t->interval, t->interval_capacity,
                  sizeof(*t->interval));
    fp_alloc_give(&t->alloc, t->event, t->event_capacity, sizeof(*t->event));
    fp_step_waits_fini(&t->waits, &t->alloc);
    t->interval = NULL;
    t->event = NULL;
    t->intervals = t->interval_capacity = t->ordered = 0;
    t->events = t->event_capacity = 0;
}

static void
sort_intervals(fp_timeline *t)
{
    if (t->ordered < t->intervals &&
        fp_intervals_sort_last(&t->alloc, t->interval, t->ordered,
                               t->intervals) != 0) {
        fp_intervals_sort_in_place(t->interval, t->intervals);
    }
    t->ordered = t->intervals;
}

/* ---- the sweep ---- */

/* Each sum is the length of a union of intervals.  Starts ascend, so the end
 * of a union is all that is needed to extend it. */
typedef struct sweep {
    int64_t since; /* earlier time is in the sums */
    int64_t busy_until[FP_TIMELINE_UNIONS];
    int64_t ns[FP_TIMELINE_UNIONS]; /* from `since` to busy_until */
} sweep;

static inline void
cover(sweep *s, int u, const fp_interval *v)
{
    int64_t until = s->busy_until[u];
    int64_t from = until > v->start ? until : v->start;
    int64_t end = v->end > from ? v->end : from;
    s->ns[u] += end - from;
    s->busy_until[u] = end;
}

/* A table instead of branches: the next class is unpredictable.  Covering an
 * interval twice has no effect. */
static inline void
cover_all(sweep *s, const fp_interval *v)
{
    static const uint8_t more[FP_GPU_CLASSES][3] = {
        [FP_GPU_COMPUTE] = {FP_TIMELINE_KERNEL, FP_TIMELINE_COMPUTE,
                            FP_TIMELINE_WORK},
        [FP_GPU_COMMUNICATION] = {FP_TIMELINE_KERNEL,
                                  FP_TIMELINE_COMMUNICATION,
                                  FP_TIMELINE_COMMUNICATION},
        [FP_GPU_COLLECTIVE] = {FP_TIMELINE_KERNEL, FP_TIMELINE_COMMUNICATION,
                               FP_TIMELINE_WORK},
        [FP_GPU_COPY] = {FP_TIMELINE_COPY, FP_TIMELINE_COPY, FP_TIMELINE_COPY},
        [FP_GPU_MEMSET] = {FP_TIMELINE_COPY, FP_TIMELINE_COPY,
                           FP_TIMELINE_COPY},
    };
    cover(s, FP_TIMELINE_ANY, v);
    cover(s, more[v->gpu_class][0], v);
    cover(s, more[v->gpu_class][1], v);
    cover(s, more[v->gpu_class][2], v);
}

static void
add_sums(fp_timeline_sums *to, const fp_timeline_sums *from)
{
    to->wall_ns += from->wall_ns;
    to->busy_ns += from->busy_ns;
    to->kernel_ns += from->kernel_ns;
    to->compute_ns += from->compute_ns;
    to->communication_ns += from->communication_ns;
    to->waiting_ns += from->waiting_ns;
    to->overlap_ns += from->overlap_ns;
    to->copy_ns += from->copy_ns;
    to->copy_alone_ns += from->copy_alone_ns;
    for (int i = 0; i < FP_TIMELINE_SECTIONS; i++) {
        to->idle_ns[i] += from->idle_ns[i];
    }
}

static void
add_unions(fp_timeline_sums *to, const int64_t *ns, int64_t wall_ns,
           uint32_t section)
{
    int64_t kernel_ns = ns[FP_TIMELINE_KERNEL];
    to->wall_ns += wall_ns;
    to->busy_ns += ns[FP_TIMELINE_ANY];
    to->kernel_ns += kernel_ns;
    to->compute_ns += ns[FP_TIMELINE_COMPUTE];
    to->communication_ns += ns[FP_TIMELINE_COMMUNICATION];
    to->waiting_ns += ns[FP_TIMELINE_WORK] - ns[FP_TIMELINE_COMPUTE];
    to->overlap_ns +=
        ns[FP_TIMELINE_COMPUTE] + ns[FP_TIMELINE_COMMUNICATION] - kernel_ns;
    to->copy_ns += ns[FP_TIMELINE_COPY];
    to->copy_alone_ns += ns[FP_TIMELINE_ANY] - kernel_ns;
    to->idle_ns[section] += wall_ns - ns[FP_TIMELINE_ANY];
}

/* Adds the time before [to] to the sums; no interval begins before it any
 * more. */
static void
settle(fp_timeline *t, sweep *s, int64_t to, int recorded)
{
    int64_t ns[FP_TIMELINE_UNIONS];
    for (int u = 0; u < FP_TIMELINE_UNIONS; u++) {
        int64_t beyond = s->busy_until[u] > to ? s->busy_until[u] - to : 0;
        ns[u] = s->ns[u] - beyond;
        s->ns[u] = beyond;
    }
    if (recorded) {
        add_unions(&t->step_so_far, ns, to - s->since, t->section);
        add_unions(&t->whole, ns, to - s->since, t->section);
    }
    s->since = to;
}

static void
apply_event(fp_timeline *t, const fp_host_event *e)
{
    if (!e->is_step) {
        t->section = e->section;
        return;
    }
    if (e->measured) {
        add_sums(&t->steps, &t->step_so_far);
        t->step_count++;
        fp_step_waits_put(
            &t->waits, (&(fp_step_wait){e->number, t->step_so_far.waiting_ns,
                                        t->step_so_far.compute_ns}));
    }
    t->step_so_far = (fp_timeline_sums){0};
}

/* Applies the events from [first] up to [to].  Returns the index of the next
 * event. */
static uint32_t
sweep_events(fp_timeline *t, sweep *s, uint32_t first, int64_t to,
             int recorded)
{
    for (; first < t->events && t->event[first].at <= to; first++) {
        settle(t, s, t->event[first].at, recorded);
        apply_event(t, &t->event[first]);
    }
    return first;
}

static sweep
begin_sweep(const fp_timeline *t)
{
    sweep s = {.since = t->folded};
    for (int u = 0; u < FP_TIMELINE_UNIONS; u++) {
        s.busy_until[u] = t->busy_until[u];
        s.ns[u] = s.busy_until[u] > s.since ? s.busy_until[u] - s.since : 0;
    }
    return s;
}

static void
sweep_to(fp_timeline *t, int64_t to, int recorded)
{
    to = to > t->folded ? to : t->folded;
    sort_intervals(t);
    sweep s = begin_sweep(t);
    uint32_t i = 0, e = 0;
    for (; i < t->intervals && t->interval[i].start < to; i++) {
        const fp_interval *v = &t->interval[i];
        if (e < t->events && t->event[e].at <= v->start) {
            e = sweep_events(t, &s, e, v->start, recorded);
        }
        cover_all(&s, v);
    }
    e = sweep_events(t, &s, e, to, recorded);
    settle(t, &s, to, recorded);
    memcpy(t->busy_until, s.busy_until, sizeof(s.busy_until));
    t->folded = to;
    t->intervals -= i;
    t->ordered = t->intervals;
    t->events -= e;
    if (i != 0) {
        memmove(t->interval, t->interval + i,
                t->intervals * sizeof(*t->interval));
    }
    if (e != 0) {
        memmove(t->event, t->event + e, t->events * sizeof(*t->event));
    }
}

void
fp_timeline_fold(fp_timeline *t, int64_t until)
{
    sweep_to(t, until, 1);
}

void
fp_timeline_gap(fp_timeline *t, int64_t from, int64_t to)
{
    sweep_to(t, from, 1);
    sweep_to(t, to, 0);
}

/* ---- adding intervals and events ---- */

/* Doubles an array; see fp_alloc_room.  Returns 0 if there is no memory, or
 * the array is as large as allowed. */
static int
grow(const fp_alloc *a, void *array, uint32_t *capacity, size_t size)
{
    return *capacity < FP_TIMELINE_WAITING &&
           fp_alloc_room(a, array, capacity, *capacity + 1, FIRST_CAPACITY,
                         size) == FP_OK;
}

/* Makes room for one interval.  -1: not even memory for the first ones. */
static FP_COLD int
interval_room(fp_timeline *t)
{
    if (!grow(&t->alloc, &t->interval, &t->interval_capacity,
              sizeof(*t->interval)) &&
        t->intervals != 0) {
        sort_intervals(t);
        int64_t first = t->interval[0].start;
        int64_t middle = t->interval[t->intervals / 2].start;
        fp_timeline_fold(t, middle > first ? middle : first + 1);
    }
    return t->intervals < t->interval_capacity ? 0 : -1;
}

static FP_COLD int
event_room(fp_timeline *t)
{
    if (!grow(&t->alloc, &t->event, &t->event_capacity, sizeof(*t->event)) &&
        t->events != 0) {
        fp_timeline_fold(t, t->event[t->events / 2].at);
    }
    return t->events < t->event_capacity ? 0 : -1;
}

/* Without memory the batch waits for the next one, or for the fold. */
static FP_COLD void
sort_batch(fp_timeline *t)
{
    if (fp_intervals_sort_last(&t->alloc, t->interval, t->ordered,
                               t->intervals) == 0) {
        t->ordered = t->intervals;
    }
}

/* Inserts [x] from the back if its position is near. */
static inline void
insert(fp_timeline *t, fp_interval x)
{
    fp_interval *v = t->interval;
    uint32_t i = t->intervals++;
    if (FP_UNLIKELY(t->ordered < i) ||
        (i > MOVES && v[i - MOVES].start > x.start)) {
        v[i] = x;
        if ((i - t->ordered) % BATCH == BATCH - 1) {
            sort_batch(t);
        }
        return;
    }
    for (; i > 0 && v[i - 1].start > x.start; i--) {
        v[i] = v[i - 1];
    }
    v[i] = x;
    t->ordered = t->intervals;
}

void
fp_timeline_add(fp_timeline *t, int64_t start, int64_t end, fp_gpu_class c)
{
    if (end <= start) {
        return;
    }
    if (FP_UNLIKELY(t->intervals == t->interval_capacity) &&
        interval_room(t) != 0) {
        t->lost++;
        return;
    }
    if (FP_UNLIKELY(c == FP_GPU_COLLECTIVE && t->waits.row == NULL)) {
        fp_step_waits_begin(&t->waits, &t->alloc);
    }
    if (FP_UNLIKELY(start < t->folded)) {
        t->late++;
        t->late_ns += (end < t->folded ? end : t->folded) - start;
        start = t->folded;
        if (end <= start) {
            return;
        }
    }
    insert(t, (fp_interval){start, end, (uint8_t)c});
}

static void
add_event(fp_timeline *t, fp_host_event e)
{
    if (t->events == t->event_capacity && event_room(t) != 0) {
        t->lost++;
        return;
    }
    /* A corrected clock may go back a little. */
    int64_t last = t->events != 0 ? t->event[t->events - 1].at : t->folded;
    e.at = e.at > last ? e.at : last;
    t->event[t->events++] = e;
}

void
fp_timeline_section(fp_timeline *t, int64_t at, uint32_t section)
{
    uint32_t last = FP_TIMELINE_SECTIONS - 1;
    add_event(t, (fp_host_event){.at = at,
                                 .section = section < last ? section : last});
}

void
fp_timeline_step(fp_timeline *t, int64_t at, uint64_t number, int measured)
{
    add_event(t, (fp_host_event){.at = at,
                                 .number = number,
                                 .is_step = 1,
                                 .measured = measured != 0});
}
