/* trace_layer: the windows of a recorder's trace, and their export for
 * Recorder.export(). */
#include "py/trace_layer.h"

#include "py/mode.h"
#include "py/thread_life.h"

#include <math.h>
#include <time.h>

/* ---- windows ---- */

/* The wall clock's time in ns, with *ticks at the same moment; 0: it cannot be
 * read.  Uses the fastest of several readings. */
static int64_t
wall_clock(const fp_recorder *r, int64_t *ticks)
{
    int64_t wall_ns = 0, width = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        struct timespec t;
        int64_t before = fp_clock_now(&r->clock);
        int rc = clock_gettime(CLOCK_REALTIME, &t);
        int64_t after = fp_clock_now(&r->clock);
        if (rc == 0 && after >= before && after - before < width) {
            width = after - before;
            *ticks = before + width / 2;
            wall_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
        }
    }
    return wall_ns;
}

static int
limits_of(PyObject *args, PyObject *kwargs, long long *min_ns,
          unsigned long long *max_events)
{
    static char *names[] = {"min_ns", "max_events", NULL};
    const unsigned long long most = 100000000;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$LK:trace_open", names,
                                     min_ns, max_events)) {
        return -1;
    }
    if (*min_ns < 0 || *min_ns > 1000000000000 || *max_events < 1 ||
        *max_events > most) {
        PyErr_Format(PyExc_ValueError,
                     "min_ns is %lld and max_events %llu: allowed are 0 to "
                     "10**12 and 1 to %llu",
                     *min_ns, *max_events, most);
        return -1;
    }
    return 0;
}

/* Returns 0, or -1 with an exception: no window can be opened. */
static int
may_open(const fp_recorder *r)
{
    if (r->config.timer != NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "no trace can be taken with an external timer; make "
                        "a Recorder without one");
        return -1;
    }
    if (!r->functions_on && !r->sections_on) {
        PyErr_SetString(PyExc_RuntimeError,
                        "trace_open() called while nothing is recorded");
        return -1;
    }
    if (r->exporting) {
        PyErr_SetString(PyExc_RuntimeError,
                        "trace_open() called while the recorder is being "
                        "read");
        return -1;
    }
    return 0;
}

PyObject *
fp_recorder_trace_open_method(PyObject *self, PyObject *args, PyObject *kwargs)
{
    fp_recorder *r = (fp_recorder *)self;
    long long min_ns = 50000;
    unsigned long long max_events = 200000;
    if (limits_of(args, kwargs, &min_ns, &max_events) < 0 || may_open(r) < 0) {
        return NULL;
    }
    if (r->tracing) {
        Py_RETURN_NONE;
    }
    if (!r->trace.has) {
        double scale = fp_clock_ns_per_tick(&r->clock);
        fp_trace_log_init(&r->trace.log, &r->alloc, max_events,
                          llround((double)min_ns / scale));
        r->trace.origin = r->started;
    }
    int64_t now = fp_clock_now(&r->clock);
    int64_t wall_ns = wall_clock(r, &now);
    uint64_t step = r->stepper != NULL ? r->stepper->steps->count : 0;
    if (fp_trace_open(&r->trace.log, now, step, wall_ns) != FP_OK) {
        return PyErr_NoMemory();
    }
    r->tracing = r->trace.has = 1;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_trace_begin(&r->trace.log, t);
    }
    FP_LAYERS(r, traced, r, now);
    fp_recorder_set_mode(r);
    Py_RETURN_NONE;
}

/* Ends the window, if one is open. */
static void
close_window(fp_recorder *r)
{
    if (!r->tracing) {
        return;
    }
    int64_t now = fp_clock_now(&r->clock);
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_trace_end(&r->trace.log, t, fp_life_ended(t->user) ? t->last : now);
    }
    fp_trace_close(&r->trace.log, now);
    r->tracing = 0;
    FP_LAYERS(r, traced, r, now);
    fp_recorder_set_mode(r);
}

PyObject *
fp_recorder_trace_close_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    close_window((fp_recorder *)self);
    Py_RETURN_NONE;
}

static void
thread_ended(fp_recorder *r, fp_thread *t)
{
    if (r->tracing) {
        fp_trace_end(&r->trace.log, t, t->last);
    }
    if (r->trace.has) {
        fp_trace_forget(&r->trace.log, t);
    }
}

static void
cleared(fp_recorder *r)
{
    if (r->trace.has) {
        int64_t now = r->started;
        int64_t wall_ns = r->tracing ? wall_clock(r, &now) : 0;
        fp_trace_log_clear(&r->trace.log, now, wall_ns);
        r->trace.origin = r->started;
    }
}

static void
functions_stop(fp_recorder *r)
{
    if (!r->sections_on) {
        close_window(r);
    }
}

static void
stepped(fp_recorder *r, fp_thread *t, int64_t began, int64_t now)
{
    if (r->tracing) {
        fp_trace_step(&r->trace.log, t, t->steps->count - 1, began, now);
    }
}

const fp_layer fp_trace_layer = {
    .functions_stop = functions_stop,
    .sections_stop = close_window,
    .thread_ended = thread_ended,
    .cleared = cleared,
    .stepped = stepped,
};

/* ---- export ---- */

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
            if (value == NULL || PyList_Append(list, value) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(value);
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
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
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
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
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
