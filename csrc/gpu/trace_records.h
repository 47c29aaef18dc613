/* trace_records: what the device did and what it was called for, one by one,
 * for windows of time; the last so many.
 *
 * The drain thread writes here while it decodes, so the program's threads write
 * no more than they do anyhow but for one event per launch: how long the call
 * took.  Times are ticks of our clock; the device's are converted when its
 * record is read, when the pairs of both clocks around it are still known.  A
 * window that ended is remembered for records that come late.  One thread at a
 * time. */
#ifndef FP_GPU_TRACE_RECORDS_H
#define FP_GPU_TRACE_RECORDS_H

#include "core/ring.h"
#include "gpu/clock_map.h"

/* An activity of the device. */
typedef struct fp_trace_record {
    int64_t start;
    int64_t end;
    uint64_t bytes;
    uint32_t corr;
    uint32_t device;
    uint32_t stream;
    int32_t what;    /* see sums.h */
    int32_t grid[3]; /* kernels */
} fp_trace_record;

typedef enum fp_trace_call_kind {
    FP_TRACE_LAUNCH,
    FP_TRACE_GRAPH,
    FP_TRACE_SYNC,
} fp_trace_call_kind;

/* A call to CUDA. */
typedef struct fp_trace_call {
    int64_t start;
    int64_t end;
    uint32_t corr;   /* 0: not known */
    uint32_t thread; /* its serial number; 0: not known */
    uint8_t kind;
} fp_trace_call;

enum { FP_TRACE_SPANS = 64 };

typedef struct fp_trace_records {
    fp_ring record;
    fp_ring call;
    struct {
        int64_t from;
        int64_t to;         /* INT64_MAX while it is open */
    } span[FP_TRACE_SPANS]; /* the last windows, oldest first */
    uint32_t spans;
    uint64_t lost;
    int64_t lost_until; /* end of the last record or call that was lost */
    uint64_t no_memory;
} fp_trace_records;

/* Takes no memory so far. */
void
fp_trace_records_init(fp_trace_records *t, const fp_alloc *a, uint64_t limit);

/* Forgets everything; a window that is open begins anew at [now]. */
void
fp_trace_records_clear(fp_trace_records *t, int64_t now);

void
fp_trace_records_fini(fp_trace_records *t);

void
fp_trace_records_open(fp_trace_records *t, int64_t now);

void
fp_trace_records_close(fp_trace_records *t, int64_t now);

/* Was it in a window? */
int
fp_trace_records_want(const fp_trace_records *t, int64_t ticks);

/* Both take what is given, if it was in a window. */
void
fp_trace_records_call(fp_trace_records *t, const fp_trace_call *call);

/* [launched]: ticks of its launch; INT64_MIN: not known.  What was launched in
 * a window belongs to it, whenever it runs. */
void
fp_trace_records_add(fp_trace_records *t, const fp_trace_record *r,
                     int64_t launched);

#endif
