/* module: the module's tables, and the handling of a recording when the
 * process forks or exits. */
#include "py/around.h"
#include "py/bell.h"
#include "py/call_form.h"
#include "py/end_signal.h"
#include "py/gc_hook.h"
#include "py/gpu_health.h"
#include "py/gpu_layer.h"
#include "py/gpu_probe.h"
#include "py/guard.h"
#include "py/nvtx_glue.h"
#include "py/hooks.h"
#include "py/in_use.h"
#include "py/line_sampler.h"
#include "py/listener.h"
#include "py/plain_fetch.h"
#include "py/plain_steps.h"
#include "py/recorder_methods.h"
#include "py/recorder_reset.h"
#include "py/section_type.h"
#include "py/switches.h"
#include "py/thread_life.h"
#include "py/trace_layer.h"
#include "py/tree_sums.h"

/* The layers, in the order in which they are called. */
static const fp_layer *const layers[] = {&fp_gc_layer,    &fp_nvtx_layer,
                                         &fp_trace_layer, &fp_gpu_layer,
                                         &fp_line_layer,  NULL};

/* ---- functions ---- */

static PyObject *
set_callable(PyObject **slot, PyObject *value)
{
    FP_GUARD();
    if (value != Py_None && !PyCallable_Check(value)) {
        return PyErr_Format(PyExc_TypeError,
                            "a callable or None is needed, not %.100s",
                            Py_TYPE(value)->tp_name);
    }
    Py_XSETREF(*slot, value == Py_None ? NULL : Py_NewRef(value));
    Py_RETURN_NONE;
}

static PyObject *
set_sync_function(PyObject *module, PyObject *value)
{
    return set_callable(&fp_state_of(module)->sync_function, value);
}

static PyObject *
set_decorator_function(PyObject *module, PyObject *value)
{
    return set_callable(&fp_state_of(module)->decorator_function, value);
}

static PyObject *
force_off(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_state_of(module)->forced_off = 1;
    fp_nvtx_forbid(fp_state_of(module));
    Py_RETURN_NONE;
}

static PyObject *
clock_ns(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const fp_clock *c = &fp_state_of(module)->clock;
    double ns =
        (double)(fp_clock_now(c) - c->base_ticks) * fp_clock_ns_per_tick(c);
    return PyLong_FromLongLong(c->base_ns + (int64_t)ns);
}

static PyObject *
clock_name(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return PyUnicode_FromString(fp_clock_name(&fp_state_of(module)->clock));
}

static void
stop_owner(fp_recorder *r, void (*stop)(fp_recorder *r))
{
    if (r != NULL) {
        Py_INCREF((PyObject *)r);
        stop(r);
        Py_DECREF((PyObject *)r);
    }
}

static void
stop_all(fp_state *st)
{
    fp_bell_end();
    fp_line_sampler_end();
    fp_gpu_layer_end_any();
    stop_owner(st->function_owner, fp_recorder_stop_functions);
    stop_owner(st->section_owner, fp_recorder_stop_sections);
}

static PyObject *
at_exit(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_bell_exit();
    fp_listener_exit();
    stop_all(fp_state_of(module));
    Py_RETURN_NONE;
}

/* After a fork, the thread that was setting or removing the hook does not
 * exist, unless it is the calling one. */
static void
forget_switch(fp_recorder *r)
{
    if (r != NULL && r->switcher != PyThread_get_thread_ident()) {
        r->switching = 0;
        r->stop_wanted = 0;
    }
}

/* In a forked child: stops the recording and clears it, because it belongs to
 * the parent.  The child may start another one.  (A recorder that was not
 * active is an ordinary value: the child has a copy.) */
static PyObject *
after_fork_child(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_state *st = fp_state_of(module);
    fp_recorder *functions = st->function_owner;
    fp_recorder *sections = st->section_owner;
    Py_XINCREF((PyObject *)functions);
    Py_XINCREF((PyObject *)sections);
    fp_gpu_layer_forked();
    fp_nvtx_switch_off(st);
    fp_recorder_forked(st);
    forget_switch(functions);
    forget_switch(sections);
    stop_all(st);
    if (functions != NULL) {
        fp_recorder_forget(functions);
    }
    if (sections != NULL) {
        fp_recorder_forget(sections);
    }
    Py_XDECREF((PyObject *)functions);
    Py_XDECREF((PyObject *)sections);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"set_sync_function", set_sync_function, METH_O,
     "set_sync_function($module, function, /)\n--\n\n"},
    {"set_decorator_function", set_decorator_function, METH_O,
     "set_decorator_function($module, function, /)\n--\n\n"},
    {"force_off", force_off, METH_NOARGS, "force_off($module, /)\n--\n\n"},
    {"clock_ns", clock_ns, METH_NOARGS, "clock_ns($module, /)\n--\n\n"},
    {"clock_name", clock_name, METH_NOARGS, "clock_name($module, /)\n--\n\n"},
    {"_at_exit", at_exit, METH_NOARGS, "_at_exit($module, /)\n--\n\n"},
    {"_after_fork_child", after_fork_child, METH_NOARGS,
     "_after_fork_child($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

/* ---- loading ---- */

static int
refuse_subinterpreter(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main()) {
        return 0;
    }
    PyErr_SetString(PyExc_ImportError,
                    "fastprof records the main interpreter only: import it "
                    "there, not in a subinterpreter");
    return -1;
}

