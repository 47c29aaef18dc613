/* Runs random programs on an fp_thread and on the model, side by side. */
#include "model.h"
#include "thread_kit.h"

#include "core/path.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"

enum { FUNCTIONS = 7, OPS = 1500, DEEP = 40 };

typedef struct pair {
    fp_thread *thread;
    model model;
    uint64_t random;
    int64_t now;
} pair;

static const void *
random_owner(pair *p)
{
    static const char tasks[2];
    uint32_t i = fake_below(&p->random, 4);
    return i < 2 ? NULL : &tasks[i - 2];
}

static void
close_one(pair *p)
{
    uint32_t id = fake_below(&p->random, MODEL_SECTIONS);
    const void *owner = random_owner(p);
    uint32_t open = p->model.entry_len;
    if (open > 0 && fake_below(&p->random, 4) != 0) {
        /* Mostly the last section, closed by its owner, as programs do. */
        id = p->model.entry[open - 1].id;
        owner = p->model.entry[open - 1].owner;
    }
    uint32_t kind = fake_below(&p->random, 8);
    unsigned flags = kind == 0   ? FP_EXIT_CANCEL
                     : kind == 1 ? FP_EXIT_ERROR
                                 : 0;
    CHECK_INT(fp_thread_close_section(p->thread, id, owner, flags, p->now),
              model_close(&p->model, id, owner, flags, p->now));
}

/* The innermost call, so that returns mostly match, as in programs. */
static fp_key
innermost_call(const pair *p)
{
    for (uint32_t i = p->model.path_len; i-- > 0;) {
        if (p->model.path[i].entry == 0) {
            return p->model.path[i].key;
        }
    }
    return kit_function(0);
}

static void
leave_one(pair *p)
{
    fp_key key = fake_below(&p->random, 8) != 0
                     ? innermost_call(p)
                     : kit_function(fake_below(&p->random, FUNCTIONS));
    fp_thread_leave(p->thread, key, p->now);
    model_leave(&p->model, key, p->now);
}

static void
one_operation(pair *p)
{
    p->now += fake_below(&p->random, 3) == 0
                  ? 0
                  : (int64_t)fake_below(&p->random, 1000);
    uint32_t what = fake_below(&p->random, 100);
    /* Deep enough: prefer to return. */
    if (p->model.path_len > DEEP && what < 65) {
        what = what % 2 ? 50 : 80;
    }
    if (what < 42) {
        fp_key key = kit_function(fake_below(&p->random, FUNCTIONS));
        kit_enter(p->thread, key, p->now);
        model_enter(&p->model, key, p->now);
    }
    else if (what < 65 && what >= 50) {
        uint32_t id = fake_below(&p->random, MODEL_SECTIONS);
        const void *owner = random_owner(p);
        CHECK_INT(fp_thread_open_section(p->thread, id, FP_PHASE_NONE, owner,
                                         p->now),
                  FP_OK);
        model_open(&p->model, id, owner, p->now);
    }
    else if (what < 80) {
        leave_one(p);
    }
    else if (what < 97) {
        close_one(p);
    }
    else if (what == 97) {
        fp_thread_end_step(p->thread, p->now);
        model_end_step(&p->model, p->now);
    }
    else if (what == 98) {
        fp_thread_drop_functions(p->thread, p->now);
        model_drop_functions(&p->model, p->now);
    }
    else if (fake_below(&p->random, 4) == 0) {
        fp_thread_drop_sections(p->thread, p->now);
        model_drop_sections(&p->model, p->now);
    }
}

static void
same_path(const pair *p)
{
    fp_key keys[MODEL_PATH];
    uint32_t len = kit_path(p->thread, keys, MODEL_PATH);
    CHECK_UINT(len, p->model.path_len);
    for (uint32_t i = 0; i < len; i++) {
        CHECK(keys[len - 1 - i] == p->model.path[i].key);
    }
    uint32_t functions = model_functions(&p->model);
    CHECK_INT(fp_thread_in_function(p->thread), functions > 0);
}

static void
same_sections(const pair *p)
{
    for (uint32_t id = 0; id < MODEL_SECTIONS; id++) {
        CHECK_INT(fp_thread_has_open_section(p->thread, id),
                  model_open_entries(&p->model, id) > 0);
        const model_section *want = &p->model.section[id];
        if (id >= p->thread->section_capacity ||
            p->thread->section[id] == NULL) {
            CHECK_UINT(want->count, 0);
            continue;
        }
        const fp_section *s = p->thread->section[id];
        CHECK_UINT(s->count, want->count);
        CHECK_UINT(s->errors, want->errors);
        CHECK_INT(s->sum_ticks, want->sum);
        CHECK_INT(s->outer_ticks, want->outer);
        CHECK_UINT(s->lost, want->lost);
        CHECK_UINT(s->steps, want->steps);
        CHECK_INT(s->steps_ticks, want->in_steps);
        if (want->count != 0) {
            CHECK_INT(s->min_ticks, want->min);
            CHECK_INT(s->max_ticks, want->max);
        }
        uint64_t in_hist = 0;
        fp_hist_row rows[1000];
        uint32_t n = fp_hist_rows(&s->hist, rows, 1000);
        for (uint32_t i = 0; i < n; i++) {
            in_hist += rows[i].count;
        }
        CHECK_UINT(in_hist, want->count);
    }
}

