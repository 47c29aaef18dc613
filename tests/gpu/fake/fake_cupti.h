/* fake_cupti: a libcupti that drives a simulated GPU, for tests without one.
 *
 * The library exports CUPTI's own functions, which the code under test calls,
 * and the functions below, with which a test controls the program and the
 * device.  A launch happens on the thread that calls fake_cupti_launch, with
 * CUPTI's callbacks, records and order of records.
 *
 * Times are CUPTI's nanoseconds.  Each stream of each device is a queue: an
 * activity starts when it is launched or when the one before it ends, whichever
 * is later.  Any thread may call any function here except fake_cupti_reset.
 *
 * Environment of a process that loads the library:
 *   FAKE_CUPTI_RELEASE  13000 is CUDA 13.0; see fake_records.c for the list
 *   FAKE_CUPTI_VERSION  result of cuptiGetVersion; selects its first release
 *   FAKE_CUPTI_SET      option=value,option=value
 *   FAKE_CUPTI_FAIL     function:code[:after],...
 *   FAKE_CUPTI_SLOW     function:milliseconds,...
 *   FAKE_CUPTI_HOLDER   name of the tool that holds the subscriber slot
 *   FAKE_CUPTI_ONLY     path of the only copy in this process that works
 *   FAKE_CUPTI_REPORT   file to write fake_cupti_report into at exit */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

/* ---- options ----
 * X(name, default).  "every n": every n-th record of a device activity; 0:
 * none. */
#define FAKE_OPTIONS(X) \
    X(release, 13000) \
    X(correlation, 1) /* the first id, now and after each unsubscribe */ \
    X(offset_ns, 0)   /* CUPTI's clock minus the system's */ \
    X(drift_ppb, 0)   /* ... which grows by so much per second */ \
    X(launch_latency_ns, 0) /* from the call to the earliest start */ \
    X(api_ns, 0)            /* how long a call takes on the manual clock */ \
    X(max_sleep_ns, 5000000000) /* a wait for the device sleeps no longer */ \
    X(per_thread, \
      2) /* a buffer for each launching thread; 2: as the release */ \
    X(clock_follows, \
      1)             /* cuptiGetTimestamp tells a registered clock's time */ \
    X(clock_late, 1) /* a clock registered late is that of devices in use */ \
    X(clock_refused, 0)   /* no clock can be registered */ \
    X(foreign_at_load, 0) /* as after fake_cupti_foreign_clock */ \
    X(clock_spoils, \
      1)          /* records that each registration after the first spoils */ \
    X(step_ns, 0) /* by which the wall clock was stepped */ \
    X(skew_ns, 0) /* by which the device's times are early */ \
    X(disable_hangs, 1) /* disabling kernels, before 13.0 with update 1 */ \
    X(graph_ids_wrong, \
      1) /* from the second session on, before 13.1; 2: always */ \
    X(driver_hidden, 0)  /* the runtime does not call the driver */ \
    X(mark_buffers, 1)   /* each record marks its place when it is written */ \
    X(deliver_thread, 0) /* the complete callback runs on CUPTI's thread */ \
    X(lock_callbacks, 0) /* ... and under a lock that most calls take */ \
    X(shuffle, 0)        /* seed: records of a buffer in random order */ \
    X(shuffle_buffers, 0) /* seed: buffers of a flush in random order */ \
    X(kernel_first, 0)    /* an activity's record before its call's */ \
    X(external_twice, 0)  /* a nested driver call has a record, too    */ \
    X(nodes_leak, \
      0) /* records of nodes per buffer on the device, never used again */ \
    X(lose_every, 0) /* no record, no trace of it */ \
    X(drop_every, 0) /* no record, but counted as dropped */ \
    X(zero_start_every, 0) \
    X(zero_end_every, 0) \
    X(zero_both_every, 0) \
    X(backwards_every, 0) /* end before start */ \
    X(foreign_every, 0)   /* a record of an unrequested kind follows */ \
    X(unknown_every, 0)   /* ... of a kind the iterator itself refuses */ \
    X(truncate_bytes, 0)  /* the valid size is short by so much */ \
    X(hold_buffers, 0)    /* number of deliveries held for deliver_held */ \
    X(name_copies, 1)     /* addresses that one kernel name is given at */ \
    X(needs_driver, 0)    /* calls fail before the fake driver's cuInit */

