#include "fake.h"
#include "gpu/timeline.h"

static const int64_t BEGIN_NS = 1700000000000000000;

/* The model: one unit of time after the other. */
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
    int comm = is_active(m, at, FP_GPU_COMMUNICATION, FP_GPU_COLLECTIVE);
    int collective = is_active(m, at, FP_GPU_COLLECTIVE, FP_GPU_COLLECTIVE);
    int copy = is_active(m, at, FP_GPU_COPY, FP_GPU_MEMSET);
    s->wall_ns += 1;
    s->busy_ns += compute || comm || copy;
    s->kernel_ns += compute || comm;
    s->compute_ns += compute;
    s->communication_ns += comm;
    s->waiting_ns += collective && !compute;
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
    CHECK_INT(got->waiting_ns, want->waiting_ns);
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
        fp_timeline_step(t, BEGIN_NS + e.at, 0, e.measured);
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

FP_TEST(timeline_of_a_step_worked_out_by_hand)
{
    fp_alloc a = fp_alloc_libc();
    fp_timeline t;
    fp_timeline_init(&t, &a, 1000);
    fp_timeline_section(&t, 1000, 7);
    fp_timeline_add(&t, 1010, 1030, FP_GPU_COPY);
    fp_timeline_add(&t, 1020, 1050, FP_GPU_COMPUTE);
    fp_timeline_add(&t, 1040, 1070, FP_GPU_COMMUNICATION);
    fp_timeline_section(&t, 1080, 8);
    fp_timeline_add(&t, 1090, 1120, FP_GPU_MEMSET);
    fp_timeline_step(&t, 1100, 0, 1);
    fp_timeline_fold(&t, 1100);
    const fp_timeline_sums *s = &t.steps;
    CHECK_UINT(t.step_count, 1);
    CHECK_INT(s->wall_ns, 100);
    CHECK_INT(s->busy_ns, 70);
    CHECK_INT(s->kernel_ns, 50);
    CHECK_INT(s->compute_ns, 30);
    CHECK_INT(s->communication_ns, 30);
    CHECK_INT(s->overlap_ns, 10);
    CHECK_INT(s->copy_ns, 30);
    CHECK_INT(s->copy_alone_ns, 20);
    CHECK_INT(s->idle_ns[7], 20); /* 1000 to 1010, 1070 to 1080 */
    CHECK_INT(s->idle_ns[8], 10);
    CHECK_INT(t.step_so_far.wall_ns, 0);
    /* The memset continues into the next step. */
    fp_timeline_fold(&t, 1150);
    CHECK_INT(t.step_so_far.wall_ns, 50);
    CHECK_INT(t.step_so_far.busy_ns, 20);
    CHECK_INT(t.step_so_far.idle_ns[8], 30);
    CHECK_INT(t.whole.wall_ns, 150);
    CHECK_INT(t.whole.copy_ns, 50);
    fp_timeline_fini(&t);
}

/* Reads the waits of steps [first] to [first] + 3. */
static void
read_waits(const fp_timeline *t, int64_t first, int64_t *ns)
{
    int64_t number[4];
    for (int i = 0; i < 4; i++) {
        number[i] = first + i;
        ns[i] = -1;
    }
    int64_t compute_ns[4] = {-1, -1, -1, -1};
    fp_step_waits_read(&t->waits, number, ns, compute_ns, 4);
    for (int i = 0; i < 4; i++) {
        CHECK((compute_ns[i] < 0) == (ns[i] < 0));
    }
}

