/* The Recorder type: its life cycle, arguments and attributes. */
#include "py/recorder_methods.h"

#include "py/guard.h"
#include "py/hooks.h"
#include "py/mode.h"
#include "py/recorder_reset.h"
#include "py/switches.h"
#include "py/threads.h"

#include <math.h>

/* ---- the core's memory: Python's raw allocator, so that it is counted ---- */

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

/* ---- life cycle ---- */

static PyModuleDef *module_def; /* ours */

static PyObject *
recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    PyObject *module = fp_compat_module_by_def(type, module_def);
    if (module == NULL) {
        return NULL;
    }
    fp_recorder *r = (fp_recorder *)type->tp_alloc(type, 0);
    if (r == NULL) {
        return NULL;
    }
    r->state = fp_state_of(module);
    r->layers = r->state->layers;
    r->alloc = (fp_alloc){raw_take, raw_give, NULL};
    r->section_epoch = FP_EPOCH_OFF;
    fp_recorder_set_epoch(r, FP_EPOCH_OFF);
    r->hooks.tool_id = -1;
    r->sweep_at = 32;
    fp_keytab_init(&r->keys, &r->alloc);
    fp_trace_log_init(&r->trace.log, &r->alloc, 0, 0);
    return (PyObject *)r;
}

static const char *const backend_names[] = {"auto", "setprofile",
                                            "monitoring"};

static int
backend_of(const char *name, fp_backend *backend)
{
    for (int i = FP_BACKEND_NONE; i <= FP_BACKEND_MONITORING; i++) {
        if (strcmp(name, backend_names[i]) == 0 &&
            (FP_HAVE_MONITORING || i != FP_BACKEND_MONITORING)) {
            *backend = (fp_backend)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "backend is '%s': use \"auto\", \"setprofile\"%s", name,
                 FP_HAVE_MONITORING ? " or \"monitoring\""
                                    : "; \"monitoring\" needs Python 3.12");
    return -1;
}

/* Placeholder clock: the core never reads an external timer, the hooks do. */
static int64_t
no_reading(void *ctx)
{
    (void)ctx;
    return 0;
}

static void
set_clock(fp_recorder *r)
{
    if (r->config.timer == NULL) {
        r->clock = r->state->clock;
        return;
    }
    double unit_s = r->config.timer_unit > 0.0 ? r->config.timer_unit : 1e-9;
    fp_clock_init_reader(&r->clock, no_reading, NULL, unit_s * 1e9);
}

enum { MAX_OUTLIERS = 100 };

static int
recorder_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    PyObject *timer = Py_None;
    double timeunit = 0.0;
    int subcalls = 1, builtins = 1, constructors = -1;
    const char *backend_name = "auto";
    unsigned int max_nodes = 1000000, max_depth = 1024, outliers = 0;
    unsigned long long skip_steps = 3;
    fp_backend backend;
    static char *names[] = {"timer",     "timeunit",  "subcalls",
                            "builtins",  "backend",   "constructors",
                            "max_nodes", "max_depth", "skip_steps",
                            "outliers",  NULL};
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "|Odpp$spIIKI:Recorder", names, &timer, &timeunit,
            &subcalls, &builtins, &backend_name, &constructors, &max_nodes,
            &max_depth, &skip_steps, &outliers)) {
        return -1;
    }
    if (r->functions_on || r->sections_on || r->gpu_on || r->gpu.switching ||
        r->switching || r->busy_timer || r->exporting) {
        PyErr_SetString(PyExc_RuntimeError,
                        "__init__() called while recording; stop first");
        return -1;
    }
    if (backend_of(backend_name, &backend) < 0) {
        return -1;
    }
    if ((backend == FP_BACKEND_SETPROFILE || !FP_HAVE_MONITORING) &&
        fp_setprofile_prepare(r->state) < 0) {
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
    if (!isfinite(timeunit) || timeunit < 0.0) {
        PyErr_SetString(PyExc_ValueError,
                        "timeunit must be finite and not negative");
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
    fp_trace_log_fini(&r->trace.log);
    r->trace.has = 0;
    fp_keytab keys;
    if (fp_recorder_reset(r, &keys) < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "__init__() called while the recorder is being read");
        return -1;
    }
    fp_keytab_clear(&keys);
    Py_XSETREF(r->config.timer, timer == Py_None ? NULL : Py_NewRef(timer));
    r->config.timer_unit = timeunit;
    r->config.subcalls = (uint8_t)subcalls;
    r->config.builtins = (uint8_t)builtins;
    /* cProfile reads its timer only at calls that it shows. */
    r->config.constructors =
        (uint8_t)(constructors < 0 ? timer == Py_None : constructors);
    r->config.wanted = backend;
    r->hooks.backend = FP_BACKEND_NONE;
    r->config.limits.max_nodes = max_nodes;
    r->config.limits.max_depth = max_depth;
    r->config.skip_steps = skip_steps;
    r->config.outliers = outliers;
    r->recording.phases = (fp_recorder_phases){.now = FP_RUN_STEPS};
    set_clock(r);
    r->initialised = 1;
    return 0;
}

