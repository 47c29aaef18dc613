/* Exports a recorder's trace for Recorder.export(). */
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

PyObject *
fp_export_trace_time(const fp_export *x, int64_t ticks)
{
    int64_t origin = x->r->trace.origin;
    return fp_export_time(x, ticks > origin ? ticks - origin : 0);
}

static PyObject *
key_of(fp_export *x, const fp_trace_event *e)
{
    if (fp_key_tag(e->key) == FP_TAG_STEP) {
        return PyLong_FromUnsignedLongLong(e->key >> 3);
    }
    Py_ssize_t index = fp_export_key(x, e->key);
    return index < 0 ? NULL : PyLong_FromSsize_t(index);
}

static PyObject *
value_of(fp_export *x, const fp_trace_event *e, int column)
{
    switch (column) {
    case 0:
        return key_of(x, e);
    case 1:
        return PyLong_FromUnsignedLong(e->thread);
    case 2:
        return fp_export_trace_time(x, e->start);
    default:
        return fp_export_trace_time(x, e->end);
    }
}

/* (key or step, thread, start, end), each a list. */
static PyObject *
columns_of(fp_export *x, const view *v, int steps)
{
    PyObject *columns = PyTuple_New(4);
    for (int c = 0; columns != NULL && c < 4; c++) {
        PyObject *list = PyList_New(0);
        for (uint64_t i = 0; list != NULL && i < v->events; i++) {
            const fp_trace_event *e = &v->event[i];
            if ((fp_key_tag(e->key) == FP_TAG_STEP) == steps) {
                fp_export_add(&list, value_of(x, e, c));
            }
        }
        PyTuple_SET_ITEM(columns, c, list);
        if (list == NULL) {
            Py_CLEAR(columns);
        }
    }
    return columns;
}

/* [(start, end or None, first step, wall clock's ns at start)] */
static PyObject *
windows_of(const fp_export *x, const view *v)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->windows; i++) {
        const fp_trace_window *w = &v->window[i];
        fp_export_add(
            &list, Py_BuildValue("(NNKL)", fp_export_trace_time(x, w->start),
                                 w->end == INT64_MAX
                                     ? Py_NewRef(Py_None)
                                     : fp_export_trace_time(x, w->end),
                                 (unsigned long long)w->first_step,
                                 (long long)w->wall_ns));
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
        fp_export_add(&list, Py_BuildValue("(IKK)", t->thread,
                                           (unsigned long long)t->ident,
                                           (unsigned long long)t->native));
    }
    return list;
}

static PyObject *
trace_dict(fp_export *x, const view *v)
{
    typedef unsigned long long ull;
    const fp_trace_log *log = &v->log;
    return Py_BuildValue(
        "{sNsNsNsNsNsKsKsKsKsNsK}", "events", columns_of(x, v, 0), "steps",
        columns_of(x, v, 1), "windows", windows_of(x, v), "threads",
        threads_of(v), "min_ns", fp_export_time(x, log->min_ticks),
        "max_events", (ull)log->events.limit, "kept", (ull)log->kept, "brief",
        (ull)log->brief, "lost", (ull)log->lost, "lost_until_ns",
        fp_export_trace_time(x, log->lost != 0 ? log->lost_until : 0),
        "no_memory", (ull)log->no_memory);
}

PyObject *
fp_export_trace(fp_export *x)
{
    if (!x->r->trace.has) {
        Py_RETURN_NONE;
    }
    view v;
    PyObject *d = take_view(x->r, &v) == 0 ? trace_dict(x, &v) : NULL;
    free_view(x->r, &v);
    return d;
}