static int
call_with(const char *module, const char *function, const char *keyword,
          PyObject *callback)
{
    PyObject *m = PyImport_ImportModule(module);
    PyObject *f = m ? PyObject_GetAttrString(m, function) : NULL;
    PyObject *args = keyword ? PyTuple_New(0) : PyTuple_Pack(1, callback);
    PyObject *kwargs =
        keyword ? Py_BuildValue("{sO}", keyword, callback) : PyDict_New();
    PyObject *done =
        f && args && kwargs ? PyObject_Call(f, args, kwargs) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(f);
    Py_XDECREF(m);
    return done == NULL ? -1 : 0;
}

static int
register_exits(PyObject *module)
{
    PyObject *exit = PyObject_GetAttrString(module, "_at_exit");
    PyObject *fork = PyObject_GetAttrString(module, "_after_fork_child");
    int rc = exit == NULL || fork == NULL ? -1 : 0;
    if (rc == 0) {
        rc = call_with("atexit", "register", NULL, exit);
    }
    if (rc == 0) {
        rc = call_with("os", "register_at_fork", "after_in_child", fork);
    }
    Py_XDECREF(exit);
    Py_XDECREF(fork);
    return rc;
}

static int
add_phases(PyObject *module)
{
    PyObject *phases = Py_BuildValue("(ssssss)", "", "data", "forward",
                                     "backward", "optimizer", "batch_wait");
    if (phases == NULL) {
        return -1;
    }
    int rc = PyModule_AddObjectRef(module, "PHASES", phases);
    Py_DECREF(phases);
    return rc;
}

/* Python code defines all exceptions, so that saved runs can be read without
 * the extension. */
static PyObject *
busy_error(void)
{
    PyObject *errors = PyImport_ImportModule("fastprof.errors");
    if (errors == NULL) {
        if (PyErr_ExceptionMatches(PyExc_SystemError)) {
            /* Before 3.12, __import__ may fail without an exception if memory
             * runs out. */
            PyErr_NoMemory();
        }
        return NULL;
    }
    PyObject *error = PyObject_GetAttrString(errors, "BusyError");
    Py_DECREF(errors);
    return error;
}

static int
fill(PyObject *module)
{
    fp_state *st = fp_state_of(module);
    if (refuse_subinterpreter() < 0 || fp_guard_init() < 0) {
        return -1;
    }
    st->layers = layers;
    st->sections = PyDict_New();
    st->section_names = PyList_New(0);
    st->busy_error = busy_error();
    if (st->sections == NULL || st->section_names == NULL ||
        st->busy_error == NULL || fp_monitoring_add_type(module, st) < 0 ||
        fp_setprofile_add_type(module, st) < 0 ||
        fp_gc_hook_add_type(module, st) < 0 ||
        fp_recorder_add_type(module, st) < 0 ||
        fp_section_add_type(module, st) < 0 ||
        fp_around_add_type(module) < 0 ||
        fp_plain_steps_add_type(module) < 0 ||
        fp_plain_fetch_add_type(module) < 0 ||
        PyModule_AddFunctions(module, fp_around_methods) < 0 ||
        fp_nvtx_add_functions(module, st) < 0 || add_phases(module) < 0 ||
        PyModule_AddFunctions(module, fp_bell_methods) < 0 ||
        PyModule_AddFunctions(module, fp_listener_methods) < 0 ||
        PyModule_AddFunctions(module, fp_gpu_probe_methods) < 0 ||
        PyModule_AddFunctions(module, fp_gpu_health_methods) < 0 ||
        PyModule_AddFunctions(module, fp_end_signal_methods) < 0 ||
        PyModule_AddFunctions(module, fp_tree_sums_methods) < 0 ||
        fp_call_form_init(st) < 0 || register_exits(module) < 0) {
        return -1;
    }
    fp_clock_init(&st->clock);
    /* without it the records of ended threads are not joined */
    fp_life_init(st);
    return 0;
}

static int
module_exec(PyObject *module)
{
    int rc = fill(module);
    if (rc < 0 && !PyErr_Occurred()) {
        /* CPython sets no exception here if memory runs out */
        PyErr_NoMemory();
    }
    return rc;
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    fp_state *st = fp_state_of(module);
    Py_VISIT((PyObject *)st->recorder_type);
    Py_VISIT((PyObject *)st->section_type);
    Py_VISIT((PyObject *)st->callback_type);
    Py_VISIT((PyObject *)st->hook_type);
    Py_VISIT((PyObject *)st->gc_hook_type);
    Py_VISIT(st->busy_error);
    Py_VISIT(st->sections);
    Py_VISIT(st->section_names);
    Py_VISIT(st->sync_function);
    Py_VISIT(st->decorator_function);
    Py_VISIT(st->monitoring);
    Py_VISIT(st->missing);
    Py_VISIT(st->disable);
    Py_VISIT(st->gc_callbacks);
    Py_VISIT(st->threading);
    return 0;
}

static int
module_clear(PyObject *module)
{
    FP_GUARD();
    fp_state *st = fp_state_of(module);
    stop_all(st);
    fp_nvtx_forbid(st);
    Py_CLEAR(st->recorder_type);
    Py_CLEAR(st->section_type);
    Py_CLEAR(st->callback_type);
    Py_CLEAR(st->hook_type);
    Py_CLEAR(st->gc_hook_type);
    Py_CLEAR(st->busy_error);
    memset(st->near_sections, 0, sizeof(st->near_sections));
    Py_CLEAR(st->sections);
    Py_CLEAR(st->section_names);
    Py_CLEAR(st->sync_function);
    Py_CLEAR(st->decorator_function);
    Py_CLEAR(st->monitoring);
    Py_CLEAR(st->missing);
    Py_CLEAR(st->disable);
    Py_CLEAR(st->gc_callbacks);
    Py_CLEAR(st->threading);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fastprof._core",
    .m_doc = "fastprof's recorder; use the fastprof package.",
    .m_size = sizeof(fp_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}
