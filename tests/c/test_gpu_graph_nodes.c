#include "gpu/graph_nodes.h"
#include "gpu_kit.h"

enum { IDS = 3000 };

static uint64_t
id_of(uint32_t i)
{
    /* Small numbers, and large ones that differ only in the upper half. */
    return i % 2 ? i : (uint64_t)i << 40 | 4;
}

FP_TEST(gpu_graph_nodes_do_what_the_model_does)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_graph_nodes g;
    fp_graph_nodes_init(&g, &a);
    static fp_place model[IDS];
    uint64_t state = 3;
    const uint32_t became[4] = {3, 2, 1, 0};
    for (int n = 0; n < 30000; n++) {
        uint32_t i = fake_below(&state, IDS);
        if (fake_below(&state, 2)) {
            model[i] =
                kit_place(1 + fake_below(&state, 3), fake_below(&state, 6));
            fp_graph_nodes_put(&g, id_of(i), model[i]);
        }
        else {
            CHECK_UINT(fp_graph_nodes_find(&g, id_of(i)), model[i]);
        }
        if (n % 5000 == 4999) {
            fp_graph_nodes_rename(&g, 2, 3, became, 4);
            for (uint32_t k = 0; k < IDS; k++) {
                if (model[k] >> 32 == 2) {
                    uint32_t node = (uint32_t)model[k];
                    model[k] = kit_place(3, node < 4 ? became[node] : 0);
                }
            }
        }
    }
    for (uint32_t i = 0; i < IDS; i++) {
        CHECK_UINT(fp_graph_nodes_find(&g, id_of(i)), model[i]);
    }
    CHECK_UINT(g.lost, 0);
    fp_graph_nodes_fini(&g);
    CHECK_UINT(memory.bytes, 0);
    CHECK_UINT(fp_graph_nodes_find(&g, 1), 0);
}

FP_TEST(gpu_graph_nodes_ignores_id_0)
{
    fp_alloc a = fp_alloc_libc();
    fp_graph_nodes g;
    fp_graph_nodes_init(&g, &a);
    fp_graph_nodes_put(&g, 0, kit_place(1, 1));
    CHECK_UINT(fp_graph_nodes_find(&g, 0), 0);
    CHECK_UINT(g.count, 0);
    fp_graph_nodes_put(&g, 4, kit_place(1, 1));
    CHECK_UINT(fp_graph_nodes_find(&g, 0), 0);
    fp_graph_nodes_fini(&g);
}

FP_TEST(gpu_graph_nodes_f32_when_there_are_too_many_the_newest_stay)
{
    fp_alloc a = fp_alloc_libc();
    fp_graph_nodes g;
    fp_graph_nodes_init(&g, &a);
    for (uint64_t id = 1; id <= FP_GRAPH_NODES_MAX; id++) {
        fp_graph_nodes_put(&g, id, id);
    }
    CHECK_UINT(g.lost, 0);
    CHECK_UINT(fp_graph_nodes_find(&g, 1), 1);
    for (uint64_t id = FP_GRAPH_NODES_MAX + 1; id <= FP_GRAPH_NODES_MAX + 100;
         id++) {
        fp_graph_nodes_put(&g, id, id);
    }
    CHECK_UINT(g.lost, FP_GRAPH_NODES_MAX);
    CHECK_UINT(g.count, 100);
    CHECK_UINT(fp_graph_nodes_find(&g, 1), 0);
    CHECK_UINT(fp_graph_nodes_find(&g, FP_GRAPH_NODES_MAX + 1),
               FP_GRAPH_NODES_MAX + 1);
    CHECK_UINT(g.capacity, 2 * FP_GRAPH_NODES_MAX);
    fp_graph_nodes_fini(&g);
}

FP_TEST(gpu_graph_nodes_f36_without_memory_some_are_forgotten)
{
    for (uint64_t at = 1; at <= 4; at++) {
        fake_memory memory = {.fail_at = at, .fail_on = true};
        fp_alloc a = fake_alloc(&memory);
        fp_graph_nodes g;
        fp_graph_nodes_init(&g, &a);
        uint64_t known = 0;
        for (uint64_t id = 1; id <= 2000; id++) {
            fp_graph_nodes_put(&g, id, id);
        }
        for (uint64_t id = 1; id <= 2000; id++) {
            fp_place p = fp_graph_nodes_find(&g, id);
            CHECK(p == 0 || p == id);
            known += p != 0;
        }
        CHECK_UINT(known, g.count);
        CHECK_UINT(known + g.lost, 2000);
        CHECK_UINT(known, at == 1 ? 0 : (uint64_t)64 << at >> 1);
        fp_graph_nodes_fini(&g);
        CHECK_UINT(memory.bytes, 0);
    }
}
