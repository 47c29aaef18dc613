#include "gpu/sums.h"

#include <string.h>

void
fp_sums_init(fp_sums *s, const fp_alloc *a)
{
    memset(s, 0, sizeof(*s));
    s->activity.alloc = s->host.alloc = *a;
    s->activity.row_bytes = sizeof(fp_activity_sum);
    s->host.row_bytes = sizeof(fp_host_sum);
    for (int how = 0; how <= FP_HOW_UNKNOWN; how++) {
        s->no_room[how].site.how = (fp_how)how;
        s->no_room[how].what = FP_WHAT_KERNEL;
    }
    s->no_room_host.site.how = FP_HOW_UNKNOWN;
}

static void
free_table(fp_sum_table *t)
{
    fp_alloc_give(&t->alloc, t->row, t->capacity, t->row_bytes);
    fp_alloc_give(&t->alloc, t->index, t->index_capacity, sizeof(*t->index));
}

void
fp_sums_fini(fp_sums *s)
{
    free_table(&s->activity);
    free_table(&s->host);
    fp_alloc a = s->host.alloc;
    fp_sums_init(s, &a);
}

/* ---- the hash tables ---- */

/* Both kinds of rows begin with a site; rows of the host have no `what`. */
static uint32_t
hash_of(const fp_site *site, int32_t what)
{
    uint64_t h = site->place * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 29) ^ site->via) * 0xBF58476D1CE4E5B9u;
    h ^= (uint64_t)(uint32_t)what << 8 | (uint64_t)site->how;
    h *= 0x94D049BB133111EBu;
    return (uint32_t)(h >> 32);
}

static void *
row_at(const fp_sum_table *t, uint32_t i)
{
    return (char *)t->row + i * t->row_bytes;
}

static int32_t
what_of(const fp_sum_table *t, const void *row)
{
    return t->row_bytes == sizeof(fp_activity_sum)
               ? ((const fp_activity_sum *)row)->what
               : 0;
}

static void
put_in_index(const fp_sum_table *t, uint32_t *index, uint32_t capacity,
             uint32_t i)
{
    const void *row = row_at(t, i);
    uint32_t at = hash_of(row, what_of(t, row)) & (capacity - 1);
    while (index[at] != 0) {
        at = (at + 1) & (capacity - 1);
    }
    index[at] = i + 1;
}

static int
make_room(fp_sum_table *t)
{
    if (t->count == FP_SUMS_MAX ||
        fp_alloc_room(&t->alloc, &t->row, &t->capacity, t->count + 1, 256,
                      t->row_bytes) != FP_OK) {
        return -1;
    }
    if (t->count * 4 >= t->index_capacity) {
        uint32_t more = t->index_capacity != 0 ? t->index_capacity * 2 : 1024;
        uint32_t *index = fp_alloc_zeroed(&t->alloc, more, sizeof(*index));
        if (index == NULL) {
            return -1;
        }
        for (uint32_t i = 0; i < t->count; i++) {
            put_in_index(t, index, more, i);
        }
        fp_alloc_give(&t->alloc, t->index, t->index_capacity, sizeof(*index));
        t->index = index;
        t->index_capacity = more;
    }
    return 0;
}

static int
same_site(const fp_site *a, const fp_site *b)
{
    return a->place == b->place && a->via == b->via && a->how == b->how;
}

/* NULL: no room. */
static void *
find_or_add(fp_sum_table *t, const fp_site *site, int32_t what)
{
    uint32_t mask = t->index_capacity - 1;
    uint32_t at = hash_of(site, what) & mask;
    while (t->index_capacity != 0 && t->index[at] != 0) {
        void *row = row_at(t, t->index[at] - 1);
        if (same_site(row, site) && what_of(t, row) == what) {
            return row;
        }
        at = (at + 1) & mask;
    }
    if (make_room(t) < 0) {
        return NULL;
    }
    void *row = row_at(t, t->count);
    memset(row, 0, t->row_bytes);
    *(fp_site *)row = *site;
    if (t->row_bytes == sizeof(fp_activity_sum)) {
        ((fp_activity_sum *)row)->what = what;
    }
    put_in_index(t, t->index, t->index_capacity, t->count++);
    return row;
}

