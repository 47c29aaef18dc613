/* Merging threads: the result is the sum of the parts. */
#include "thread_kit.h"

#include "core/path.h"
#include "core/thread_sections.h"

#include <pthread.h>

enum { FUNCTIONS = 9, SECTIONS = 4, TAGS = 3 };

static fp_thread *
empty_thread(const fp_alloc *a, fp_limits limits)
{
    fp_thread *t = fp_thread_create(a, limits, 0);
    CHECK(t != NULL);
    return t;
}

/* A random program; returns the time at which it ended. */
static int64_t
run_program(fp_thread *t, uint64_t seed, int ops)
{
    uint64_t state = seed;
    int64_t now = 0;
    CHECK_INT(fp_phases_reserve(&t->phases, &t->alloc, TAGS - 2), FP_OK);
    for (int i = 0; i < ops; i++) {
        now += (int64_t)fake_below(&state, 300);
        uint32_t k = fake_below(&state, FUNCTIONS);
        uint32_t id = k % SECTIONS;
        t->phases.tag = (int32_t)fake_below(&state, TAGS) - 1;
        switch (fake_below(&state, 5)) {
        case 0:
        case 1:
            kit_enter(t, kit_function(k), now)->resumes += k == 0;
            break;
        case 2:
            fp_thread_leave(t, kit_function(k), now);
            break;
        case 3:
            CHECK_INT(fp_thread_open_section(t, id, (fp_phase)id, NULL, now),
                      FP_OK);
            break;
        default:
            (void)fp_thread_close_section(t, id, NULL, k == 3, now);
        }
    }
    fp_thread_drop_functions(t, now);
    fp_thread_drop_sections(t, now);
    return now;
}

/* The node of [t] at the same path as [n] of another thread; NULL: none. */
static fp_node *
same_path(const fp_thread *t, const fp_node *n)
{
    if (n->parent == NULL) {
        return fp_tree_root(&t->tree);
    }
    const fp_node *parent = same_path(t, n->parent);
    return parent != NULL ? fp_tree_find(&t->tree, parent, n->key) : NULL;
}

static void
check_trees_add_up(const fp_thread *into, fp_thread *const *from, int threads)
{
    for (uint32_t i = 0; i < into->tree.count; i++) {
        const fp_node *n = fp_tree_node(&into->tree, i);
        kit_sums want = {0, 0, 0};
        for (int k = 0; k < threads; k++) {
            const fp_node *f = same_path(from[k], n);
            want.calls += f != NULL ? f->calls : 0;
            want.resumes += f != NULL ? f->resumes : 0;
            want.self_ticks += f != NULL ? f->self_ticks : 0;
            CHECK(f == NULL || (f->flags & ~(unsigned)n->flags) == 0);
        }
        CHECK_UINT(n->calls, want.calls);
        CHECK_UINT(n->resumes, want.resumes);
        CHECK_INT(n->self_ticks, want.self_ticks);
    }
}

static void
check_sections_add_up(const fp_thread *into, fp_thread *const *from,
                      int threads)
{
    for (uint32_t id = 0; id < SECTIONS; id++) {
        fp_section want = {0};
        for (int k = 0; k < threads; k++) {
            const fp_section *s = from[k]->section[id];
            want.count += s->count;
            want.errors += s->errors;
            want.open += s->open;
            want.sum_ticks += s->sum_ticks;
            want.outer_ticks += s->outer_ticks;
        }
        const fp_section *s = into->section[id];
        CHECK_UINT(s->count, want.count);
        CHECK_UINT(s->errors, want.errors);
        CHECK_UINT(s->open, want.open);
        CHECK_INT(s->sum_ticks, want.sum_ticks);
        CHECK_INT(s->outer_ticks, want.outer_ticks);
    }
}

static void
check_phases_add_up(const fp_thread *into, fp_thread *const *from, int threads)
{
    for (int row = 0; row < TAGS; row++) {
        for (int phase = 0; phase < FP_PHASE_COUNT; phase++) {
            fp_sum want = {0, 0};
            for (int k = 0; k < threads; k++) {
                want.ticks += from[k]->phases.loader[row].total[phase].ticks;
                want.count += from[k]->phases.loader[row].total[phase].count;
            }
            const fp_sum *got = &into->phases.loader[row].total[phase];
            CHECK_INT(got->ticks, want.ticks);
            CHECK_UINT(got->count, want.count);
        }
    }
}

