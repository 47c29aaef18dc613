#include "py/gpu_layer.h"
#include "py/recorder.h"
#include "py/section_type.h"

#include "core/steps_split.h"

#include <math.h>

static fp_recorder *
cast(PyObject *self)
{
    return (fp_recorder *)self;
}

/* -1 with an exception when __init__ was never called. */
static int
ready(fp_recorder *r)
{
    if (!r->initialised) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the recorder is not initialised: a subclass must "
                        "call super().__init__()");
        return -1;
    }
    return 0;
}

/* ---- memory of the core: Python's raw allocator, so that it is counted ---- */

static void *
raw_take(void *ctx, size_t size_bytes)
{
    (void)ctx;
    return PyMem_RawMalloc(size_bytes);
}

static void
raw_give(void *ctx, void *block, size_t size_bytes)
{
    (void)ctx;
    (void)size_bytes;
    PyMem_RawFree(block);
}

/* ---- life ---- */

static PyObject *
recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    PyObject *module = fp_compat_module_by_def(type, &fp_module_def);
    if (module == NULL) {
        return NULL;
    }
    fp_recorder *r = (fp_recorder *)type->tp_alloc(type, 0);
    if (r == NULL) {
        return NULL;
    }
    r->state = fp_state_of(module);
    r->alloc = (fp_alloc){raw_take, raw_give, NULL};
    r->function_epoch = r->section_epoch = FP_EPOCH_OFF;
    r->tool_id = -1;
    r->sweep_at = 32;
    fp_keytab_init(&r->keys, &r->alloc);
    fp_keytab_init(&r->sites, &r->alloc);
    fp_trace_log_init(&r->trace, &r->alloc, 0, 0);
    return (PyObject *)r;
}

static int
backend_of(const char *name, fp_backend *backend)
{
    if (strcmp(name, "auto") == 0) {
        *backend = FP_BACKEND_NONE;
    }
    else if (strcmp(name, "setprofile") == 0) {
        *backend = FP_BACKEND_SETPROFILE;
    }
    else if (strcmp(name, "monitoring") == 0 && FP_HAVE_MONITORING) {
        *backend = FP_BACKEND_MONITORING;
    }
    else {
        PyErr_Format(PyExc_ValueError,
                     "backend is '%s': use \"auto\", \"setprofile\"%s", name,
                     FP_HAVE_MONITORING
                         ? " or \"monitoring\""
                         : "; \"monitoring\" needs Python 3.12");
        return -1;
    }
    return 0;
}

/* An external timer is not called by the core: hooks read it themselves. */
static int64_t
no_reading(void *ctx)
{
    (void)ctx;
    return 0;
}

static void
set_clock(fp_recorder *r)
{
    if (r->timer == NULL) {
        r->clock = r->state->clock;
        return;
    }
    double unit_s = r->timer_unit > 0.0 ? r->timer_unit : 1e-9;
    fp_clock_init_reader(&r->clock, no_reading, NULL, unit_s * 1e9);
}

enum { MAX_OUTLIERS = 100 };

