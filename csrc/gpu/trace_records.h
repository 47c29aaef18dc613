/* trace_records: the device's activities and the calls that launched them, one
 * by one, during windows of time; the oldest are dropped.
 *
 * The drain thread writes here while it decodes.  The program's threads write
 * one more event per launch: its duration.  Times are ticks of our clock.
 * Device times are converted when the record is read, while the pairs of both
 * clocks around them are known.  Past windows are remembered for records that
 * come late.  One thread at a time. */
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
    int32_t grid[3]; /* for kernels */
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
    uint32_t corr;   /* 0: unknown */
    uint32_t thread; /* serial number; 0: unknown */
    uint8_t kind;
} fp_trace_call;

enum { FP_TRACE_SPANS = 64 };

typedef struct fp_trace_records {
    fp_ring record;
    fp_ring call;
    struct {
        int64_t from;
        int64_t to;         /* INT64_MAX while open */
    } span[FP_TRACE_SPANS]; /* windows, oldest first */
    uint32_t spans;
    uint64_t lost;
    int64_t lost_until; /* end of the last one that was lost */
    uint64_t no_memory;
} fp_trace_records;

/* Allocates nothing yet.  [limit]: activities, and calls, to keep. */
void
fp_trace_records_init(fp_trace_records *t, const fp_alloc *a, uint64_t limit);

/* Forgets everything.  An open window begins again at [now]. */
void
fp_trace_records_clear(fp_trace_records *t, int64_t now);

void
fp_trace_records_fini(fp_trace_records *t);

/* Opens a window at [now]; closes the one that is open. */
void
fp_trace_records_open(fp_trace_records *t, int64_t now);

/* Closes the open window, if any. */
void
fp_trace_records_close(fp_trace_records *t, int64_t now);

/* Is [ticks] inside a window? */
int
fp_trace_records_want(const fp_trace_records *t, int64_t ticks);

/* Stores a call that began in a window. */
void
fp_trace_records_call(fp_trace_records *t, const fp_trace_call *call);

/* Stores an activity launched in a window, whenever it ran.  [launched]: ticks
 * of its launch; INT64_MIN: unknown, so its start decides. */
void
fp_trace_records_add(fp_trace_records *t, const fp_trace_record *r,
                     int64_t launched);

#endif
