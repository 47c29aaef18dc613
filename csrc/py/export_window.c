/* export_window: reads a recording under way, for a fastprof thread next to the
 * training thread: the last steps and the training thread's calling context.
 * Columns are copied as bytes, because the training thread waits for the GIL
 * meanwhile; names of functions are described on request only. */
#include "py/export_parts.h"
#include "py/gpu_layer.h"
#include "py/guard.h"
#include "py/recorder_methods.h"
#include "py/recorder_reset.h"
#include "py/run_phase.h"

#include "core/steps_split.h"

#include <string.h>

enum {
    /* The times of larger trees are not copied. */
    MOST_TIMES = 1 << 20,
    /* More nodes are not described: the training thread would wait for more
     * than a fiftieth of a second. */
    MOST_NODES = 50000
};

/* The newest [rows] of a ring of [n] values; [ticks]: converted to ns, except
 * -1. */
static PyObject *
column(const fp_export *x, fp_values r, uint64_t n, uint32_t rows, int ticks)
{
    PyObject *bytes =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * sizeof(int64_t)));
    if (bytes == NULL) {
        return NULL;
    }
    int64_t *out = (int64_t *)(void *)PyBytes_AS_STRING(bytes);
    for (uint32_t i = 0; i < rows; i++) {
        int64_t v = fp_value_of(r, n - rows + i);
        out[i] = ticks && v >= 0 ? fp_export_ns(x, v) : v;
    }
    return bytes;
}

/* Borrowed; NULL with an exception. */
static PyObject *
section_name(const fp_export *x, uint32_t id)
{
    return PyList_GetItem(x->r->state->section_names, (Py_ssize_t)id);
}

static PyObject *
sections(const fp_export *x, const fp_series *s, uint64_t n, uint32_t rows)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < s->columns; i++) {
        PyObject *name = section_name(x, s->column[i].section->id);
        fp_export_add(
            &list, Py_BuildValue("(ON)", name,
                                 column(x, (fp_values){s->column[i].ticks, 1},
                                        n, rows, 1)));
    }
    return list;
}

/* [(node, ns)]: waits for other ranks in measured steps so far. */
static PyObject *
waits(const fp_export *x, const fp_thread *t)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < t->waits.count; i++) {
        const fp_wait *w = &t->waits.wait[i];
        if (w->kind == FP_KIND_COMMUNICATION) {
            fp_export_add(&list,
                          Py_BuildValue("(IN)", w->node->index,
                                        fp_export_time(x, w->sum_ticks)));
        }
    }
    return list;
}

/* Names of the open sections, the outermost first. */
static PyObject *
open_sections(const fp_export *x, const fp_thread *t)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < t->open_len; i++) {
        fp_export_add(&list,
                      Py_XNewRef(section_name(x, t->open[i].section->id)));
    }
    return list;
}

/* Wall time of each phase of the run so far. */
static PyObject *
phase_times(const fp_export *x)
{
    PyObject *list = PyList_New(0);
    for (int p = 0; list != NULL && p < FP_RUN_PHASES; p++) {
        int64_t ticks = fp_recorder_phase_ticks(x->r, (fp_run_phase)p);
        fp_export_add(&list, fp_export_time(x, ticks));
    }
    return list;
}

/* A column of [rows] unknown times (-1); *ns becomes its content. */
static PyObject *
unknown_times(uint32_t rows, int64_t **ns)
{
    PyObject *bytes =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * sizeof(int64_t)));
    if (bytes != NULL) {
        *ns = (int64_t *)(void *)PyBytes_AS_STRING(bytes);
        memset(*ns, 0xff, rows * sizeof(int64_t));
    }
    return bytes;
}

/* Puts the times of the GPU in the steps of the column "number" (-1: unknown,
 * or not known yet), and the last known step.  Releases the GIL. */
static void
put_gpu_waits(const fp_recorder *r, PyObject **d)
{
    int64_t *ns, *compute_ns, last = -1;
    PyObject *numbers = *d == NULL ? NULL : PyDict_GetItemString(*d, "number");
    if (numbers == NULL) {
        return;
    }
    uint32_t rows =
        (uint32_t)((size_t)PyBytes_GET_SIZE(numbers) / sizeof(int64_t));
    PyObject *waits = unknown_times(rows, &ns);
    PyObject *compute = unknown_times(rows, &compute_ns);
    if (waits != NULL && compute != NULL) {
        last = fp_gpu_layer_waits(
            r, (const int64_t *)(const void *)PyBytes_AS_STRING(numbers), ns,
            compute_ns, rows);
    }
    fp_export_put(d, "gpu_wait_ns", waits);
    fp_export_put(d, "gpu_compute_ns", compute);
    fp_export_put(d, "gpu_last", PyLong_FromLongLong(last));
}

