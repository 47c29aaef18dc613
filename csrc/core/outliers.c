#include "core/outliers.h"

#include "core/run_phases.h"

#include <string.h>

enum { FIRST_MARKS = 1024 };

/* Ticks that a look is charged at most for each node that it comes to; what is
 * around it is worth so many nodes.  The first looks fault pages in, and any may be
 * interrupted: charged in full, they would put off the next ones for long. */
enum { MOST_PER_NODE = 64, AROUND = 16 };

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

/* ---- what is slow ---- */

/* Half as long again as the median of the last steps. */
static int
is_slow(const fp_outliers *o, int64_t ticks)
{
    if (o->recent_count == 0) {
        return 0;
    }
    int64_t median = o->sorted[(o->recent_count - 1) / 2];
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
remember(fp_outliers *o, int64_t ticks)
{
    if (o->recent_count == FP_OUTLIERS_RECENT) {
        remove_sorted(o->sorted, o->recent_count--, o->recent[o->recent_next]);
    }
    insert_sorted(o->sorted, o->recent_count++, ticks);
    o->recent[o->recent_next] = ticks;
    o->recent_next = (o->recent_next + 1) % FP_OUTLIERS_RECENT;
}

/* ---- rows of a kept step: the largest, as a heap with the least in front ---- */

static void
swap_rows(fp_outlier_row *a, fp_outlier_row *b)
{
    fp_outlier_row c = *a;
    *a = *b;
    *b = c;
}

static void
sift_up(fp_outlier_row *row, uint32_t i)
{
    while (i > 0 && row[i].ticks < row[(i - 1) / 2].ticks) {
        swap_rows(&row[i], &row[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
}

static void
sift_down(fp_outlier_row *row, uint32_t count)
{
    for (uint32_t i = 0, least; 2 * i + 1 < count; i = least) {
        least = 2 * i + 1;
        if (least + 1 < count && row[least + 1].ticks < row[least].ticks) {
            least++;
        }
        if (row[i].ticks <= row[least].ticks) {
            return;
        }
        swap_rows(&row[i], &row[least]);
    }
}

static void
keep_row(fp_outlier *into, const fp_outlier_row *row)
{
    if (into->row_count < FP_OUTLIERS_ROWS) {
        into->row[into->row_count] = *row;
        sift_up(into->row, into->row_count++);
    }
    else if (row->ticks > into->row[0].ticks) {
        into->row[0] = *row;
        sift_down(into->row, into->row_count);
    }
}

/* ---- looking ---- */

static void
mark_node(fp_outlier_mark *m, const fp_node *n)
{
    m->ticks = n->self_ticks;
    m->calls = n->calls;
    m->resumes = n->resumes;
}

/* Room for [wanted] numbers and one more mark; false: there is none. */
static int
make_room(fp_outliers *o, uint32_t wanted)
{
    if (wanted > o->numbers) {
        uint32_t numbers = o->numbers ? o->numbers : FIRST_MARKS;
        while (numbers < wanted) {
            numbers *= 2;
        }
        uint16_t *number = fp_alloc_grow(&o->alloc, o->number, o->numbers,
                                         numbers, sizeof(*number));
        if (number == NULL) {
            return 0;
        }
        o->number = number;
        o->numbers = numbers;
    }
    if (o->marked == o->marks && o->marks < FP_OUTLIERS_NODES) {
        uint32_t marks = o->marks ? 2 * o->marks : FIRST_MARKS;
        fp_outlier_mark *mark =
            fp_alloc_grow(&o->alloc, o->mark, o->marks, marks, sizeof(*mark));
        if (mark == NULL) {
            return 0;
        }
        o->mark = mark;
        o->marks = marks;
    }
    return o->marked < o->marks;
}

/* What other phases of the run took is no part of a step. */
static int
is_of_steps(const fp_outliers *o, const fp_node *n)
{
    return n->parent == NULL ||
           (!fp_key_is_base(n->key) && fp_outliers_mark(o, n->parent) != NULL);
}

/* Marks for the nodes there are; without memory, for those there were. */
static void
cover(fp_outliers *o, const fp_tree *tree)
{
    uint32_t first = o->marked;
    while (o->numbered < tree->count && o->marked < FP_OUTLIERS_NODES) {
        uint32_t i = o->numbered;
        const fp_node *n = fp_tree_node(tree, i);
        int wanted = is_of_steps(o, n);
        if (i >= o->numbers || (wanted && o->marked == o->marks)) {
            if (!make_room(o, tree->count)) {
                break;
            }
        }
        o->numbered++;
        o->number[i] = wanted ? (uint16_t)o->marked : 0;
        if (!wanted) {
            continue;
        }
        fp_outlier_mark *m = &o->mark[o->marked++];
        m->node = i & 0x7fffffffu;
        if (i < o->looked) {
            /* Earlier looks had no mark for it: what it holds is not of this
             * window alone, and whether it was open is not known. */
            mark_node(m, n);
            m->unusual_ticks = m->ticks;
            m->unusual_calls = m->calls;
            m->open = 1;
        }
    }
    /* Backwards, so that siblings stand in the order of the memory. */
    for (uint32_t k = o->marked; k-- > (first > 1 ? first : 1);) {
        const fp_node *n = fp_tree_node(tree, o->mark[k].node);
        fp_outlier_mark *above = fp_outliers_mark(o, n->parent);
        o->mark[k].sibling = above->child;
        above->child = (uint16_t)k;
    }
}

static int64_t
minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static void
see(fp_outlier_mark *m, const fp_node *n, int unusual, fp_outlier *into)
{
    const fp_outlier_row row = {
        .ticks = minus(n->self_ticks, m->ticks),
        .calls = n->calls - m->calls,
        .resumes = n->resumes - m->resumes,
        .node = n->index,
    };
    mark_node(m, n);
    if (unusual) {
        m->unusual_ticks += row.ticks;
        m->unusual_calls += row.calls;
    }
    if (into != NULL && row.ticks > 0) {
        keep_row(into, &row);
    }
}

/* May anything below [n] have changed since the last look?  Nothing runs there
 * without the node being entered, unless it was open. */
static int
may_hold_more(const fp_outliers *o, const fp_node *n, const fp_outlier_mark *m)
{
    return n->calls != m->calls || n->resumes != m->resumes || m->open ||
           n->index >= o->looked || (n->flags & FP_NODE_FLAT) != 0;
}

/* Returns how many nodes it came to. */
static uint32_t
look(fp_outliers *o, const fp_tree *tree, const fp_node *stands, int unusual,
     fp_outlier *into)
{
    cover(o, tree);
    uint32_t nodes = 0;
    for (uint32_t i = 0; o->marked > 0;) {
        nodes++;
        fp_outlier_mark *m = &o->mark[i];
        const fp_node *n = fp_tree_node(tree, m->node);
        int down = m->child != 0 && may_hold_more(o, n, m);
        m->open = 0;
        /* A call without time was within one tick. */
        if (n->self_ticks != m->ticks || n->calls != m->calls ||
            n->resumes != m->resumes) {
            see(m, n, unusual, into);
        }
        if (down) {
            i = m->child;
            continue;
        }
        while (n->parent != NULL && fp_outliers_mark(o, n)->sibling == 0) {
            n = n->parent;
        }
        if (n->parent == NULL) {
            break;
        }
        i = fp_outliers_mark(o, n)->sibling;
    }
    for (const fp_node *n = stands; n != NULL; n = n->parent) {
        fp_outliers_rejoined(o, n);
    }
    o->looked = tree->count;
    return nodes;
}

/* Ends the window.  Its rows go to [into]; may be NULL. */
static void
end_window(fp_outliers *o, const fp_tree *tree, const fp_node *stands,
           fp_outlier *into)
{
    int64_t before = fp_clock_now(o->clock);
    uint32_t nodes = look(o, tree, stands, o->window_slow, into);
    int64_t cost = fp_clock_now(o->clock) - before;
    /* One that was interrupted is no measure. */
    int64_t most = (int64_t)(AROUND + nodes) * MOST_PER_NODE;
    o->cost = cost < 0 ? 0 : cost > most ? most : cost;
    o->owed += o->cost * FP_OUTLIERS_SHARE;
    if (into != NULL) {
        into->steps = o->window_steps;
        into->window_ticks = o->window_ticks;
        into->rows_usual = !o->window_slow;
        int64_t sum = 0;
        for (uint32_t i = 0; i < into->row_count; i++) {
            sum += into->row[i].ticks;
        }
        if (sum > o->window_ticks) {
            into->row_count = 0; /* the clock went back */
        }
    }
    o->seen_steps += o->window_slow ? 0 : o->window_steps;
    o->window_steps = 0;
    o->window_ticks = 0;
    o->window_slow = 0;
}

/* ---- steps ---- */

/* Where a step that took [ticks] is kept; NULL: it is none of the slowest. */
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

/* May there be a look at [now]?  Time that has passed pays for those before. */
static int
may_look(fp_outliers *o, int64_t now, int slow)
{
    int64_t passed = now > o->owed_at ? minus(now, o->owed_at) : 0;
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
    o->window_slow = 1; /* nothing in it is usual */
    (void)may_look(o, now, 0);
    end_window(o, tree, stands, NULL);
}

void
fp_outliers_end_step(fp_outliers *o, const fp_tree *tree,
                     const fp_node *stands, fp_section *touched,
                     uint64_t index, int64_t start, int64_t ticks, int64_t now)
{
    int slow = is_slow(o, ticks);
    remember(o, ticks);
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
    fp_outlier *into = place_for(o, ticks);
    if (into != NULL) {
        fp_outlier_row *row = into->row;
        *into = (fp_outlier){.index = index,
                             .start = minus(start, o->origin),
                             .ticks = ticks,
                             .usual = (uint8_t)!slow,
                             .row = row};
        for (fp_section *s = touched; s != NULL; s = s->next_touched) {
            keep_section(into, s);
        }
    }
    if (may_look(o, now, into != NULL && slow)) {
        end_window(o, tree, stands, into);
    }
}

fp_outlier_row
fp_outliers_usual(const fp_outliers *o, uint32_t index)
{
    fp_outlier_row row = {.node = index};
    uint32_t number = index < o->numbered ? o->number[index] : 0;
    if (number != 0 || (index == 0 && o->marked > 0)) {
        const fp_outlier_mark *m = &o->mark[number];
        row.ticks = minus(m->ticks, m->unusual_ticks);
        row.calls = m->calls - m->unusual_calls;
    }
    return row;
}