static int
recorder_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    fp_recorder *r = cast(self);
    PyObject *timer = Py_None;
    double timeunit = 0.0, max_overhead = 0.0;
    int subcalls = 1, builtins = 1, constructors = -1;
    const char *backend_name = "auto";
    unsigned int max_nodes = 1000000, max_depth = 1024, outliers = 0;
    unsigned long long skip_steps = 3;
    fp_backend backend;
    static char *names[] = {"timer",        "timeunit",  "subcalls",
                            "builtins",     "backend",   "constructors",
                            "max_nodes",    "max_depth", "skip_steps",
                            "max_overhead", "outliers",  NULL};
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "|Odpp$spIIKdI:Recorder", names, &timer, &timeunit,
            &subcalls, &builtins, &backend_name, &constructors, &max_nodes,
            &max_depth, &skip_steps, &max_overhead, &outliers)) {
        return -1;
    }
    if (r->functions_on || r->sections_on || r->gpu_on || r->gpu_switching ||
        r->switching || r->busy_timer || r->exporting) {
        PyErr_SetString(PyExc_RuntimeError,
                        "__init__() called while recording; stop first");
        return -1;
    }
    if (backend_of(backend_name, &backend) < 0) {
        return -1;
    }
    if (max_nodes < 16 || max_nodes > 500000000 || max_depth < 4 ||
        max_depth > 60000) {
        PyErr_Format(PyExc_ValueError,
                     "max_nodes is %u and max_depth %u: allowed are 16 to "
                     "500000000 and 4 to 60000",
                     max_nodes, max_depth);
        return -1;
    }
    if (!isfinite(timeunit) || timeunit < 0.0 || !isfinite(max_overhead) ||
        max_overhead < 0.0) {
        PyErr_SetString(PyExc_ValueError,
                        "timeunit and max_overhead must be finite and not "
                        "negative");
        return -1;
    }
    if (outliers > MAX_OUTLIERS) {
        PyErr_Format(PyExc_ValueError, "outliers is %u: allowed are 0 to %d",
                     outliers, MAX_OUTLIERS);
        return -1;
    }
    if (timer != Py_None && !PyCallable_Check(timer)) {
        PyErr_Format(PyExc_TypeError, "timer must be callable, not %.100s",
                     Py_TYPE(timer)->tp_name);
        return -1;
    }
    fp_recorder_free_threads(r);
    fp_trace_log_fini(&r->trace);
    r->has_trace = 0;
    fp_keytab_clear(&r->keys);
    fp_keytab_clear(&r->sites);
    Py_XSETREF(r->timer, timer == Py_None ? NULL : Py_NewRef(timer));
    r->timer_unit = timeunit;
    r->subcalls = (uint8_t)subcalls;
    r->builtins = (uint8_t)builtins;
    /* cProfile reads its timer for calls it shows only. */
    r->constructors =
        (uint8_t)(constructors < 0 ? timer == Py_None : constructors);
    r->wanted = backend;
    r->backend = FP_BACKEND_NONE;
    r->limits.max_nodes = max_nodes;
    r->limits.max_depth = max_depth;
    r->skip_steps = skip_steps;
    r->outliers = outliers;
    r->max_overhead = max_overhead;
    r->recorded_ticks = r->origin = 0;
    set_clock(r);
    r->initialised = 1;
    return 0;
}

static int
recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    fp_recorder *r = cast(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->timer);
    int rc = fp_keytab_traverse(&r->keys, visit, arg);
    return rc != 0 ? rc : fp_keytab_traverse(&r->sites, visit, arg);
}

static int
recorder_clear_refs(PyObject *self)
{
    fp_recorder *r = cast(self);
    Py_CLEAR(r->timer);
    return 0;
}

/* The hook must be out of the interpreter before the memory goes. */
static void
recorder_finalize(PyObject *self)
{
    fp_recorder *r = cast(self);
    fp_recorder_stop_functions(r);
    fp_recorder_stop_sections(r);
    fp_gpu_layer_end(r);
}

