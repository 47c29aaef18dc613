/* The methods of the Recorder type, except those of its layers. */
#include "py/recorder_methods.h"

#include "py/export_parts.h"
#include "py/gpu_layer.h"
#include "py/guard.h"
#include "py/line_sampler.h"
#include "py/recorder_reset.h"
#include "py/rest.h"
#include "py/switches.h"
#include "py/threads.h"
#include "py/timer.h"
#include "py/trace_layer.h"

#include "core/thread_steps.h"

/* ---- functions ---- */

static PyObject *
recorder_enable(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    int subcalls = r->config.subcalls, builtins = r->config.builtins,
        callers = 0;
    static char *names[] = {"subcalls", "builtins", "callers", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pp$p:enable", names,
                                     &subcalls, &builtins, &callers) ||
        fp_recorder_ready(r) < 0 ||
        fp_recorder_guard_timer(r, "enable", 0) < 0) {
        return NULL;
    }
    r->config.subcalls = (uint8_t)subcalls;
    r->config.builtins = (uint8_t)builtins;
    if (!r->functions_on) {
        r->config.callers = (uint8_t)callers;
    }
    if (fp_recorder_start_functions(r) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_disable(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    if (fp_recorder_guard_timer(r, "disable", 0) < 0) {
        return NULL;
    }
    fp_recorder_stop_functions(r);
    Py_RETURN_NONE;
}

static PyObject *
recorder_clear(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    if (fp_recorder_guard_timer(r, "clear", 1) < 0) {
        return NULL;
    }
    /* Releasing code objects may run Python code that is recorded again, so
     * the table is emptied before the first reference is released. */
    fp_keytab keys;
    if (fp_recorder_reset(r, &keys) < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "clear() called while the recorder is being read");
        return NULL;
    }
    fp_keytab_clear(&keys);
    Py_RETURN_NONE;
}

static PyObject *
recorder_pause(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    int unhook = 0;
    static char *names[] = {"unhook", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:pause_functions",
                                     names, &unhook)) {
        return NULL;
    }
    return PyBool_FromLong(fp_recorder_pause(fp_recorder_cast(self), unhook));
}

static PyObject *
recorder_resume(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder_resume(fp_recorder_cast(self));
    Py_RETURN_NONE;
}

static PyObject *
recorder_rehook(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    if (fp_recorder_rehook(r) < 0) {
        return NULL; /* the next steps remain without the hook */
    }
    if (r->stepper != NULL) {
        fp_thread_settle_hooked(r->stepper);
    }
    Py_RETURN_NONE;
}

/* ---- sections, steps ---- */

static PyObject *
recorder_start_sections(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    if (fp_recorder_ready(r) < 0 || fp_recorder_start_sections(r) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_stop_sections(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder_stop_sections(fp_recorder_cast(self));
    Py_RETURN_NONE;
}

/* ---- reading ---- */

static PyObject *
recorder_export(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    int with_trace = 0;
    PyObject *fold = Py_None;
    static char *names[] = {"trace", "fold_imports", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$pO:export", names,
                                     &with_trace, &fold)) {
        return NULL;
    }
    if (fp_recorder_ready(r) < 0 ||
        fp_recorder_guard_timer(r, "export", 0) < 0) {
        return NULL;
    }
    return fp_recorder_export(r, with_trace, fold == Py_None ? NULL : fold);
}

static PyObject *
recorder_code_objects(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < r->keys.count; i++) {
        PyObject *object = r->keys.entry[i].object;
        if (fp_key_tag(r->keys.entry[i].key) == FP_TAG_PYTHON &&
            PyList_Append(list, object) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

typedef struct {
    fp_recorder *recorder;
    size_t bytes;
    uint64_t nodes;
} memory;

static void
add_threads(void *arg)
{
    memory *m = arg;
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(m->recorder, t)) != NULL) {
        m->bytes += fp_thread_bytes(t);
        m->nodes += t->tree.count;
    }
}

static PyObject *
recorder_memory(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    memory m = {r, 0, 0};
    m.bytes = r->keys.capacity * sizeof(fp_keyent) +
              r->keys.slots * sizeof(uint32_t) + fp_trace_bytes(&r->trace.log);
    fp_world_stopped(add_threads, &m);
    return Py_BuildValue("{sKsKsI}", "bytes", (unsigned long long)m.bytes,
                         "nodes", (unsigned long long)m.nodes, "threads",
                         r->thread_count);
}

/* ---- table ---- */

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))

/* _core.pyi describes them.  Those with a text are methods of fastprof.Profile,
 * too. */
