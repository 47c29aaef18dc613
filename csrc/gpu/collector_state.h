/* collector_state: the collector's struct, states and options. */
#ifndef FP_GPU_COLLECTOR_STATE_H
#define FP_GPU_COLLECTOR_STATE_H

#include "gpu/api_calls.h"
#include "gpu/buffers.h"
#include "gpu/cupti_lib.h"
#include "gpu/ledger.h"

#include <pthread.h>

typedef enum fp_gpu_state {
    FP_GPU_OFF,
    FP_GPU_ON,
    FP_GPU_PAUSED,
    FP_GPU_DEAD, /* abandoned: a call hung, or after a fork */
} fp_gpu_state;

typedef enum fp_gpu_tier {
    FP_TIER_NONE,
    FP_TIER_CALLBACKS,
    FP_TIER_EXTERNAL,
} fp_gpu_tier;

/* CUPTI passes no pointer of ours to its buffer callbacks, so the module that
 * holds the collector supplies these functions. */
typedef struct fp_gpu_entries {
    fp_cupti_callback on_call;
    fp_cupti_request on_request;
    fp_cupti_complete on_complete;
} fp_gpu_entries;

typedef struct fp_gpu_options {
    fp_gpu_tier tier;    /* NONE: callbacks if available */
    int64_t period_ns;   /* between flushes */
    int64_t patience_ns; /* limit for each request to the thread */
    int takes_slot;      /* CUPTI's, if torch.profiler keeps it */
} fp_gpu_options;

typedef enum fp_gpu_request {
    FP_GPU_NOTHING,
    FP_GPU_ATTACH,
    FP_GPU_DETACH, /* for a pause */
    FP_GPU_FLUSH,
    FP_GPU_FINISH, /* detach and end the thread */
} fp_gpu_request;

/* How a launching call of the runtime calls the driver.  If it always does,
 * the driver's callback reports everything and the runtime's is switched
 * off, until an activity comes whose launch no callback has reported. */
typedef struct fp_gpu_nested {
    _Atomic uint32_t inside; /* calls that contained a driver's call */
    _Atomic int alone;       /* a call contained none */
    int is_off;              /* written by the thread */
} fp_gpu_nested;

/* How CUDA graphs are recorded, for the life of the process. */
typedef enum fp_gpu_graphs {
    FP_GPU_GRAPHS_BY_NODE,
    FP_GPU_GRAPHS_WHOLE,
    FP_GPU_GRAPHS_REFUSED, /* by node: CUPTI refused the other way */
} fp_gpu_graphs;

enum { FP_GPU_NESTED_ENOUGH = 1000 };

typedef struct fp_gpu {
    fp_alloc alloc;
    fp_cupti cupti;
    fp_cuda_driver driver;
    fp_gpu_entries entries;
    fp_gpu_options options;
    fp_clock clock;
    fp_buffers buffers;
    fp_lanes lanes;
    fp_owners owners;
    /* read by callbacks */
    _Atomic int accept;  /* record launches */
    _Atomic int tracing; /* ... and their duration */
    _Atomic int tier;
    fp_gpu_nested nested[FP_API_CALLS];
    _Atomic uint64_t recording;   /* number of the recording */
    _Atomic uint32_t attachments; /* number of the attachment to CUPTI */
    _Atomic int woken;            /* where the thread sleeps */
    /* used by callers */
    pthread_mutex_t control; /* held by one caller at a time */
    _Atomic int state;
    pthread_mutex_t talk; /* guards the three below */
    pthread_cond_t answer;
    fp_gpu_request request;
    uint64_t asked;
    uint64_t answered;
    /* used by the thread */
    pthread_t thread;
    void *subscriber;
    int attached;
    fp_why found; /* why the last attempt to attach failed */
    int64_t next_flush;
    int64_t grace_ns;    /* how long to wait for activities when detaching */
    int64_t detached_ns; /* device clock */
    int clock_is_ours;   /* this attachment replaced the clock */
    int kernels_left_on; /* this CUPTI may hang when they are switched off */
    int refused;         /* CUPTI's error when attaching; or 0 */
    uint64_t heard_records;
    uint64_t heard_pushes;
    uint32_t unheard_periods;
    int graphs; /* an fp_gpu_graphs */
    uint64_t seen_nodes;
    uint64_t seen_untimed_nodes;
    size_t pool_limit; /* of others, where ours replaced it; or 0 */
    uint64_t seen_misdated;
    uint64_t seen_orphans;
    uint64_t aged_records; /* records counted when the ledger last aged */
    uint64_t seen_records;
    uint64_t seen_launches;
    uint32_t silent_periods;
    int32_t size_of_kind[64]; /* step of the iterator; 0: unknown */
    /* the recorded data */
    pthread_mutex_t lock; /* guards the ledger and all below */
    fp_ledger ledger;
    int has_ledger;
    fp_trace_records trace; /* windows of the owner's trace */
    fp_gpu_tier used;       /* tier of this recording */
    _Atomic uint64_t cupti_errors;
    _Atomic uint64_t push_errors; /* external correlation failed */
    uint64_t taken;               /* periods with launches but no records */
    uint64_t unheard; /* last periods with pushed ids but no records */
    /* times that fastprof replaced CUPTI's clock */
    uint64_t clocks_taken_back;
    int64_t paused_ns;
    _Atomic uint64_t pauses;
    fp_why why; /* why it is off, or why it records less */
} fp_gpu;

#endif