FP_TEST(timeline_keeps_the_waits_for_other_ranks_in_each_step)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_timeline t;
    int64_t ns[4];
    fp_timeline_init(&t, &a, 1000);
    fp_timeline_add(&t, 1010, 1030, FP_GPU_COMMUNICATION);
    fp_timeline_step(&t, 1100, 4, 1);
    fp_timeline_fold(&t, 1150); /* no collective so far */
    CHECK(t.waits.row == NULL);
    fp_timeline_add(&t, 1150, 1160, FP_GPU_COMPUTE);
    fp_timeline_add(&t, 1155, 1180, FP_GPU_COLLECTIVE);
    fp_timeline_add(&t, 1170, 1190, FP_GPU_COMMUNICATION);
    fp_timeline_step(&t, 1200, 5, 1);
    fp_timeline_step(&t, 1300, 6, 0); /* not measured */
    fp_timeline_add(&t, 1310, 1350, FP_GPU_COMPUTE);
    fp_timeline_add(&t, 1310, 1350, FP_GPU_COLLECTIVE);
    fp_timeline_step(&t, 1400, 7, 1);
    fp_timeline_fold(&t, 1390); /* the last step may still wait */
    read_waits(&t, 4, ns);
    CHECK_INT(ns[0], -1);
    CHECK_INT(ns[1], 20);
    CHECK_INT(ns[2], -1);
    CHECK_INT(ns[3], -1);
    fp_timeline_fold(&t, 1400);
    read_waits(&t, 6, ns);
    CHECK_INT(ns[1], 0);
    CHECK_INT(ns[2], -1);
    for (int64_t i = 0; i < FP_STEPS_RECENT; i++) {
        int64_t at = 1400 + 10 * i;
        fp_timeline_add(&t, at, at + i % 7 + 1, FP_GPU_COLLECTIVE);
        fp_timeline_step(&t, at + 10, (uint64_t)(8 + i), 1);
        fp_timeline_fold(&t, at + 10);
    }
    read_waits(&t, 6, ns);
    CHECK_INT(ns[1], -1); /* only the last ones are kept */
    CHECK_INT(ns[2], 1);
    CHECK_INT(ns[3], 2);
    ns[0] = 500; /* another device of the rank waited longer */
    int64_t compute_ns = -1;
    fp_step_waits_read(&t.waits, (int64_t[]){8}, ns, &compute_ns, 1);
    CHECK_INT(ns[0], 500);
    CHECK_INT(compute_ns, 0);
    fp_timeline_fini(&t);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(timeline_f36_without_memory_keeps_no_waits_and_tries_again)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_timeline t;
    int64_t ns[4];
    fp_timeline_init(&t, &a, 0);
    fp_timeline_add(&t, 1, 2,
                    FP_GPU_COMPUTE); /* takes the intervals' memory */
    memory.fail_at = memory.takes + 1;
    fp_timeline_add(&t, 10, 20, FP_GPU_COLLECTIVE);
    CHECK(t.waits.row == NULL);
    memory.fail_at = 0;
    fp_timeline_step(&t, 100, 0, 1);
    fp_timeline_add(&t, 110, 120, FP_GPU_COLLECTIVE);
    fp_timeline_step(&t, 200, 1, 1);
    fp_timeline_fold(&t, 200);
    read_waits(&t, 0, ns);
    CHECK_INT(ns[0], 10);
    CHECK_INT(ns[1], 10);
    fp_timeline_fini(&t);
}

FP_TEST(timeline_empty_and_negative_intervals_are_ignored)
{
    fp_alloc a = fp_alloc_libc();
    fp_timeline t;
    fp_timeline_init(&t, &a, 100);
    fp_timeline_add(&t, 110, 110, FP_GPU_COMPUTE);
    fp_timeline_add(&t, 190, 110, FP_GPU_COMPUTE);
    fp_timeline_add(&t, 50, 50, FP_GPU_COMPUTE);
    fp_timeline_add(&t, 110, INT64_MIN, FP_GPU_COPY);
    fp_timeline_fold(&t, 200);
    CHECK_INT(t.whole.wall_ns, 100);
    CHECK_INT(t.whole.busy_ns, 0);
    CHECK_UINT(t.late, 0);
    fp_timeline_fini(&t);
}