static void
check_adds_up(const fp_thread *into, fp_thread *const *from, int threads)
{
    fp_counters want = {0};
    kit_sums sums = {0, 0, 0};
    for (int k = 0; k < threads; k++) {
        want.unbalanced += from[k]->counters.unbalanced;
        want.unmatched += from[k]->counters.unmatched;
        want.out_of_order += from[k]->counters.out_of_order;
        want.truncated += from[k]->counters.truncated;
        sums.calls += kit_sum(from[k], 0).calls;
        sums.self_ticks += kit_sum(from[k], 0).self_ticks;
    }
    check_consistent(into);
    check_sections_add_up(into, from, threads);
    check_phases_add_up(into, from, threads);
    CHECK_UINT(into->counters.unbalanced, want.unbalanced);
    CHECK_UINT(into->counters.unmatched, want.unmatched);
    CHECK_UINT(into->counters.out_of_order, want.out_of_order);
    CHECK_UINT(into->counters.truncated, want.truncated);
    CHECK_UINT(into->counters.dropped, 0);
    CHECK_UINT(kit_sum(into, 0).calls, sums.calls);
    CHECK_INT(kit_sum(into, 0).self_ticks, sums.self_ticks);
}

FP_TEST(merge_is_the_sum)
{
    enum { THREADS = 7 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_thread *into = empty_thread(&a, kit_wide), *from[THREADS];
    for (uint32_t k = 0; k < THREADS; k++) {
        /* With and without truncated nodes. */
        fp_limits limits = {1000000, k % 2 ? 1024 : 4};
        from[k] = empty_thread(&a, limits);
        run_program(from[k], k + 1, 1200);
        CHECK_INT(fp_thread_merge(into, from[k], NULL), FP_OK);
    }
    check_adds_up(into, from, THREADS);
    check_trees_add_up(into, from, THREADS);
    for (int k = 0; k < THREADS; k++) {
        fp_thread_destroy(from[k]);
    }
    fp_thread_destroy(into);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(merge_of_a_merge_is_the_same_sum)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_thread *from[3], *pair = empty_thread(&a, kit_wide);
    fp_thread *into = empty_thread(&a, kit_wide);
    for (uint32_t k = 0; k < 3; k++) {
        from[k] = empty_thread(&a, kit_wide);
        run_program(from[k], 50 + k, 1000);
    }
    CHECK_INT(fp_thread_merge(pair, from[0], NULL), FP_OK);
    CHECK_INT(fp_thread_merge(pair, from[1], NULL), FP_OK);
    CHECK_INT(fp_thread_merge(into, from[2], NULL), FP_OK);
    CHECK_INT(fp_thread_merge(into, pair, NULL), FP_OK);
    check_adds_up(into, from, 3);
    check_trees_add_up(into, from, 3);
    for (int k = 0; k < 3; k++) {
        fp_thread_destroy(from[k]);
    }
    fp_thread_destroy(pair);
    fp_thread_destroy(into);
    CHECK_UINT(m.bytes, 0);
}

/* Number of nodes with a context: all but the flat ones. */
static uint32_t
contexts(const fp_thread *t)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->tree.count; i++) {
        count += !fp_node_is_flat(fp_tree_node(&t->tree, i));
    }
    return count;
}

/* With any caps on both sides no call and no tick is lost. */
FP_TEST(merge_beyond_a_cap_keeps_the_sums)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        enum { THREADS = 4 };
        fake_memory m = {0};
        fp_alloc a = fake_alloc(&m);
        uint64_t state = seed;
        uint32_t cap = 3 + fake_below(&state, 120);
        fp_thread *into = empty_thread(&a, (fp_limits){cap, 1024});
        fp_thread *from[THREADS];
        for (int k = 0; k < THREADS; k++) {
            fp_limits limits = {10 + fake_below(&state, 300),
                                2 + fake_below(&state, 10)};
            from[k] = empty_thread(&a, limits);
            run_program(from[k], seed * 10 + (uint64_t)k, 300);
            CHECK_INT(fp_thread_merge(into, from[k], NULL), FP_OK);
            check_consistent(into);
        }
        check_adds_up(into, from, THREADS);
        CHECK(into->tree.count <= 2 * cap);
        CHECK(contexts(into) <= cap);
        for (int k = 0; k < THREADS; k++) {
            fp_thread_destroy(from[k]);
        }
        fp_thread_destroy(into);
        CHECK_UINT(m.bytes, 0);
    }
}

