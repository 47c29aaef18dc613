/* Time after the last step does not belong to the steps. */
#include "core/after_loop.h"
#include "core/outliers.h"
#include "core/path.h"
#include "core/thread_steps.h"
#include "thread_kit.h"

static int64_t
read_nothing(void *ctx)
{
    (void)ctx;
    return 0; /* looks cost nothing: one after each step */
}

static int64_t
read_slowly(void *ctx)
{
    return ++*(int64_t *)ctx; /* 1250 ticks pay for a look */
}

typedef struct kit {
    fake_memory memory;
    fp_clock clock;
    int64_t reading;
    fp_thread *thread;
} kit;

static void
begin(kit *k, fp_clock_reader reader)
{
    *k = (kit){0};
    fp_alloc a = fake_alloc(&k->memory);
    fp_clock_init_reader(&k->clock, reader, &k->reading, 1.0);
    k->thread = fp_thread_create(&a, kit_wide, 0);
    CHECK_INT(fp_thread_start_steps(k->thread, 0, 0), FP_OK);
    CHECK_INT(fp_thread_keep_outliers(k->thread, 5, &k->clock, 0), FP_OK);
}

static void
end(kit *k)
{
    fp_thread_destroy(k->thread);
    CHECK_UINT(k->memory.bytes, 0);
}

enum { MAIN = 0, TRAIN = 2, MODEL = 4, SAMPLE = 6 };

/* The child of [parent] with [key]. */
static const fp_node *
at(const fp_thread *t, const fp_node *parent, fp_key key)
{
    const fp_node *n = fp_tree_find(&t->tree, parent, key);
    CHECK(n != NULL);
    return n;
}

static fp_node *
outside(fp_thread *t)
{
    fp_node *truncated = NULL;
    return fp_tree_base(&t->tree, FP_RUN_OUTSIDE, &truncated);
}

/* [steps] steps of 100 ticks: 60 in the model, 30 in the loop, 10 in main. */
static int64_t
steps(fp_thread *t, int steps, int64_t now)
{
    for (int i = 0; i < steps; i++) {
        kit_enter(t, kit_function(TRAIN), now += 10);
        kit_enter(t, kit_function(MODEL), now += 30);
        fp_thread_leave(t, kit_function(MODEL), now += 60);
        fp_thread_leave(t, kit_function(TRAIN), now);
        fp_thread_end_step(t, now);
    }
    return now;
}

/* 8 calls of the model of 50 ticks each in a section, and 7 ticks in main. */
static int64_t
sampling(fp_thread *t, int64_t now)
{
    kit_open(t, 3, now += 7);
    kit_enter(t, kit_function(SAMPLE), now);
    for (int i = 0; i < 8; i++) {
        kit_enter(t, kit_function(MODEL), now);
        fp_thread_leave(t, kit_function(MODEL), now += 50);
    }
    fp_thread_leave(t, kit_function(SAMPLE), now);
    kit_close(t, 3, now);
    return now;
}

static void
check_split(fp_thread *t, int count)
{
    const fp_node *root = fp_tree_root(&t->tree), *base = outside(t);
    const fp_node *main_ = at(t, root, kit_function(MAIN));
    const fp_node *train = at(t, main_, kit_function(TRAIN));
    CHECK_INT(main_->self_ticks, 10 * count);
    CHECK_UINT(main_->calls, 1);
    CHECK_INT(train->self_ticks, 30 * count);
    CHECK_INT(at(t, train, kit_function(MODEL))->self_ticks, 60 * count);
    const fp_node *later = at(t, base, kit_function(MAIN));
    CHECK_INT(later->self_ticks, 7);
    CHECK_UINT(later->calls, 0);
    const fp_node *section = at(t, later, fp_key_section(3));
    CHECK_UINT(section->calls, 1);
    const fp_node *sample = at(t, section, kit_function(SAMPLE));
    CHECK_UINT(sample->calls, 1);
    CHECK_UINT(at(t, sample, kit_function(MODEL))->calls, 8);
    CHECK_INT(at(t, sample, kit_function(MODEL))->self_ticks, 400);
    CHECK_UINT(t->section[3]->count, 1);
    CHECK_INT(t->section[3]->max_ticks, 400);
    CHECK_UINT(fp_thread_sections_of(t, FP_RUN_STEPS).section[3]->count, 0);
}

