/* trace_layer: the windows of a recorder's trace. */
#include "py/trace_layer.h"

#include "py/guard.h"
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

/* The begin or the end of a window. */
typedef struct border {
    fp_recorder *r;
    int64_t now;
    int64_t wall_ns;  /* of a begin */
    fp_status status; /* of a begin */
} border;

static void
begin_all(void *arg)
{
    border *s = arg;
    fp_recorder *r = s->r;
    uint64_t step = r->stepper != NULL ? r->stepper->steps->count : 0;
    s->status = r->tracing
                    ? FP_OK
                    : fp_trace_open(&r->trace.log, s->now, step, s->wall_ns);
    if (r->tracing || s->status != FP_OK) {
        return;
    }
    r->tracing = r->trace.has = 1;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_trace_begin(&r->trace.log, t);
    }
    fp_recorder_set_mode(r);
}

PyObject *
fp_recorder_trace_open_method(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
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
    border start = {.r = r, .now = now, .wall_ns = wall_ns};
    fp_world_stopped(begin_all, &start);
    if (start.status != FP_OK) {
        return PyErr_NoMemory();
    }
    FP_LAYERS(r, traced, r, now);
    Py_RETURN_NONE;
}

static void
end_all(void *arg)
{
    const border *e = arg;
    fp_recorder *r = e->r;
    if (!r->tracing) {
        return; /* another thread has ended it */
    }
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_trace_end(&r->trace.log, t,
                     fp_life_ended(t->user) ? t->last
                                            : fp_thread_from(t, e->now));
    }
    fp_trace_close(&r->trace.log, e->now);
    r->tracing = 0;
    fp_recorder_set_mode(r);
}

/* Ends the window, if one is open. */
static void
close_window(fp_recorder *r)
{
    if (!r->tracing) {
        return;
    }
    int64_t now = fp_clock_now(&r->clock);
    fp_world_stopped(end_all, &(border){.r = r, .now = now});
    FP_LAYERS(r, traced, r, now);
}

PyObject *
fp_recorder_trace_close_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
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
stepped(fp_recorder *r, fp_thread *t, int64_t began, int64_t now, int measured)
{
    (void)measured;
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
