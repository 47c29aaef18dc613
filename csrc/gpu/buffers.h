/* buffers: the memory into which CUPTI writes records.
 *
 * CUPTI requests a buffer on any thread that needs one, and returns it, full
 * or flushed, on any thread.  Both only change the state of one slot, so
 * neither waits.  If all slots are in use, CUPTI gets a small spare buffer
 * whose records are discarded and counted, because some releases crash if a
 * request is refused.  Each buffer is lent to one thread at a time: several
 * threads may write at once.
 *
 *   FREE -> LENT (CUPTI writes) -> FULL (to be decoded) -> FREE */
#ifndef FP_GPU_BUFFERS_H
#define FP_GPU_BUFFERS_H

#include "core/alloc.h"
#include "core/base.h"

#include <stdatomic.h>

enum {
    FP_BUFFERS = 512, /* since CUDA 13 each launching thread holds one */
    /* About 550 launches.  A flush returns a partly filled buffer only if none
     * of its activities is still running, which never happens on a busy
     * device. */
    FP_BUFFER_BYTES = 1 << 17,
    FP_SPARE_BYTES = 1 << 16,
    FP_SPARES = 64,
};

enum {
    FP_BUFFER_FREE,
    FP_BUFFER_CLAIMED, /* about to be lent; data may change */
    FP_BUFFER_LENT,
    FP_BUFFER_FULL,
    FP_BUFFER_TAKEN,
};

typedef struct fp_buffer {
    _Atomic int state;
    uint8_t *data; /* owned; allocated when first lent, then kept */
    size_t valid;  /* bytes, while FULL */
    void *context;
    uint32_t stream;
    uint64_t order; /* of completion */
    _Atomic int64_t lent_at;
} fp_buffer;

typedef struct fp_buffers {
    fp_buffer slot[FP_BUFFERS];
    _Atomic(uint8_t *) spare[FP_SPARES]; /* owned while lent; never read */
    /* owned; for a CUPTI that must not be refused: lent any number of times if
     * nothing else is left */
    uint8_t *last;
    _Atomic int may_refuse; /* requests of this CUPTI may be refused */
    _Atomic int closed;     /* discard returned buffers without counting */
    _Atomic uint64_t completed;
    _Atomic uint64_t lent_spares;
    _Atomic uint64_t discarded; /* buffers whose records were discarded */
    fp_alloc alloc;             /* any thread may use it */
} fp_buffers;

/* Allocates the last spare buffer.  FP_ENOMEM: nothing is held. */
fp_status
fp_buffers_init(fp_buffers *b, const fp_alloc *a);

/* Frees all buffers.  For tests, when CUPTI holds none. */
void
fp_buffers_fini(fp_buffers *b);

/* Lends a buffer and sets *size; [now] is in ticks.  Returns NULL if none is
 * left and the request may be refused.  Any thread. */
uint8_t *
fp_buffers_lend(fp_buffers *b, size_t *size, int64_t now);

/* Takes a buffer back with [valid] bytes of records.  Returns 1 if it is to be
 * decoded.  Any thread. */
int
fp_buffers_accept(fp_buffers *b, uint8_t *data, size_t valid, void *context,
                  uint32_t stream);

/* For the decoder: the full buffers, oldest first, to be given back one by
 * one.  Returns their number. */
uint32_t
fp_buffers_take_full(fp_buffers *b, fp_buffer *taken[FP_BUFFERS]);

/* Frees a buffer that was decoded. */
void
fp_buffers_give_back(fp_buffer *taken);

/* Number of buffers that CUPTI holds. */
uint32_t
fp_buffers_lent(const fp_buffers *b);

/* Ticks at which the oldest of them was lent; INT64_MAX: CUPTI holds none. */
int64_t
fp_buffers_oldest(const fp_buffers *b);

#endif