FP_TEST(after_loop_moves_time_after_the_last_step_outside)
{
    const fp_clock_reader readers[] = {read_nothing, read_slowly};
    for (int r = 0; r < 2; r++) {
        kit k;
        begin(&k, readers[r]);
        fp_thread *t = k.thread;
        kit_enter(t, kit_function(MAIN), 0);
        int64_t now = sampling(t, steps(t, 200, 0));
        CHECK(r == 0 || t->outliers->window_steps > 1);
        CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now), FP_OK);
        CHECK_INT(fp_thread_end_loop(t), 407);
        check_split(t, 200);
        CHECK_INT(fp_thread_end_loop(t), 0); /* only once */
        end(&k);
    }
}

/* A generator that each step resumes once, for [ticks]: the source of data. */
static int64_t
resumed(fp_thread *t, int64_t ticks, int64_t now)
{
    fp_node *n = kit_enter(t, kit_function(SAMPLE), now);
    n->calls--;
    n->resumes++;
    fp_thread_leave(t, kit_function(SAMPLE), now += ticks);
    return now;
}

/* The last steps wait longer for data.  Their resumes are counted, not
 * estimated by the time that moves: they belong to the steps. */
FP_TEST(after_loop_leaves_the_resumes_of_slow_steps)
{
    kit k;
    begin(&k, read_slowly);
    fp_thread *t = k.thread;
    kit_enter(t, kit_function(MAIN), 0);
    int64_t now = 0;
    for (int i = 0; i < 200 || t->outliers->window_steps != 0; i++) {
        now = resumed(t, 5, now + 10);
        fp_thread_end_step(t, now += 90);
    }
    for (int i = 0; i < 5; i++) {
        now = resumed(t, 50, now + 10);
        fp_thread_end_step(t, now += 90);
    }
    CHECK_UINT(t->outliers->window_steps, 5);
    uint64_t expected = kit_sum(t, kit_function(SAMPLE)).resumes;
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now += 900), FP_OK);
    CHECK_INT(fp_thread_end_loop(t), 900);
    const fp_node *main_ = at(t, fp_tree_root(&t->tree), kit_function(MAIN));
    CHECK_UINT(at(t, main_, kit_function(SAMPLE))->resumes, expected);
    end(&k);
}

/* The last fetch of a loop finds no batch: no entry, but time of the section,
 * in the steps and after the last one. */
FP_TEST(after_loop_moves_the_time_of_a_section_that_steps_have_too)
{
    kit k;
    begin(&k, read_nothing);
    fp_thread *t = k.thread;
    int64_t now = 0;
    for (int i = 0; i < 20; i++) {
        kit_open(t, 3, now);
        kit_close(t, 3, now += 60);
        fp_thread_end_step(t, now += 40);
    }
    kit_open(t, 3, now);
    CHECK_INT(fp_thread_close_section(t, 3, NULL, FP_EXIT_CANCEL, now += 400),
              FP_OK);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now), FP_OK);
    CHECK_INT(fp_thread_end_loop(t), 400);
    const fp_section *in_steps =
        fp_thread_sections_of(t, FP_RUN_STEPS).section[3];
    CHECK_UINT(in_steps->count, 20);
    CHECK_INT(in_steps->steps_ticks, 20 * 60);
    CHECK_INT(in_steps->outer_ticks, 20 * 60);
    CHECK_INT(t->section[3]->outer_ticks, 400);
    end(&k);
}

/* Section 3 in itself, in section 4, for [ticks]. */
static int64_t
nested(fp_thread *t, int64_t ticks, int64_t now)
{
    const uint32_t ids[] = {4, 3, 3};
    for (int i = 0; i < 3; i++) {
        kit_open(t, ids[i], now);
    }
    now += ticks;
    for (int i = 3; i-- > 0;) {
        kit_close(t, ids[i], now);
    }
    return now;
}

