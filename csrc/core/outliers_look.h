/* outliers_look: finds out what each node got since the last look at the tree.
 *
 * A mark stores the counts of a node as of the last look.  Only nodes of
 * measured steps have marks. */
#ifndef FP_CORE_OUTLIERS_LOOK_H
#define FP_CORE_OUTLIERS_LOOK_H

#include "core/outliers.h"

/* The counts of one node at the last look, and how much of them is not
 * usual. */
typedef struct fp_outlier_mark {
    int64_t ticks;
    uint64_t calls;
    uint64_t resumes;
    int64_t unusual_ticks;
    uint64_t unusual_calls;
    uint64_t unusual_resumes;
    uint32_t node : 31; /* its index in the tree */
    uint32_t open : 1;  /* may have run on without being entered */
    uint16_t child;     /* number of the first child's mark; 0: none */
    uint16_t sibling;   /* number of the next sibling's mark */
} fp_outlier_mark;

/* Subtracts with wrap-around: an external timer may return any value, and
 * signed overflow is undefined. */
static inline int64_t
fp_outliers_minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Looks at [tree] and ends the window of steps.  The thread stands in
 * [stands].  Writes the rows of the window to [into], which may be NULL. */
void
fp_outliers_end_window(fp_outliers *o, const fp_tree *tree,
                       const fp_node *stands, fp_outlier *into);

/* The mark of [n].  NULL: [n] belongs to another phase of the run, is new, or
 * is beyond the last mark. */
static inline fp_outlier_mark *
fp_outliers_mark(const fp_outliers *o, const fp_node *n)
{
    uint32_t number = n->index < o->numbered ? o->number[n->index] : 0;
    return number != 0 || (n->index == 0 && o->marked > 0) ? &o->mark[number]
                                                           : NULL;
}

/* Marks [n] as open: the path was rebuilt with [n] on it, and neither a call
 * nor a resume was counted. */
static inline void
fp_outliers_rejoined(fp_outliers *o, const fp_node *n)
{
    fp_outlier_mark *m = o != NULL ? fp_outliers_mark(o, n) : NULL;
    if (m != NULL) {
        m->open = 1; /* a node without a mark is new and visited anyway */
    }
}

#endif
