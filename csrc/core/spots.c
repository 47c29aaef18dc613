#include "core/spots.h"

fp_status
fp_spots_init(fp_spots *s, const fp_alloc *a, uint32_t capacity)
{
    *s = (fp_spots){.alloc = *a};
    s->spot = fp_alloc_zeroed(a, capacity, sizeof(*s->spot));
    if (s->spot == NULL) {
        return FP_ENOMEM;
    }
    s->capacity = capacity;
    return FP_OK;
}

void
fp_spots_fini(fp_spots *s)
{
    fp_alloc_give(&s->alloc, s->spot, s->capacity, sizeof(*s->spot));
    *s = (fp_spots){.alloc = s->alloc};
}

static void
count_one(fp_spots *s, uint64_t code, uint64_t at)
{
    uint64_t hash = (code ^ (at << 17)) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t i = (uint32_t)(hash >> 32);
    for (;; i++) {
        fp_spot *here = &s->spot[i & (s->capacity - 1)];
        if (here->code == code && here->at == at) {
            here->count++;
            return;
        }
        if (here->code == 0) {
            if (s->used >= s->capacity - s->capacity / 4) {
                s->lost++;
                return;
            }
            *here = (fp_spot){code, at, 1};
            s->used++;
            return;
        }
    }
}

static int
was_before(const fp_spot *open, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (open[i].code == open[n].code) {
            return 1;
        }
    }
    return 0;
}

void
fp_spots_add(fp_spots *s, const fp_spot *open, uint32_t calls)
{
    if (s->capacity == 0) {
        return;
    }
    s->samples++;
    for (uint32_t i = 0; i < calls; i++) {
        if (open[i].code != 0 && !was_before(open, i)) {
            count_one(s, open[i].code, open[i].at);
        }
    }
}
