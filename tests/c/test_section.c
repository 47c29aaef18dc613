#include "core/path_rebuild.h"
#include "core/section_plain.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"
#include "thread_kit.h"

FP_TEST(section_records_count_sum_extremes_and_errors)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_section s = {0};
    static const int64_t ticks[] = {50, 7, 900, 7, 0};
    for (int i = 0; i < 5; i++) {
        fp_section_record(&s, &a, ticks[i], i % 2);
    }
    CHECK_UINT(s.count, 5);
    CHECK_UINT(s.errors, 2);
    CHECK_INT(s.sum_ticks, 964);
    CHECK_INT(s.min_ticks, 0);
    CHECK_INT(s.max_ticks, 900);
    CHECK_UINT(fp_hist_rows(&s.hist, NULL, 0), 4);
    fp_hist_fini(&s.hist, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(section_merge_is_recording_all)
{
    enum { COUNT = 400 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_section part[3] = {0}, merged = {0}, all = {0};
    uint64_t state = 11;
    for (int i = 0; i < COUNT; i++) {
        int64_t ticks = 100 + (int64_t)fake_below(&state, 100000);
        int error = fake_below(&state, 5) == 0;
        fp_section *p = &part[fake_below(&state, 2)]; /* the third is empty */
        fp_section_record(p, &a, ticks, error);
        p->outer_ticks += ticks / 2;
        p->steps_ticks += ticks / 3;
        p->steps++;
        fp_section_record(&all, &a, ticks, error);
        all.outer_ticks += ticks / 2;
        all.steps_ticks += ticks / 3;
        all.steps++;
    }
    part[1].open = 2;
    for (int i = 2; i >= 0; i--) {
        fp_section_merge(&merged, &a, &part[i]);
        fp_hist_fini(&part[i].hist, &a);
    }
    CHECK_UINT(merged.count, all.count);
    CHECK_UINT(merged.errors, all.errors);
    CHECK_INT(merged.sum_ticks, all.sum_ticks);
    CHECK_INT(merged.outer_ticks, all.outer_ticks);
    CHECK_INT(merged.steps_ticks, all.steps_ticks);
    CHECK_UINT(merged.steps, all.steps);
    CHECK_INT(merged.min_ticks, all.min_ticks);
    CHECK_INT(merged.max_ticks, all.max_ticks);
    CHECK_UINT(merged.open, 2);
    CHECK_UINT(fp_hist_rows(&merged.hist, NULL, 0),
               fp_hist_rows(&all.hist, NULL, 0));
    fp_hist_fini(&merged.hist, &a);
    fp_hist_fini(&all.hist, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(section_f35_is_exact_near_the_end_of_the_range)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_section s = {0};
    s.count = UINT32_MAX;
    s.errors = UINT32_MAX;
    s.min_ticks = 5;
    fp_section_record(&s, &a, INT64_MAX - 9, 1);
    CHECK_UINT(s.count, (uint64_t)1 << 32);
    CHECK_UINT(s.errors, (uint64_t)1 << 32);
    CHECK_INT(s.sum_ticks, INT64_MAX - 9);
    CHECK_INT(s.max_ticks, INT64_MAX - 9);
    CHECK_INT(s.min_ticks, 5);
    fp_section_record(&s, &a, 9, 0);
    CHECK_INT(s.sum_ticks, INT64_MAX);
    fp_hist_fini(&s.hist, &a);
}

/* ---- the plain path ---- */

typedef struct plain_program {
    fp_thread *t[2]; /* the second tries the plain path first */
    fp_clock clock;
    int64_t now;
    uint64_t state;
    uint64_t plain; /* events that took it */
} plain_program;

static int64_t
plain_now(void *ctx)
{
    return *(const int64_t *)ctx;
}

static const fp_phase plain_phases[] = {FP_PHASE_NONE, FP_PHASE_FORWARD,
                                        FP_PHASE_BACKWARD, FP_PHASE_FORWARD};

static void
plain_open(plain_program *p, uint32_t id, const void *owner)
{
    fp_phase phase = plain_phases[id % 4];
    fp_status opened =
        fp_thread_open_section(p->t[0], id, phase, owner, p->now);
    CHECK_INT(opened, FP_OK);
    if (fp_thread_plain_open(p->t[1], id, phase, owner, &p->clock)) {
        p->plain++;
    }
    else {
        fp_thread_open_section(p->t[1], id, phase, owner, p->now);
    }
}

static void
plain_close(plain_program *p, uint32_t id, const void *owner)
{
    unsigned flags = fake_below(&p->state, 8) == 0 ? FP_EXIT_ERROR : 0;
    fp_status closed =
        fp_thread_close_section(p->t[0], id, owner, flags, p->now);
    if (fp_thread_plain_close(p->t[1], id, owner, flags != 0, &p->clock)) {
        CHECK_INT(closed, FP_OK);
        p->plain++;
    }
    else {
        CHECK_INT(fp_thread_close_section(p->t[1], id, owner, flags, p->now),
                  closed);
    }
}

/* Another action that changes the path or the step. */
static void
plain_other(plain_program *p)
{
    uint32_t what = fake_below(&p->state, 8);
    fp_key key = kit_function(fake_below(&p->state, 3));
    fp_run_phase phase =
        what == 6 ? FP_RUN_STEPS : (fp_run_phase)fake_below(&p->state, 3);
    for (int i = 0; i < 2; i++) {
        fp_thread *t = p->t[i];
        if (what < 3) {
            kit_enter(t, key, p->now);
        }
        else if (what < 5) {
            fp_thread_leave(t, key, p->now);
        }
        else if (what == 5) {
            fp_thread_end_step(t, p->now);
        }
        else {
            fp_thread_set_run_phase(t, phase, p->now);
        }
    }
}

static void
plain_run(plain_program *p, int events)
{
    static const int owners[2];
    for (int i = 0; i < events; i++) {
        p->now += fake_below(&p->state, 1000);
        p->now -= fake_below(&p->state, 50) == 0 ? 300 : 0;
        uint32_t id = fake_below(&p->state, 4);
        const void *owner = &owners[fake_below(&p->state, 8) == 0];
        const fp_thread *t = p->t[0];
        uint32_t what = fake_below(&p->state, 10);
        if (what < 4 && t->open_len < 20) {
            plain_open(p, id, owner);
        }
        else if (what < 8 && t->open_len > 0) {
            const fp_open *top = &t->open[t->open_len - 1];
            int in_order = fake_below(&p->state, 4) != 0;
            plain_close(p, in_order ? top->section->id : id,
                        in_order ? top->owner : owner);
        }
        else {
            plain_other(p);
        }
    }
}

static void
plain_check_sections(const fp_thread *a, const fp_thread *b)
{
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        fp_section_table x = fp_thread_sections_of(a, (fp_run_phase)p);
        fp_section_table y = fp_thread_sections_of(b, (fp_run_phase)p);
        CHECK_UINT(x.capacity, y.capacity);
        for (uint32_t i = 0; i < x.capacity; i++) {
            const fp_section *s = x.section[i], *u = y.section[i];
            CHECK((s == NULL) == (u == NULL));
            if (s == NULL) {
                continue;
            }
            CHECK_UINT(s->open, u->open);
            CHECK_UINT(s->count, u->count);
            CHECK_UINT(s->errors, u->errors);
            CHECK_INT(s->sum_ticks, u->sum_ticks);
            CHECK_INT(s->outer_ticks, u->outer_ticks);
            CHECK_INT(s->min_ticks, u->min_ticks);
            CHECK_INT(s->max_ticks, u->max_ticks);
            CHECK_INT(s->step_ticks, u->step_ticks);
            CHECK_INT(s->steps_ticks, u->steps_ticks);
            CHECK_UINT(s->steps, u->steps);
            CHECK_UINT(fp_hist_rows(&s->hist, NULL, 0),
                       fp_hist_rows(&u->hist, NULL, 0));
        }
    }
}

static void
plain_check(const fp_thread *a, const fp_thread *b)
{
    CHECK_UINT(a->tree.count, b->tree.count);
    for (uint32_t i = 0; i < a->tree.count; i++) {
        const fp_node *n = fp_tree_node(&a->tree, i);
        const fp_node *m = fp_tree_node(&b->tree, i);
        CHECK(n->key == m->key);
        CHECK_UINT(n->calls, m->calls);
        CHECK_INT(n->self_ticks, m->self_ticks);
    }
    CHECK_UINT(a->cur->index, b->cur->index);
    plain_check_sections(a, b);
    for (int i = 0; i < FP_PHASE_COUNT; i++) {
        CHECK_INT(a->phases.loader[0].total[i].ticks,
                  b->phases.loader[0].total[i].ticks);
        CHECK_UINT(a->phases.loader[0].total[i].count,
                   b->phases.loader[0].total[i].count);
    }
    CHECK_INT(a->phases.loader[0].batch_end, b->phases.loader[0].batch_end);
    CHECK_UINT(a->counters.out_of_order, b->counters.out_of_order);
    CHECK_UINT(a->counters.clock_back, b->counters.clock_back);
}

FP_TEST(section_plain_path_records_the_same_as_the_full_one)
{
    uint64_t plain = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        fake_memory m = {0};
        fp_alloc a = fake_alloc(&m);
        fp_limits limits = {seed % 3 == 0 ? 20 : 10000, 1024};
        plain_program p = {.state = seed, .now = 1000};
        fp_clock_init_reader(&p.clock, plain_now, &p.now, 1.0);
        for (int i = 0; i < 2; i++) {
            p.t[i] = fp_thread_create(&a, limits, p.now);
            CHECK_INT(fp_phases_reserve(&p.t[i]->phases, &a, -1), FP_OK);
            CHECK_INT(fp_thread_start_steps(p.t[i], seed % 2, p.now), FP_OK);
        }
        plain_run(&p, 2000);
        plain_check(p.t[0], p.t[1]);
        plain += p.plain;
        fp_thread_destroy(p.t[0]);
        fp_thread_destroy(p.t[1]);
        CHECK_UINT(m.bytes, 0);
    }
    CHECK(plain > 20000); /* of about 160,000 */
}

FP_TEST(section_plain_path_is_not_taken_by_a_parked_thread)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    int64_t now = 10;
    fp_clock clock;
    fp_clock_init_reader(&clock, plain_now, &now, 1.0);
    fp_thread *t = fp_thread_create(&a, kit_wide, now);
    kit_open(t, 1, 10);
    kit_close(t, 1, 20);
    fp_thread_park(t, 30);
    CHECK(!fp_thread_plain_open(t, 1, FP_PHASE_NONE, NULL, &clock));
    fp_thread_unpark(t, 40);
    now = 50;
    CHECK(fp_thread_plain_open(t, 1, FP_PHASE_NONE, NULL, &clock));
    fp_thread_park(t, 60);
    CHECK(!fp_thread_plain_close(t, 1, NULL, 0, &clock));
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}
