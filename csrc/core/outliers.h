/* outliers: records how the slowest steps spent their time, in bounded memory.
 *
 * The nodes of the tree count time and calls over the whole run.  The share of
 * one step is the difference between two looks at the tree; marks store the
 * counts of the last look (outliers_look.h).
 *
 * A look takes time in proportion to the nodes that ran since the last look,
 * and their siblings.  It skips the descendants of a node that was neither
 * entered since then nor open at that time.  All looks together take about
 * 1/1250 of the run: the next look waits until the time that has passed pays
 * for the last ones.  After a slow step fastprof looks at once, at most two
 * looks in advance.  The steps since the last look form a window.  The rows of
 * a slow step are those of its window, which ends with that step.
 *
 *      look    step   step   slow step   look
 *       |-------------window --------------|   rows add up to its time exactly
 *
 * The same looks sum up usual work: the steps that are not slow, and each
 * node's counts in windows without a slow step.
 *
 * Memory: 56 bytes per node of measured steps, for the first 65 536 of them
 * (set-up may create many more); 2 bytes per node of the tree; 17 KiB per kept
 * step, allocated at once.  Nothing is allocated once the tree has stopped
 * growing. */
#ifndef FP_CORE_OUTLIERS_H
#define FP_CORE_OUTLIERS_H

#include "core/clock.h"
#include "core/section.h"
#include "core/tree.h"

enum {
    /* limit of marks; their numbers have 16 bits */
    FP_OUTLIERS_NODES = 1 << 16,
    FP_OUTLIERS_ROWS = 512, /* of one kept step: the largest */
    FP_OUTLIERS_SECTIONS = 32,
    FP_OUTLIERS_RECENT = 31, /* steps whose median defines slow */
    /* Looks take at most 1/1250 of the time; with the fixed cost of each step
     * that is 1/1000 of steps of 1 ms. */
    FP_OUTLIERS_SHARE = 1250,
    /* Looks that slow steps may take in advance. */
    FP_OUTLIERS_BEFOREHAND = 2,
};

typedef struct fp_outlier_row {
    int64_t ticks;
    uint64_t calls;
    uint64_t resumes;
    uint32_t node; /* index */
} fp_outlier_row;

typedef struct fp_outlier_section {
    int64_t ticks;
    uint32_t id;
} fp_outlier_section;

typedef struct fp_outlier {
    uint64_t index; /* number of the step in the run, from 0 */
    int64_t start;  /* ticks since the first step began */
    int64_t ticks;
    uint64_t steps; /* in its window; 0: no look, so no rows */
    int64_t window_ticks;
    uint8_t plain;      /* it ran without the function hook, so has no rows */
    uint8_t usual;      /* the step counts as usual */
    uint8_t rows_usual; /* the window counts as usual */
    uint32_t row_count;
    uint32_t section_count;
    fp_outlier_row *row; /* borrowed from block; a heap, smallest first */
    fp_outlier_section section[FP_OUTLIERS_SECTIONS]; /* of this step only */
} fp_outlier;

/* The last steps of one kind, of which the median defines slow. */
typedef struct fp_outliers_recent {
    uint32_t count;
    uint32_t next;
    int64_t ticks[FP_OUTLIERS_RECENT]; /* ring */
    int64_t sorted[FP_OUTLIERS_RECENT];
} fp_outliers_recent;

typedef struct fp_outliers {
    fp_alloc alloc;
    const fp_clock *clock; /* borrowed; measures looks */
    fp_outlier *kept;      /* owned; unordered */
    fp_outlier_row *block; /* owned; FP_OUTLIERS_ROWS per kept step */
    struct fp_outlier_mark
        *mark;        /* owned; marks of measured steps, root first */
    uint16_t *number; /* owned; mark number by node index; 0: none */
    uint32_t limit;
    uint32_t count; /* used entries of kept */
    uint32_t marks; /* allocated */
    uint32_t marked;
    uint32_t numbers;  /* allocated */
    uint32_t numbered; /* nodes that were checked for a mark */
    uint32_t looked;   /* nodes that existed at the last look */
    int64_t cost;      /* ticks of the last look */
    int64_t owed;      /* ticks until the looks are paid for, ... */
    int64_t owed_at;   /* ... as of this time */
    int64_t origin;
    uint64_t usual_steps;
    int64_t usual_ticks;
    uint64_t seen_steps; /* usual steps that the marks cover */
    uint64_t window_steps;
    int64_t window_ticks;
    uint8_t window_slow;
    fp_outliers_recent recent; /* measured steps */
    fp_outliers_recent recent_plain;
} fp_outliers;

/* Keeps the [limit] slowest steps of those from [now] on (ticks).  NULL: no
 * memory. */
fp_outliers *
fp_outliers_create(const fp_alloc *a, const fp_clock *clock, uint32_t limit,
                   int64_t now);

/* Accepts NULL. */
void
fp_outliers_destroy(fp_outliers *o);

/* A measured step begins at [now].  Time is charged in [tree] up to [now], and
 * the thread stands in [stands].  The counts since the end of the last step
 * belong to no step. */
void
fp_outliers_begin(fp_outliers *o, const fp_tree *tree, const fp_node *stands,
                  int64_t now);

/* The measured step [index] ends at [now]; it began at [start] and took
 * [ticks].  Time is charged up to [now].  [touched] lists the sections that
 * ran in it.  The next step begins at [now]. */
void
fp_outliers_end_step(fp_outliers *o, const fp_tree *tree,
                     const fp_node *stands, fp_section *touched,
                     uint64_t index, int64_t start, int64_t ticks,
                     int64_t now);

/* The same for a step without the function hook: it is kept without rows, and
 * is no usual step.  The measured steps around it go on as if it were not. */
void
fp_outliers_end_plain_step(fp_outliers *o, fp_section *touched, uint64_t index,
                           int64_t start, int64_t ticks);

/* Counts of node [index] in usual windows, over seen_steps steps. */
fp_outlier_row
fp_outliers_usual(const fp_outliers *o, uint32_t index);

/* Bytes of memory held.  Accepts NULL. */
size_t
fp_outliers_bytes(const fp_outliers *o);

#endif
