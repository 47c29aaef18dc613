/* ledger_state: the struct of the ledger and its parts. */
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
    uint64_t syncs;
    /* faults */
    uint64_t dropped;    /* CUPTI says it lost them */
    uint64_t incomplete; /* still running when flushed: no end */
    uint64_t zero_time;
    uint64_t invalid; /* end before start */
    uint64_t unknown_kind;
    uint64_t truncated; /* a buffer ended inside a record */
    uint64_t stale;     /* from before the recording, or after its end */
    uint64_t graph_ids; /* of graphs, with an id that is another call's */
    uint64_t misdated;  /* told by a clock that is not the recording's */
    uint64_t expired_launches;
    uint64_t negative_delay;
} fp_gpu_counters;

/* Flush periods that a launch waits for its place: buffers may come out of order. */
enum { FP_PLACE_PATIENCE = 2 };

/* An activity whose launch is not known yet (external correlation only: its
 * records come in any order). */
typedef struct fp_parked {
    int64_t start;
    int64_t ns;
    uint64_t bytes;
    uint64_t graph_node;
    uint32_t corr;
    int32_t what;
    uint32_t generation;
} fp_parked;

/* A launch whose place is to be found out, and since when. */
typedef struct fp_fresh {
    uint32_t corr;
    uint32_t generation;
} fp_fresh;

enum { FP_PARKED_MAX = 1 << 20 };

/* A graph's node may be captured on one thread and copied on another, whose lane
 * is read first. */
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
    fp_trace_records *trace; /* borrowed; NULL: no trace is taken */
    fp_timeline *timeline; /* owned; one per device that did anything, below */
    uint32_t timelines;
    fp_parked *parked; /* owned */
    uint32_t parked_count;
    uint32_t parked_capacity;
    fp_graph_clone clone[FP_CLONES_WAITING]; /* their originals are to come */
    uint32_t clones;
    fp_fresh *fresh; /* owned; launches to settle */
    uint32_t fresh_count;
    uint32_t fresh_capacity;
    /* Times up to which the last calls of fp_ledger_age() folded, oldest first. */
    int64_t aged[FP_PLACE_PATIENCE];
    /* Outermost sections, as the timelines number them; slot 0 is none. */
    uint16_t section[FP_TIMELINE_SECTIONS]; /* section id + 1 */
    uint32_t sections;
    int settled;          /* nothing is under way: no place can still come */
    int external;         /* which of the two ways */
    uint32_t attachment;  /* ids of others are not told by this one */
    int64_t begin_ns;     /* of the recording; device clock */
    int64_t end_ns;       /* ... INT64_MAX while it goes on */
    int64_t latest_ns;    /* nothing can have ended later; 0: not known */
    int graph_ids_wrong;  /* of records of graphs; a defect of some CUPTIs */
    uint64_t outstanding; /* launches without an activity so far */
    int64_t answered_ns;  /* when the newest launch was made that has one */
    fp_gpu_counters counters;
} fp_ledger;

#endif
