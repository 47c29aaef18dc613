#include "py/export_outliers.h"

#include "core/outliers.h"
#include "py/export_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct outliers_ctx {
    fp_recorder *r;
    const fp_exported *exported;
    const fp_thread *stepper;
    Py_ssize_t thread; /* index of the exported thread */
} outliers_ctx;

static int64_t
to_ns(const outliers_ctx *x, int64_t ticks)
{
    return (int64_t)llround((double)ticks * x->exported->ns_per_tick);
}

/* Adds [more] to *ticks and returns the increase in ns, rounded so that the
 * values of a column add up to their rounded sum. */
static long long
next_ns(const outliers_ctx *x, int64_t *ticks, int64_t more)
{
    int64_t before = to_ns(x, *ticks);
    *ticks += more;
    return to_ns(x, *ticks) - before;
}

static int
by_ticks(const void *a, const void *b)
{
    int64_t left = ((const fp_outlier_row *)a)->ticks;
    int64_t right = ((const fp_outlier_row *)b)->ticks;
    return (left < right) - (left > right);
}

/* Row of a node in the exported tree; -1: the node is newer than that tree. */
static long
shown_node(const outliers_ctx *x, uint32_t index)
{
    return fp_exported_row(&x->exported->thread[x->thread], index);
}

/* [(node, ns, calls, resumes, usual ns, usual calls)], largest first.  *rest
 * is the remaining time of the window, in ns. */
static PyObject *
export_rows(const outliers_ctx *x, fp_outlier *kept, long long *rest)
{
    PyObject *list = PyList_New(0);
    int64_t ticks = 0;
    typedef unsigned long long ull;
    qsort(kept->row, kept->row_count, sizeof(*kept->row), by_ticks);
    for (uint32_t i = 0; list != NULL && i < kept->row_count; i++) {
        const fp_outlier_row *row = &kept->row[i];
        long node = shown_node(x, row->node);
        if (node < 0) {
            continue;
        }
        fp_outlier_row usual =
            fp_outliers_usual(x->stepper->outliers, row->node);
        long long usual_ns = usual.ticks > 0 ? to_ns(x, usual.ticks) : 0;
        long long ns = next_ns(x, &ticks, row->ticks);
        fp_export_add(&list, Py_BuildValue("(lLKKLK)", node, ns,
                                           (ull)row->calls, (ull)row->resumes,
                                           usual_ns, (ull)usual.calls));
    }
    *rest = to_ns(x, kept->window_ticks) - to_ns(x, ticks);
    return list;
}

static PyObject *
export_sections(const outliers_ctx *x, const fp_outlier *kept)
{
    PyObject *list = PyList_New(0);
    int64_t ticks = 0;
    for (uint32_t i = 0; list != NULL && i < kept->section_count; i++) {
        const fp_outlier_section *s = &kept->section[i];
        Py_ssize_t key = x->exported->section_key(x->exported->ctx, s->id);
        long long ns = next_ns(x, &ticks, s->ticks);
        fp_export_add(&list, key < 0 ? NULL : Py_BuildValue("(nL)", key, ns));
    }
    return list;
}

static PyObject *
export_one(const outliers_ctx *x, fp_outlier *kept)
{
    long long rest = 0;
    PyObject *rows = export_rows(x, kept, &rest);
    PyObject *sections = rows != NULL ? export_sections(x, kept) : NULL;
    if (sections == NULL) {
        Py_XDECREF(rows);
        return NULL;
    }
    return Py_BuildValue(
        "{sKsLsLsNsNsKsLsNsNsL}", "index", (unsigned long long)kept->index,
        "start_ns", (long long)to_ns(x, kept->start), "wall_ns",
        (long long)to_ns(x, kept->ticks), "usual",
        PyBool_FromLong(kept->usual), "sections", sections, "window_steps",
        (unsigned long long)kept->steps, "window_ns",
        (long long)to_ns(x, kept->window_ticks), "window_usual",
        PyBool_FromLong(kept->rows_usual), "rows", rows, "rest_ns", rest);
}

/* Reads copies: creating Python objects may run Python code that ends a
 * step. */
static PyObject *
export_kept(const outliers_ctx *x)
{
    const fp_outliers *o = x->stepper->outliers;
    fp_outlier_row *room =
        fp_alloc_zeroed(&x->r->alloc, FP_OUTLIERS_ROWS, sizeof(*room));
    PyObject *list = room != NULL ? PyList_New(0) : PyErr_NoMemory();
    for (uint32_t i = 0; list != NULL && i < o->count; i++) {
        fp_outlier kept = o->kept[i];
        memcpy(room, kept.row, kept.row_count * sizeof(*room));
        kept.row = room;
        fp_export_add(&list, export_one(x, &kept));
    }
    fp_alloc_give(&x->r->alloc, room, FP_OUTLIERS_ROWS, sizeof(*room));
    return list;
}

static PyObject *
usual_sections(const outliers_ctx *x)
{
    PyObject *list = PyList_New(0);
    const fp_thread *t = x->stepper;
    /* Only measured steps have usual times. */
    fp_section_table of = fp_thread_sections_of(t, FP_RUN_STEPS);
    for (uint32_t i = 0; list != NULL && i < of.capacity; i++) {
        /* Python code may have run and opened new sections. */
        of = fp_thread_sections_of(t, FP_RUN_STEPS);
        const fp_section *s = of.section[i];
        if (s == NULL || s->usual_ticks <= 0) {
            continue;
        }
        long long ns = to_ns(x, s->usual_ticks);
        Py_ssize_t key = x->exported->section_key(x->exported->ctx, s->id);
        fp_export_add(&list, key < 0 ? NULL : Py_BuildValue("(nL)", key, ns));
    }
    return list;
}

static Py_ssize_t
index_of_thread(const fp_exported *exported, const fp_thread *t)
{
    for (uint32_t i = 0; i < exported->threads; i++) {
        if (exported->thread[i].serial == (uint32_t)t->serial) {
            return (Py_ssize_t)i;
        }
    }
    return -1;
}

PyObject *
fp_outliers_export(fp_recorder *r, const fp_exported *exported)
{
    const fp_thread *t = r->stepper;
    outliers_ctx x = {r, exported, t, -1};
    if (t != NULL && t->outliers != NULL) {
        x.thread = index_of_thread(exported, t);
    }
    if (x.thread < 0) {
        Py_RETURN_NONE;
    }
    typedef unsigned long long ull;
    ull steps = t->outliers->usual_steps, rows = t->outliers->seen_steps;
    long long ns = to_ns(&x, t->outliers->usual_ticks);
    PyObject *kept = export_kept(&x);
    PyObject *sections = kept != NULL ? usual_sections(&x) : NULL;
    if (sections == NULL) {
        Py_XDECREF(kept);
        return NULL;
    }
    return Py_BuildValue("{snsIsKsLsNsKsN}", "thread", x.thread, "limit",
                         (unsigned int)r->config.outliers, "usual_steps",
                         steps, "usual_ns", ns, "usual_sections", sections,
                         "usual_row_steps", rows, "kept", kept);
}