/* ---- adding ---- */

static void
add_activity(fp_sums *s, const fp_activity_sum *a)
{
    fp_activity_sum *row = find_or_add(&s->activity, &a->site, a->what);
    if (FP_UNLIKELY(row == NULL)) {
        row = &s->no_room[a->site.how];
        s->dropped += a->count;
    }
    row->count += a->count;
    row->ns += a->ns;
    row->bytes += a->bytes;
}

void
fp_sums_activity(fp_sums *s, const fp_site *site, int32_t what, int64_t ns,
                 uint64_t bytes)
{
    s->total_ns += ns;
    add_activity(s, &(fp_activity_sum){*site, what, 1, ns, bytes});
}

fp_host_sum *
fp_sums_host(fp_sums *s, const fp_site *site)
{
    fp_host_sum *row = find_or_add(&s->host, site, 0);
    if (FP_UNLIKELY(row == NULL)) {
        s->dropped++;
        return &s->no_room_host;
    }
    return row;
}

fp_host_sum *
fp_sums_host_near(fp_sums *s, const fp_site *site, uint32_t *row)
{
    fp_host_sum *rows = s->host.row;
    if (FP_LIKELY(*row < s->host.count && same_site(&rows[*row].site, site))) {
        return &rows[*row];
    }
    fp_host_sum *found = fp_sums_host(s, site);
    if (found != &s->no_room_host) {
        *row = (uint32_t)(found - (fp_host_sum *)s->host.row);
    }
    return found;
}

/* ---- renaming ---- */

static void
add_host(fp_sums *s, const fp_host_sum *h)
{
    fp_host_sum *row = fp_sums_host(s, &h->site);
    row->launches += h->launches;
    row->delays += h->delays;
    row->delay_ns += h->delay_ns;
    row->delay_max_ns = h->delay_max_ns > row->delay_max_ns
                            ? h->delay_max_ns
                            : row->delay_max_ns;
    row->syncs += h->syncs;
    row->blocked_ns += h->blocked_ns;
}

/* Does a row refer to thread [from]? */
static int
mentions(const fp_sum_table *t, uint32_t from)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const fp_site *site = row_at(t, i);
        if (fp_place_thread(site->place) == from ||
            fp_place_thread(site->via) == from) {
            return 1;
        }
    }
    return 0;
}

void
fp_sums_rename(fp_sums *s, uint32_t from, uint32_t to, const uint32_t *became,
               uint32_t nodes)
{
    if (!mentions(&s->activity, from) && !mentions(&s->host, from)) {
        return;
    }
    /* Rows of two nodes may become one row: rebuild the tables. */
    fp_sum_table old[2] = {s->activity, s->host};
    for (int i = 0; i < 2; i++) {
        fp_sum_table *t = i == 0 ? &s->activity : &s->host;
        t->row = NULL;
        t->index = NULL;
        t->count = t->capacity = t->index_capacity = 0;
    }
    for (uint32_t i = 0; i < old[0].count; i++) {
        fp_activity_sum a = *(fp_activity_sum *)row_at(&old[0], i);
        a.site.place = fp_place_renamed(a.site.place, from, to, became, nodes);
        a.site.via = fp_place_renamed(a.site.via, from, to, became, nodes);
        add_activity(s, &a);
    }
    for (uint32_t i = 0; i < old[1].count; i++) {
        fp_host_sum h = *(fp_host_sum *)row_at(&old[1], i);
        h.site.place = fp_place_renamed(h.site.place, from, to, became, nodes);
        h.site.via = fp_place_renamed(h.site.via, from, to, became, nodes);
        add_host(s, &h);
    }
    free_table(&old[0]);
    free_table(&old[1]);
}
