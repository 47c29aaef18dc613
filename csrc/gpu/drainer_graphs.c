/* Keeps CUPTI's memory on the device small in long runs of CUDA graphs.
 *
 * CUPTI writes the times of activities to buffers on the device, by default up
 * to 250 of 3.2 MB.  Those with nodes of graphs may never be used again (seen
 * with 13.0.85): 1 GiB is gone after 25 million records, and all later ones
 * have no times.  So CUPTI gets a smaller limit, and when records of nodes
 * come without times, graphs are recorded as a whole from then on. */
#include "gpu/cupti_abi.h"
#include "gpu/drainer.h"

/* 64 MiB, of which other memory of CUPTI's needs little. */
enum { MOST_BYTES = 64 << 20 };

/* So many records of nodes in a period must be without times, and one in so
 * many of all. */
enum { FEWEST = 64, ONE_IN = 100 };

static size_t
attribute(fp_gpu *g, int which)
{
    size_t value = 0, size = sizeof(value);
    int rc = g->cupti.get_attribute(which, &size, &value);
    return fp_drainer_check(g, rc) == FP_CUPTI_SUCCESS ? value : 0;
}

static int
set_limit(fp_gpu *g, size_t value)
{
    size_t size = sizeof(value);
    return fp_drainer_check(
               g, g->cupti.set_attribute(FP_CUPTI_DEVICE_BUFFER_POOL_LIMIT,
                                         &size, &value)) == FP_CUPTI_SUCCESS;
}

static size_t
our_limit(fp_gpu *g)
{
    size_t size = attribute(g, FP_CUPTI_DEVICE_BUFFER_SIZE);
    size_t limit = size != 0 ? MOST_BYTES / size : 0;
    return limit != 0 ? limit : 1;
}

void
fp_drainer_bound_memory(fp_gpu *g)
{
    if (g->cupti.get_attribute == NULL || g->cupti.set_attribute == NULL ||
        g->graphs == FP_GPU_GRAPHS_REFUSED) {
        return;
    }
    size_t limit = our_limit(g);
    size_t before = attribute(g, FP_CUPTI_DEVICE_BUFFER_POOL_LIMIT);
    if (before > limit && set_limit(g, limit)) {
        g->pool_limit = before;
    }
}

void
fp_drainer_unbound_memory(fp_gpu *g)
{
    if (g->pool_limit != 0 &&
        attribute(g, FP_CUPTI_DEVICE_BUFFER_POOL_LIMIT) == our_limit(g)) {
        (void)set_limit(g, g->pool_limit);
    }
    g->pool_limit = 0;
}

void
fp_drainer_enable_graphs(fp_gpu *g)
{
    if (g->graphs == FP_GPU_GRAPHS_WHOLE &&
        fp_drainer_check(g, g->cupti.enable(FP_CUPTI_GRAPH_TRACE)) !=
            FP_CUPTI_SUCCESS) {
        g->graphs = FP_GPU_GRAPHS_REFUSED;
        fp_drainer_unbound_memory(g); /* rather than no times at all */
    }
}

void
fp_drainer_disable_graphs(fp_gpu *g)
{
    if (g->graphs == FP_GPU_GRAPHS_WHOLE) {
        fp_drainer_check(g, g->cupti.disable(FP_CUPTI_GRAPH_TRACE));
    }
}

void
fp_drainer_watch_graphs(fp_gpu *g)
{
    pthread_mutex_lock(&g->lock);
    const fp_gpu_counters *c = &g->ledger.counters;
    uint64_t nodes = c->nodes - g->seen_nodes;
    uint64_t untimed = c->untimed_nodes - g->seen_untimed_nodes;
    g->seen_nodes = c->nodes;
    g->seen_untimed_nodes = c->untimed_nodes;
    pthread_mutex_unlock(&g->lock);
    if (g->graphs == FP_GPU_GRAPHS_BY_NODE && untimed >= FEWEST &&
        untimed >= nodes / ONE_IN) {
        g->graphs = FP_GPU_GRAPHS_WHOLE;
        fp_drainer_enable_graphs(g);
    }
}