FP_TEST(timeline_a_late_activity_loses_only_its_folded_part)
{
    fp_alloc a = fp_alloc_libc();
    fp_timeline t;
    fp_timeline_init(&t, &a, 0);
    fp_timeline_fold(&t, 100);
    fp_timeline_add(&t, 100, 110, FP_GPU_COMPUTE);
    CHECK_UINT(t.late, 0);
    fp_timeline_add(&t, 90, 120, FP_GPU_COMPUTE);
    CHECK_UINT(t.late, 1);
    CHECK_INT(t.late_ns, 10);
    fp_timeline_add(&t, 40, 60, FP_GPU_COMPUTE);
    CHECK_UINT(t.late, 2);
    CHECK_INT(t.late_ns, 30);
    fp_timeline_section(&t, 50, 3); /* takes effect at 100 */
    fp_timeline_fold(&t, 200);
    CHECK_INT(t.whole.busy_ns, 20);
    CHECK_INT(t.whole.idle_ns[0], 100);
    CHECK_INT(t.whole.idle_ns[3], 80);
    fp_timeline_fini(&t);
}

FP_TEST(timeline_a_gap_is_in_no_sum)
{
    fp_alloc a = fp_alloc_libc();
    fp_timeline t;
    fp_timeline_init(&t, &a, 0);
    fp_timeline_add(&t, 80, 250, FP_GPU_COMPUTE);
    fp_timeline_section(&t, 150, 2);
    fp_timeline_gap(&t, 100, 200);
    CHECK_INT(t.whole.wall_ns, 100);
    CHECK_INT(t.whole.busy_ns, 20);
    fp_timeline_step(&t, 300, 0, 1);
    fp_timeline_fold(&t, 300);
    CHECK_INT(t.steps.wall_ns, 200);
    CHECK_INT(t.steps.busy_ns, 70);
    CHECK_INT(t.steps.idle_ns[0], 80);
    CHECK_INT(t.steps.idle_ns[2], 50);
    CHECK_UINT(t.late, 0);
    fp_timeline_fini(&t);
}

FP_TEST(timeline_sections_beyond_the_last_are_counted_in_the_last)
{
    fp_alloc a = fp_alloc_libc();
    fp_timeline t;
    fp_timeline_init(&t, &a, 0);
    for (uint32_t i = 0; i < 100; i++) {
        fp_timeline_section(&t, 10 * (int64_t)i, i);
    }
    fp_timeline_section(&t, 1000, UINT32_MAX);
    fp_timeline_fold(&t, 1010);
    for (uint32_t i = 0; i < FP_TIMELINE_SECTIONS - 1; i++) {
        CHECK_INT(t.whole.idle_ns[i], 10);
    }
    CHECK_INT(t.whole.idle_ns[FP_TIMELINE_SECTIONS - 1], 380);
    check_all_consistent(&t);
    fp_timeline_fini(&t);
}

/* ---- many ---- */

enum { MANY = 300000, LONG_AXIS = 1 << 20 };

typedef struct crowd {
    fp_interval interval[MANY];
    /* Begins minus ends, by time and class. */
    int32_t change[LONG_AXIS + 1][FP_GPU_CLASSES];
} crowd;

static crowd *
make_crowd(uint64_t seed)
{
    crowd *c = calloc(1, sizeof(*c));
    CHECK(c != NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        int64_t start = (int64_t)fake_below(&seed, LONG_AXIS - 100);
        /* Each eighth of the axis has another density. */
        uint32_t most = 1u + ((uint32_t)start >> 17) % 4 * 8;
        int64_t end = start + 1 + (int64_t)fake_below(&seed, most);
        uint8_t class = (uint8_t)fake_below(&seed, FP_GPU_CLASSES);
        c->interval[i] = (fp_interval){start, end, class};
        c->change[start][class]++;
        c->change[end][class]--;
    }
    return c;
}

