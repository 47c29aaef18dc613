/* gpu_export_trace: converts the GPU's part of the trace to a dict. */
#include "py/export_parts.h"
#include "py/gpu_view.h"

typedef unsigned long long ull;
typedef long long sll;

static PyObject *
since(int64_t ticks, int64_t origin, double scale)
{
    double ns = ticks > origin ? (double)(ticks - origin) * scale : 0;
    return PyLong_FromLongLong((sll)(ns + 0.5));
}

static PyObject *
record_row(const fp_trace_record *r, int64_t origin, double scale)
{
    PyObject *start = since(r->start, origin, scale);
    PyObject *end = since(r->end, origin, scale);
    if (start == NULL || end == NULL) {
        Py_XDECREF(start);
        Py_XDECREF(end);
        return NULL;
    }
    return Py_BuildValue("(iIINNKiiiI)", r->what, r->device, r->stream, start,
                         end, (ull)r->bytes, r->grid[0], r->grid[1],
                         r->grid[2], r->corr);
}

static PyObject *
call_row(const fp_trace_call *c, int64_t origin, double scale)
{
    PyObject *start = since(c->start, origin, scale);
    PyObject *end = since(c->end, origin, scale);
    if (start == NULL || end == NULL) {
        Py_XDECREF(start);
        Py_XDECREF(end);
        return NULL;
    }
    return Py_BuildValue("(iINNI)", (int)c->kind, c->thread, start, end,
                         c->corr);
}

PyObject *
fp_gpu_view_trace(const fp_gpu_view *v, int64_t origin, double ns_per_tick)
{
    if (v == NULL || !v->traced) {
        Py_RETURN_NONE;
    }
    PyObject *records = PyList_New(0), *calls = PyList_New(0);
    for (uint64_t i = 0; records != NULL && i < v->records; i++) {
        fp_export_add(&records,
                      record_row(&v->record[i], origin, ns_per_tick));
    }
    for (uint64_t i = 0; calls != NULL && i < v->calls; i++) {
        fp_export_add(&calls, call_row(&v->call[i], origin, ns_per_tick));
    }
    PyObject *until = since(v->trace_lost != 0 ? v->trace_lost_until : 0,
                            origin, ns_per_tick);
    if (records == NULL || calls == NULL || until == NULL) {
        Py_XDECREF(records);
        Py_XDECREF(calls);
        Py_XDECREF(until);
        return NULL;
    }
    return Py_BuildValue("{sNsNsKsNsK}", "records", records, "calls", calls,
                         "lost", (ull)v->trace_lost, "lost_until_ns", until,
                         "no_memory", (ull)v->trace_no_memory);
}
