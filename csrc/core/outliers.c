#include "core/outliers.h"

#include "core/outliers_look.h"

#include <string.h>

fp_outliers *
fp_outliers_create(const fp_alloc *a, const fp_clock *clock, uint32_t limit,
                   int64_t now)
{
    fp_outliers *o = fp_alloc_zeroed(a, 1, sizeof(*o));
    if (o == NULL) {
        return NULL;
    }
    o->alloc = *a;
    o->clock = clock;
    o->limit = limit;
    o->origin = now;
    o->kept = fp_alloc_zeroed(a, limit, sizeof(*o->kept));
    size_t rows = (size_t)limit * FP_OUTLIERS_ROWS;
    o->block = fp_alloc_zeroed(a, rows, sizeof(*o->block));
    if (o->kept == NULL || o->block == NULL) {
        fp_outliers_destroy(o);
        return NULL;
    }
    for (uint32_t i = 0; i < limit; i++) {
        o->kept[i].row = o->block + (size_t)i * FP_OUTLIERS_ROWS;
    }
    return o;
}

void
fp_outliers_destroy(fp_outliers *o)
{
    if (o == NULL) {
        return;
    }
    fp_alloc a = o->alloc;
    size_t rows = (size_t)o->limit * FP_OUTLIERS_ROWS;
    fp_alloc_give(&a, o->kept, o->limit, sizeof(*o->kept));
    fp_alloc_give(&a, o->block, rows, sizeof(*o->block));
    fp_alloc_give(&a, o->mark, o->marks, sizeof(*o->mark));
    fp_alloc_give(&a, o->number, o->numbers, sizeof(*o->number));
    fp_alloc_give(&a, o, 1, sizeof(*o));
}

size_t
fp_outliers_bytes(const fp_outliers *o)
{
    if (o == NULL) {
        return 0;
    }
    size_t rows = (size_t)o->limit * FP_OUTLIERS_ROWS;
    return sizeof(*o) + o->limit * sizeof(*o->kept) +
           rows * sizeof(*o->block) + o->marks * sizeof(*o->mark) +
           o->numbers * sizeof(*o->number);
}

/* ---- slow steps ---- */

/* Is [ticks] more than 1.5 times the median of the last steps? */
static int
is_slow(const fp_outliers_recent *r, int64_t ticks)
{
    if (r->count == 0) {
        return 0;
    }
    int64_t median = r->sorted[(r->count - 1) / 2];
    return ticks - median > median / 2;
}

static void
insert_sorted(int64_t *sorted, uint32_t count, int64_t ticks)
{
    uint32_t i = count;
    for (; i > 0 && sorted[i - 1] > ticks; i--) {
        sorted[i] = sorted[i - 1];
    }
    sorted[i] = ticks;
}

static void
remove_sorted(int64_t *sorted, uint32_t count, int64_t ticks)
{
    uint32_t i = 0;
    while (sorted[i] != ticks) {
        i++;
    }
    memmove(&sorted[i], &sorted[i + 1], (count - 1 - i) * sizeof(sorted[0]));
}

static void
remember(fp_outliers_recent *r, int64_t ticks)
{
    if (r->count == FP_OUTLIERS_RECENT) {
        remove_sorted(r->sorted, r->count--, r->ticks[r->next]);
    }
    insert_sorted(r->sorted, r->count++, ticks);
    r->ticks[r->next] = ticks;
    r->next = (r->next + 1) % FP_OUTLIERS_RECENT;
}

/* ---- steps ---- */

/* The entry for a step of [ticks] ticks.  NULL: it is not among the
 * slowest. */
static fp_outlier *
place_for(fp_outliers *o, int64_t ticks)
{
    if (o->count < o->limit) {
        return &o->kept[o->count++];
    }
    fp_outlier *least = &o->kept[0];
    for (uint32_t i = 1; i < o->count; i++) {
        least = o->kept[i].ticks < least->ticks ? &o->kept[i] : least;
    }
    return ticks > least->ticks ? least : NULL;
}