PyMethodDef fp_recorder_methods[] = {
    /* The first methods are quiet: see FP_QUIET_RECORDER_METHODS. */
    {"pause_functions", KEYWORDS(recorder_pause), METH_VARARGS | METH_KEYWORDS,
     "pause_functions($self, *, unhook=False)\n--\n\n"},
    {"resume_functions", recorder_resume, METH_NOARGS,
     "resume_functions($self, /)\n--\n\n"},
    {"rehook", recorder_rehook, METH_NOARGS, "rehook($self, /)\n--\n\n"},
    {"rest", fp_recorder_rest_method, METH_O, "rest($self, file, /)\n--\n\n"},
    {"end_rest", fp_recorder_end_rest_method, METH_O,
     "end_rest($self, module, /)\n--\n\n"},
    {"begin_unprofiled", fp_recorder_begin_unprofiled_method, METH_NOARGS,
     "begin_unprofiled($self, /)\n--\n\n"},
    {"end_unprofiled", fp_recorder_end_unprofiled_method, METH_O,
     "end_unprofiled($self, valid, /)\n--\n\n"},
    {"begin_plain_time", fp_recorder_begin_plain_time_method, METH_NOARGS,
     "begin_plain_time($self, /)\n--\n\n"},
    {"end_plain_time", fp_recorder_end_plain_time_method, METH_O,
     "end_plain_time($self, window, /)\n--\n\n"},
    {"enable", KEYWORDS(recorder_enable), METH_VARARGS | METH_KEYWORDS,
     "enable($self, subcalls=True, builtins=True, *, callers=False)\n--\n\n"
     "Record the calls of every thread.\n\n"
     "Raises:\n    BusyError: another profiler holds the hook."},
    {"disable", recorder_disable, METH_NOARGS,
     "disable($self, /)\n--\n\nStop recording calls in every thread."},
    {"clear", recorder_clear, METH_NOARGS,
     "clear($self, /)\n--\n\nDelete everything recorded."},
    {"call_counts", fp_recorder_call_counts_method, METH_NOARGS,
     "call_counts($self, /)\n--\n\n"},
    {"start_sections", recorder_start_sections, METH_NOARGS,
     "start_sections($self, /)\n--\n\n"},
    {"stop_sections", recorder_stop_sections, METH_NOARGS,
     "stop_sections($self, /)\n--\n\n"},
    {"mark", fp_recorder_mark_method, METH_NOARGS, "mark($self, /)\n--\n\n"},
    {"step", fp_recorder_step_method, METH_NOARGS, "step($self, /)\n--\n\n"},
    {"plan_unprofiled", fp_recorder_plan_unprofiled_method, METH_O,
     "plan_unprofiled($self, step, /)\n--\n\n"},
    {"unprofiled_length", fp_recorder_unprofiled_length_method, METH_O,
     "unprofiled_length($self, settles_ns, /)\n--\n\n"},
    {"last_blocks", fp_recorder_last_blocks_method, METH_O,
     "last_blocks($self, count, /)\n--\n\n"},
    {"set_phase", fp_recorder_set_phase_method, METH_VARARGS,
     "set_phase($self, phase, goes_on=False, /)\n--\n\n"},
    {"end_loop", fp_recorder_end_loop_method, METH_NOARGS,
     "end_loop($self, /)\n--\n\n"},
    {"set_loader", fp_recorder_set_loader_method, METH_O,
     "set_loader($self, tag, /)\n--\n\n"},
    {"next_batch", KEYWORDS(fp_recorder_next_batch_method), METH_FASTCALL,
     "next_batch($self, tag, iterator, section, fetch=None, /)\n--\n\n"},
    {"take_loaders", fp_recorder_take_loaders_method, METH_NOARGS,
     "take_loaders($self, /)\n--\n\n"},
    {"loader_totals", fp_recorder_loader_totals_method, METH_NOARGS,
     "loader_totals($self, /)\n--\n\n"},
    {"gpu_start", KEYWORDS(fp_gpu_layer_start), METH_VARARGS | METH_KEYWORDS,
     "gpu_start($self, cupti_paths, driver_path, *, initialise=False, "
     "tier=\"auto\", period_s=1.0, patience_s=15.0, nvml=None)\n--\n\n"},
    {"gpu_stop", KEYWORDS(fp_gpu_layer_stop), METH_VARARGS | METH_KEYWORDS,
     "gpu_stop($self, timeout_s=2.0)\n--\n\n"},
    {"gpu_pause", fp_gpu_layer_pause, METH_VARARGS,
     "gpu_pause($self, why, /)\n--\n\n"},
    {"gpu_resume", fp_gpu_layer_resume, METH_NOARGS,
     "gpu_resume($self, /)\n--\n\n"},
    {"gpu_flush", fp_gpu_layer_flush, METH_VARARGS,
     "gpu_flush($self, timeout_s=1.0, /)\n--\n\n"},
    {"gpu_status", fp_gpu_layer_status, METH_NOARGS,
     "gpu_status($self, /)\n--\n\n"},
    {"trace_open", KEYWORDS(fp_recorder_trace_open_method),
     METH_VARARGS | METH_KEYWORDS,
     "trace_open($self, *, min_ns=50000, max_events=200000)\n--\n\n"},
    {"trace_close", fp_recorder_trace_close_method, METH_NOARGS,
     "trace_close($self, /)\n--\n\n"},
    {"export", KEYWORDS(recorder_export), METH_VARARGS | METH_KEYWORDS,
     "export($self, *, trace=False, fold_imports=None)\n--\n\n"},
    {"window", fp_recorder_window_method, METH_VARARGS,
     "window($self, first, plain=False, /)\n--\n\n"},
    {"node_times", fp_recorder_node_times_method, METH_NOARGS,
     "node_times($self, /)\n--\n\n"},
    {"add_spent", fp_recorder_add_spent_method, METH_VARARGS,
     "add_spent($self, first, least_ns, known, place, sums, /)\n--\n\n"},
    {"nodes", fp_recorder_nodes_method, METH_O,
     "nodes($self, wanted, /)\n--\n\n"},
    {"run_unrecorded", fp_recorder_run_unrecorded_method, METH_O,
     "run_unrecorded($self, function, /)\n--\n\n"},
    {"begin_lines", fp_recorder_begin_lines_method, METH_VARARGS,
     "begin_lines($self, interval_ns, limit_ns, most, /)\n--\n\n"},
    {"take_lines", fp_recorder_take_lines_method, METH_O,
     "take_lines($self, wait, /)\n--\n\n"},
    {"code_objects", recorder_code_objects, METH_NOARGS,
     "code_objects($self, /)\n--\n\n"},
    {"memory", recorder_memory, METH_NOARGS, "memory($self, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
