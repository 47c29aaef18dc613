/* thread_kit: drives an fp_thread as the extension does, and checks its
 * invariants. */
#ifndef FP_THREAD_KIT_H
#define FP_THREAD_KIT_H

#include "core/path.h"
#include "core/thread.h"
#include "core/thread_sections.h"
#include "fake.h"

static const fp_limits kit_wide = {1000000, 1024};

/* Function number [i], of two kinds that share addresses. */
static inline fp_key
kit_function(uint32_t i)
{
    return ((fp_key)(i / 2 + 1) << 6) | (i % 2 ? FP_TAG_C : FP_TAG_PYTHON);
}

/* Enters a call, counted in the node that it returns, which is never NULL. */
static inline fp_node *
kit_enter(fp_thread *t, fp_key key, int64_t now)
{
    fp_node *n = fp_thread_predict(t, key);
    if (n == NULL) {
        n = fp_thread_find(t, key);
    }
    if (n == NULL) {
        n = fp_thread_add(t, key);
    }
    CHECK(n != NULL);
    n->calls++;
    if (fp_node_is_flat(n)) {
        (void)fp_thread_enter_flat(t, n, now);
    }
    else {
        fp_thread_enter(t, n, now);
    }
    return n;
}

static inline void
kit_open(fp_thread *t, uint32_t id, int64_t now)
{
    CHECK_INT(fp_thread_open_section(t, id, FP_PHASE_NONE, NULL, now), FP_OK);
}

static inline void
kit_close(fp_thread *t, uint32_t id, int64_t now)
{
    CHECK_INT(fp_thread_close_section(t, id, NULL, 0, now), FP_OK);
}

/* Returns the length of the path and copies its first [capacity] keys,
 * innermost first, to [keys]. */
static inline uint32_t
kit_path(const fp_thread *t, fp_key *keys, uint32_t capacity)
{
    uint32_t len = 0, over = t->over_len;
    const fp_node *n = t->cur;
    while (n != fp_tree_root(&t->tree)) {
        CHECK(n != NULL);
        if (len < capacity) {
            keys[len] = n->key;
        }
        len++;
        n = over > 0 ? t->over[--over] : n->parent;
    }
    CHECK_UINT(over, 0);
    return len;
}

typedef struct kit_sums {
    uint64_t calls;
    uint64_t resumes;
    int64_t self_ticks;
} kit_sums;

/* Sums over every node, or over those with [key] if it is not 0. */
static inline kit_sums
kit_sum(const fp_thread *t, fp_key key)
{
    kit_sums sums = {0, 0, 0};
    for (uint32_t i = 0; i < t->tree.count; i++) {
        const fp_node *n = fp_tree_node(&t->tree, i);
        if (key == 0 || n->key == key) {
            sums.calls += n->calls;
            sums.resumes += n->resumes;
            sums.self_ticks += n->self_ticks;
        }
    }
    return sums;
}

/* The node at the end of a path of [len] keys from the root; NULL if none. */
static inline fp_node *
kit_at(const fp_thread *t, const fp_key *keys, uint32_t len)
{
    fp_node *n = fp_tree_root(&t->tree);
    for (uint32_t i = 0; i < len && n != NULL; i++) {
        n = fp_tree_find(&t->tree, n, keys[i]);
    }
    return n;
}

static inline void
kit_check_node(const fp_tree *tree, uint32_t index)
{
    const fp_node *n = fp_tree_node(tree, index);
    CHECK_UINT(n->index, index);
    CHECK(n->last_child == &fp_node_none || n->last_child->parent == n);
    CHECK(n->successor == &fp_node_none || n->successor->parent == n->parent);
    CHECK(fp_tree_find(tree, n->parent, n->key) == n);
    CHECK(n->self_ticks >= 0);
    if (index == 0) {
        CHECK(n->parent == NULL && n->key == FP_KEY_ROOT);
        return;
    }
    CHECK(n->parent->index < index);
    CHECK_UINT(n->depth, n->parent->depth + 1);
    CHECK(n->key != FP_KEY_ROOT);
    if (n->key == FP_KEY_TRUNCATED) {
        CHECK(fp_node_is_flat(n) && !fp_node_is_flat(n->parent));
    }
    else {
        CHECK(fp_node_is_flat(n) == (n->parent->key == FP_KEY_TRUNCATED));
        CHECK(fp_node_is_flat(n) || !fp_node_is_flat(n->parent));
    }
}

/* The entries with on_path name the sections on the path in order. */
static inline void
kit_check_path(const fp_thread *t)
{
    uint32_t over = t->over_len, i = t->open_len;
    CHECK(fp_node_is_flat(t->cur) == (over != 0));
    for (const fp_node *n = t->cur; n != fp_tree_root(&t->tree);) {
        CHECK(n != NULL);
        if (fp_key_tag(n->key) == FP_TAG_SECTION) {
            do {
                CHECK(i > 0);
                i--;
            } while (!t->open[i].on_path);
            CHECK(t->open[i].key == n->key);
        }
        if (over > 0) {
            n = t->over[--over];
            CHECK(fp_node_is_flat(n) == (over != 0));
        }
        else {
            n = n->parent;
        }
    }
    CHECK_UINT(over, 0);
    while (i > 0) {
        CHECK(!t->open[--i].on_path);
    }
}

static inline void
kit_check_sections(const fp_thread *t)
{
    for (uint32_t id = 0; id < t->section_capacity; id++) {
        const fp_section *s = t->section[id];
        if (s == NULL) {
            continue;
        }
        CHECK_UINT(s->id, id);
        uint32_t open = 0;
        for (uint32_t i = 0; i < t->open_len; i++) {
            open += t->open[i].section == s;
        }
        CHECK_UINT(s->open, open + s->lost);
        CHECK(s->errors <= s->count);
        CHECK(s->outer_ticks >= 0 && s->sum_ticks >= 0);
        CHECK(s->count == 0 ||
              (0 <= s->min_ticks && s->min_ticks <= s->max_ticks));
    }
    for (const fp_section *s = t->touched; s != NULL; s = s->next_touched) {
        CHECK(s->touched);
    }
}

/* Checks all invariants of a thread. */
static inline void
check_consistent(const fp_thread *t)
{
    CHECK(t->tree.count >= 2);
    for (uint32_t i = 0; i < t->tree.count; i++) {
        kit_check_node(&t->tree, i);
    }
    CHECK(fp_tree_node(&t->tree, 1) == fp_tree_truncated(&t->tree));
    kit_check_path(t);
    kit_check_sections(t);
}

/* The same for a thread with its own allocator and a clock that never went
 * back. */
static inline void
check_complete(const fp_thread *t, const fake_memory *m, int64_t elapsed)
{
    check_consistent(t);
    CHECK_INT(kit_sum(t, 0).self_ticks, elapsed);
    CHECK_UINT(fp_thread_bytes(t), m->bytes);
}

#endif
