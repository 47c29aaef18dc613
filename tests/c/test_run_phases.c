/* Phases of the run: a thread that changes them records the same as one that
 * does not, only in other subtrees. */
#include "core/outliers.h"
#include "core/path.h"
#include "core/steps_split.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"
#include "thread_kit.h"

enum { FUNCTIONS = 7, SECTIONS = 4, PATH = 64 };

/* The base of [phase], if it was entered. */
static const fp_node *
base_of(const fp_thread *t, int phase)
{
    const fp_node *root = fp_tree_root(&t->tree);
    return phase == FP_RUN_STEPS
               ? root
               : fp_tree_find(&t->tree, root,
                              fp_key_base((fp_run_phase)phase));
}

/* The sums of all phases at the path of [n], a node of another thread. */
static kit_sums
at_same_path(const fp_thread *t, const fp_node *n)
{
    fp_key key[PATH];
    uint32_t len = 0;
    for (; n->parent != NULL; n = n->parent) {
        CHECK(len < PATH);
        key[len++] = n->key;
    }
    kit_sums sums = {0, 0, 0};
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        const fp_node *m = base_of(t, p);
        for (uint32_t i = len; i > 0 && m != NULL; i--) {
            m = fp_tree_find(&t->tree, m, key[i - 1]);
        }
        if (m != NULL) {
            sums.calls += m->calls;
            sums.resumes += m->resumes;
            sums.self_ticks += m->self_ticks;
        }
    }
    return sums;
}

static int64_t
ticks_below(const fp_thread *t, const fp_node *base)
{
    int64_t ticks = 0;
    for (uint32_t i = 0; i < t->tree.count; i++) {
        const fp_node *n = fp_tree_node(&t->tree, i), *at = n;
        while (!fp_key_is_base(at->key)) {
            at = at->parent;
        }
        ticks += at == base ? n->self_ticks : 0;
    }
    return ticks;
}

/* One random action of both threads, with the same result. */
static void
act(fp_thread *t, uint32_t action, uint32_t k, int64_t now)
{
    uint32_t id = k % SECTIONS;
    switch (action) {
    case 0:
    case 1:
        if (t->cur->depth < PATH - 2) {
            kit_enter(t, kit_function(k), now)->resumes += k == 0;
        }
        break;
    case 2:
    case 3:
        fp_thread_leave(t, kit_function(k), now);
        break;
    case 4:
        if (t->cur->depth < PATH - 2) {
            kit_open(t, id, now);
        }
        break;
    default:
        (void)fp_thread_close_section(t, id, NULL, 0, now);
    }
}

static void
check_same_path(const fp_thread *a, const fp_thread *b)
{
    const fp_node *n = a->cur, *m = b->cur;
    CHECK_UINT(n->depth, m->depth);
    for (; n->depth > 0; n = n->parent, m = m->parent) {
        CHECK(n->key == m->key);
    }
    CHECK(n == a->base && m == b->base);
    CHECK_UINT(a->open_len, b->open_len);
}

FP_TEST(phases_change_the_subtree_and_nothing_else)
{
    fake_memory memory = {0};
    const fp_alloc a = fake_alloc(&memory);
    for (uint64_t seed = 1; seed <= 300; seed++) {
        fp_thread *plain = fp_thread_create(&a, kit_wide, 0);
        fp_thread *phased = fp_thread_create(&a, kit_wide, 0);
        int64_t now = 0, in_phase[FP_RUN_PHASES] = {0};
        uint64_t state = seed;
        for (int i = 0; i < 400; i++) {
            int64_t ticks = (int64_t)fake_below(&state, 50);
            now += ticks;
            in_phase[phased->run_phase] += ticks;
            if (fake_below(&state, 8) == 0) {
                fp_run_phase to =
                    (fp_run_phase)fake_below(&state, FP_RUN_PHASES);
                CHECK_INT(fp_thread_set_run_phase(phased, to, now), FP_OK);
            }
            else {
                uint32_t action = fake_below(&state, 7);
                uint32_t k = fake_below(&state, FUNCTIONS);
                act(plain, action, k, now);
                act(phased, action, k, now);
            }
            check_same_path(phased, plain);
        }
        fp_thread_charge(plain, now);
        fp_thread_charge(phased, now);
        for (uint32_t i = 0; i < plain->tree.count; i++) {
            const fp_node *n = fp_tree_node(&plain->tree, i);
            kit_sums sums = at_same_path(phased, n);
            CHECK_UINT(sums.calls, n->calls);
            CHECK_UINT(sums.resumes, n->resumes);
            CHECK_INT(sums.self_ticks, n->self_ticks);
        }
        for (int p = 0; p < FP_RUN_PHASES; p++) {
            const fp_node *base = base_of(phased, p);
            CHECK_INT(base != NULL ? ticks_below(phased, base) : 0,
                      in_phase[p]);
        }
        for (uint32_t id = 0; id < plain->section_capacity; id++) {
            const fp_section *s = plain->section[id];
            uint64_t count = 0, open = 0;
            int64_t sum = 0;
            for (int p = 0; p < FP_RUN_PHASES; p++) {
                fp_section_table of =
                    fp_thread_sections_of(phased, (fp_run_phase)p);
                if (id < of.capacity && of.section[id] != NULL) {
                    count += of.section[id]->count;
                    open += of.section[id]->open;
                    sum += of.section[id]->sum_ticks;
                }
            }
            CHECK_UINT(count, s != NULL ? s->count : 0);
            CHECK_UINT(open, s != NULL ? s->open : 0);
            CHECK_INT(sum, s != NULL ? s->sum_ticks : 0);
        }
        fp_thread *sum = fp_thread_create(&a, kit_wide, 0);
        CHECK_INT(fp_thread_merge(sum, phased, NULL), FP_OK);
        for (uint32_t i = 0; i < plain->tree.count; i++) {
            const fp_node *n = fp_tree_node(&plain->tree, i);
            CHECK_UINT(at_same_path(sum, n).calls, n->calls);
        }
        CHECK(sum->run_phase == FP_RUN_STEPS);
        fp_thread_destroy(sum);
        fp_thread_destroy(plain);
        fp_thread_destroy(phased);
    }
}