static int
recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    fp_recorder *r = fp_recorder_cast(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->config.timer);
    return fp_keytab_traverse(&r->keys, visit, arg);
}

static int
recorder_clear_refs(PyObject *self)
{
    fp_recorder *r = fp_recorder_cast(self);
    Py_CLEAR(r->config.timer);
    return 0;
}

/* The hook must be out of the interpreter before the recorder is freed. */
static void
recorder_finalize(PyObject *self)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    fp_recorder_stop_functions(r);
    fp_recorder_stop_sections(r);
    FP_LAYERS(r, end, r);
}

static void
free_recorder(void *arg)
{
    fp_recorder *r = arg;
    PyTypeObject *type = Py_TYPE((PyObject *)r);
    fp_trace_log_fini(&r->trace.log);
    fp_keytab_clear(&r->keys);
    Py_CLEAR(r->config.timer);
    Py_CLEAR(r->gpu.reason);
    Py_CLEAR(r->gpu.pause_reason);
    Py_CLEAR(r->gpu.path);
    Py_CLEAR(r->gpu.lines);
    type->tp_free((PyObject *)r);
    Py_DECREF((PyObject *)type);
}

static void
recorder_dealloc(PyObject *self)
{
    if (PyObject_CallFinalizerFromDealloc(self) < 0) {
        return;
    }
    /* First: while this waits for the guard, a collection in another thread
     * would free a tracked object without references a second time. */
    PyObject_GC_UnTrack(self);
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    /* A subclass's __del__ replaces the finalizer, and a recorder that was
     * revived and started again is not finalized a second time. */
    fp_recorder_stop_functions(r);
    fp_recorder_stop_sections(r);
    FP_LAYERS(r, end, r);
    if (r->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    fp_monitoring_forget(r);
    fp_setprofile_forget(r);
    (void)fp_recorder_free_threads(r, NULL);
    fp_guard_retire(free_recorder, r);
}

/* ---- attributes ---- */

static PyObject *
get_backend(PyObject *self, void *Py_UNUSED(closure))
{
    fp_backend backend = fp_recorder_cast(self)->hooks.backend;
    return Py_BuildValue("z", backend ? backend_names[backend] : NULL);
}

static PyObject *
get_external(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(fp_recorder_cast(self)->config.timer != NULL);
}

static PyObject *
get_steps(PyObject *self, void *Py_UNUSED(closure))
{
    FP_GUARD();
    return fp_recorder_step_count(fp_recorder_cast(self));
}

static PyObject *
get_in_plain_time(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(fp_recorder_in_plain_time(fp_recorder_cast(self)));
}

static PyObject *
get_sync(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(fp_recorder_cast(self)->sync);
}

static int
set_sync(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    int truth = value == NULL ? 0 : PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    fp_recorder_cast(self)->sync = (uint8_t)truth;
    return 0;
}

static PyGetSetDef recorder_getset[] = {
    {"backend", get_backend, NULL, NULL, NULL},
    {"external_timer", get_external, NULL, NULL, NULL},
    {"in_plain_time", get_in_plain_time, NULL, NULL, NULL},
    {"steps", get_steps, NULL, NULL, NULL},
    {"sync", get_sync, set_sync, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- type ---- */

static PyMemberDef recorder_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(fp_recorder, weakrefs),
     READONLY, NULL},
    {"active", T_BOOL, offsetof(fp_recorder, functions_on), READONLY, NULL},
    {"recording", T_BOOL, offsetof(fp_recorder, sections_on), READONLY, NULL},
    {"displaced", T_BOOL, offsetof(fp_recorder, recording.displaced), READONLY,
     NULL},
    {"subcalls", T_BOOL, offsetof(fp_recorder, config.subcalls), READONLY,
     NULL},
    {"next_event", T_ULONGLONG, offsetof(fp_recorder, next_event), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_init, recorder_init},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_finalize, recorder_finalize},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear_refs},
    {Py_tp_methods, fp_recorder_methods},
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
    module_def = PyModule_GetDef(module);
    st->quiet[1] = (fp_quiet){fp_recorder_methods,
                              fp_recorder_methods + FP_QUIET_RECORDER_METHODS};
    st->recorder_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &recorder_spec, NULL);
    return st->recorder_type == NULL
               ? -1
               : PyModule_AddObjectRef(module, "Recorder",
                                       (PyObject *)st->recorder_type);
}