/* ---- the functions of CUPTI that exist here ---- */
#define FAKE_FUNCTIONS(X) \
    X(cuptiGetVersion) \
    X(cuptiGetResultString) \
    X(cuptiGetErrorMessage) \
    X(cuptiGetLastError) \
    X(cuptiSubscribe) \
    X(cuptiSubscribe_v2) \
    X(cuptiUnsubscribe) \
    X(cuptiEnableCallback) \
    X(cuptiEnableDomain) \
    X(cuptiEnableAllDomains) \
    X(cuptiActivityRegisterCallbacks) \
    X(cuptiActivityEnable) \
    X(cuptiActivityDisable) \
    X(cuptiActivityEnableRuntimeApi) \
    X(cuptiActivityEnableDriverApi) \
    X(cuptiActivityFlushAll) \
    X(cuptiActivityFlushPeriod) \
    X(cuptiActivityGetNextRecord) \
    X(cuptiActivityGetNumDroppedRecords) \
    X(cuptiActivityGetAttribute) \
    X(cuptiActivitySetAttribute) \
    X(cuptiGetTimestamp) \
    X(cuptiActivityRegisterTimestampCallback) \
    X(cuptiActivityPushExternalCorrelationId) \
    X(cuptiActivityPopExternalCorrelationId) \
    X(cuptiSetThreadIdType) \
    X(cuptiGetThreadIdType) \
    X(cuptiGetGraphExecId) \
    X(cuptiGetGraphId) \
    X(cuptiGetGraphNodeId) \
    X(cuptiFinalize)

/* ---- counters ----
 * Read them with fake_cupti_get("name").  A delivered record is one that a
 * client can reach with cuptiActivityGetNextRecord. */
#define FAKE_COUNTERS(X) \
    X(launches)          /* API calls that gave the device work */ \
    X(graph_launches)    /* ... of which graphs */ \
    X(waits)             /* API calls that waited for the device */ \
    X(callbacks)         /* API callbacks made */ \
    X(resources)         /* resource callbacks made */ \
    X(before_init)       /* client calls before the fake driver's cuInit */ \
    X(in_callback)       /* client calls from a callback that must not */ \
    X(buffers_requested) /* got from the client */ \
    X(buffers_null) \
    X(buffers_short) \
    X(buffers_misaligned) \
    X(buffers_shared)    /* one into which another was writing */ \
    X(buffers_touched)   /* another wrote into one meanwhile */ \
    X(buffers_completed) /* given back to the client */ \
    X(buffers_stolen)    /* the client's, given to another */ \
    X(buffers_held)      /* delivery held back at present */ \
    X(records_written) \
    X(records_delivered) \
    X(records_cut) /* in a delivered buffer but out of reach */ \
    X(records_lost) \
    X(records_dropped) \
    X(records_disabled)     /* pending when their kind was disabled */ \
    X(records_unregistered) /* no client had registered buffers */ \
    X(records_stolen) \
    X(records_spoiled) /* delivered with times of another clock */ \
    X(device_bytes)    /* the most memory of the device in use */ \
    X(clocks)          /* timestamp callbacks registered */ \
    X(finalized)

/* ---- records ---- */

