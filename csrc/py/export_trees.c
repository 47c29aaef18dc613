/* export_trees: converts the trees of a recorder's threads to columns. */
#include "py/export_imports.h"

#include "py/guard.h"

#include "core/path.h"

typedef fp_export_row row;

/* A tree at one moment: other threads write to theirs. */
typedef struct rows_copy {
    const fp_tree *tree;
    uint32_t count;
    row *rows;
    const fp_thread *t; /* the thread whose tree it is, or NULL */
    int64_t now;        /* its open calls have run up to now */
} rows_copy;

static void
fill_rows(void *arg)
{
    const rows_copy *c = arg;
    const fp_tree *t = c->tree;
    row *rows = c->rows;
    for (uint32_t i = 0; i < c->count; i++) {
        const fp_node *f = fp_tree_node(t, i);
        rows[i].key = f->key;
        rows[i].parent = i == 0 ? -1 : (int64_t)f->parent->index;
        rows[i].calls = f->calls;
        rows[i].resumes = f->resumes;
        rows[i].self_ticks = f->self_ticks;
        if (i > 0) {
            rows[f->parent->index].children++;
            rows[i].phase = rows[f->parent->index].phase;
        }
        if (fp_key_is_base(f->key)) {
            rows[i].phase = (uint8_t)fp_run_phase_of(f->key);
        }
    }
    if (c->t != NULL && c->now > c->t->last && c->t->last != INT64_MIN &&
        c->t->cur->index < c->count) {
        rows[c->t->cur->index].self_ticks += c->now - c->t->last;
    }
}

/* Sets c->count and c->rows.  NULL with an exception. */
static row *
copy_rows(const fp_export *x, rows_copy *c)
{
    c->count = c->tree->count;
    c->rows = fp_alloc_zeroed(&x->r->alloc, c->count, sizeof(*c->rows));
    if (c->rows == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    fp_world_stopped(fill_rows, c);
    return c->rows;
}

static PyObject *
value_of(fp_export *x, const row *w, int column)
{
    switch (column) {
    case 0:
        return PyLong_FromLongLong(w->parent);
    case 1: {
        Py_ssize_t index = fp_export_key(x, w->key);
        return index < 0 ? NULL : PyLong_FromSsize_t(index);
    }
    case 2:
        return PyLong_FromUnsignedLongLong(w->calls);
    case 3:
        return PyLong_FromUnsignedLongLong(w->resumes);
    case 4:
        return fp_export_time(x, w->self_ticks);
    default:
        return PyLong_FromLong(w->phase);
    }
}

/* Self time of each phase outside all calls. */
static PyObject *
idle_column(const fp_export *x, const int64_t *ticks)
{
    PyObject *list = PyList_New(0);
    for (int p = 0; list != NULL && p < FP_RUN_PHASES; p++) {
        fp_export_add(&list, fp_export_time(x, ticks[p]));
    }
    return list;
}

/* Self time of the root: the sum of parts that are rounded one by one, so that
 * they add up. */
static PyObject *
idle_sum(const fp_export *x, const int64_t idle[FP_RUN_PHASES])
{
    int64_t ns = 0;
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        ns += fp_export_ns(x, idle[p]);
    }
    return PyLong_FromLongLong(ns);
}

/* The last column has a row per phase, not per node. */
static PyObject *
tree_columns(fp_export *x, const row *rows, uint32_t count,
             const int64_t idle[FP_RUN_PHASES])
{
    enum { COLUMNS = 6 };
    PyObject *columns = PyTuple_New(COLUMNS + 1);
    for (int c = 0; columns != NULL && c <= COLUMNS; c++) {
        PyObject *list =
            c < COLUMNS ? PyList_New(count) : idle_column(x, idle);
        for (uint32_t i = 0; list != NULL && c < COLUMNS && i < count; i++) {
            PyObject *v = i == 0 && c == 4 ? idle_sum(x, idle)
                                           : value_of(x, &rows[i], c);
            PyList_SET_ITEM(list, i, v);
            if (v == NULL) {
                Py_CLEAR(list);
            }
        }
        PyTuple_SET_ITEM(columns, c, list);
        if (list == NULL) {
            Py_CLEAR(columns);
        }
    }
    return columns;
}

/* The bases of phases are shown as the root, and an empty truncated node below
 * a base is not shown. */
static int
has_row(const row *rows, uint32_t i)
{
    const row *w = &rows[i];
    if (i == 0 || w->key != FP_KEY_TRUNCATED) {
        return i == 0 || !fp_key_is_base(w->key);
    }
    return !fp_key_is_base(rows[w->parent].key) || w->calls != 0 ||
           w->self_ticks != 0 || w->children != 0;
}

static long
shown_row(const fp_exported_thread *t, uint32_t index)
{
    uint32_t before = 0;
    while (before < t->left_out && t->without[before] < index) {
        before++;
    }
    if (before < t->left_out && t->without[before] == index) {
        return (t->bases >> before & 1) != 0 ? 0 : -1;
    }
    return (long)(index - before);
}