/* Is the thread in a call that waits, or may wait, for other ranks? */
static int
is_waiting(const fp_thread *t)
{
    uint32_t number = fp_waits_number(t->cur);
    if (number == 0 || number > t->waits.count) {
        return 0;
    }
    uint8_t kind = t->waits.wait[number - 1].kind;
    return kind == FP_KIND_COMMUNICATION || kind == FP_KIND_AUTOGRAD;
}

static PyObject *
window(const fp_export *x, const fp_thread *t, int64_t first, int plain)
{
    plain = plain && t->split->plain != NULL;
    const fp_series *s =
        plain ? &t->split->plain->series : &t->split->measured.series;
    const fp_step_times *times =
        plain ? &t->steps->plain : &t->steps->measured;
    uint64_t n = times->count;
    uint32_t kept = n < FP_STEPS_RECENT ? (uint32_t)n : FP_STEPS_RECENT;
    uint32_t rows = 0;
    while (rows < kept &&
           s->row[(n - 1 - rows) % FP_STEPS_RECENT].number >= first) {
        rows++;
    }
    PyObject *d = PyDict_New();
    fp_export_put(&d, "number",
                  column(x, fp_values_in_rows(&s->row->number), n, rows, 0));
    fp_export_put(&d, "wall_ns",
                  column(x, (fp_values){times->recent, 1}, n, rows, 1));
    fp_export_put(&d, "cpu_ns",
                  column(x, fp_values_in_rows(&s->row->cpu_ns), n, rows, 0));
    fp_export_put(&d, "cpu_wait_ns",
                  column(x, fp_values_in_rows(&s->row->delay_ns), n, rows, 0));
    fp_export_put(
        &d, "communication_ns",
        column(x, fp_values_in_rows(&s->row->communication), n, rows, 1));
    fp_export_put(&d, "autograd_ns",
                  column(x, fp_values_in_rows(&s->row->autograd), n, rows, 1));
    fp_export_put(&d, "gc_ns",
                  column(x, fp_values_in_rows(&s->row->gc_ticks), n, rows, 1));
    fp_export_put(&d, "faults",
                  column(x, fp_values_in_rows(&s->row->faults), n, rows, 0));
    fp_export_put(&d, "sections", sections(x, s, n, rows));
    fp_export_put(&d, "waits", waits(x, t));
    fp_export_put(&d, "open", open_sections(x, t));
    fp_export_put(&d, "waiting", PyBool_FromLong(is_waiting(t)));
    fp_export_put(&d, "phase", PyLong_FromLong((long)t->run_phase));
    fp_export_put(&d, "phases_ns", phase_times(x));
    fp_export_put(&d, "thread", PyLong_FromUnsignedLongLong(t->ident));
    fp_export_put(&d, "last_event", PyLong_FromLongLong(t->last));
    fp_export_put(&d, "measured",
                  PyLong_FromUnsignedLongLong(t->steps->measured.count +
                                              t->steps->plain.count));
    fp_export_put(&d, "steps", PyLong_FromUnsignedLongLong(t->steps->count));
    return d;
}

static fp_export
exporting(fp_recorder *r)
{
    return (fp_export){.r = r, .ns_per_tick = fp_clock_ns_per_tick(&r->clock)};
}

PyObject *
fp_recorder_window_method(PyObject *self, PyObject *args)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    long long first;
    int plain = 0;
    if (!PyArg_ParseTuple(args, "L|p:window", &first, &plain)) {
        return NULL;
    }
    int busy = fp_gpu_layer_is_busy(r);
    const fp_thread *t = r->stepper;
    if (t == NULL || t->steps == NULL || t->split == NULL) {
        Py_RETURN_NONE;
    }
    const fp_export x = exporting(r);
    /* Creating a list may run the garbage collector, and with it any code. */
    fp_recorder_begin_export(r);
    PyObject *d = window(&x, t, first, plain);
    fp_export_put(&d, "gpu_busy",
                  busy < 0 ? Py_NewRef(Py_None) : PyBool_FromLong(busy));
    fp_recorder_end_export(r);
    put_gpu_waits(r, &d);
    return d;
}

