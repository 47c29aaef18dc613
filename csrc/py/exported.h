/* exported: maps nodes to their rows in the exported trees. */
#ifndef FP_PY_EXPORTED_H
#define FP_PY_EXPORTED_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/run_phases.h"

typedef struct fp_exported_thread {
    uint32_t serial;
    uint32_t nodes;
    /* owned or NULL; for each node the one that has its row */
    uint32_t *folded;
    uint32_t left_out; /* number of nodes in `without` */
    uint32_t bases;    /* bit i: without[i] is the base of a phase */
    uint32_t without[2 * FP_RUN_PHASES]; /* nodes without a row; ascending */
} fp_exported_thread;

/* Row of node [index]; -1: it has none.  The base of a phase is row 0. */
long
fp_exported_row(const fp_exported_thread *t, uint32_t index);

typedef struct fp_exported {
    const fp_exported_thread *thread; /* in the order of export */
    uint32_t threads;
    double ns_per_tick;
    /* Index of a section's key; -1 with an exception. */
    Py_ssize_t (*section_key)(void *ctx, uint32_t section);
    void *ctx;
} fp_exported;

#endif
