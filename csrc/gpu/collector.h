/* collector: CUPTI switched on and off, and the thread that drains it.
 *
 * Every CUPTI call but three is made by that thread: switching on, flushing,
 * walking buffers, switching off.  The three are made where CUPTI must be told at
 * once: pushing and popping external correlation ids.  Who asks for something
 * waits for the thread with a limit, so that a call that hangs inside CUPTI
 * costs the recording, not the program; the collector is then dead for good.
 *
 *   OFF --start--> ON --pause--> PAUSED --resume--> ON --stop--> OFF
 *
 * One collector per process and never freed: CUPTI keeps buffers, and may call
 * back after everything is over. */
#ifndef FP_GPU_COLLECTOR_H
#define FP_GPU_COLLECTOR_H

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

/* Once per process.  FP_ENOMEM: cannot be used. */
fp_status
fp_gpu_init(fp_gpu *g, const fp_alloc *a, const fp_clock *clock,
            const fp_gpu_entries *entries, int (*is_backward)(fp_key));

/* Begins a recording with the library and driver put into [g] before; a
 * recording before it is forgotten.  0, or -1 with g->why. */
int
fp_gpu_start(fp_gpu *g, const fp_gpu_options *o);

/* Ends it: waits up to [grace_ns] for what the device still does, without
 * synchronizing.  No CUPTI call is made afterwards.  What was recorded stays. */
void
fp_gpu_stop(fp_gpu *g, int64_t grace_ns);

/* Lets go of CUPTI for another client, and comes back. */
void
fp_gpu_pause(fp_gpu *g, int64_t grace_ns);

void
fp_gpu_resume(fp_gpu *g);

/* Brings what is recorded up to date, as far as CUPTI delivers it without being
 * forced.  0: done; -1: not within the limit, or there is nothing to flush. */
int
fp_gpu_flush(fp_gpu *g, int64_t patience_ns);

/* The process has been forked and this is the child: no call is made any more. */
void
fp_gpu_forked(fp_gpu *g);

/* Forgets what is recorded, keeps recording. */
void
fp_gpu_clear(fp_gpu *g);

/* A window of the trace begins, at [now]; [limit] records are kept at most, as
 * the first window says. */
void
fp_gpu_trace_open(fp_gpu *g, uint64_t limit, int64_t now);

void
fp_gpu_trace_close(fp_gpu *g, int64_t now);

/* Frees what is recorded, if that can be done; only while OFF. */
void
fp_gpu_forget(fp_gpu *g);

/* ---- inside CUPTI's callbacks, on any thread ---- */

/* A CUDA call was entered or left.  [self]: the thread's own record, or NULL.
 * Returns how long the host was blocked in it, in ticks, when the outermost
 * waiting call ends; else 0. */
int64_t
fp_gpu_on_call(fp_gpu *g, fp_lane *lane, const fp_thread *self, int domain,
               uint32_t cbid, const void *data);

/* Time to look at the lanes or buffers. */
void
fp_gpu_wake(fp_gpu *g);

/* The thread, for the collector alone.  0, or -1: it does not run. */
int
fp_gpu_begin_thread(fp_gpu *g);

/* What the lane remembers about its thread is about [self], in this recording. */
void
fp_gpu_lane_for(fp_gpu *g, fp_lane *lane, const fp_thread *self);

/* Where a launch by this thread belongs. */
fp_site
fp_gpu_site(fp_gpu *g, fp_lane *lane, const fp_thread *self);

#endif
