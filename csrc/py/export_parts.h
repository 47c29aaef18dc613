/* export_parts: declarations shared by the parts of Recorder.export(). */
#ifndef FP_PY_EXPORT_PARTS_H
#define FP_PY_EXPORT_PARTS_H

#include "py/recorder.h"

/* Maps the nodes of a thread to their rows in its exported tree. */
typedef struct fp_exported_thread {
    uint32_t serial;
    uint32_t nodes;
    /* owned or NULL; for each node the one that has its row */
    uint32_t *folded;
    uint32_t left_out; /* number of nodes in `without` */
    uint32_t bases;    /* bit i: without[i] is the base of a phase */
    uint32_t without[2 * FP_RUN_PHASES]; /* nodes without a row; ascending */
} fp_exported_thread;

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

/* Keys for groups of functions that are counted together: addresses that no
 * object has.  The cost of a call depends on the kind of function, so the
 * kinds have different keys. */
enum { FP_FOLDED_ANY = 8, FP_FOLDED_METHOD = 16 };

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

/* Prepares an export, during which no record is freed: describing keys runs
 * Python code.  Returns 0, or -1 with an exception.  Call fp_export_end() in
 * either case. */
int
fp_export_begin(fp_export *x, fp_recorder *r);

void
fp_export_end(fp_export *x);

/* [ticks] in ns, as an int. */
PyObject *
fp_export_time(const fp_export *x, int64_t ticks);

/* Sets (*d)[name] and releases [value].  Without a value or memory, *d becomes
 * NULL, with an exception; if it is NULL already, nothing is set. */
void
fp_export_put(PyObject **d, const char *name, PyObject *value);

/* Appends [value] to *list in the same way. */
void
fp_export_add(PyObject **list, PyObject *value);

/* Index of [key] among the described keys; describes a new key.  -1 with an
 * exception.  May run Python code. */
Py_ssize_t
fp_export_key(fp_export *x, fp_key key);

/* (ident, ended, columns) of one thread. */
PyObject *
fp_export_thread(fp_export *x, const fp_thread *t, int64_t now, int ended);

/* Frees the list of exported threads. */
void
fp_export_forget_threads(fp_export *x);

/* The next section that [t] has in [phase], from number *at on; NULL: there are
 * no more.  Between two calls Python code may run and open new sections. */
static inline const fp_section *
fp_export_next_section(const fp_thread *t, fp_run_phase phase, uint32_t *at)
{
    fp_section_table of = fp_thread_sections_of(t, phase);
    while (*at < of.capacity) {
        const fp_section *s = of.section[(*at)++];
        if (s != NULL) {
            return s;
        }
    }
    return NULL;
}

PyObject *
fp_export_hist(const fp_export *x, const fp_hist *h);

/* A list of [n] times in ns; [x]: NULL gives plain numbers. */
PyObject *
fp_export_times(const fp_export *x, const int64_t *ticks, uint32_t n);

/* Row of node [index]; -1: it has none.  The base of a phase is row 0. */
long
fp_exported_row(const fp_exported_thread *t, uint32_t index);

/* Index of [t] among the exported threads; [x]->threads: it is not among
 * them. */
uint32_t
fp_export_thread_index(const fp_export *x, const fp_thread *t);

/* Finds the row of [n] in the exported tree of [t], and the index of that
 * thread.  Returns 0 if the node was not exported. */
int
fp_export_node(const fp_export *x, const fp_thread *t, const fp_node *n,
               uint32_t *thread, uint32_t *row);

/* The dict of the training thread's steps, or None; NULL with an exception. */
PyObject *
fp_export_steps(fp_export *x);

/* The same of the steps without the function hook; None if there are none. */
PyObject *
fp_export_plain_steps(fp_export *x);

/* The dict of the slowest steps, or None if they are not kept; NULL with an
 * exception.  Call it after the export of the threads: its rows refer to their
 * nodes. */
PyObject *
fp_outliers_export(fp_export *x);

/* The dict of export()["trace"]; None: nothing was traced; NULL with an
 * exception. */
PyObject *
fp_export_trace(fp_export *x);

/* [ticks] as ns since the begin of the trace. */
PyObject *
fp_export_trace_time(const fp_export *x, int64_t ticks);

/* The dict of Recorder.export(); NULL with an exception.  [fold]: see
 * export_imports.h, or NULL. */
PyObject *
fp_recorder_export(fp_recorder *r, int with_trace, PyObject *fold);

#endif
