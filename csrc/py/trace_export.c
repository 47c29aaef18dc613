/* Exports a recorder's trace for Recorder.export(). */
#include "py/trace_layer.h"

#include "py/export_parts.h"

#include <math.h>
#include <string.h>

/* A copy: describing keys runs Python code, which may be traced. */
typedef struct view {
    fp_trace_event *event; /* owned */
    uint64_t events;
    fp_trace_window *window; /* owned */
    uint32_t windows;
    fp_trace_label *thread; /* owned */
    uint32_t threads;
    uint32_t thread_capacity;
    fp_trace_log log; /* its counters only */
} view;

static void
free_view(fp_recorder *r, view *v)
{
    fp_alloc_give(&r->alloc, v->event, v->events + 1, sizeof(*v->event));
    fp_alloc_give(&r->alloc, v->window, v->windows + 1, sizeof(*v->window));
    fp_alloc_give(&r->alloc, v->thread, v->thread_capacity,
                  sizeof(*v->thread));
}

static int
take_view(fp_recorder *r, view *v)
{
    const fp_trace_log *log = &r->trace.log;
    *v = (view){.events = fp_ring_count(&log->events),
                .windows = log->window_count,
                .thread_capacity = r->thread_count + log->labels + 1,
                .log = *log};
    v->event = fp_alloc_zeroed(&r->alloc, v->events + 1, sizeof(*v->event));
    v->window = fp_alloc_zeroed(&r->alloc, v->windows + 1, sizeof(*v->window));
    v->thread =
        fp_alloc_zeroed(&r->alloc, v->thread_capacity, sizeof(*v->thread));
    if (v->event == NULL || v->window == NULL || v->thread == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint64_t i = 0; i < v->events; i++) {
        v->event[i] = *(fp_trace_event *)fp_ring_at(&log->events, i);
    }
    if (v->windows != 0) {
        memcpy(v->window, log->windows, v->windows * sizeof(*v->window));
    }
    for (uint32_t i = 0; i < log->labels; i++) {
        v->thread[v->threads++] = log->label[i];
    }
    for (const fp_thread *t = r->threads; t != NULL; t = t->next) {
        v->thread[v->threads++] =
            (fp_trace_label){(uint32_t)t->serial, t->ident, t->native};
    }
    return 0;
}

typedef struct writer {
    const view *v;
    int64_t origin;
    double scale;
    Py_ssize_t (*index)(void *ctx, fp_key key);
    void *ctx;
} writer;

static PyObject *
time_of(const writer *w, int64_t ticks)
{
    int64_t since = ticks > w->origin ? ticks - w->origin : 0;
    return PyLong_FromLongLong(llround((double)since * w->scale));
}

static PyObject *
key_of(const writer *w, const fp_trace_event *e)
{
    if (fp_key_tag(e->key) == FP_TAG_STEP) {
        return PyLong_FromUnsignedLongLong(e->key >> 3);
    }
    Py_ssize_t index = w->index(w->ctx, e->key);
    return index < 0 ? NULL : PyLong_FromSsize_t(index);
}

static PyObject *
value_of(const writer *w, const fp_trace_event *e, int column)
{
    switch (column) {
    case 0:
        return key_of(w, e);
    case 1:
        return PyLong_FromUnsignedLong(e->thread);
    case 2:
        return time_of(w, e->start);
    default:
        return time_of(w, e->end);
    }
}

/* (key or step, thread, start, end), each a list. */
static PyObject *
columns_of(const writer *w, int steps)
{
    PyObject *columns = PyTuple_New(4);
    for (int c = 0; columns != NULL && c < 4; c++) {
        PyObject *list = PyList_New(0);
        for (uint64_t i = 0; list != NULL && i < w->v->events; i++) {
            const fp_trace_event *e = &w->v->event[i];
            if ((fp_key_tag(e->key) == FP_TAG_STEP) != steps) {
                continue;
            }
            PyObject *value = value_of(w, e, c);
            fp_export_add(&list, value);
        }
        if (list == NULL) {
            Py_CLEAR(columns);
            break;
        }
        PyTuple_SET_ITEM(columns, c, list);
    }
    return columns;
}

/* [(start, end or None, first step, wall clock's ns at start)] */
static PyObject *
windows_of(const writer *w)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < w->v->windows; i++) {
        const fp_trace_window *one = &w->v->window[i];
        PyObject *start = time_of(w, one->start);
        PyObject *end =
            one->end == INT64_MAX ? Py_NewRef(Py_None) : time_of(w, one->end);
        PyObject *row = NULL;
        if (start != NULL && end != NULL) {
            row = Py_BuildValue("(OOKL)", start, end,
                                (unsigned long long)one->first_step,
                                (long long)one->wall_ns);
        }
        Py_XDECREF(start);
        Py_XDECREF(end);
        fp_export_add(&list, row);
    }
    return list;
}

/* [(serial, ident, native)] */
static PyObject *
threads_of(const view *v)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->threads; i++) {
        const fp_trace_label *t = &v->thread[i];
        PyObject *row =
            Py_BuildValue("(IKK)", t->thread, (unsigned long long)t->ident,
                          (unsigned long long)t->native);
        fp_export_add(&list, row);
    }
    return list;
}

static PyObject *
trace_dict(const writer *w)
{
    typedef unsigned long long ull;
    const fp_trace_log *log = &w->v->log;
    PyObject *lost_until = time_of(w, log->lost != 0 ? log->lost_until : 0);
    PyObject *min_ns =
        PyLong_FromLongLong(llround((double)log->min_ticks * w->scale));
    PyObject *events = columns_of(w, 0), *steps = columns_of(w, 1);
    PyObject *windows = windows_of(w), *threads = threads_of(w->v);
    PyObject *d = NULL;
    if (lost_until && min_ns && events && steps && windows && threads) {
        d = Py_BuildValue(
            "{sOsOsOsOsOsKsKsKsKsOsK}", "events", events, "steps", steps,
            "windows", windows, "threads", threads, "min_ns", min_ns,
            "max_events", (ull)log->events.limit, "kept", (ull)log->kept,
            "brief", (ull)log->brief, "lost", (ull)log->lost, "lost_until_ns",
            lost_until, "no_memory", (ull)log->no_memory);
    }
    Py_XDECREF(lost_until);
    Py_XDECREF(min_ns);
    Py_XDECREF(events);
    Py_XDECREF(steps);
    Py_XDECREF(windows);
    Py_XDECREF(threads);
    return d;
}

PyObject *
fp_recorder_export_trace(fp_recorder *r, double ns_per_tick,
                         Py_ssize_t (*index)(void *ctx, fp_key key), void *ctx)
{
    if (!r->trace.has) {
        Py_RETURN_NONE;
    }
    view v;
    PyObject *d = NULL;
    if (take_view(r, &v) == 0) {
        const writer w = {&v, r->trace.origin, ns_per_tick, index, ctx};
        d = trace_dict(&w);
    }
    free_view(r, &v);
    return d;
}