FP_TEST(after_loop_moves_the_time_of_a_section_in_itself_once)
{
    kit k;
    begin(&k, read_nothing);
    fp_thread *t = k.thread;
    int64_t now = 0;
    for (int i = 0; i < 20; i++) {
        now = nested(t, 60, now);
        fp_thread_end_step(t, now += 40);
    }
    now = nested(t, 400, now);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now), FP_OK);
    CHECK_INT(fp_thread_end_loop(t), 400);
    CHECK_INT(t->section[3]->outer_ticks, 400);
    CHECK_INT(t->section[4]->outer_ticks, 400);
    end(&k);
}

/* The loop goes on after its end was assumed. */
FP_TEST(after_loop_leaves_nothing_to_the_next_step)
{
    kit k;
    begin(&k, read_nothing);
    fp_thread *t = k.thread;
    int64_t now = 0;
    for (int i = 0; i < 20; i++) {
        now = nested(t, 60, now);
        fp_thread_end_step(t, now += 40);
    }
    now = nested(t, 400, now);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now), FP_OK);
    CHECK_INT(fp_thread_end_loop(t), 400);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, now += 10), FP_OK);
    now = nested(t, 60, now);
    fp_thread_end_step(t, now += 40);
    CHECK_INT(t->steps->ticks, 100);
    const fp_section *in_steps =
        fp_thread_sections_of(t, FP_RUN_STEPS).section[4];
    CHECK_INT(in_steps->steps_ticks, 21 * 60);
    CHECK_INT(in_steps->usual_ticks, 21 * 60);
    end(&k);
}

/* No time is lost or added, whatever the steps were. */
FP_TEST(after_loop_keeps_the_sums)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        kit k;
        begin(&k, seed % 2 ? read_nothing : read_slowly);
        fp_thread *t = k.thread;
        uint64_t state = seed * 7919;
        int64_t now = 0, last = 0;
        uint32_t depth = 0, open[8];
        uint64_t calls[8] = {0};
        for (int i = 0; i < 400; i++) {
            uint32_t what = fake_random(&state) % 8;
            now += (int64_t)(fake_random(&state) % 50);
            if (what < 4 && depth < 8) {
                open[depth] = fake_random(&state) % 8;
                calls[open[depth]]++;
                kit_enter(t, kit_function(open[depth++]), now);
            }
            else if (what < 7 && depth > 0) {
                fp_thread_leave(t, kit_function(open[--depth]), now);
            }
            else if (i < 300) {
                fp_thread_end_step(t, last = now);
            }
        }
        CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now), FP_OK);
        int64_t moved = fp_thread_end_loop(t);
        CHECK(moved >= 0 && moved <= now - last);
        int64_t ticks = 0, beyond = 0;
        for (uint32_t i = 0; i < t->tree.count; i++) {
            const fp_node *n = fp_tree_node(&t->tree, i);
            const fp_node *base = n;
            while (!fp_key_is_base(base->key)) {
                base = base->parent;
            }
            CHECK(n->self_ticks >= 0);
            ticks += n->self_ticks;
            beyond += base == outside(t) ? n->self_ticks : 0;
            for (uint32_t f = 0; f < 8; f++) {
                calls[f] -= n->key == kit_function(f) ? n->calls : 0;
            }
        }
        CHECK_INT(ticks, now);
        CHECK_INT(beyond, moved);
        for (uint32_t f = 0; f < 8; f++) {
            CHECK_UINT(calls[f], 0);
        }
        end(&k);
    }
}

FP_TEST(after_loop_f36_without_memory_moves_nothing)
{
    for (uint64_t nth = 1; nth < 4; nth++) {
        kit k;
        begin(&k, read_nothing);
        fp_thread *t = k.thread;
        kit_enter(t, kit_function(MAIN), 0);
        int64_t now = sampling(t, steps(t, 20, 0));
        CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, now), FP_OK);
        k.memory.fail_at = k.memory.takes + nth;
        int64_t moved = fp_thread_end_loop(t);
        k.memory.fail_at = 0;
        CHECK(nth != 1 || (moved == 0 && t->counters.dropped == 1));
        const fp_node *root = fp_tree_root(&t->tree);
        CHECK_INT(at(t, root, kit_function(MAIN))->self_ticks,
                  moved == 0 ? 207 : 200);
        end(&k);
    }
}
