#include "py/tree_sums.h"

#include "core/pairs.h"
#include "py/stats_file.h"

/* The columns of the argument: parent, group, calls, resumes, self, raw. */
enum { COLUMNS = 6 };

/* Returns whether [item] is an int, and at least [least]. */
static int
read_int(PyObject *item, int64_t least, int64_t *out)
{
    if (!PyLong_CheckExact(item)) {
        return 0;
    }
    int overflow = 0;
    *out = PyLong_AsLongLongAndOverflow(item, &overflow);
    return !overflow && *out >= least;
}

/* Adds [item] to *sum; returns whether the sum can be stored. */
static int
read_amount(PyObject *item, int64_t *sum, int64_t *out)
{
    if (!read_int(item, 0, out) || *out > INT64_MAX - *sum) {
        return 0;
    }
    *sum += *out;
    return 1;
}

/* Returns whether the columns fit; sets *groups. */
static int
read_nodes(PyObject *const columns[COLUMNS], fp_pairs_node *node,
           Py_ssize_t count, uint32_t *groups)
{
    int64_t sums[COLUMNS] = {0};
    *groups = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t at[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) {
            PyObject *item = PySequence_Fast_GET_ITEM(columns[c], i);
            if (!(c < 2 ? read_int(item, -1, &at[c])
                        : read_amount(item, &sums[c], &at[c]))) {
                return 0;
            }
        }
        if (i == 0 ? at[0] != -1 : at[0] < 0 || at[0] >= i) {
            return 0;
        }
        if (at[1] >= INT32_MAX / 2) {
            return 0;
        }
        if (at[1] >= *groups) {
            *groups = (uint32_t)at[1] + 1;
        }
        node[i] = (fp_pairs_node){
            .parent = i == 0 ? 0 : (uint32_t)at[0],
            .group = (int32_t)at[1],
            .calls = at[2],
            .resumes = at[3],
            .self_ns = at[4],
            .raw_ns = at[5],
        };
    }
    return 1;
}

static int64_t
value_of(const fp_pair *p, int column)
{
    const int64_t values[] = {
        p->caller,       p->callee,           p->calls,       p->resumes,
        p->self_ns,      p->raw_ns,           p->outer.calls, p->outer.resumes,
        p->outer.cum_ns, p->outer.raw_cum_ns, p->more.calls,  p->more.resumes,
        p->more.cum_ns,  p->more.raw_cum_ns,  p->nested,
    };
    return values[column];
}

/* The columns from [MORE] on are empty if no pair has values there. */
enum { RESULTS = 15, MORE = 10 };

/* Per column the earlier one that most often has the same value, or itself:
 * equal ints are one object.  So are those of a pair with one node. */
static const int same_as[RESULTS] = {0, 1, 2,  3,  4,  4,  2, 3,
                                     4, 8, 10, 11, 12, 12, 14};

static PyObject *
value_object(const fp_pair *p, int column, PyObject *earlier,
             PyObject *of_node)
{
    int64_t value = value_of(p, column);
    if (earlier != NULL && value == value_of(p, same_as[column])) {
        return Py_NewRef(earlier);
    }
    if (of_node != NULL && value == PyLong_AsLongLong(of_node)) {
        return Py_NewRef(of_node);
    }
    return PyLong_FromLongLong(value);
}

static PyObject *
column_of(const fp_pairs *p, int column, PyObject *earlier, PyObject *of_nodes)
{
    PyObject *list = PyList_New(column < MORE || p->nested ? p->count : 0);
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        PyObject *v = value_object(
            &p->pair[i], column,
            earlier == NULL ? NULL : PyList_GET_ITEM(earlier, i),
            of_nodes == NULL
                ? NULL
                : PySequence_Fast_GET_ITEM(of_nodes, p->pair[i].first));
        PyList_SET_ITEM(list, i, v);
        if (v == NULL) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
columns_of(const fp_pairs *p, PyObject *const of_nodes[COLUMNS])
{
    PyObject *columns = PyTuple_New(RESULTS);
    for (int c = 0; columns != NULL && c < RESULTS; c++) {
        PyObject *earlier =
            same_as[c] < c ? PyTuple_GET_ITEM(columns, same_as[c]) : NULL;
        PyObject *of_column = c > 0 && c < COLUMNS ? of_nodes[c] : NULL;
        PyObject *list = column_of(p, c, earlier, of_column);
        PyTuple_SET_ITEM(columns, c, list);
        if (list == NULL) {
            Py_CLEAR(columns);
        }
    }
    return columns;
}

/* Without [labels], the sums as columns; with them, as a .stats file. */
static PyObject *
sums_of(PyObject *const columns[COLUMNS], Py_ssize_t count, PyObject *labels)
{
    fp_alloc a = fp_alloc_libc();
    fp_pairs_node *node = fp_alloc_zeroed(&a, (size_t)count, sizeof(*node));
    fp_pairs p = {.alloc = a};
    uint32_t groups;
    fp_status status = FP_OK;
    PyObject *found = NULL;
    if (node == NULL) {
        return PyErr_NoMemory();
    }
    if (!read_nodes(columns, node, count, &groups)) {
        found = Py_NewRef(Py_None);
    }
    else {
        Py_BEGIN_ALLOW_THREADS;
        status = fp_pairs_sum(&p, &a, node, (uint32_t)count, groups);
        Py_END_ALLOW_THREADS;
    }
    /* Before there are columns, too: both are large. */
    fp_alloc_give(&a, node, (size_t)count, sizeof(*node));
    if (found == NULL) {
        found = status != FP_OK  ? PyErr_NoMemory()
                : labels == NULL ? columns_of(&p, columns)
                                 : fp_stats_file(&p, labels);
    }
    fp_pairs_fini(&p);
    return found;
}

static PyObject *
sums_of_columns(PyObject *const *args, Py_ssize_t n, PyObject *labels)
{
    PyObject *columns[COLUMNS] = {NULL};
    PyObject *found = NULL;
    Py_ssize_t count = 0;
    int same = n == COLUMNS;
    for (int c = 0; same && c < COLUMNS; c++) {
        columns[c] = PySequence_Fast(args[c], "a column is no sequence");
        same = columns[c] != NULL;
        if (same) {
            Py_ssize_t rows = PySequence_Fast_GET_SIZE(columns[c]);
            count = c == 0 ? rows : count;
            same = rows == count && rows > 0 && rows < INT32_MAX / 2;
        }
    }
    if (same) {
        found = sums_of(columns, count, labels);
    }
    else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "expected six equal columns");
    }
    for (int c = 0; c < COLUMNS; c++) {
        Py_XDECREF(columns[c]);
    }
    return found;
}

static PyObject *
pair_sums(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return sums_of_columns(args, n, NULL);
}

static PyObject *
stats_file(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return sums_of_columns(args + 1, n - 1, n > 0 ? args[0] : NULL);
}

PyMethodDef fp_tree_sums_methods[] = {
    {"pair_sums", (PyCFunction)(void (*)(void))pair_sums, METH_FASTCALL,
     "pair_sums($module, parent, groups, calls, resumes, self_ns, raw_ns, "
     "/)\n--\n\n"},
    {"stats_file", (PyCFunction)(void (*)(void))stats_file, METH_FASTCALL,
     "stats_file($module, labels, parent, groups, calls, resumes, self_ns, "
     "raw_ns, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