static fp_timeline_sums
sums_of(const crowd *c)
{
    fp_timeline_sums s = {0};
    int32_t n[FP_GPU_CLASSES] = {0};
    for (int at = 0; at < LONG_AXIS; at++) {
        for (int class = 0; class < FP_GPU_CLASSES; class ++) {
            n[class] += c->change[at][class];
        }
        int copy = n[FP_GPU_COPY] || n[FP_GPU_MEMSET];
        int comm = n[FP_GPU_COMMUNICATION] || n[FP_GPU_COLLECTIVE];
        int kernel = n[FP_GPU_COMPUTE] || comm;
        s.wall_ns++;
        s.busy_ns += copy || kernel;
        s.kernel_ns += kernel;
        s.compute_ns += n[FP_GPU_COMPUTE] != 0;
        s.communication_ns += comm;
        s.waiting_ns += n[FP_GPU_COLLECTIVE] && !n[FP_GPU_COMPUTE];
        s.overlap_ns += n[FP_GPU_COMPUTE] && comm;
        s.copy_ns += copy;
        s.copy_alone_ns += copy && !kernel;
        s.idle_ns[0] += !copy && !kernel;
    }
    return s;
}

static void
add_crowd(fp_timeline *t, const crowd *c)
{
    for (uint32_t i = 0; i < MANY; i++) {
        const fp_interval *v = &c->interval[i];
        fp_timeline_add(t, BEGIN_NS + v->start, BEGIN_NS + v->end,
                        (fp_gpu_class)v->gpu_class);
    }
}

static void
steps_over_the_long_axis(fp_timeline *t, int64_t step, int measured)
{
    for (int64_t at = step; at <= LONG_AXIS; at += step) {
        fp_timeline_step(t, BEGIN_NS + at, 0, measured);
    }
}

FP_TEST(timeline_many_in_any_order)
{
    crowd *c = make_crowd(1);
    fp_timeline_sums want = sums_of(c);
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    add_crowd(&t, c);
    steps_over_the_long_axis(&t, 1 << 10, 1);
    fp_timeline_fold(&t, BEGIN_NS + LONG_AXIS);
    check_sums(&t.whole, &want);
    /* The folds cut at each step: together they are the whole. */
    check_sums(&t.steps, &want);
    CHECK_UINT(t.step_count, 1 << 10);
    check_all_consistent(&t);
    CHECK_UINT(t.late, 0);
    fp_timeline_fini(&t);
    CHECK_UINT(m.bytes, 0);
    free(c);
}

FP_TEST(timeline_warm_up_steps_are_in_the_whole_only)
{
    crowd *c = make_crowd(2);
    fp_timeline_sums want = sums_of(c);
    fp_alloc a = fp_alloc_libc();
    fp_timeline t, other;
    fp_timeline_init(&t, &a, BEGIN_NS);
    fp_timeline_init(&other, &a, BEGIN_NS);
    add_crowd(&t, c);
    add_crowd(&other, c);
    for (int64_t i = 1; i <= 1000; i++) {
        fp_timeline_step(&t, BEGIN_NS + i * 1000, 0, i % 3 != 0);
        fp_timeline_step(&other, BEGIN_NS + i * 1000, 0, i % 3 == 0);
    }
    fp_timeline_fold(&t, BEGIN_NS + LONG_AXIS);
    fp_timeline_fold(&other, BEGIN_NS + LONG_AXIS);
    CHECK_UINT(t.step_count + other.step_count, 1000);
    CHECK_INT(t.step_so_far.wall_ns, LONG_AXIS - 1000000);
    const fp_timeline_sums *p = &t.steps, *q = &other.steps,
                           *r = &t.step_so_far;
    CHECK_INT(p->wall_ns + q->wall_ns + r->wall_ns, want.wall_ns);
    CHECK_INT(p->busy_ns + q->busy_ns + r->busy_ns, want.busy_ns);
    CHECK_INT(p->overlap_ns + q->overlap_ns + r->overlap_ns, want.overlap_ns);
    CHECK_INT(p->copy_alone_ns + q->copy_alone_ns + r->copy_alone_ns,
              want.copy_alone_ns);
    CHECK_INT(p->idle_ns[0] + q->idle_ns[0] + r->idle_ns[0], want.idle_ns[0]);
    check_all_consistent(&t);
    check_all_consistent(&other);
    fp_timeline_fini(&t);
    fp_timeline_fini(&other);
    free(c);
}

