#include "core/outliers_look.h"

#include "core/run_phases.h"

enum { FIRST_MARKS = 1024 };

/* A look is charged at most MOST_PER_NODE ticks per node visited; the fixed
 * part counts as AROUND nodes.  The first looks cause page faults, and any
 * look may be interrupted: the full charge would delay the next looks for
 * long. */
enum { MOST_PER_NODE = 64, AROUND = 16 };

/* ---- rows of a kept step: the largest, in a heap with the smallest first
 * ---- */

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

/* Makes room for [wanted] numbers and one more mark.  False: no room. */
static int
make_room(fp_outliers *o, uint32_t wanted)
{
    if (fp_alloc_room(&o->alloc, &o->number, &o->numbers, wanted, FIRST_MARKS,
                      sizeof(*o->number)) != FP_OK) {
        return 0;
    }
    if (o->marks < FP_OUTLIERS_NODES &&
        fp_alloc_room(&o->alloc, &o->mark, &o->marks, o->marked + 1,
                      FIRST_MARKS, sizeof(*o->mark)) != FP_OK) {
        return 0;
    }
    return o->marked < o->marks;
}

/* Is [n] in the subtree of measured steps? */
static int
is_of_steps(const fp_outliers *o, const fp_node *n)
{
    return n->parent == NULL ||
           (!fp_key_is_base(n->key) && fp_outliers_mark(o, n->parent) != NULL);
}

/* Creates marks for new nodes.  Without memory the new nodes stay unmarked. */
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
            /* Earlier looks had no mark for this node: its counts cover more
             * than this window, and it is not known whether it was open. */
            mark_node(m, n);
            m->unusual_ticks = m->ticks;
            m->unusual_calls = m->calls;
            m->unusual_resumes = m->resumes;
            m->open = 1;
        }
    }
    /* In reverse order, so that siblings are linked in memory order. */
    for (uint32_t k = o->marked; k-- > (first > 1 ? first : 1);) {
        const fp_node *n = fp_tree_node(tree, o->mark[k].node);
        fp_outlier_mark *above = fp_outliers_mark(o, n->parent);
        o->mark[k].sibling = above->child;
        above->child = (uint16_t)k;
    }
}

static void
see(fp_outlier_mark *m, const fp_node *n, int unusual, fp_outlier *into)
{
    const fp_outlier_row row = {
        .ticks = fp_outliers_minus(n->self_ticks, m->ticks),
        .calls = n->calls - m->calls,
        .resumes = n->resumes - m->resumes,
        .node = n->index,
    };
    mark_node(m, n);
    if (unusual) {
        m->unusual_ticks += row.ticks;
        m->unusual_calls += row.calls;
        m->unusual_resumes += row.resumes;
    }
    if (into != NULL && row.ticks > 0) {
        keep_row(into, &row);
    }
}

/* Can a descendant of [n] have changed since the last look?  A descendant runs
 * only if [n] was entered since then or was open at that time. */
static int
may_hold_more(const fp_outliers *o, const fp_node *n, const fp_outlier_mark *m)
{
    return n->calls != m->calls || n->resumes != m->resumes || m->open ||
           n->index >= o->looked || (n->flags & FP_NODE_FLAT) != 0;
}

/* Updates all marks that changed.  Returns the number of nodes visited. */
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
        /* A call shorter than one tick adds no time. */
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
void
fp_outliers_end_window(fp_outliers *o, const fp_tree *tree,
                       const fp_node *stands, fp_outlier *into)
{
    int64_t before = fp_clock_now(o->clock);
    uint32_t nodes = look(o, tree, stands, o->window_slow, into);
    int64_t cost = fp_clock_now(o->clock) - before;
    /* An interrupted look is no measure of the next one. */
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
