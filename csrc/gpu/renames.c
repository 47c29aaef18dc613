#include "gpu/renames.h"

#include <string.h>

enum { FIRST_CAPACITY = 64 };

void
fp_renames_init(fp_renames *r, const fp_alloc *a)
{
    *r = (fp_renames){.alloc = *a};
}

static void
free_slot(fp_renames *r, fp_rename *s)
{
    fp_alloc_give(&r->alloc, s->became, s->nodes, sizeof(*s->became));
    r->bytes -= s->nodes * sizeof(*s->became);
    s->from = 0;
}

void
fp_renames_fini(fp_renames *r)
{
    for (uint32_t i = 0; i < r->capacity; i++) {
        if (r->slot[i].from != 0) {
            free_slot(r, &r->slot[i]);
        }
    }
    fp_alloc_give(&r->alloc, r->slot, r->capacity, sizeof(*r->slot));
    *r = (fp_renames){.alloc = r->alloc};
}

/* The slot of [from], or the free slot for it. */
static fp_rename *
slot_of(fp_rename *slot, uint32_t capacity, uint32_t from)
{
    uint32_t i = from & (capacity - 1);
    while (slot[i].from != 0 && slot[i].from != from) {
        i = (i + 1) & (capacity - 1);
    }
    return &slot[i];
}

/* Moves the entries not older than [age] to [capacity] new slots.  -1: no
 * memory; nothing has changed. */
static int
rebuild(fp_renames *r, uint32_t capacity, uint32_t age)
{
    fp_rename *slot = fp_alloc_zeroed(&r->alloc, capacity, sizeof(*slot));
    if (slot == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < r->capacity; i++) {
        fp_rename *s = &r->slot[i];
        if (s->from != 0 && r->generation - s->generation > age) {
            free_slot(r, s);
            r->count--;
        }
        else if (s->from != 0) {
            *slot_of(slot, capacity, s->from) = *s;
        }
    }
    fp_alloc_give(&r->alloc, r->slot, r->capacity, sizeof(*r->slot));
    r->slot = slot;
    r->capacity = capacity;
    return 0;
}

static int
make_room(fp_renames *r)
{
    if (r->count * 2 < r->capacity) {
        return 0;
    }
    uint32_t more = r->capacity != 0 ? r->capacity * 2 : FIRST_CAPACITY;
    return more <= FP_RENAMES_MAX ? rebuild(r, more, UINT32_MAX) : -1;
}

void
fp_renames_put(fp_renames *r, uint32_t from, uint32_t to,
               const uint32_t *became, uint32_t nodes)
{
    size_t bytes = nodes * sizeof(*became);
    if (from == 0 || nodes == 0 || r->bytes + bytes > FP_RENAMES_BYTES ||
        make_room(r) < 0) {
        return;
    }
    uint32_t *own = fp_alloc_zeroed(&r->alloc, nodes, sizeof(*own));
    if (own == NULL) {
        return;
    }
    memcpy(own, became, bytes);
    r->bytes += bytes;
    fp_rename *s = slot_of(r->slot, r->capacity, from);
    if (s->from != 0) {
        free_slot(r, s);
        r->count--;
    }
    *s = (fp_rename){own, nodes, from, to, r->generation};
    r->count++;
}

fp_place
fp_renames_apply(const fp_renames *r, fp_place p)
{
    uint32_t from = fp_place_thread(p);
    if (FP_LIKELY(r->count == 0) || from == 0) {
        return p;
    }
    const fp_rename *s = slot_of(r->slot, r->capacity, from);
    return s->from != 0 ? fp_place_renamed(p, from, s->to, s->became, s->nodes)
                        : p;
}

void
fp_renames_age(fp_renames *r, uint32_t age)
{
    r->generation++;
    for (uint32_t i = 0; i < r->capacity; i++) {
        const fp_rename *s = &r->slot[i];
        if (s->from != 0 && r->generation - s->generation > age) {
            (void)rebuild(r, r->capacity, age); /* without memory: next time */
            return;
        }
    }
}
