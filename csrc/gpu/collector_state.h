/* collector_state: the struct of the GPU collector, its options and its states. */
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
    FP_GPU_DEAD, /* abandoned: a call hung, or the process was forked */
} fp_gpu_state;

typedef enum fp_gpu_tier {
    FP_TIER_NONE,
    FP_TIER_CALLBACKS,
    FP_TIER_EXTERNAL,
} fp_gpu_tier;

/* CUPTI's callbacks for buffers carry no pointer of ours, so they are functions
 * of whoever keeps the collector. */
typedef struct fp_gpu_entries {
    fp_cupti_callback on_call;
    fp_cupti_request on_request;
    fp_cupti_complete on_complete;
} fp_gpu_entries;

typedef struct fp_gpu_options {
    fp_gpu_tier tier;    /* NONE: callbacks if they can be had */
    int64_t period_ns;   /* between flushes */
    int64_t patience_ns; /* for any request to the thread */
} fp_gpu_options;

typedef enum fp_gpu_request {
    FP_GPU_NOTHING,
    FP_GPU_ATTACH,
    FP_GPU_DETACH, /* to pause */
    FP_GPU_FLUSH,
    FP_GPU_FINISH, /* detach and end the thread */
} fp_gpu_request;

/* The runtime's launching calls as they were seen to call the driver.  Where each
 * did, the driver's callback tells all, and the runtime's is switched off. */
typedef struct fp_gpu_nested {
    _Atomic uint32_t inside; /* calls with the driver's inside */
    _Atomic int alone;       /* some call had none */
    int is_off;              /* the thread's */
} fp_gpu_nested;

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
    /* callbacks look at these */
    _Atomic int accept;  /* launches are recorded */
    _Atomic int tracing; /* ... and how long they take */
    _Atomic int tier;
    fp_gpu_nested nested[FP_API_CALLS];
    _Atomic uint64_t recording;   /* counts them */
    _Atomic uint32_t attachments; /* to CUPTI: counts them */
    int wake[2]; /* pipe; a byte in it: there is something to do */
    _Atomic int woken;
    /* who asks */
    pthread_mutex_t control; /* one at a time */
    _Atomic int state;
    pthread_mutex_t talk; /* guards the three below */
    pthread_cond_t answer;
    fp_gpu_request request;
    uint64_t asked;
    uint64_t answered;
    /* the thread's */
    pthread_t thread;
    void *subscriber;
    int attached;
    fp_why found; /* like `why`, of the last attempt to attach */
    int64_t next_flush;
    int64_t grace_ns;    /* to wait for what is under way when detaching */
    int64_t detached_ns; /* device clock */
    int clock_is_ours;   /* since it was attached */
    int kernels_left_on; /* this CUPTI may hang when they are switched off */
    int refused;         /* what it said when it could not be attached; 0 */
    uint64_t heard_records;
    uint64_t heard_pushes;
    uint32_t unheard_periods;
    uint64_t seen_misdated;
    uint64_t aged_records; /* when what waits got older for the last time */
    uint64_t seen_records;
    uint64_t seen_launches;
    uint32_t silent_periods;
    int32_t size_of_kind[64]; /* as the iterator steps; 0: not known */
    /* what is recorded */
    pthread_mutex_t lock; /* guards the ledger and what follows */
    fp_ledger ledger;
    int has_ledger;
    fp_trace_records trace; /* of the windows of its owner's trace */
    fp_gpu_tier used;       /* tier of this recording */
    _Atomic uint64_t cupti_errors;
    _Atomic uint64_t push_errors; /* external correlation was given up */
    uint64_t taken;   /* periods in which launches had no records at all */
    uint64_t unheard; /* periods with ids pushed and no record, at the end */
    uint64_t clocks_taken_back; /* times that CUPTI's clock was replaced */
    int64_t paused_ns;
    _Atomic uint64_t pauses;
    fp_why why; /* why it is off, or what is worse than it could be */
} fp_gpu;

#endif