static void
keep_section(fp_outlier *into, const fp_section *s)
{
    fp_outlier_section *place = &into->section[0];
    if (into->section_count < FP_OUTLIERS_SECTIONS) {
        place = &into->section[into->section_count++];
    }
    else {
        for (uint32_t i = 1; i < FP_OUTLIERS_SECTIONS; i++) {
            place = into->section[i].ticks < place->ticks ? &into->section[i]
                                                          : place;
        }
        if (s->step_ticks <= place->ticks) {
            return;
        }
    }
    *place = (fp_outlier_section){s->step_ticks, s->id};
}

/* Keeps a step if it is among the slowest; else returns NULL. */
static fp_outlier *
keep(fp_outliers *o, fp_section *touched, uint64_t index, int64_t start,
     int64_t ticks)
{
    fp_outlier *into = place_for(o, ticks);
    if (into != NULL) {
        fp_outlier_row *row = into->row;
        *into = (fp_outlier){.index = index,
                             .start = fp_outliers_minus(start, o->origin),
                             .ticks = ticks,
                             .row = row};
        for (fp_section *s = touched; s != NULL; s = s->next_touched) {
            keep_section(into, s);
        }
    }
    return into;
}

/* Has enough time passed at [now] to pay for the previous looks? */
static int
may_look(fp_outliers *o, int64_t now, int slow)
{
    int64_t passed = now > o->owed_at ? fp_outliers_minus(now, o->owed_at) : 0;
    o->owed = o->owed > passed ? o->owed - passed : 0;
    o->owed_at = now;
    int64_t beforehand = slow ? FP_OUTLIERS_BEFOREHAND : 0;
    return o->owed <= beforehand * o->cost * FP_OUTLIERS_SHARE;
}

void
fp_outliers_begin(fp_outliers *o, const fp_tree *tree, const fp_node *stands,
                  int64_t now)
{
    o->window_steps = 0;
    o->window_slow = 1; /* counts since the last step are not usual */
    (void)may_look(o, now, 0);
    fp_outliers_end_window(o, tree, stands, NULL);
}

void
fp_outliers_end_step(fp_outliers *o, const fp_tree *tree,
                     const fp_node *stands, fp_section *touched,
                     uint64_t index, int64_t start, int64_t ticks, int64_t now)
{
    int slow = is_slow(&o->recent, ticks);
    remember(&o->recent, ticks);
    o->window_steps++;
    o->window_ticks += ticks;
    o->window_slow |= (uint8_t)slow;
    if (!slow) {
        o->usual_steps++;
        o->usual_ticks += ticks;
        for (fp_section *s = touched; s != NULL; s = s->next_touched) {
            s->usual_ticks += s->step_ticks;
        }
    }
    fp_outlier *into = keep(o, touched, index, start, ticks);
    if (into != NULL) {
        into->usual = (uint8_t)!slow;
    }
    if (may_look(o, now, into != NULL && slow)) {
        fp_outliers_end_window(o, tree, stands, into);
    }
}

void
fp_outliers_end_plain_step(fp_outliers *o, fp_section *touched, uint64_t index,
                           int64_t start, int64_t ticks)
{
    int slow = is_slow(&o->recent_plain, ticks);
    remember(&o->recent_plain, ticks);
    fp_outlier *into = slow ? keep(o, touched, index, start, ticks) : NULL;
    if (into != NULL) {
        into->plain = 1;
    }
}

fp_outlier_row
fp_outliers_usual(const fp_outliers *o, uint32_t index)
{
    fp_outlier_row row = {.node = index};
    uint32_t number = index < o->numbered ? o->number[index] : 0;
    if (number != 0 || (index == 0 && o->marked > 0)) {
        const fp_outlier_mark *m = &o->mark[number];
        row.ticks = fp_outliers_minus(m->ticks, m->unusual_ticks);
        row.calls = m->calls - m->unusual_calls;
        row.resumes = m->resumes - m->unusual_resumes;
    }
    return row;
}
