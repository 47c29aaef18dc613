#include "fake.h"
#include "gpu/timeline.h"

static const int64_t BEGIN_NS = 1700000000000000000;

/* The same, one unit of time after the other. */
enum { AXIS = 400, MOST_INTERVALS = 120, MOST_EVENTS = 60 };

typedef struct model {
    fp_interval interval[MOST_INTERVALS];
    uint32_t intervals;
    fp_host_event event[MOST_EVENTS];
    uint32_t events;
    uint8_t gap[AXIS];
    int64_t folded;
    int64_t late_ns;
    uint64_t late;
} model;

static int
is_active(const model *m, int64_t at, int first, int last)
{
    for (uint32_t i = 0; i < m->intervals; i++) {
        const fp_interval *v = &m->interval[i];
        if (v->start <= at && at < v->end && v->gpu_class >= first &&
            v->gpu_class <= last) {
            return 1;
        }
    }
    return 0;
}

static void
count_unit(const model *m, int64_t at, uint32_t section, fp_timeline_sums *s)
{
    int compute = is_active(m, at, FP_GPU_COMPUTE, FP_GPU_COMPUTE);
    int comm = is_active(m, at, FP_GPU_COMMUNICATION, FP_GPU_COMMUNICATION);
    int copy = is_active(m, at, FP_GPU_COPY, FP_GPU_MEMSET);
    s->wall_ns += 1;
    s->busy_ns += compute || comm || copy;
    s->kernel_ns += compute || comm;
    s->compute_ns += compute;
    s->communication_ns += comm;
    s->overlap_ns += compute && comm;
    s->copy_ns += copy;
    s->copy_alone_ns += copy && !compute && !comm;
    s->idle_ns[section] += !compute && !comm && !copy;
}

static void
model_sums(const model *m, fp_timeline *want)
{
    uint32_t section = 0, e = 0;
    for (int64_t at = 0; at <= m->folded; at++) {
        for (; e < m->events && m->event[e].at <= at; e++) {
            const fp_host_event *h = &m->event[e];
            if (!h->is_step) {
                section = h->section;
                continue;
            }
            if (h->measured) {
                want->step_count++;
                int64_t *to = (int64_t *)&want->steps;
                const int64_t *from = (const int64_t *)&want->step_so_far;
                for (size_t i = 0; i < sizeof(want->steps) / sizeof(*to);
                     i++) {
                    to[i] += from[i];
                }
            }
            want->step_so_far = (fp_timeline_sums){0};
        }
        if (at < m->folded && !m->gap[at]) {
            count_unit(m, at, section, &want->whole);
            count_unit(m, at, section, &want->step_so_far);
        }
    }
}

static void
check_sums(const fp_timeline_sums *got, const fp_timeline_sums *want)
{
    CHECK_INT(got->wall_ns, want->wall_ns);
    CHECK_INT(got->busy_ns, want->busy_ns);
    CHECK_INT(got->kernel_ns, want->kernel_ns);
    CHECK_INT(got->compute_ns, want->compute_ns);
    CHECK_INT(got->communication_ns, want->communication_ns);
    CHECK_INT(got->overlap_ns, want->overlap_ns);
    CHECK_INT(got->copy_ns, want->copy_ns);
    CHECK_INT(got->copy_alone_ns, want->copy_alone_ns);
    for (int i = 0; i < FP_TIMELINE_SECTIONS; i++) {
        CHECK_INT(got->idle_ns[i], want->idle_ns[i]);
    }
}

static void
check_consistent(const fp_timeline_sums *s)
{
    int64_t idle = 0;
    for (int i = 0; i < FP_TIMELINE_SECTIONS; i++) {
        CHECK(s->idle_ns[i] >= 0);
        idle += s->idle_ns[i];
    }
    CHECK_INT(s->wall_ns, s->busy_ns + idle);
    CHECK_INT(s->kernel_ns,
              s->compute_ns + s->communication_ns - s->overlap_ns);
    CHECK_INT(s->busy_ns, s->kernel_ns + s->copy_alone_ns);
    CHECK(s->overlap_ns >= 0 && s->overlap_ns <= s->compute_ns &&
          s->overlap_ns <= s->communication_ns);
    CHECK(s->copy_alone_ns >= 0 && s->copy_alone_ns <= s->copy_ns);
}

