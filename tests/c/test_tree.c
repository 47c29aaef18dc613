#include "core/tree.h"
#include "fake.h"

static fp_tree
tree_from(const fp_alloc *a)
{
    fp_tree t;
    CHECK_INT(fp_tree_init(&t, a), FP_OK);
    return t;
}

static fp_key
key(uint32_t i)
{
    return ((fp_key)i + 1) << 4;
}

FP_TEST(tree_begins_with_a_root_and_a_truncated_node)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_tree t = tree_from(&a);
    const fp_node *root = fp_tree_root(&t);
    CHECK_UINT(t.count, 2);
    CHECK(root->key == FP_KEY_ROOT && root->parent == NULL);
    CHECK(fp_tree_node(&t, 0) == root);
    const fp_node *truncated = fp_tree_truncated(&t);
    CHECK(fp_tree_find(&t, root, FP_KEY_TRUNCATED) == truncated);
    CHECK(truncated->parent == root && (truncated->flags & FP_NODE_FLAT));
    CHECK_UINT(fp_tree_bytes(&t), m.bytes);
    CHECK(m.bytes < 8192); /* an idle thread is cheap */
    fp_tree_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(tree_keys_carry_their_kind)
{
    CHECK_INT(fp_key_tag(key(5)), FP_TAG_PYTHON);
    fp_key section = fp_key_section(123456);
    CHECK_INT(fp_key_tag(section), FP_TAG_SECTION);
    CHECK_UINT(fp_key_section_id(section), 123456);
    CHECK_INT(fp_key_tag(FP_KEY_ROOT), FP_TAG_SPECIAL);
    CHECK_INT(fp_key_tag(FP_KEY_TRUNCATED), FP_TAG_SPECIAL);
    CHECK(FP_KEY_ROOT != FP_KEY_TRUNCATED);
    CHECK_UINT(sizeof(fp_node), sizeof(void *) == 8 ? 64 : sizeof(fp_node));
}

/* A random tree: every node is found by (parent, key), and by its index. */
FP_TEST(tree_finds_every_node)
{
    enum { COUNT = 20000 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_tree t = tree_from(&a);
    static fp_node *made[COUNT];
    uint64_t state = 31;
    uint32_t n = 0;
    while (n < COUNT) {
        fp_node *parent = n == 0 || fake_below(&state, 50) == 0
                              ? fp_tree_root(&t)
                              : made[fake_below(&state, n)];
        fp_key k = key(fake_below(&state, 300)) + fake_below(&state, 2);
        if (parent->depth > 1000 || fp_tree_find(&t, parent, k) != NULL) {
            continue;
        }
        fp_node *node = fp_tree_add(&t, parent, k);
        CHECK(node != NULL);
        CHECK_UINT(node->index, n + 2);
        CHECK_UINT(node->depth, parent->depth + 1);
        CHECK(node->key == k && node->parent == parent);
        CHECK(node->calls == 0 && node->self_ticks == 0 && node->flags == 0);
        made[n++] = node;
    }
    CHECK_UINT(t.count, COUNT + 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK(fp_tree_node(&t, i + 2) == made[i]); /* nodes do not move */
        CHECK(fp_tree_find(&t, made[i]->parent, made[i]->key) == made[i]);
        CHECK(made[i]->parent->index < made[i]->index);
    }
    CHECK(fp_tree_find(&t, made[0], key(1000000)) == NULL);
    CHECK_UINT(fp_tree_bytes(&t), m.bytes);
    fp_tree_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

/* Predicts, else finds, else adds, as the hook does.  True if it predicted. */
static bool
visit(fp_tree *t, fp_node *parent, fp_key k)
{
    fp_node *n = fp_tree_predict(parent, k);
    if (n != NULL) {
        CHECK(n->parent == parent && n->key == k);
        return true;
    }
    n = fp_tree_find(t, parent, k);
    if (n == NULL) {
        n = fp_tree_add(t, parent, k);
    }
    CHECK(n != NULL);
    fp_tree_learn(parent, n);
    return false;
}

FP_TEST(tree_learns_a_sequence_of_children_in_one_round)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_tree t = tree_from(&a);
    fp_node *root = fp_tree_root(&t);
    for (int round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            bool predicted = visit(&t, root, key(i));
            /* The step from the last child back to the first is learned when
             * it first happens. */
            CHECK(predicted == (round > 1 || (round == 1 && i > 0)));
        }
    }
    for (int i = 0; i < 5; i++) { /* the same child again and again */
        CHECK(visit(&t, root, key(2)));
    }
    fp_tree_fini(&t);
}

FP_TEST(tree_learns_anew_when_the_program_changes)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_tree t = tree_from(&a);
    fp_node *root = fp_tree_root(&t);
    for (uint32_t i = 0; i < 30; i++) {
        visit(&t, root, key(i % 3));
    }
    for (uint32_t i = 0; i < 30; i++) { /* in reverse */
        bool predicted = visit(&t, root, key(2 - i % 3));
        CHECK(i < 4 || predicted);
    }
    /* 10 000 children in a fixed order need no search. */
    for (uint32_t i = 0; i < 20000; i++) {
        visit(&t, root, key(i % 10000));
    }
    for (uint32_t i = 0; i < 10000; i++) {
        CHECK(visit(&t, root, key(i)));
    }
    fp_tree_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(tree_no_node_is_never_predicted)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_tree t = tree_from(&a);
    fp_node *root = fp_tree_root(&t);
    for (uint32_t tag = 0; tag < FP_TAG_MASK; tag++) {
        CHECK(fp_tree_predict(root, (fp_key)tag) == NULL);
        CHECK(fp_tree_predict(root, key(1) + tag) == NULL);
    }
    CHECK(root->last_child == &fp_node_none);
    CHECK(fp_node_none.calls == 0 && fp_node_none.self_ticks == 0);
    fp_tree_fini(&t);
}

FP_TEST(tree_f36_a_failed_allocation_changes_nothing)
{
    enum { COUNT = 3000 };
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        fake_memory m = {.fail_at = nth};
        fp_alloc a = fake_alloc(&m);
        fp_tree t;
        if (fp_tree_init(&t, &a) != FP_OK) {
            CHECK_UINT(m.bytes, 0);
            continue;
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t count = t.count;
            fp_node *n = fp_tree_add(&t, fp_tree_root(&t), key(i));
            if (n == NULL) {
                CHECK_UINT(t.count, count);
                CHECK(fp_tree_find(&t, fp_tree_root(&t), key(i)) == NULL);
                n = fp_tree_add(&t, fp_tree_root(&t), key(i)); /* once more */
            }
            CHECK(n != NULL && n->index == count);
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            fp_node *n = fp_tree_find(&t, fp_tree_root(&t), key(i));
            CHECK(n == fp_tree_node(&t, i + 2));
        }
        CHECK_UINT(fp_tree_bytes(&t), m.bytes);
        fp_tree_fini(&t);
        CHECK_UINT(m.bytes, 0);
        failed = m.failures != 0;
        CHECK(nth < 1000);
    }
}
