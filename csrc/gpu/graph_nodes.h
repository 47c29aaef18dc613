/* graph_nodes: where the kernels of CUDA graphs were captured, by CUPTI's node
 * id.  An instantiated graph holds copies of the nodes, with new ids. */
#ifndef FP_GPU_GRAPH_NODES_H
#define FP_GPU_GRAPH_NODES_H

#include "core/alloc.h"
#include "gpu/site.h"

enum { FP_GRAPH_NODES_MAX = 1 << 18 };

typedef struct fp_graph_node {
    uint64_t id; /* 0: empty slot */
    fp_place place;
} fp_graph_node;

typedef struct fp_graph_nodes {
    fp_alloc alloc;
    fp_graph_node *slot; /* owned; open addressing */
    uint32_t count;
    uint32_t capacity;
    uint64_t lost; /* nodes forgotten: too many, or no memory */
} fp_graph_nodes;

void
fp_graph_nodes_init(fp_graph_nodes *g, const fp_alloc *a);

void
fp_graph_nodes_fini(fp_graph_nodes *g);

/* Stores the place of node [id].  A full table is emptied: a program that
 * captures without end replays its newest graphs. */
void
fp_graph_nodes_put(fp_graph_nodes *g, uint64_t id, fp_place place);

/* The place of node [id]; 0: unknown. */
fp_place
fp_graph_nodes_find(const fp_graph_nodes *g, uint64_t id);

/* Nodes of thread [from] became nodes of thread [to]. */
void
fp_graph_nodes_rename(fp_graph_nodes *g, uint32_t from, uint32_t to,
                      const uint32_t *became, uint32_t nodes);

#endif