static void
check_all_consistent(const fp_timeline *t)
{
    check_consistent(&t->whole);
    check_consistent(&t->steps);
    check_consistent(&t->step_so_far);
}

static void
check_model(const fp_timeline *t, const model *m)
{
    fp_timeline want = {0};
    model_sums(m, &want);
    CHECK_INT(t->folded - BEGIN_NS, m->folded);
    check_sums(&t->whole, &want.whole);
    check_sums(&t->steps, &want.steps);
    check_sums(&t->step_so_far, &want.step_so_far);
    CHECK_UINT(t->step_count, want.step_count);
    CHECK_UINT(t->late, m->late);
    CHECK_INT(t->late_ns, m->late_ns);
    CHECK_UINT(t->lost, 0);
    check_all_consistent(t);
}

static void
add_random_interval(fp_timeline *t, model *m, uint64_t *state, int64_t around)
{
    int64_t start = around + (int64_t)fake_below(state, 60) - 20;
    int64_t end = start + (int64_t)fake_below(state, 30) - 3;
    fp_gpu_class c = (fp_gpu_class)fake_below(state, FP_GPU_CLASSES);
    fp_timeline_add(t, BEGIN_NS + start, BEGIN_NS + end, c);
    if (end <= start || m->intervals == MOST_INTERVALS) {
        CHECK(end <= start);
        return;
    }
    if (start < m->folded) {
        m->late++;
        m->late_ns += (end < m->folded ? end : m->folded) - start;
        start = m->folded;
    }
    if (start < end) {
        m->interval[m->intervals++] = (fp_interval){start, end, (uint8_t)c};
    }
}

static void
add_random_event(fp_timeline *t, model *m, uint64_t *state, int64_t around)
{
    CHECK(m->events < MOST_EVENTS);
    fp_host_event e = {.at = around + (int64_t)fake_below(state, 20) - 5,
                       .section = fake_below(state, 80),
                       .is_step = fake_below(state, 3) == 0,
                       .measured = fake_below(state, 3) != 0};
    if (e.is_step) {
        fp_timeline_step(t, BEGIN_NS + e.at, e.measured);
    }
    else {
        fp_timeline_section(t, BEGIN_NS + e.at, e.section);
    }
    int64_t last = m->events != 0 ? m->event[m->events - 1].at : 0;
    last = last > m->folded ? last : m->folded;
    e.at = e.at > last ? e.at : last;
    e.section = e.section < 63 ? e.section : 63;
    m->event[m->events++] = e;
}

static void
fold_both(fp_timeline *t, model *m, int64_t until)
{
    fp_timeline_fold(t, BEGIN_NS + until);
    m->folded = until > m->folded ? until : m->folded;
}

static void
gap_in_both(fp_timeline *t, model *m, int64_t from, int64_t to)
{
    fp_timeline_gap(t, BEGIN_NS + from, BEGIN_NS + to);
    for (int64_t at = from > m->folded ? from : m->folded; at < to; at++) {
        m->gap[at] = 1;
    }
    m->folded = from > m->folded ? from : m->folded;
    m->folded = to > m->folded ? to : m->folded;
}

static void
run_against_the_model(uint64_t seed)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    static model m;
    memset(&m, 0, sizeof(m));
    uint64_t state = seed;
    uint32_t intervals = fake_below(&state, MOST_INTERVALS);
    for (int64_t i = 0; i < intervals; i++) {
        int64_t around = i * 300 / intervals;
        add_random_interval(&t, &m, &state, around);
        if (m.events < MOST_EVENTS && fake_below(&state, 3) == 0) {
            add_random_event(&t, &m, &state, around);
        }
        if (fake_below(&state, 12) == 0) {
            fold_both(&t, &m, around - 10);
            check_model(&t, &m);
        }
        if (fake_below(&state, 40) == 0) {
            gap_in_both(&t, &m, around - 10,
                        around - 13 + (int64_t)fake_below(&state, 30));
            check_model(&t, &m);
        }
    }
    fold_both(&t, &m, AXIS);
    check_model(&t, &m);
    CHECK_UINT(t.intervals, 0);
    CHECK_UINT(t.events, 0);
    fp_timeline_fini(&t);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(timeline_does_what_the_model_does)
{
    for (uint64_t seed = 0; seed < 1500; seed++) {
        run_against_the_model(seed);
    }
}
