#include "gpu/buffers.h"

fp_status
fp_buffers_init(fp_buffers *b, const fp_alloc *a)
{
    *b = (fp_buffers){.alloc = *a};
    b->last = fp_alloc_zeroed(a, FP_SPARE_BYTES, 1);
    return b->last != NULL ? FP_OK : FP_ENOMEM;
}

void
fp_buffers_fini(fp_buffers *b)
{
    for (int i = 0; i < FP_BUFFERS; i++) {
        fp_alloc_give(&b->alloc, b->slot[i].data, FP_BUFFER_BYTES, 1);
        b->slot[i].data = NULL;
    }
    for (int i = 0; i < FP_SPARES; i++) {
        fp_alloc_give(&b->alloc, atomic_exchange(&b->spare[i], NULL),
                      FP_SPARE_BYTES, 1);
    }
    fp_alloc_give(&b->alloc, b->last, FP_SPARE_BYTES, 1);
    b->last = NULL;
}

static uint8_t *
lend_spare(fp_buffers *b, size_t *size)
{
    atomic_fetch_add(&b->lent_spares, 1);
    *size = FP_SPARE_BYTES;
    uint8_t *data = b->alloc.take(b->alloc.ctx, FP_SPARE_BYTES);
    for (int i = 0; data != NULL && i < FP_SPARES; i++) {
        uint8_t *none = NULL;
        if (atomic_compare_exchange_strong(&b->spare[i], &none, data)) {
            return data;
        }
    }
    fp_alloc_give(&b->alloc, data, FP_SPARE_BYTES, 1);
    if (atomic_load(&b->may_refuse)) {
        atomic_fetch_add(&b->discarded, 1);
        *size = 0;
        return NULL;
    }
    return b->last;
}

/* Returns 1 if [data] is a spare buffer. */
static int
accept_spare(fp_buffers *b, uint8_t *data)
{
    if (data == NULL) {
        return 0;
    }
    for (int i = 0; i < FP_SPARES; i++) {
        uint8_t *is = data;
        if (atomic_compare_exchange_strong(&b->spare[i], &is, NULL)) {
            fp_alloc_give(&b->alloc, data, FP_SPARE_BYTES, 1);
            return 1;
        }
    }
    return data == b->last;
}

uint8_t *
fp_buffers_lend(fp_buffers *b, size_t *size, int64_t now)
{
    for (int i = 0; i < FP_BUFFERS; i++) {
        fp_buffer *s = &b->slot[i];
        int is = FP_BUFFER_FREE;
        if (!atomic_compare_exchange_strong(&s->state, &is,
                                            FP_BUFFER_CLAIMED)) {
            continue;
        }
        if (s->data == NULL) {
            s->data = b->alloc.take(b->alloc.ctx, FP_BUFFER_BYTES);
        }
        if (s->data != NULL) {
            *size = FP_BUFFER_BYTES;
            atomic_store_explicit(&s->lent_at, now, memory_order_relaxed);
            atomic_store(&s->state, FP_BUFFER_LENT);
            return s->data;
        }
        /* another slot may have memory */
        atomic_store(&s->state, FP_BUFFER_FREE);
    }
    return lend_spare(b, size);
}

int
fp_buffers_accept(fp_buffers *b, uint8_t *data, size_t valid, void *context,
                  uint32_t stream)
{
    for (int i = 0; i < FP_BUFFERS; i++) {
        fp_buffer *s = &b->slot[i];
        if (atomic_load(&s->state) != FP_BUFFER_LENT || s->data != data) {
            continue;
        }
        s->valid = valid < FP_BUFFER_BYTES ? valid : FP_BUFFER_BYTES;
        s->context = context;
        s->stream = stream;
        s->order = atomic_fetch_add(&b->completed, 1);
        int full = valid != 0 && !atomic_load(&b->closed);
        atomic_store_explicit(&s->state,
                              full ? FP_BUFFER_FULL : FP_BUFFER_FREE,
                              memory_order_release);
        return full;
    }
    if (accept_spare(b, data) && valid != 0 && !atomic_load(&b->closed)) {
        atomic_fetch_add(&b->discarded, 1);
    }
    return 0; /* a spare, or not our buffer */
}

uint32_t
fp_buffers_take_full(fp_buffers *b, fp_buffer *taken[FP_BUFFERS])
{
    uint32_t n = 0;
    for (int i = 0; i < FP_BUFFERS; i++) {
        fp_buffer *s = &b->slot[i];
        int is = FP_BUFFER_FULL;
        if (!atomic_compare_exchange_strong(&s->state, &is, FP_BUFFER_TAKEN)) {
            continue;
        }
        uint32_t at = n++;
        for (; at > 0 && taken[at - 1]->order > s->order; at--) {
            taken[at] = taken[at - 1];
        }
        taken[at] = s;
    }
    return n;
}

void
fp_buffers_give_back(fp_buffer *taken)
{
    atomic_store_explicit(&taken->state, FP_BUFFER_FREE, memory_order_release);
}

uint32_t
fp_buffers_lent(const fp_buffers *b)
{
    uint32_t n = 0;
    for (int i = 0; i < FP_BUFFERS; i++) {
        n += atomic_load(&b->slot[i].state) == FP_BUFFER_LENT;
    }
    return n;
}

int64_t
fp_buffers_oldest(const fp_buffers *b)
{
    int64_t oldest = INT64_MAX;
    for (int i = 0; i < FP_BUFFERS; i++) {
        int64_t at = atomic_load(&b->slot[i].lent_at);
        if (atomic_load(&b->slot[i].state) == FP_BUFFER_LENT && at < oldest) {
            oldest = at;
        }
    }
    return oldest;
}
