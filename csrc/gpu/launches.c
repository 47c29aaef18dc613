#include "gpu/launches.h"

#include <string.h>

/* Ids are consecutive, so a full table is one long run of entries, and an
 * insertion would move all of them.  A run of PROBES entries counts as no
 * room. */
enum { FIRST_CAPACITY = 1 << 12, PROBES = 256 };

void
fp_launches_init(fp_launches *l, const fp_alloc *a)
{
    *l = (fp_launches){.alloc = *a};
}

void
fp_launches_fini(fp_launches *l)
{
    fp_alloc_give(&l->alloc, l->slot, l->capacity, sizeof(*l->slot));
    *l = (fp_launches){.alloc = l->alloc};
}

/* Distance of the entry in slot [i] from its first slot. */
static uint32_t
distance(const fp_launches *l, uint32_t i)
{
    return (i - l->slot[i].corr) & (l->capacity - 1);
}

fp_launch *
fp_launches_find(fp_launches *l, uint32_t corr)
{
    if (l->count == 0) {
        return NULL;
    }
    uint32_t mask = l->capacity - 1;
    uint32_t i = corr & mask;
    for (uint32_t far = 0;; far++, i = (i + 1) & mask) {
        fp_launch *e = &l->slot[i];
        if (e->corr == corr && e->occupied) {
            e->generation = l->generation;
            return e;
        }
        if (!e->occupied || distance(l, i) < far) {
            return NULL;
        }
    }
}

/* Inserts [entry], which is not in the table; there is room. */
static fp_launch *
place(fp_launches *l, fp_launch entry)
{
    uint32_t mask = l->capacity - 1;
    uint32_t i = entry.corr & mask;
    fp_launch *where = NULL;
    for (uint32_t far = 0;; far++, i = (i + 1) & mask) {
        fp_launch *e = &l->slot[i];
        if (!e->occupied) {
            *e = entry;
            l->count++;
            return where != NULL ? where : e;
        }
        uint32_t its = distance(l, i);
        if (its < far) {
            fp_launch pushed = *e;
            *e = entry;
            where = where != NULL ? where : e;
            entry = pushed;
            far = its;
        }
    }
}

static int
grow(fp_launches *l)
{
    uint32_t old_capacity = l->capacity;
    fp_launch *old = l->slot;
    uint32_t more = old_capacity != 0 ? old_capacity * 2 : FIRST_CAPACITY;
    if (more > FP_LAUNCHES_MAX) {
        return -1;
    }
    fp_launch *slot = fp_alloc_zeroed(&l->alloc, more, sizeof(*slot));
    if (slot == NULL) {
        return -1;
    }
    l->slot = slot;
    l->capacity = more;
    l->count = 0;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (old[i].occupied) {
            (void)place(l, old[i]);
        }
    }
    fp_alloc_give(&l->alloc, old, old_capacity, sizeof(*old));
    return 0;
}

static int
has_room(const fp_launches *l, uint32_t corr)
{
    uint32_t mask = l->capacity - 1;
    for (uint32_t far = 0; far < PROBES; far++) {
        if (!l->slot[(corr + far) & mask].occupied) {
            return 1;
        }
    }
    return 0;
}

fp_launch *
fp_launches_put(fp_launches *l, uint32_t corr)
{
    fp_launch *e = fp_launches_find(l, corr);
    if (e != NULL) {
        return e;
    }
    /* At most three quarters full, so that probing always ends. */
    if (l->count >= l->capacity / 4 * 3 && grow(l) < 0 &&
        l->count >= l->capacity / 8 * 7) {
        l->lost++;
        return NULL;
    }
    while (FP_UNLIKELY(!has_room(l, corr))) {
        if (grow(l) < 0) {
            l->lost++;
            return NULL;
        }
    }
    fp_launch fresh = {
        .corr = corr, .generation = l->generation, .occupied = 1};
    return place(l, fresh);
}

void
fp_launches_remove(fp_launches *l, fp_launch *entry)
{
    uint32_t mask = l->capacity - 1;
    uint32_t i = (uint32_t)(entry - l->slot);
    for (;;) {
        uint32_t next = (i + 1) & mask;
        if (!l->slot[next].occupied || distance(l, next) == 0) {
            break;
        }
        l->slot[i] = l->slot[next];
        i = next;
    }
    l->slot[i].occupied = 0;
    l->count--;
}

uint64_t
fp_launches_age(fp_launches *l, uint32_t age)
{
    uint64_t unheard = 0;
    /* The second record of a call, or a further activity, may be in a later
     * buffer. */
    uint32_t age_heard = age / 16 + 1;
    l->generation++;
    for (uint32_t i = 0; i < l->capacity;) {
        fp_launch *e = &l->slot[i];
        int heard =
            (e->flags & FP_LAUNCH_HIT) || !(e->flags & FP_LAUNCH_GIVES);
        if (!e->occupied ||
            l->generation - e->generation <= (heard ? age_heard : age)) {
            i++;
            continue;
        }
        unheard += !heard;
        /* another entry may have moved here: look again */
        fp_launches_remove(l, e);
    }
    return unheard;
}

/* The launch of a graph has many activities; more may come after the first. */
static int
is_under_way(const fp_launches *l, const fp_launch *e)
{
    return fp_launch_is_outstanding(e) || ((e->flags & FP_LAUNCH_GRAPH) &&
                                           l->generation - e->generation <= 1);
}

int64_t
fp_launches_oldest(const fp_launches *l)
{
    int64_t oldest = INT64_MAX;
    for (uint32_t i = 0; l->count != 0 && i < l->capacity; i++) {
        const fp_launch *e = &l->slot[i];
        if (e->occupied && e->at_ns < oldest && is_under_way(l, e)) {
            oldest = e->at_ns;
        }
    }
    return oldest;
}

int64_t
fp_launches_newest(const fp_launches *l)
{
    int64_t newest = INT64_MIN;
    for (uint32_t i = 0; l->count != 0 && i < l->capacity; i++) {
        const fp_launch *e = &l->slot[i];
        if (e->occupied && e->at_ns > newest && fp_launch_is_outstanding(e)) {
            newest = e->at_ns;
        }
    }
    return newest;
}

void
fp_launches_rename(fp_launches *l, uint32_t from, uint32_t to,
                   const uint32_t *became, uint32_t nodes)
{
    for (uint32_t i = 0; i < l->capacity; i++) {
        fp_launch *e = &l->slot[i];
        if (e->occupied) {
            e->place = fp_place_renamed(e->place, from, to, became, nodes);
            e->via = fp_place_renamed(e->via, from, to, became, nodes);
        }
    }
}

void
fp_launches_clear(fp_launches *l)
{
    if (l->capacity != 0) {
        memset(l->slot, 0, l->capacity * sizeof(*l->slot));
    }
    l->count = 0;
}
