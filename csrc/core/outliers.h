/* outliers: what the slowest steps were spent on, in bounded memory.
 *
 * Time and calls are counted in the nodes of the tree, over the whole run.  What
 * a node got in one step is the difference of two looks at it, so the marks hold
 * what the last look saw.
 *
 * A look costs time in proportion to the nodes that ran since the last one, and
 * their siblings: below a node that was neither entered since nor open then
 * nothing has changed.  All looks together take about 1/1250 of the run: the next
 * one is put off until the last ones are paid for.  After a slow step it is
 * made nevertheless, twice.  The steps since the last look are a window:
 * what is kept of a slow step is that of its window, which ends with it.
 *
 *      look    step   step   slow step   look
 *       |-------------window --------------|   rows add up to its time exactly
 *
 * Beside it runs what is usual: the steps that are not slow, and what each node
 * got in windows without a slow step.
 *
 * Per node of measured steps 48 bytes, for the first 65 536 of them (set-up may
 * make many more); per node of the tree 2; per kept step 17 KiB, taken at once.
 * After the tree has stopped to grow nothing is allocated. */
#ifndef FP_CORE_OUTLIERS_H
#define FP_CORE_OUTLIERS_H

#include "core/clock.h"
#include "core/section.h"
#include "core/tree.h"

enum {
    FP_OUTLIERS_NODES = 1 << 16, /* those looked at; numbers have 16 bits */
    FP_OUTLIERS_ROWS = 512,      /* of one kept step, largest first to stay */
    FP_OUTLIERS_SECTIONS = 32,
    FP_OUTLIERS_RECENT = 31, /* steps whose median says what is slow */
    /* Looks take one part in so many at most, which with what every step costs is
     * 1/1000 of steps of 1 ms ... */
    FP_OUTLIERS_SHARE = 1250,
    /* ... and, for slow steps, so many looks beforehand. */
    FP_OUTLIERS_BEFOREHAND = 2,
};

typedef struct fp_outlier_row {
    int64_t ticks;
    uint64_t calls;
    uint64_t resumes;
    uint32_t node; /* its index */
} fp_outlier_row;

typedef struct fp_outlier_section {
    int64_t ticks;
    uint32_t id;
} fp_outlier_section;

typedef struct fp_outlier {
    uint64_t index; /* of the step in the run, from 0 */
    int64_t start;  /* ticks since the first step began */
    int64_t ticks;
    uint64_t steps; /* in its window; 0: nobody looked, there are no rows */
    int64_t window_ticks;
    uint8_t usual;      /* it counts as one of the usual steps ... */
    uint8_t rows_usual; /* ... and its window as a usual one */
    uint32_t row_count;
    uint32_t section_count;
    fp_outlier_row *row; /* borrowed from the block; a heap, least in front */
    fp_outlier_section section[FP_OUTLIERS_SECTIONS]; /* of the step alone */
} fp_outlier;

typedef struct fp_outliers {
    fp_alloc alloc;
    const fp_clock *clock; /* borrowed: what a look takes */
    fp_outlier *kept;      /* owned; in no order */
    fp_outlier_row *block; /* owned; FP_OUTLIERS_ROWS for each */
    struct fp_outlier_mark
        *mark;        /* owned; of nodes of measured steps, root first */
    uint16_t *number; /* owned; by node index: its mark; 0: none */
    uint32_t limit;
    uint32_t count; /* of kept */
    uint32_t marks; /* there is room for */
    uint32_t marked;
    uint32_t numbers;  /* there is room for */
    uint32_t numbered; /* nodes that have their number, or need none */
    uint32_t looked;   /* nodes there were at the last look */
    int64_t cost;      /* ticks that a look took */
    int64_t owed;      /* ticks until the looks so far are paid for ... */
    int64_t owed_at;   /* ... at this time */
    int64_t origin;
    uint64_t usual_steps;
    int64_t usual_ticks;
    uint64_t seen_steps; /* in usual windows: what marks are over */
    uint64_t window_steps;
    int64_t window_ticks;
    uint8_t window_slow;
    uint32_t recent_count;
    uint32_t recent_next;
    int64_t recent[FP_OUTLIERS_RECENT]; /* ring */
    int64_t sorted[FP_OUTLIERS_RECENT];
} fp_outliers;

/* Keeps the [limit] slowest steps; the first begins at [now].  NULL: no memory. */
fp_outliers *
fp_outliers_create(const fp_alloc *a, const fp_clock *clock, uint32_t limit,
                   int64_t now);

/* Accepts NULL. */
void
fp_outliers_destroy(fp_outliers *o);

/* A measured step begins at [now], up to which time is charged in [tree]; the
 * thread stands in [stands].  What was since the last one ended belongs to
 * none. */
void
fp_outliers_begin(fp_outliers *o, const fp_tree *tree, const fp_node *stands,
                  int64_t now);

/* The measured step [index] began at [start], took [ticks] and ends at [now], up to
 * which time is charged; the sections that ran in it hang on [touched].  The next begins. */
void
fp_outliers_end_step(fp_outliers *o, const fp_tree *tree,
                     const fp_node *stands, fp_section *touched,
                     uint64_t index, int64_t start, int64_t ticks,
                     int64_t now);

/* What node [index] got in usual windows, seen_steps steps in all. */
fp_outlier_row
fp_outliers_usual(const fp_outliers *o, uint32_t index);

/* Bytes held; accepts NULL. */
size_t
fp_outliers_bytes(const fp_outliers *o);

#endif
