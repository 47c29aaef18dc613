/* export_outliers: converts the slowest steps to Python values. */
#include "py/export_parts.h"

#include "core/outliers.h"

#include <stdlib.h>
#include <string.h>

/* Adds [more] to *ticks and returns the increase in ns, rounded so that the
 * values of a column add up to their rounded sum. */
static long long
next_ns(const fp_export *x, int64_t *ticks, int64_t more)
{
    int64_t before = fp_export_ns(x, *ticks);
    *ticks += more;
    return fp_export_ns(x, *ticks) - before;
}

static int
by_ticks(const void *a, const void *b)
{
    int64_t left = ((const fp_outlier_row *)a)->ticks;
    int64_t right = ((const fp_outlier_row *)b)->ticks;
    return (left < right) - (left > right);
}

/* [(node, ns, calls, resumes, usual ns, usual calls)], largest first.  *rest
 * is the remaining time of the window, in ns. */
static PyObject *
export_rows(const fp_export *x, const fp_exported_thread *shown,
            fp_outlier *kept, PyObject **rest)
{
    PyObject *list = PyList_New(0);
    int64_t ticks = 0;
    typedef unsigned long long ull;
    qsort(kept->row, kept->row_count, sizeof(*kept->row), by_ticks);
    for (uint32_t i = 0; list != NULL && i < kept->row_count; i++) {
        const fp_outlier_row *row = &kept->row[i];
        long node = fp_exported_row(shown, row->node);
        if (node < 0) {
            continue;
        }
        fp_outlier_row usual =
            fp_outliers_usual(x->r->stepper->outliers, row->node);
        int64_t usual_ticks = usual.ticks > 0 ? usual.ticks : 0;
        long long ns = next_ns(x, &ticks, row->ticks);
        fp_export_add(&list, Py_BuildValue("(lLKKNK)", node, ns,
                                           (ull)row->calls, (ull)row->resumes,
                                           fp_export_time(x, usual_ticks),
                                           (ull)usual.calls));
    }
    *rest = PyLong_FromLongLong(fp_export_ns(x, kept->window_ticks) -
                                fp_export_ns(x, ticks));
    return list;
}

static PyObject *
export_sections(fp_export *x, const fp_outlier *kept)
{
    PyObject *list = PyList_New(0);
    int64_t ticks = 0;
    for (uint32_t i = 0; list != NULL && i < kept->section_count; i++) {
        const fp_outlier_section *s = &kept->section[i];
        Py_ssize_t key = fp_export_key(x, fp_key_section(s->id));
        long long ns = next_ns(x, &ticks, s->ticks);
        fp_export_add(&list, key < 0 ? NULL : Py_BuildValue("(nL)", key, ns));
    }
    return list;
}

static PyObject *
export_one(fp_export *x, const fp_exported_thread *shown, fp_outlier *kept)
{
    PyObject *rest = NULL;
    PyObject *rows = export_rows(x, shown, kept, &rest);
    return Py_BuildValue(
        "{sKsNsNsNsNsNsKsNsNsNsN}", "index", (unsigned long long)kept->index,
        "start_ns", fp_export_time(x, kept->start), "wall_ns",
        fp_export_time(x, kept->ticks), "plain", PyBool_FromLong(kept->plain),
        "usual", PyBool_FromLong(kept->usual), "sections",
        export_sections(x, kept), "window_steps",
        (unsigned long long)kept->steps, "window_ns",
        fp_export_time(x, kept->window_ticks), "window_usual",
        PyBool_FromLong(kept->rows_usual), "rows", rows, "rest_ns", rest);
}

/* Reads copies: creating Python objects may run Python code that ends a
 * step. */
static PyObject *
export_kept(fp_export *x, const fp_exported_thread *shown)
{
    const fp_outliers *o = x->r->stepper->outliers;
    fp_outlier_row *room =
        fp_alloc_zeroed(&x->r->alloc, FP_OUTLIERS_ROWS, sizeof(*room));
    PyObject *list = room != NULL ? PyList_New(0) : PyErr_NoMemory();
    for (uint32_t i = 0; list != NULL && i < o->count; i++) {
        fp_outlier kept = o->kept[i];
        memcpy(room, kept.row, kept.row_count * sizeof(*room));
        kept.row = room;
        fp_export_add(&list, export_one(x, shown, &kept));
    }
    fp_alloc_give(&x->r->alloc, room, FP_OUTLIERS_ROWS, sizeof(*room));
    return list;
}

static PyObject *
usual_sections(fp_export *x, const fp_thread *t)
{
    PyObject *list = PyList_New(0);
    const fp_section *s;
    uint32_t at = 0;
    /* Only measured steps have usual times. */
    while (list != NULL &&
           (s = fp_export_next_section(t, FP_RUN_STEPS, &at)) != NULL) {
        if (s->usual_ticks <= 0) {
            continue;
        }
        long long ns = fp_export_ns(x, s->usual_ticks);
        Py_ssize_t key = fp_export_key(x, fp_key_section(s->id));
        fp_export_add(&list, key < 0 ? NULL : Py_BuildValue("(nL)", key, ns));
    }
    return list;
}

PyObject *
fp_outliers_export(fp_export *x)
{
    const fp_thread *t = x->r->stepper;
    uint32_t i = t != NULL ? fp_export_thread_index(x, t) : x->threads;
    if (i == x->threads || t->outliers == NULL) {
        Py_RETURN_NONE;
    }
    typedef unsigned long long ull;
    ull steps = t->outliers->usual_steps, rows = t->outliers->seen_steps;
    long long ns = fp_export_ns(x, t->outliers->usual_ticks);
    return Py_BuildValue("{sIsIsKsLsNsKsN}", "thread", i, "limit",
                         (unsigned int)x->r->config.outliers, "usual_steps",
                         steps, "usual_ns", ns, "usual_sections",
                         usual_sections(x, t), "usual_row_steps", rows, "kept",
                         export_kept(x, &x->thread[i]));
}
