/* ledger_state: the ledger's struct and its waiting items. */
#ifndef FP_GPU_LEDGER_STATE_H
#define FP_GPU_LEDGER_STATE_H

#include "gpu/clock_map.h"
#include "gpu/cuda_driver.h"
#include "gpu/graph_nodes.h"
#include "gpu/kernels.h"
#include "gpu/lane.h"
#include "gpu/launches.h"
#include "gpu/owners.h"
#include "gpu/renames.h"
#include "gpu/sums.h"
#include "gpu/timeline.h"
#include "gpu/trace_records.h"

typedef struct fp_gpu_counters {
    uint64_t records;
    uint64_t kernels;
    uint64_t copies;
    uint64_t memsets;
    uint64_t launches;
    uint64_t graph_launches;
    uint64_t nodes; /* records of nodes of graphs */
    uint64_t syncs;
    /* errors */
    uint64_t dropped;    /* lost by CUPTI */
    uint64_t incomplete; /* without an end: still running when flushed */
    uint64_t zero_time;
    uint64_t untimed_nodes; /* of these, nodes of graphs */
    uint64_t whole_graphs;  /* graphs recorded as a whole, not by nodes */
    uint64_t invalid;       /* end before start */
    uint64_t unknown_kind;
    uint64_t truncated; /* buffers that end inside a record */
    uint64_t stale;     /* before the recording, or after its end */
    uint64_t graph_ids; /* of graphs, with the id of another call */
    uint64_t misdated;  /* with times of another clock */
    uint64_t expired_launches;
    uint64_t negative_delay;
} fp_gpu_counters;

/* Flush periods for which a launch waits for its place; buffers come out of
 * order. */
enum { FP_PLACE_PATIENCE = 2 };

typedef struct fp_activity {
    int64_t start;
    int64_t ns;
    uint64_t bytes;
    uint64_t graph_node;
    uint32_t corr;
    int32_t what;
} fp_activity;

/* An activity whose launch is unknown so far.  Only with external correlation,
 * whose records come in any order. */
typedef struct fp_parked {
    fp_activity activity;
    uint32_t generation;
} fp_parked;

/* A launch whose place is unknown so far, and since when. */
typedef struct fp_fresh {
    uint32_t corr;
    uint32_t generation;
} fp_fresh;

enum { FP_PARKED_MAX = 1 << 20 };

/* A copied node of a graph.  Its original may have been captured by another
 * thread, whose lane is read later. */
typedef struct fp_graph_clone {
    uint64_t id;
    uint64_t original;
} fp_graph_clone;

enum { FP_CLONES_WAITING = 256 };

typedef struct fp_ledger {
    fp_alloc alloc;
    fp_clock_map clock;
    fp_launches launches;
    fp_kernels kernels;
    fp_sums sums;
    fp_graph_nodes graphs;
    fp_owner_log owners;
    fp_renames renames;
    fp_trace_records *trace; /* borrowed; NULL: no trace */
    fp_timeline *timeline;   /* owned; one per device */
    uint32_t timelines;
    fp_parked *parked; /* owned */
    uint32_t parked_count;
    uint32_t parked_capacity;
    fp_graph_clone clone[FP_CLONES_WAITING]; /* waiting for their originals */
    uint32_t clones;
    fp_fresh *fresh; /* owned; launches to settle */
    uint32_t fresh_count;
    uint32_t fresh_capacity;
    /* Times to which the last calls of fp_ledger_age() folded, oldest
     * first. */
    int64_t aged[FP_PLACE_PATIENCE];
    /* The sections of the timelines' slots; slot 0 means no section. */
    uint16_t section[FP_TIMELINE_SECTIONS]; /* section id + 1 */
    uint32_t sections;
    int settled;          /* no launch is in progress */
    int external;         /* external correlation, not callbacks */
    uint32_t attachment;  /* ids of other attachments are ignored */
    int64_t begin_ns;     /* start of the recording, device clock */
    int64_t end_ns;       /* its end; INT64_MAX while it runs */
    int64_t cleared;      /* ticks of the last clear(); 0: none */
    int64_t latest_ns;    /* no activity ends later; 0: unknown */
    int graph_ids_wrong;  /* CUPTI reports wrong ids for graphs */
    uint64_t outstanding; /* launches without any activity so far */
    uint64_t orphans;     /* activities, not of graphs, without a launch */
    int64_t answered_ns;  /* time of the newest launch with an activity */
    fp_gpu_counters counters;
} fp_ledger;

#endif
