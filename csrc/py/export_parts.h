/* export_parts: declarations shared by the parts of Recorder.export(). */
#ifndef FP_PY_EXPORT_PARTS_H
#define FP_PY_EXPORT_PARTS_H

#include "py/exported.h"
#include "py/recorder.h"

typedef struct fp_export {
    fp_recorder *r;
    double ns_per_tick;
    PyObject *key_index;        /* dict: key -> index; owned */
    PyObject *keys;             /* list of descriptions; owned */
    PyObject *forms;            /* list of (index of key, form); owned */
    fp_exported_thread *thread; /* owned; in the order of export */
    uint32_t threads;
    uint32_t thread_capacity;
    PyObject *fold; /* borrowed or NULL: see export_imports.h */
    /* number of nodes that share another node's row because of it */
    uint64_t folded;
} fp_export;

/* A copy of a node, made without running Python code, so that all columns
 * belong to one moment. */
typedef struct fp_export_row {
    fp_key key;
    int64_t parent; /* index of the parent's node, later of its row */
    uint64_t calls;
    uint64_t resumes;
    int64_t self_ticks;
    uint32_t children;
    uint8_t phase; /* fp_run_phase */
} fp_export_row;

int64_t
fp_export_ns(const fp_export *x, int64_t ticks);

/* Sets d[name] and releases [value].  Returns 0, or -1 with an exception. */
int
fp_export_put(PyObject *d, const char *name, PyObject *value);

/* Appends [value] and releases it.  Returns 0, or -1 with an exception. */
int
fp_export_append(PyObject *list, PyObject *value);

/* Appends [value] to *list and releases it.  Without a value or memory, *list
 * becomes NULL, with an exception. */
void
fp_export_add(PyObject **list, PyObject *value);

/* Index of [key] among the described keys; describes a new key.  -1 with an
 * exception.  May run Python code. */
Py_ssize_t
fp_export_key(fp_export *x, fp_key key);

/* (kind, file, line, name, qualname) of an entry of the key table; NULL with
 * an exception.  Runs Python code, which may free or move [e]. */
PyObject *
fp_export_describe(const fp_keyent *e);

/* (ident, ended, columns) of one thread. */
PyObject *
fp_export_thread(fp_export *x, const fp_thread *t, int64_t now, int ended);

/* Frees the list of exported threads. */
void
fp_export_forget_threads(fp_export *x);

PyObject *
fp_export_hist(const fp_export *x, const fp_hist *h);

/* A list of [n] times in ns. */
PyObject *
fp_export_times(const fp_export *x, const int64_t *ticks, uint32_t n);

/* Finds the row of [n] in the exported tree of [t], and the index of that
 * thread.  Returns 0 if the node was not exported. */
int
fp_export_node(const fp_export *x, const fp_thread *t, const fp_node *n,
               uint32_t *thread, uint32_t *row);

struct fp_pairs;

/* A list of (number of the first step, steps without the hook, steps with it);
 * a step is its wall time and the times of its first sections, at most
 * [columns].  [p]: NULL gives an empty list. */
PyObject *
fp_export_pairs(const fp_export *x, const struct fp_pairs *p,
                uint32_t columns);

/* The dict of the training thread's steps, or None; NULL with an exception. */
PyObject *
fp_export_steps(fp_export *x);

#endif