static void
recorder_dealloc(PyObject *self)
{
    if (PyObject_CallFinalizerFromDealloc(self) < 0) {
        return;
    }
    fp_recorder *r = cast(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    /* A subclass's __del__ takes the finalizer's place, and one that was brought
     * back to life and started again is not finalized a second time. */
    fp_recorder_stop_functions(r);
    fp_recorder_stop_sections(r);
    fp_gpu_layer_end(r);
    if (r->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    fp_monitoring_forget(r);
    fp_setprofile_forget(r);
    fp_recorder_free_threads(r);
    fp_trace_log_fini(&r->trace);
    fp_keytab_clear(&r->keys);
    fp_keytab_clear(&r->sites);
    Py_CLEAR(r->timer);
    Py_CLEAR(r->gpu_reason);
    Py_CLEAR(r->gpu_pause_reason);
    Py_CLEAR(r->gpu_path);
    Py_CLEAR(r->gpu_lines);
    type->tp_free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- functions ---- */

static PyObject *
recorder_enable(PyObject *self, PyObject *args, PyObject *kwargs)
{
    fp_recorder *r = cast(self);
    int subcalls = r->subcalls, builtins = r->builtins;
    static char *names[] = {"subcalls", "builtins", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pp:enable", names,
                                     &subcalls, &builtins) ||
        ready(r) < 0 || fp_recorder_guard_timer(r, "enable", 0) < 0) {
        return NULL;
    }
    r->subcalls = (uint8_t)subcalls;
    r->builtins = (uint8_t)builtins;
    if (fp_recorder_start_functions(r) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_disable(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
    if (fp_recorder_guard_timer(r, "disable", 0) < 0) {
        return NULL;
    }
    fp_recorder_stop_functions(r);
    Py_RETURN_NONE;
}

static PyObject *
recorder_clear(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
    if (fp_recorder_guard_timer(r, "clear", 1) < 0) {
        return NULL;
    }
    if (r->exporting) {
        PyErr_SetString(PyExc_RuntimeError,
                        "clear() called while the recorder is being read");
        return NULL;
    }
    /* Threads that record now must not find their old records. */
    if (r->function_epoch != FP_EPOCH_OFF) {
        r->function_epoch = fp_new_epoch();
    }
    if (r->section_epoch != FP_EPOCH_OFF) {
        r->section_epoch = fp_new_epoch();
    }
    fp_recorder_free_threads(r);
    r->recorded_ticks = 0;
    if (r->timer == NULL && r->initialised) {
        r->origin = r->started = fp_clock_now(&r->clock);
    }
    r->ended_threads = 0;
    fp_recorder_trace_cleared(r);
    fp_gpu_layer_cleared(r);
    int rearm = r->any_muted && r->functions_on;
    r->any_muted = 0;
    r->displaced = 0;
    r->timer_errors = r->sync_errors = r->wrong_step_thread = 0;
    r->nvtx_without_gil = r->nvtx_unmatched = r->nvtx_unbalanced = 0;
    r->dropped_threads = r->gc_elsewhere = 0;
    r->budget_ticks = 0;
    r->budget_python = r->budget_c = 0;
    /* Letting go of code objects may run Python code, which is recorded again:
     * so both tables are empty before the first reference goes. */
    fp_keytab sites = fp_keytab_take(&r->sites);
    fp_keytab keys = fp_keytab_take(&r->keys);
    if (rearm) {
        fp_monitoring_rearm(r);
    }
    fp_keytab_clear(&sites);
    fp_keytab_clear(&keys);
    Py_RETURN_NONE;
}

static PyObject *
recorder_pause(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder_pause(cast(self));
    Py_RETURN_NONE;
}

static PyObject *
recorder_resume(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder_resume(cast(self));
    Py_RETURN_NONE;
}

static PyObject *
recorder_set_costs(PyObject *self, PyObject *args)
{
    fp_recorder *r = cast(self);
    if (!PyArg_ParseTuple(args, "dd:set_costs", &r->cost_python_ns,
                          &r->cost_c_ns)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- sections, steps ---- */

static PyObject *
recorder_start_sections(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
    if (ready(r) < 0 || fp_recorder_start_sections(r) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_stop_sections(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder_stop_sections(cast(self));
    Py_RETURN_NONE;
}

static PyObject *
recorder_mark(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
    fp_thread *t = ready(r) < 0 ? NULL : fp_recorder_section_thread(r);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (t != NULL) {
        if (r->stepper != NULL && r->stepper != t) {
            r->wrong_step_thread++;
            Py_RETURN_NONE;
        }
        int64_t now = fp_clock_now(&r->clock);
        if (fp_thread_start_steps(t, r->skip_steps, now) != FP_OK) {
            return PyErr_NoMemory();
        }
        if (r->outliers != 0) {
            /* Without memory steps go on without; it was counted. */
            (void)fp_thread_keep_outliers(t, r->outliers, &r->clock, now);
        }
        r->stepper = t;
        if (t->split != NULL) {
            t->split->signals = fp_recorder_signals(r);
            t->split->signals_before = t->split->signals;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
step_count(const fp_recorder *r)
{
    return PyLong_FromUnsignedLongLong(r->stepper ? r->stepper->steps->count
                                                  : 0);
}

/* Often at first, while the program warms up, then now and then. */
static int
budget_is_due(uint64_t step)
{
    return step >= 8 && ((step & (step - 1)) == 0 || step % 256 == 0);
}

static PyObject *
recorder_step(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
    fp_section_end_lingering(r);
    fp_thread *t = r->initialised ? fp_recorder_section_thread(r) : NULL;
    if (t != NULL && t == r->stepper) {
        int64_t now = fp_clock_now(&r->clock), began = t->steps->start;
        if (t->split != NULL) {
            t->split->signals = fp_recorder_signals(r);
        }
        fp_thread_end_step(t, now);
        if (r->tracing) {
            fp_trace_step(&r->trace, t, t->steps->count - 1, began, now);
        }
        if (r->gpu_on) {
            fp_gpu_layer_step(r, t, now);
        }
        if (budget_is_due(t->steps->count)) {
            fp_recorder_check_budget(r);
        }
    }
    else if (t != NULL) {
        r->wrong_step_thread++;
    }
    return step_count(r);
}

/* ---- loaders ---- */

enum { MAX_TAG = 65535 };

static int
tag_of(PyObject *value, int32_t *tag)
{
    long v = PyLong_AsLong(value);
    if (v == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (v < -1 || v > MAX_TAG) {
        PyErr_Format(PyExc_ValueError,
                     "loader tag is %ld: allowed are -1 to %d", v, MAX_TAG);
        return -1;
    }
    *tag = (int32_t)v;
    return 0;
}

static PyObject *
recorder_set_loader(PyObject *self, PyObject *value)
{
    fp_recorder *r = cast(self);
    int32_t tag;
    if (tag_of(value, &tag) < 0) {
        return NULL;
    }
    fp_thread *t = r->initialised ? fp_recorder_section_thread(r) : NULL;
    if (t != NULL && fp_phases_reserve(&t->phases, &t->alloc, tag) == FP_OK) {
        t->phases.tag = tag;
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_next_batch(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    fp_recorder *r = cast(self);
    int32_t tag;
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError,
                        "next_batch() takes a tag, an iterator and a section");
        return NULL;
    }
    if (tag_of(args[0], &tag) < 0) {
        return NULL;
    }
    if (!PyIter_Check(args[1]) || Py_TYPE(args[2]) != r->state->section_type) {
        return PyErr_Format(PyExc_TypeError,
                            "next_batch() takes an iterator and a Section, "
                            "not %.80s and %.80s",
                            Py_TYPE(args[1])->tp_name,
                            Py_TYPE(args[2])->tp_name);
    }
    if (ready(r) < 0) {
        return NULL;
    }
    return fp_section_next_batch(r, tag, args[1],
                                 (fp_section_object *)args[2]);
}

typedef struct loader_sums {
    fp_sum *sum; /* [tags][FP_PHASE_COUNT]; owned */
    uint32_t tags;
} loader_sums;

static void
add_loaders(loader_sums *out, fp_thread *t, int total)
{
    for (uint32_t i = 0; i < t->phases.capacity && i < out->tags; i++) {
        fp_loader *ld = &t->phases.loader[i];
        for (int ph = 0; ph < FP_PHASE_COUNT; ph++) {
            fp_sum *from = total ? &ld->total[ph] : &ld->since_take[ph];
            out->sum[i * FP_PHASE_COUNT + (uint32_t)ph].ticks += from->ticks;
            out->sum[i * FP_PHASE_COUNT + (uint32_t)ph].count += from->count;
            if (!total) {
                *from = (fp_sum){0, 0};
            }
        }
    }
}

static PyObject *
loader_rows(fp_recorder *r, int total)
{
    loader_sums all = {NULL, 0};
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        all.tags =
            t->phases.capacity > all.tags ? t->phases.capacity : all.tags;
    }
    size_t n = (size_t)all.tags * FP_PHASE_COUNT;
    all.sum = fp_alloc_zeroed(&r->alloc, n + 1, sizeof(*all.sum));
    PyObject *list = all.sum ? PyList_New(0) : PyErr_NoMemory();
    if (list == NULL) {
        fp_alloc_give(&r->alloc, all.sum, n + 1, sizeof(*all.sum));
        return NULL;
    }
    while ((t = fp_recorder_next(r, t)) != NULL) {
        add_loaders(&all, t, total);
    }
    double scale = fp_clock_ns_per_tick(&r->clock);
    for (size_t i = 0; i < n && list != NULL; i++) {
        if (all.sum[i].count == 0) {
            continue;
        }
        PyObject *one = Py_BuildValue(
            "(iiKL)", (int)(i / FP_PHASE_COUNT) - 1, (int)(i % FP_PHASE_COUNT),
            (unsigned long long)all.sum[i].count,
            (long long)llround((double)all.sum[i].ticks * scale));
        if (one == NULL || PyList_Append(list, one) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(one);
    }
    fp_alloc_give(&r->alloc, all.sum, n + 1, sizeof(*all.sum));
    return list;
}

static PyObject *
recorder_take_loaders(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return loader_rows(cast(self), 0);
}

static PyObject *
recorder_loader_totals(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return loader_rows(cast(self), 1);
}

/* ---- reading ---- */

static PyObject *
recorder_export(PyObject *self, PyObject *args, PyObject *kwargs)
{
    fp_recorder *r = cast(self);
    int with_trace = 0;
    static char *names[] = {"trace", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:export", names,
                                     &with_trace)) {
        return NULL;
    }
    if (ready(r) < 0 || fp_recorder_guard_timer(r, "export", 0) < 0) {
        return NULL;
    }
    return fp_recorder_export(r, with_trace);
}

static PyObject *
recorder_code_objects(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
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

static PyObject *
recorder_memory(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder *r = cast(self);
    size_t bytes = (r->keys.capacity + r->sites.capacity) * sizeof(fp_keyent) +
                   (r->keys.slots + r->sites.slots) * sizeof(uint32_t) +
                   fp_trace_bytes(&r->trace);
    uint64_t nodes = 0;
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        bytes += fp_thread_bytes(t);
        nodes += t->tree.count;
    }
    return Py_BuildValue("{sKsKsI}", "bytes", (unsigned long long)bytes,
                         "nodes", (unsigned long long)nodes, "threads",
                         r->thread_count);
}

static PyObject *
get_active(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(cast(self)->functions_on);
}

static PyObject *
get_recording(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(cast(self)->sections_on);
}

static PyObject *
get_backend(PyObject *self, void *Py_UNUSED(closure))
{
    static const char *const names[] = {NULL, "setprofile", "monitoring"};
    return Py_BuildValue("z", names[cast(self)->backend]);
}

static PyObject *
get_displaced(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(cast(self)->displaced);
}

static PyObject *
get_external(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(cast(self)->timer != NULL);
}

static PyObject *
get_subcalls(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(cast(self)->subcalls);
}

static PyObject *
get_steps(PyObject *self, void *Py_UNUSED(closure))
{
    return step_count(cast(self));
}

static PyObject *
get_sync(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(cast(self)->sync);
}

static int
set_sync(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    int truth = value == NULL ? 0 : PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    cast(self)->sync = (uint8_t)truth;
    return 0;
}

static PyGetSetDef recorder_getset[] = {
    {"active", get_active, NULL, "Is the function layer on?", NULL},
    {"recording", get_recording, NULL, "Is the section layer on?", NULL},
    {"backend", get_backend, NULL,
     "\"setprofile\", \"monitoring\", or None before the first enable().",
     NULL},
    {"displaced", get_displaced, NULL,
     "Did somebody take the hook away while it was ours?", NULL},
    {"external_timer", get_external, NULL, "Is there a timer argument?", NULL},
    {"subcalls", get_subcalls, NULL, "Are callers wanted?", NULL},
    {"steps", get_steps, NULL, "Steps so far.", NULL},
    {"sync", get_sync, set_sync,
     "Do sections call the synchronize function unless they say otherwise?",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef recorder_methods[] = {
    {"enable", KEYWORDS(recorder_enable), METH_VARARGS | METH_KEYWORDS,
     "enable($self, subcalls=True, builtins=True)\n--\n\n"
     "Record the calls of every thread.\n\n"
     "Raises:\n    BusyError: another profiler holds the hook; it goes on."},
    {"disable", recorder_disable, METH_NOARGS,
     "disable($self, /)\n--\n\nStop recording calls in every thread."},
    {"clear", recorder_clear, METH_NOARGS,
     "clear($self, /)\n--\n\nForget everything recorded."},
    {"pause_functions", recorder_pause, METH_NOARGS,
     "pause_functions($self, /)\n--\n\n"
     "Ignore calls without taking the hook out."},
    {"resume_functions", recorder_resume, METH_NOARGS,
     "resume_functions($self, /)\n--\n\nEnd a pause."},
    {"set_costs", recorder_set_costs, METH_VARARGS,
     "set_costs($self, python_ns, c_ns, /)\n--\n\n"
     "Cost of one recorded call, for max_overhead."},
    {"start_sections", recorder_start_sections, METH_NOARGS,
     "start_sections($self, /)\n--\n\nRecord sections and steps.\n\n"
     "Raises:\n    BusyError: another recorder does."},
    {"stop_sections", recorder_stop_sections, METH_NOARGS,
     "stop_sections($self, /)\n--\n\nStop recording sections."},
    {"mark", recorder_mark, METH_NOARGS,
     "mark($self, /)\n--\n\nThe first step begins now, in this thread."},
    {"step", recorder_step, METH_NOARGS,
     "step($self, /)\n--\n\nEnd a step; returns the number of steps so far."},
    {"set_loader", recorder_set_loader, METH_O,
     "set_loader($self, tag, /)\n--\n\n"
     "Phases of this thread belong to loader `tag` from now on; -1: to none."},
    {"next_batch", KEYWORDS(recorder_next_batch), METH_FASTCALL,
     "next_batch($self, tag, iterator, section, /)\n--\n\n"
     "next(iterator) inside the section; the end of the iterator is no "
     "sample."},
    {"take_loaders", recorder_take_loaders, METH_NOARGS,
     "take_loaders($self, /)\n--\n\n"
     "[(tag, phase, count, sum_ns)] since the last take."},
    {"loader_totals", recorder_loader_totals, METH_NOARGS,
     "loader_totals($self, /)\n--\n\nThe same since the start."},
    {"gpu_start", KEYWORDS(fp_gpu_layer_start), METH_VARARGS | METH_KEYWORDS,
     "gpu_start($self, cupti_paths, driver_path, *, initialise=False,\n"
     "          tier=\"auto\", period_s=1.0, patience_s=15.0)\n--\n\n"
     "Attribute GPU work to this recorder; {\"state\", \"reason\", "
     "\"tier\"}.\n"
     "state: \"on\", \"off\" (reason says why) or \"waiting\": the program "
     "has\n"
     "not initialised CUDA so far, ask again later.\n\n"
     "Raises:\n    TypeError, ValueError: an argument is wrong."},
    {"gpu_stop", KEYWORDS(fp_gpu_layer_stop), METH_VARARGS | METH_KEYWORDS,
     "gpu_stop($self, timeout_s=2.0)\n--\n\n"
     "Wait for what the device still does, without synchronizing; let go of\n"
     "CUPTI.  What was recorded stays."},
    {"gpu_pause", fp_gpu_layer_pause, METH_VARARGS,
     "gpu_pause($self, why, /)\n--\n\nLet go of CUPTI for another client."},
    {"gpu_resume", fp_gpu_layer_resume, METH_NOARGS,
     "gpu_resume($self, /)\n--\n\nGo on after gpu_pause()."},
    {"gpu_flush", fp_gpu_layer_flush, METH_VARARGS,
     "gpu_flush($self, timeout_s=1.0, /)\n--\n\n"
     "Bring what is recorded up to date; whether that was done in time."},
    {"gpu_status", fp_gpu_layer_status, METH_NOARGS,
     "gpu_status($self, /)\n--\n\n"
     "{\"state\", \"reason\", \"tier\"}; state may also be \"paused\"."},
    {"trace_open", KEYWORDS(fp_recorder_trace_open_method),
     METH_VARARGS | METH_KEYWORDS,
     "trace_open($self, *, min_ns=50000, max_events=200000)\n--\n\n"
     "Begin a window of the trace: when sections, steps and functions of\n"
     "min_ns or longer begin and end.  The first call's limits hold."},
    {"trace_close", fp_recorder_trace_close_method, METH_NOARGS,
     "trace_close($self, /)\n--\n\nEnd the window."},
    {"export", KEYWORDS(recorder_export), METH_VARARGS | METH_KEYWORDS,
     "export($self, *, trace=False)\n--\n\n"
     "Everything recorded, as plain lists; the trace if asked for."},
    {"code_objects", recorder_code_objects, METH_NOARGS,
     "code_objects($self, /)\n--\n\nCode objects that were called."},
    {"memory", recorder_memory, METH_NOARGS,
     "memory($self, /)\n--\n\n{\"bytes\", \"nodes\", \"threads\"} held."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef recorder_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(fp_recorder, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_init, recorder_init},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_finalize, recorder_finalize},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear_refs},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_getset},
    {Py_tp_members, recorder_members},
    {Py_tp_doc,
     "Records calls, sections and steps into calling-context trees."},
    {0, NULL},
};

static PyType_Spec recorder_spec = {
    .name = "fastprof._core.Recorder",
    .basicsize = sizeof(fp_recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = recorder_slots,
};

int
fp_recorder_add_type(PyObject *module, fp_state *st)
{
    st->recorder_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &recorder_spec, NULL);
    return st->recorder_type == NULL
               ? -1
               : PyModule_AddObjectRef(module, "Recorder",
                                       (PyObject *)st->recorder_type);
}