FP_TEST(merge_f16_two_thousand_short_threads_in_bounded_memory)
{
    enum { THREADS = 2000, KINDS = 5 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_thread *ended = empty_thread(&a, kit_wide);
    size_t settled = 0;
    int64_t elapsed = 0;
    uint64_t calls = 0, takes = 0;
    for (uint64_t k = 0; k < THREADS; k++) {
        fp_thread *t = empty_thread(&a, kit_wide);
        elapsed += run_program(t, k % KINDS, 60);
        calls += kit_sum(t, 0).calls;
        CHECK_INT(fp_thread_merge(ended, t, NULL), FP_OK);
        fp_thread_destroy(t);
        if (k == KINDS) {
            settled = m.bytes;
            m.peak_bytes = 0;
            takes = m.takes;
        }
    }
    CHECK(takes > 0 && m.takes > takes); /* every thread allocated and freed */
    CHECK_UINT(m.bytes, settled);
    CHECK(m.peak_bytes < settled + 65536);
    CHECK_UINT(kit_sum(ended, 0).calls, calls);
    CHECK_INT(kit_sum(ended, 0).self_ticks, elapsed);
    check_consistent(ended);
    fp_thread_destroy(ended);
    CHECK_UINT(m.bytes, 0);
}

/* Each thread records for itself with the shared allocator (libc); the merging
 * thread reads after they have ended.  ThreadSanitizer checks it. */
typedef struct worker {
    pthread_t thread;
    const fp_alloc *alloc;
    uint64_t seed;
    fp_thread *recorded;
} worker;

static void *
work(void *arg)
{
    worker *w = arg;
    w->recorded = empty_thread(w->alloc, kit_wide);
    run_program(w->recorded, w->seed, 20000);
    return NULL;
}

FP_TEST(merge_of_eight_running_threads_shares_nothing_before)
{
    enum { THREADS = 8 };
    fp_alloc a = fp_alloc_libc();
    worker workers[THREADS];
    fp_thread *from[THREADS], *into = empty_thread(&a, kit_wide);
    for (uint64_t k = 0; k < THREADS; k++) {
        workers[k] = (worker){.alloc = &a, .seed = 300 + k % 3};
        CHECK_INT(pthread_create(&workers[k].thread, NULL, work, &workers[k]),
                  0);
    }
    for (int k = 0; k < THREADS; k++) {
        CHECK_INT(pthread_join(workers[k].thread, NULL), 0);
        from[k] = workers[k].recorded;
        CHECK_INT(fp_thread_merge(into, from[k], NULL), FP_OK);
    }
    check_adds_up(into, from, THREADS);
    for (int k = 0; k < THREADS; k++) {
        fp_thread_destroy(from[k]);
    }
    fp_thread_destroy(into);
}

/* All threads read one clock. */
static void *
read_clock(void *arg)
{
    const fp_clock *c = arg;
    int64_t last = fp_clock_now(c);
    for (int i = 0; i < 1000; i++) {
        int64_t now = fp_clock_now(c);
        CHECK(now >= last - 1000000000); /* it can be read; no more is known */
        last = now;
    }
    CHECK(fp_clock_ns_per_tick(c) > 0);
    return NULL;
}

FP_TEST(merge_clock_is_read_by_many_threads)
{
    enum { THREADS = 8 };
    fp_clock c;
    fp_clock_init(&c);
    pthread_t thread[THREADS];
    for (int k = 0; k < THREADS; k++) {
        CHECK_INT(pthread_create(&thread[k], NULL, read_clock, &c), 0);
    }
    for (int k = 0; k < THREADS; k++) {
        CHECK_INT(pthread_join(thread[k], NULL), 0);
    }
}