/* Removes the nodes without a row and returns the number of rows.  idle[] gets
 * the self times of the bases. */
static uint32_t
close_ranks(fp_exported_thread *e, row *rows, uint32_t count,
            int64_t idle[FP_RUN_PHASES])
{
    for (uint32_t i = 0; i < count; i++) {
        if (fp_key_is_base(rows[i].key)) {
            idle[rows[i].phase] = rows[i].self_ticks;
        }
        if (!has_row(rows, i)) {
            e->bases |= (uint32_t)fp_key_is_base(rows[i].key) << e->left_out;
            e->without[e->left_out++] = i;
        }
    }
    /* Convert node indices to rows before anything moves: a parent comes
     * before its children, so its old place may already be overwritten. */
    for (uint32_t i = 1; i < count && e->left_out > 0; i++) {
        rows[i].parent = shown_row(e, (uint32_t)rows[i].parent);
    }
    uint32_t shown = 0;
    for (uint32_t i = 0, left = 0; i < count; i++) {
        if (left < e->left_out && e->without[left] == i) {
            left++;
            continue;
        }
        rows[shown++] = rows[i];
    }
    return shown;
}

/* Registers [t] for exports that refer to its nodes; NULL with an
 * exception. */
static fp_exported_thread *
note_thread(fp_export *x, const fp_thread *t, uint32_t nodes)
{
    if (fp_alloc_room(&x->r->alloc, &x->thread, &x->thread_capacity,
                      x->threads + 1, 8, sizeof(*x->thread)) != FP_OK) {
        PyErr_NoMemory();
        return NULL;
    }
    fp_exported_thread *e = &x->thread[x->threads++];
    *e = (fp_exported_thread){
        .serial = (uint32_t)t->serial,
        .nodes = nodes,
    };
    return e;
}

long
fp_exported_row(const fp_exported_thread *t, uint32_t index)
{
    if (index >= t->nodes) {
        return -1; /* the node is newer than the exported tree */
    }
    return shown_row(t, t->folded != NULL ? t->folded[index] : index);
}

uint32_t
fp_export_thread_index(const fp_export *x, const fp_thread *t)
{
    uint32_t i = 0;
    while (i < x->threads && x->thread[i].serial != (uint32_t)t->serial) {
        i++;
    }
    return i;
}

int
fp_export_node(const fp_export *x, const fp_thread *t, const fp_node *n,
               uint32_t *thread, uint32_t *row)
{
    uint32_t i = fp_export_thread_index(x, t);
    long found =
        i < x->threads ? fp_exported_row(&x->thread[i], n->index) : -1;
    *thread = i;
    *row = found < 0 ? 0 : (uint32_t)found;
    return found >= 0;
}

/* Replaces *rows by those of the smaller tree.  Returns 0, or -1 with an
 * exception. */
static int
fold(fp_export *x, fp_exported_thread *e, row **rows, uint32_t *count)
{
    fp_tree smaller;
    e->folded = fp_alloc_zeroed(&x->r->alloc, *count, sizeof(*e->folded));
    if (e->folded == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (fp_fold_imports(x, *rows, *count, &smaller, e->folded) < 0) {
        return -1;
    }
    rows_copy c = {.tree = &smaller};
    row *fewer = copy_rows(x, &c);
    uint32_t left = c.count;
    fp_tree_fini(&smaller);
    if (fewer == NULL) {
        return -1;
    }
    fp_alloc_give(&x->r->alloc, *rows, *count, sizeof(**rows));
    x->folded += *count - left;
    *rows = fewer;
    *count = left;
    return 0;
}

PyObject *
fp_export_thread(fp_export *x, const fp_thread *t, int64_t now, int ended)
{
    unsigned long long ident = ended ? 0 : t->ident;
    int64_t idle[FP_RUN_PHASES] = {0};
    rows_copy c = {.tree = &t->tree, .t = t, .now = now};
    row *rows = copy_rows(x, &c);
    uint32_t count = c.count;
    if (rows == NULL) {
        return NULL;
    }
    PyObject *columns = NULL;
    fp_exported_thread *e = note_thread(x, t, count);
    if (e != NULL && (x->fold == NULL || fold(x, e, &rows, &count) == 0)) {
        uint32_t shown = close_ranks(e, rows, count, idle);
        columns = tree_columns(x, rows, shown, idle);
    }
    fp_alloc_give(&x->r->alloc, rows, count, sizeof(*rows));
    return columns ? Py_BuildValue("(KiN)", ident, ended, columns) : NULL;
}

void
fp_export_forget_threads(fp_export *x)
{
    for (uint32_t i = 0; i < x->threads; i++) {
        fp_alloc_give(&x->r->alloc, x->thread[i].folded, x->thread[i].nodes,
                      sizeof(*x->thread[i].folded));
    }
    fp_alloc_give(&x->r->alloc, x->thread, x->thread_capacity,
                  sizeof(*x->thread));
}