/* Every context of the model has a node, and there are no other counts. */
static void
same_contexts(const pair *p)
{
    const model *m = &p->model;
    fp_node **node = calloc((size_t)m->contexts, sizeof(*node));
    CHECK(node != NULL);
    uint64_t calls = 0;
    for (int c = 0; c < m->contexts; c++) {
        const model_context *want = &m->context[c];
        if (c == 0) {
            node[c] = fp_tree_root(&p->thread->tree);
        }
        else if (node[want->parent] != NULL) {
            node[c] =
                fp_tree_find(&p->thread->tree, node[want->parent], want->key);
        }
        if (node[c] == NULL) {
            CHECK(want->calls == 0 && want->self == 0);
            continue;
        }
        CHECK_UINT(node[c]->calls, want->calls);
        CHECK_INT(node[c]->self_ticks, want->self);
        calls += want->calls;
    }
    free(node);
    CHECK_UINT(kit_sum(p->thread, 0).calls, calls);
}

/* Beyond the depth cap contexts are lost, but not the numbers of a
 * function. */
static void
same_per_key(const pair *p)
{
    const model *m = &p->model;
    for (uint32_t i = 0; i < FUNCTIONS + MODEL_SECTIONS; i++) {
        fp_key key =
            i < FUNCTIONS ? kit_function(i) : fp_key_section(i - FUNCTIONS);
        uint64_t calls = 0;
        int64_t self = 0;
        for (int c = 1; c < m->contexts; c++) {
            if (m->context[c].key == key) {
                calls += m->context[c].calls;
                self += m->context[c].self;
            }
        }
        kit_sums got = kit_sum(p->thread, key);
        CHECK_UINT(got.calls, calls);
        CHECK_INT(got.self_ticks, self);
    }
    CHECK_INT(fp_tree_root(&p->thread->tree)->self_ticks, m->context[0].self);
}

static void
same_counters(const pair *p)
{
    const fp_counters *c = &p->thread->counters;
    CHECK_UINT(c->unbalanced, p->model.unbalanced);
    CHECK_UINT(c->unmatched, p->model.unmatched);
    CHECK_UINT(c->out_of_order, p->model.out_of_order);
    CHECK_UINT(c->dropped, 0);
    CHECK_UINT(c->clock_back, 0);
    CHECK_UINT(p->thread->steps->count, p->model.step_count);
}

static void
run(uint64_t seed, fp_limits limits, bool exact_contexts)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    pair p = {.random = seed, .now = 0};
    p.thread = fp_thread_create(&a, limits, 0);
    CHECK(p.thread != NULL);
    CHECK_INT(fp_thread_start_steps(p.thread, 2, 0), FP_OK);
    model_init(&p.model, 2);
    for (int i = 1; i <= OPS; i++) {
        one_operation(&p);
        same_path(&p);
        if (i % 500 == 0) {
            p.now += 13;
            fp_thread_charge(p.thread, p.now);
            model_pass(&p.model, p.now);
            fp_thread_end_step(p.thread, p.now);
            model_end_step(&p.model, p.now);
            check_complete(p.thread, &m, p.model.elapsed);
            same_sections(&p);
            same_counters(&p);
            same_per_key(&p);
            if (exact_contexts) {
                same_contexts(&p);
                CHECK_UINT(p.thread->counters.truncated, 0);
            }
        }
    }
    CHECK(exact_contexts || p.thread->counters.truncated > 0);
    model_fini(&p.model);
    fp_thread_destroy(p.thread);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(thread_does_what_the_model_does)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        run(seed, kit_wide, true);
    }
}

FP_TEST(thread_is_exact_per_function_beyond_the_depth_cap)
{
    for (uint64_t seed = 100; seed < 200; seed++) {
        fp_limits limits = {1000000, 2 + (uint32_t)(seed % 9)};
        run(seed, limits, false);
    }
}

FP_TEST(thread_is_exact_per_function_beyond_the_node_cap)
{
    for (uint64_t seed = 200; seed < 300; seed++) {
        fp_limits limits = {16 + (uint32_t)(seed % 50), 1024};
        run(seed, limits, false);
    }
}