enum { /* kinds that the fake writes */
       FAKE_MEMCPY = 1,
       FAKE_MEMSET = 2,
       FAKE_DRIVER = 4,
       FAKE_RUNTIME = 5,
       FAKE_KERNEL = 10,
       FAKE_MARKER = 12,
       FAKE_OVERHEAD = 17,
       FAKE_PEER = 22,
       FAKE_CUDA_EVENT = 36,
       FAKE_SYNC = 38,
       FAKE_EXTERNAL = 39,
       FAKE_MEMORY = 49,
       FAKE_MEMORY_POOL = 50,
       FAKE_GRAPH_TRACE = 51,
       FAKE_KINDS = 64,
       FAKE_UNKNOWN_KIND = 250, /* no release has it; 64 bytes */
};

/* One activity record before it is laid out for a release. */
typedef struct fake_record {
    uint32_t kind;
    uint32_t type; /* cbid, direction of a copy, kind of wait, external kind */
    int64_t start;
    int64_t end;
    uint64_t bytes; /* or the external id */
    uint32_t device;
    uint32_t stream;
    uint32_t to_device;
    uint32_t correlation;
    uint32_t thread;
    uint32_t graph;
    uint64_t graph_node;
    const char *name;
    int32_t grid[3];
    int32_t block[3];
    uint32_t registers;
    uint32_t static_shared;
    uint32_t dynamic_shared;
    uint32_t is_told;    /* its times are CUPTI's already */
    uint32_t is_spoiled; /* ... and those of another clock */
} fake_record;

/* Size of a record of [kind] in [release]; 0: the iterator refuses it. */
FAKE_EXPORT size_t
fake_cupti_record_size(int release, uint32_t kind);

/* The first release with that version of CUPTI (of CUDA 13: with that minor
 * version); -1: none is known. */
FAKE_EXPORT int
fake_cupti_release_of(uint32_t version);

/* Writes [r] to [at], which has room; returns its size. */
FAKE_EXPORT size_t
fake_cupti_write_record(int release, const fake_record *r, uint8_t *at);

/* ---- control by tests ---- */

/* Returns 0, or -1 if there is no such option. */
FAKE_EXPORT int
fake_cupti_set(const char *option, int64_t value);

/* The first release with that version; -1: none. */
FAKE_EXPORT int
fake_cupti_set_version(uint32_t version);

/* A counter; "calls" and "calls.cuptiGetVersion": calls by the client;
 * "buffers_outstanding"; "K.count", "K.sum_ns" (start > 0, end >= start),
 * "K.bytes", "K.incomplete" (end 0), "K.zero_time" (only start 0), "K.backwards"
 * and "K.spoiled" (told by another clock) of delivered records, K a kind's number.  -1: no such name. */
FAKE_EXPORT int64_t
fake_cupti_get(const char *name);

/* Delivered kernels of one name: count and, in [sum_ns], as "10.sum_ns". */
FAKE_EXPORT int64_t
fake_cupti_kernel(const char *name, int64_t *sum_ns);

/* Everything as one JSON object.  Returns its length, as snprintf does. */
FAKE_EXPORT size_t
fake_cupti_report(char *text, size_t size);

/* Resets the library to its state after loading, and reads the environment
 * again.  Forgets the client's buffers.  No other thread may be inside the
 * library. */
FAKE_EXPORT void
fake_cupti_reset(void);

/* From its call number after+1 on, [function] only returns [code]; code 0: it
 * works again.  -1: no such function. */
FAKE_EXPORT int
fake_cupti_fail(const char *function, int code, int64_t after);

FAKE_EXPORT int
fake_cupti_slow(const char *function, int64_t milliseconds);

/* From now on only advance, waits and api_ns move the clock. */
FAKE_EXPORT void
fake_cupti_set_time(int64_t ns);

FAKE_EXPORT void
fake_cupti_advance(int64_t ns);

FAKE_EXPORT void
fake_cupti_use_real_clock(void);

FAKE_EXPORT int64_t
fake_cupti_now(void);

/* ---- other clients of CUPTI in the same process ---- */

/* Another tool takes the subscriber slot; NULL: releases it (the client may
 * take it). */
FAKE_EXPORT void
fake_cupti_hold_subscriber(const char *name);

/* Another client registers its buffer callbacks: from now on it gets the
 * records, and the client's open buffers. */