FP_TEST(timeline_f36_without_memory_to_sort_in_it_sorts_all_the_same)
{
    crowd *c = make_crowd(3);
    fp_timeline_sums want = sums_of(c);
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    add_crowd(&t, c);
    m.fail_at = m.takes + 1;
    m.fail_on = true;
    fp_timeline_fold(&t, BEGIN_NS + LONG_AXIS);
    CHECK_UINT(m.failures, 1);
    check_sums(&t.whole, &want);
    fp_timeline_fini(&t);
    CHECK_UINT(m.bytes, 0);
    free(c);
}

FP_TEST(timeline_f36_each_allocation)
{
    uint64_t takes = 1;
    for (uint64_t fail_at = 1; fail_at <= takes; fail_at++) {
        fake_memory m = {.fail_at = fail_at};
        fp_alloc a = fake_alloc(&m);
        fp_timeline t;
        fp_timeline_init(&t, &a, BEGIN_NS);
        int64_t given = 0;
        for (int64_t i = 0; i < 20000; i++) {
            /* In order for the most part, so that nothing comes late. */
            int64_t at = BEGIN_NS + 10 * (i ^ 1);
            fp_timeline_add(&t, at, at + 4, FP_GPU_COMPUTE);
            given += 4;
            if (i % 4 == 0) {
                fp_timeline_section(&t, at, (uint32_t)(i % 5));
            }
        }
        fp_timeline_fold(&t, BEGIN_NS + 200000);
        takes = m.takes;
        CHECK_UINT(m.failures, 1);
        CHECK_INT(t.whole.wall_ns, 200000);
        /* The first block of intervals or of events: one is lost.  Later there
         * is always something to fold. */
        CHECK_UINT(t.lost, fail_at <= 2 ? 1 : 0);
        int64_t lost_ns = fail_at == 1 ? 4 : 0;
        CHECK_INT(t.whole.busy_ns, given - lost_ns - t.late_ns);
        CHECK(t.late <= 1);
        check_all_consistent(&t);
        fp_timeline_fini(&t);
        CHECK_UINT(m.bytes, 0);
        if (fail_at == takes) {
            CHECK(takes >= 6);
        }
    }
}

