/* buffers: the memory that CUPTI writes records into.
 *
 * CUPTI asks for a buffer on whatever thread needs one and gives it back, full
 * or flushed, on whatever thread; both only change one slot's state, so neither
 * waits.  When every slot is in use, a small buffer is lent whose records are
 * thrown away and counted: refusing is what makes some releases crash.  Each is lent
 * once at a time, as several threads may write at once.
 *
 *   FREE -> LENT (CUPTI writes) -> FULL (to be decoded) -> FREE */
#ifndef FP_GPU_BUFFERS_H
#define FP_GPU_BUFFERS_H

#include "core/alloc.h"
#include "core/base.h"

#include <stdatomic.h>

enum {
    FP_BUFFERS = 512, /* since CUDA 13 each thread that launches holds one */
    /* Some 550 launches.  One that is not full comes back with a flush only if
     * nothing in it is under way, which on a busy device is never. */
    FP_BUFFER_BYTES = 1 << 17,
    FP_SPARE_BYTES = 1 << 16,
    FP_SPARES = 64,
};

enum {
    FP_BUFFER_FREE,
    FP_BUFFER_CLAIMED, /* about to be lent; data may be changing */
    FP_BUFFER_LENT,
    FP_BUFFER_FULL,
    FP_BUFFER_TAKEN,
};

typedef struct fp_buffer {
    _Atomic int state;
    uint8_t *data; /* owned; made when first lent, kept for good */
    size_t valid;  /* bytes, while FULL */
    void *context;
    uint32_t stream;
    uint64_t order; /* of completion */
    _Atomic int64_t lent_at;
} fp_buffer;

typedef struct fp_buffers {
    fp_buffer slot[FP_BUFFERS];
    _Atomic(uint8_t *) spare[FP_SPARES]; /* owned, while lent; never read */
    uint8_t
        *last; /* owned; of a CUPTI that may not be refused: lent when there is
                      nothing else, any number of times */
    _Atomic int may_refuse; /* this CUPTI bears it */
    _Atomic int closed;     /* what comes back is thrown away, not counted */
    _Atomic uint64_t completed;
    _Atomic uint64_t lent_spares;
    _Atomic uint64_t discarded; /* buffers whose records were thrown away */
    fp_alloc alloc;             /* any thread may use it */
} fp_buffers;

/* FP_ENOMEM: nothing is held. */
fp_status
fp_buffers_init(fp_buffers *b, const fp_alloc *a);

/* Only when CUPTI holds none: for tests. */
void
fp_buffers_fini(fp_buffers *b);

/* Any thread.  NULL if it may refuse and has nothing.  [now]: ticks. */
uint8_t *
fp_buffers_lend(fp_buffers *b, size_t *size, int64_t now);

/* Any thread.  1 if there is something to decode now. */
int
fp_buffers_accept(fp_buffers *b, uint8_t *data, size_t valid, void *context,
                  uint32_t stream);

/* The decoder: buffers to decode, oldest first; it gives each back. */
uint32_t
fp_buffers_take_full(fp_buffers *b, fp_buffer *taken[FP_BUFFERS]);

void
fp_buffers_give_back(fp_buffer *taken);

/* How many CUPTI holds. */
uint32_t
fp_buffers_lent(const fp_buffers *b);

/* Since when it has had the oldest of them; INT64_MAX: it holds none. */
int64_t
fp_buffers_oldest(const fp_buffers *b);

#endif
