#include "gpu/graph_nodes.h"

#include <string.h>

void
fp_graph_nodes_init(fp_graph_nodes *g, const fp_alloc *a)
{
    *g = (fp_graph_nodes){.alloc = *a};
}

void
fp_graph_nodes_fini(fp_graph_nodes *g)
{
    fp_alloc_give(&g->alloc, g->slot, g->capacity, sizeof(*g->slot));
    *g = (fp_graph_nodes){.alloc = g->alloc};
}

/* The slot of [id], or the empty slot for it. */
static fp_graph_node *
slot_of(const fp_graph_nodes *g, uint64_t id)
{
    uint32_t mask = g->capacity - 1;
    uint32_t at = (uint32_t)(id * 0x9E3779B97F4A7C15u >> 32) & mask;
    while (g->slot[at].id != 0 && g->slot[at].id != id) {
        at = (at + 1) & mask;
    }
    return &g->slot[at];
}

static int
grow(fp_graph_nodes *g)
{
    fp_graph_nodes old = *g;
    uint32_t more = g->capacity != 0 ? g->capacity * 2 : 256;
    fp_graph_node *slot = fp_alloc_zeroed(&g->alloc, more, sizeof(*slot));
    if (slot == NULL) {
        return -1;
    }
    g->slot = slot;
    g->capacity = more;
    for (uint32_t i = 0; i < old.capacity; i++) {
        if (old.slot[i].id != 0) {
            *slot_of(g, old.slot[i].id) = old.slot[i];
        }
    }
    fp_alloc_give(&g->alloc, old.slot, old.capacity, sizeof(*slot));
    return 0;
}

void
fp_graph_nodes_put(fp_graph_nodes *g, uint64_t id, fp_place place)
{
    if (id == 0) {
        return;
    }
    if (g->count == FP_GRAPH_NODES_MAX) {
        g->lost += g->count;
        memset(g->slot, 0, g->capacity * sizeof(*g->slot));
        g->count = 0;
    }
    if (g->count * 2 >= g->capacity && grow(g) < 0) {
        g->lost++;
        return;
    }
    fp_graph_node *slot = slot_of(g, id);
    g->count += slot->id == 0;
    *slot = (fp_graph_node){id, place};
}

fp_place
fp_graph_nodes_find(const fp_graph_nodes *g, uint64_t id)
{
    return id != 0 && g->count != 0 ? slot_of(g, id)->place : 0;
}

void
fp_graph_nodes_rename(fp_graph_nodes *g, uint32_t from, uint32_t to,
                      const uint32_t *became, uint32_t nodes)
{
    for (uint32_t i = 0; i < g->capacity; i++) {
        if (g->slot[i].id != 0) {
            g->slot[i].place =
                fp_place_renamed(g->slot[i].place, from, to, became, nodes);
        }
    }
}