FP_TEST(timeline_f36_without_memory_records_only_wall_time)
{
    fake_memory m = {.fail_at = 1, .fail_on = true};
    fp_alloc a = fake_alloc(&m);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    for (int64_t i = 0; i < 100; i++) {
        fp_timeline_add(&t, BEGIN_NS + i, BEGIN_NS + i + 1, FP_GPU_COPY);
        fp_timeline_section(&t, BEGIN_NS + i, 1);
        fp_timeline_step(&t, BEGIN_NS + i, 0, 1);
    }
    fp_timeline_fold(&t, BEGIN_NS + 100);
    CHECK_UINT(t.lost, 300);
    CHECK_INT(t.whole.wall_ns, 100);
    CHECK_INT(t.whole.idle_ns[0], 100);
    CHECK_UINT(t.step_count, 0);
    fp_timeline_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

/* Blocks: the current one and, before it grew, one of half the size.
 * Unordered intervals are sorted in small parts: sorting a million at once
 * takes so long that CUPTI runs out of buffers. */
static const size_t MOST_BYTES =
    (size_t)FP_TIMELINE_WAITING / 2 * 3 * sizeof(fp_interval) +
    (size_t)FP_TIMELINE_WAITING / 32 * sizeof(fp_interval);
static const size_t MOST_EVENT_BYTES =
    (size_t)FP_TIMELINE_WAITING / 2 * 3 * sizeof(fp_host_event);

FP_TEST(timeline_f32_a_long_silence_is_folded_in_bounded_memory)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    enum { COUNT = 5 * FP_TIMELINE_WAITING / 2 };
    uint64_t state = 9;
    for (int64_t i = 0; i < COUNT; i++) {
        /* Neighbours are exchanged over some distance. */
        int64_t at = BEGIN_NS + 10 * (i / 64 * 64 + 63 - i % 64);
        int64_t end = at + 1 + (int64_t)fake_below(&state, 10);
        fp_timeline_add(&t, at, end, FP_GPU_COMPUTE);
        CHECK(t.intervals <= FP_TIMELINE_WAITING);
    }
    CHECK(t.folded > BEGIN_NS + 10 * FP_TIMELINE_WAITING);
    CHECK(m.peak_bytes <= MOST_BYTES);
    fp_timeline_fold(&t, BEGIN_NS + 10 * (int64_t)COUNT);
    CHECK_UINT(t.late, 0);
    CHECK_UINT(t.lost, 0);
    CHECK_INT(t.whole.wall_ns, 10 * (int64_t)COUNT);
    int64_t busy = 0;
    for (state = 9; busy < t.whole.busy_ns;) {
        busy += 1 + (int64_t)fake_below(&state, 10);
    }
    CHECK_INT(t.whole.busy_ns, busy);
    uint64_t after = state;
    state = 9;
    for (int64_t i = 0; i < COUNT; i++) {
        fake_below(&state, 10);
    }
    CHECK_UINT(after, state);
    check_all_consistent(&t);
    fp_timeline_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(timeline_f32_a_million_at_random_in_bounded_memory)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    uint64_t state = 17;
    enum { COUNT = 3 * FP_TIMELINE_WAITING / 2 };
    int64_t given = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t at = BEGIN_NS + (int64_t)fake_below(&state, 1000000000);
        int64_t ns = 1 + (int64_t)fake_below(&state, 1000);
        given += ns;
        fp_timeline_add(&t, at, at + ns,
                        (fp_gpu_class)fake_below(&state, FP_GPU_CLASSES));
        CHECK(t.intervals <= FP_TIMELINE_WAITING);
    }
    CHECK(m.peak_bytes <= MOST_BYTES);
    fp_timeline_fold(&t, BEGIN_NS + 2000000000);
    CHECK_INT(t.whole.wall_ns, 2000000000);
    CHECK(t.late > 0 && t.late < COUNT / 2);
    CHECK(t.whole.busy_ns <= given - t.late_ns);
    CHECK(t.whole.busy_ns > given / 3);
    check_all_consistent(&t);
    fp_timeline_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(timeline_f32_events_and_equal_starts_are_bounded_too)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_timeline t;
    fp_timeline_init(&t, &a, BEGIN_NS);
    enum { COUNT = 5 * FP_TIMELINE_WAITING / 2 };
    for (int64_t i = 0; i < COUNT; i++) {
        /* First all at the very beginning, then one a ns. */
        int64_t ns = i < COUNT / 2 ? 0 : i - COUNT / 2;
        fp_timeline_section(&t, BEGIN_NS + ns, (uint32_t)(i % 2));
        CHECK(t.events <= FP_TIMELINE_WAITING);
    }
    for (int64_t i = 0; i < FP_TIMELINE_WAITING + 10; i++) {
        fp_timeline_add(&t, BEGIN_NS + COUNT, BEGIN_NS + COUNT + 5,
                        FP_GPU_COMPUTE);
    }
    CHECK(m.peak_bytes <= MOST_BYTES + MOST_EVENT_BYTES);
    fp_timeline_fold(&t, BEGIN_NS + COUNT + 10);
    CHECK_INT(t.whole.idle_ns[0] + t.whole.idle_ns[1], COUNT + 5);
    CHECK_INT(t.whole.idle_ns[0], COUNT / 4);
    CHECK_INT(t.whole.busy_ns, 5);
    CHECK_UINT(t.lost, 0);
    fp_timeline_fini(&t);
    CHECK_UINT(m.bytes, 0);
}
