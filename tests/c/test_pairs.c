#include "core/pairs.h"
#include "fake.h"

#include <string.h>

/* A function of 0 calls 1, which calls itself through 0. */
static void
recursive(fp_pairs_node node[5])
{
    const fp_pairs_node nodes[5] = {
        {.group = -1, .self_ns = 7, .raw_ns = 7},
        {.parent = 0, .group = 0, .calls = 1, .self_ns = 1, .raw_ns = 2},
        {.parent = 1, .group = 1, .calls = 2, .self_ns = 10, .raw_ns = 20},
        {.parent = 2, .group = 0, .calls = 3, .self_ns = 100, .raw_ns = 200},
        {.parent = 3, .group = 1, .calls = 4, .self_ns = 1000, .raw_ns = 2000},
    };
    memcpy(node, nodes, sizeof(nodes));
}

FP_TEST(pairs_count_the_time_of_a_recursion_once)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_pairs p;
    fp_pairs_node node[5];
    recursive(node);
    CHECK_INT(fp_pairs_sum(&p, &a, node, 5, 2), FP_OK);
    CHECK_UINT(p.count, 4);
    CHECK_INT(p.pair[1].caller, -1);
    CHECK_INT(p.pair[1].outer.cum_ns, 1111);
    CHECK_INT(p.pair[1].outer.raw_cum_ns, 2222);
    /* 1 called by 0, twice. */
    CHECK_INT(p.pair[2].caller, 0);
    CHECK_INT(p.pair[2].callee, 1);
    CHECK_INT(p.pair[2].calls, 6);
    CHECK_INT(p.pair[2].self_ns, 1010);
    CHECK_INT(p.pair[2].outer.calls, 2);
    CHECK_INT(p.pair[2].outer.cum_ns, 1110);
    CHECK_UINT(p.pair[2].nested, 0);
    /* 0 called by 1: within the 0 that began. */
    CHECK_INT(p.pair[3].outer.calls, 0);
    CHECK_UINT(p.pair[3].nested, 1);
    CHECK_INT(p.pair[3].more.calls, 3);
    CHECK_INT(p.pair[3].more.cum_ns, 1100);
    fp_pairs_fini(&p);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(pairs_of_many_functions_are_all_found)
{
    enum { MANY = 1000 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_pairs p;
    fp_pairs_node *node = fp_alloc_zeroed(&a, 2 * MANY, sizeof(*node));
    CHECK(node != NULL);
    node[0].group = -1;
    for (uint32_t i = 1; i < 2 * MANY; i++) {
        node[i] = (fp_pairs_node){.group = (int32_t)(i % MANY), .self_ns = i};
    }
    CHECK_INT(fp_pairs_sum(&p, &a, node, 2 * MANY, MANY), FP_OK);
    CHECK_UINT(p.count, MANY + 1);
    for (uint32_t i = 1; i < MANY; i++) {
        CHECK_INT(p.pair[i].callee, i);
        CHECK_INT(p.pair[i].outer.cum_ns, 2 * i + MANY);
    }
    fp_alloc_give(&a, node, 2 * MANY, sizeof(*node));
    fp_pairs_fini(&p);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(pairs_f36_without_memory_are_empty)
{
    for (uint64_t fail_at = 1;; fail_at++) {
        fake_memory m = {.fail_at = fail_at};
        fp_alloc a = fake_alloc(&m);
        fp_pairs p;
        fp_pairs_node node[5];
        recursive(node);
        fp_status status = fp_pairs_sum(&p, &a, node, 5, 2);
        if (m.failures == 0) {
            CHECK_INT(status, FP_OK);
            CHECK(fail_at > 3);
            fp_pairs_fini(&p);
            break;
        }
        CHECK_INT(status, FP_ENOMEM);
        CHECK_UINT(p.count, 0);
        CHECK_UINT(m.bytes, 0);
    }
}