typedef struct times_copy {
    const fp_export *x;
    const fp_tree *tree;
    int64_t *out;
    uint32_t count;
} times_copy;

static void
copy_times(void *arg)
{
    const times_copy *c = arg;
    for (uint32_t i = 0; i < c->count; i++) {
        const fp_node *n = fp_tree_node(c->tree, i);
        c->out[i] = fp_export_ns(c->x, n->self_ticks);
    }
}

PyObject *
fp_recorder_node_times_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    const fp_thread *t = r->stepper;
    if (t == NULL || t->tree.count > MOST_TIMES) {
        Py_RETURN_NONE;
    }
    const fp_export x = exporting(r);
    uint32_t count = t->tree.count;
    PyObject *bytes =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    if (bytes == NULL) {
        return NULL;
    }
    int64_t *out = (int64_t *)(void *)PyBytes_AS_STRING(bytes);
    fp_world_stopped(copy_times, &(times_copy){&x, &t->tree, out, count});
    return bytes;
}

/* Marks the [wanted] nodes and those above them; returns the number of marked
 * nodes. */
static uint32_t
mark_wanted(char *marked, const fp_tree *tree, uint32_t count,
            PyObject *wanted)
{
    const int64_t *node =
        (const int64_t *)(const void *)PyBytes_AS_STRING(wanted);
    size_t rows = (size_t)PyBytes_GET_SIZE(wanted) / sizeof(int64_t);
    uint32_t found = 0;
    for (size_t i = 0; i < rows; i++) {
        if (node[i] < 0 || node[i] >= (int64_t)count) {
            continue;
        }
        const fp_node *n = fp_tree_node(tree, (uint32_t)node[i]);
        while (n != NULL && n->index < count && !marked[n->index]) {
            marked[n->index] = 1;
            found++;
            n = n->parent;
        }
    }
    return found;
}

/* {node: (parent, key)}; a base is a child of the root with the key of its
 * phase. */
static PyObject *
node_rows(fp_export *x, const fp_tree *tree, const char *marked,
          uint32_t count)
{
    PyObject *d = PyDict_New();
    for (uint32_t i = 0; d != NULL && i < count; i++) {
        if (!marked[i]) {
            continue;
        }
        const fp_node *n = fp_tree_node(tree, i);
        long long parent =
            n->parent == NULL ? -1 : (long long)n->parent->index;
        int is_base = fp_key_is_base(n->key);
        Py_ssize_t key = is_base ? -1 - (Py_ssize_t)fp_run_phase_of(n->key)
                                 : fp_export_key(x, n->key);
        PyObject *node = PyLong_FromUnsignedLong(i);
        PyObject *row =
            key < 0 && !is_base ? NULL : Py_BuildValue("(Ln)", parent, key);
        if (node == NULL || row == NULL || PyDict_SetItem(d, node, row) < 0) {
            Py_CLEAR(d);
        }
        Py_XDECREF(node);
        Py_XDECREF(row);
    }
    return d;
}

PyObject *
fp_recorder_nodes_method(PyObject *self, PyObject *wanted)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    const fp_thread *t = r->stepper;
    if (!PyBytes_Check(wanted)) {
        return PyErr_Format(PyExc_TypeError, "bytes are needed, not %.100s",
                            Py_TYPE(wanted)->tp_name);
    }
    if (t == NULL) {
        Py_RETURN_NONE;
    }
    uint32_t count = t->tree.count;
    char *marked = PyMem_Calloc(count + 1, 1);
    if (marked == NULL) {
        return PyErr_NoMemory();
    }
    if (mark_wanted(marked, &t->tree, count, wanted) > MOST_NODES) {
        PyMem_Free(marked);
        Py_RETURN_NONE;
    }
    fp_export x;
    PyObject *rows = fp_export_begin(&x, r) == 0
                         ? node_rows(&x, &t->tree, marked, count)
                         : NULL;
    PyObject *result =
        rows == NULL ? NULL : Py_BuildValue("(NO)", rows, x.keys);
    fp_export_end(&x);
    PyMem_Free(marked);
    return result;
}

PyObject *
fp_recorder_run_unrecorded_method(PyObject *self, PyObject *function)
{
    (void)self;
    fp_tls *me = fp_tls_own();
    if (me == NULL) {
        return PyErr_NoMemory();
    }
    me->left_out++;
    PyObject *result = PyObject_CallNoArgs(function);
    me = fp_tls_if_any();
    if (me != NULL) {
        me->left_out--;
    }
    return result;
}