FP_TEST(phases_a_section_does_not_take_the_time_of_compiling)
{
    fake_memory memory = {0};
    const fp_alloc a = fake_alloc(&memory);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    kit_open(t, 0, 100);
    kit_open(t, 1, 110);
    kit_open(t, 0, 120);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_COMPILE, 130), FP_OK);
    kit_open(t, 2, 140);
    kit_close(t, 2, 1130);
    kit_open(t, 1, 1140);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, 1150), FP_OK);
    fp_thread_leave_out(t, 130, 1150);
    kit_close(t, 1, 1152); /* opened by the compiler: all of its time */
    kit_close(t, 0, 1155);
    CHECK_INT(t->section[0]->max_ticks, 10 + 5);
    kit_close(t, 1, 1160);
    kit_close(t, 0, 1170);
    CHECK_INT(t->section[0]->sum_ticks, 15 + 30 + 20);
    CHECK_INT(t->section[0]->outer_ticks, 30 + 20);
    CHECK_INT(t->section[1]->sum_ticks, 20 + 10);
    CHECK_INT(t->sections_of[FP_RUN_COMPILE].section[2]->sum_ticks, 990);
    CHECK_INT(t->sections_of[FP_RUN_COMPILE].section[1]->sum_ticks, 12);
    fp_thread_destroy(t);
}

FP_TEST(phases_a_step_is_paused_in_other_phases)
{
    fake_memory memory = {0};
    const fp_alloc a = fake_alloc(&memory);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_SETUP, 0), FP_OK);
    CHECK_INT(fp_thread_start_steps(t, 0, 10), FP_OK);
    kit_open(t, 0, 20);
    kit_close(t, 0, 50);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, 1000), FP_OK);
    kit_open(t, 0, 1010); /* 10 ticks until the phase changes ... */
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_VALIDATION, 1020), FP_OK);
    kit_open(t, 1, 1030);
    kit_close(t, 1, 2030);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, 2040), FP_OK);
    kit_close(t, 0, 2045); /* ... and 5 afterwards */
    fp_thread_end_step(t, 2050);
    CHECK_INT(t->steps->measured.sum_ticks, 10 + 10 + 10);
    CHECK_INT(t->steps->measured.recent[0], 30);
    CHECK_INT(t->section[0]->steps_ticks, 15);
    CHECK_UINT(t->section[0]->steps, 1);
    CHECK(t->section_capacity <= 1 || t->section[1] == NULL);
    CHECK_INT(t->sections_of[FP_RUN_VALIDATION].section[1]->sum_ticks, 1000);
    CHECK_INT(t->sections_of[FP_RUN_VALIDATION].section[1]->steps_ticks, 0);
    fp_thread_end_step(t, 2060);
    CHECK_INT(t->steps->measured.recent[1], 10);
    /* A step that ends in another phase has the time until that phase
     * began. */
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_OUTSIDE, 2063), FP_OK);
    fp_thread_end_step(t, 3000);
    CHECK_INT(t->steps->measured.recent[2], 3);
    CHECK_INT(fp_thread_set_run_phase(t, FP_RUN_STEPS, 4000), FP_OK);
    fp_thread_end_step(t, 4007);
    CHECK_INT(t->steps->measured.recent[3], 7);
    fp_thread_destroy(t);
}

FP_TEST(phases_f36_without_memory_the_phase_stays_and_nothing_is_lost)
{
    for (uint64_t nth = 1; nth < 24; nth++) {
        fake_memory memory = {0};
        const fp_alloc a = fake_alloc(&memory);
        fp_thread *t = fp_thread_create(&a, kit_wide, 0);
        CHECK(t != NULL);
        for (uint32_t i = 0; i < 90; i++) {
            kit_enter(t, kit_function(i), i);
        }
        kit_open(t, 1, 100);
        memory.fail_at = memory.takes + nth;
        fp_status status = fp_thread_set_run_phase(t, FP_RUN_VALIDATION, 1000);
        memory.fail_at = 0;
        CHECK(status == FP_OK || t->run_phase == FP_RUN_STEPS);
        CHECK(status == FP_OK || t->counters.dropped == 1);
        kit_close(t, 1, 1010);
        fp_thread_drop_functions(t, 2000);
        CHECK(t->cur == t->base);
        CHECK_INT(kit_sum(t, 0).self_ticks, 2000);
        fp_thread_destroy(t);
        CHECK_UINT(memory.bytes, 0);
    }
}