FAKE_EXPORT void
fake_cupti_steal_buffers(void);

/* It leaves: its buffers are emptied and no callbacks are registered any
 * more. */
FAKE_EXPORT void
fake_cupti_return_buffers(void);

FAKE_EXPORT void
fake_cupti_other_enable(int kind, int on);

/* Another client registers a timestamp callback that returns ticks of a counter,
 * as Kineto does; its times are 2.1 per ns and began three days ago. */
FAKE_EXPORT void
fake_cupti_foreign_clock(void);

/* Another client calls cuptiFinalize: everything is off, and open buffers are
 * lost. */
FAKE_EXPORT void
fake_cupti_foreign_finalize(void);

/* Another client uses the functions with _v2: the others fail with 14 until
 * this is called with 0. */
FAKE_EXPORT void
fake_cupti_use_v2(int on);

/* The module with the kernel [name] is unloaded; from now on its name's
 * address holds [other]. */
FAKE_EXPORT void
fake_cupti_unload(const char *name, const char *other);

/* Another client, or CUPTI's own timer, flushes: not counted as a call. */
FAKE_EXPORT void
fake_cupti_flush(uint32_t flags);

/* Delivers the buffers that hold_buffers kept back. */
FAKE_EXPORT void
fake_cupti_deliver_held(void);

/* The client's complete callback gets a buffer that the client never
 * supplied. */
FAKE_EXPORT void
fake_cupti_complete_foreign(void);

/* Puts one record into the stream of records, independent of the enabled
 * kinds. */
FAKE_EXPORT void
fake_cupti_inject(const fake_record *r);

/* ---- the program ---- */

typedef struct fake_kernel {
    const char *name; /* mangled; CUPTI sometimes gives NULL */
    int64_t duration_ns;
    uint32_t device;
    uint32_t stream;
    int32_t grid[3];
    int32_t block[3];
    uint32_t registers;
    uint32_t static_shared;
    uint32_t dynamic_shared;
    uint32_t driver_only;  /* cuLaunchKernel, like Triton */
    uint32_t runtime_cbid; /* 0: cudaLaunchKernel */
    uint32_t driver_cbid;  /* 0: cuLaunchKernel */
} fake_kernel;

/* These return the call's correlation id.  While the calling thread captures a
 * graph they add a node to it. */
FAKE_EXPORT uint32_t
fake_cupti_launch(const fake_kernel *k);

typedef struct fake_copy {
    uint32_t direction; /* CUpti_ActivityMemcpyKind; 10 between devices */
    uint32_t wait;      /* the call returns when the copy is done */
    uint64_t bytes;
    int64_t duration_ns;
    uint32_t device;
    uint32_t stream;
    uint32_t to_device;
    uint32_t driver_only;
} fake_copy;

FAKE_EXPORT uint32_t
fake_cupti_memcpy(const fake_copy *c);

FAKE_EXPORT uint32_t
fake_cupti_memset(uint64_t bytes, int64_t duration_ns, uint32_t device,
                  uint32_t stream);

enum { /* CUpti_ActivitySynchronizationType */
       FAKE_WAIT_EVENT = 1,
       FAKE_WAIT_STREAM = 3,
       FAKE_WAIT_DEVICE = 4,
};

/* Blocks until the stream (or, FAKE_WAIT_DEVICE, every stream) is done; on the
 * manual clock, time jumps there. */
FAKE_EXPORT uint32_t
fake_cupti_synchronize(int wait, uint32_t device, uint32_t stream);

/* Graphs: handles live until fake_cupti_reset. */
FAKE_EXPORT void
fake_cupti_capture_begin(void);

FAKE_EXPORT void *
fake_cupti_capture_end(void);

FAKE_EXPORT void *
fake_cupti_instantiate(void *graph);

FAKE_EXPORT uint32_t
fake_cupti_graph_launch(void *exec, uint32_t device, uint32_t stream);

#endif
