/* The switches of the GPU layer: methods of the Recorder type. */
#include "py/export_parts.h"
#include "py/gpu_layer_parts.h"
#include "py/guard.h"
#include "gpu/cupti_abi.h"
#include "py/gpu_health.h"
#include "py/interpreter_image.h"
#include "py/mode.h"
#include "py/threads.h"

#include "core/steps_split.h"

static const double second_ns = 1e9;

int fp_gpu_starting;

/* The collector runs: attributes launches to this recorder from now on. */
static void
adopt(fp_recorder *r, fp_gpu *g)
{
    fp_gpu_owner = r;
    r->gpu_on = 1;
    r->gpu.partial = 1;
    fp_interpreter_image_find(); /* before events push ids */
    r->gpu.external = g->used == FP_TIER_EXTERNAL;
    fp_recorder_set_mode(r);
    if (r->gpu.lines == NULL) {
        r->gpu.lines = PyDict_New();
        PyErr_Clear();
    }
    fp_gpu_lines_for(r);
    fp_gpu_layer_epochs(r);
    fp_gpu_layer_traced(r, fp_clock_now(&r->clock));
    fp_thread *t = fp_recorder_own_thread(r);
    if (t != NULL && t->open_len != 0) {
        fp_gpu_layer_section(r, t, fp_clock_now(&r->clock));
    }
}

/* The collector has stopped; its sums still belong to this recorder. */
static void
let_go(fp_recorder *r, fp_gpu *g)
{
    if (!r->gpu_on) {
        return;
    }
    fp_gpu_layer_hide_all(r);
    r->gpu_on = 0;
    r->gpu.external = 0;
    fp_recorder_set_mode(r);
    fp_gpu_lines_for(NULL);
    fp_gpu_layer_set_reason(r, g->why.text);
}

static const char *const tier_names[] = {"auto", "callbacks", "external"};

static int
tier_of(const char *name, fp_gpu_tier *tier)
{
    for (int i = FP_TIER_NONE; i <= FP_TIER_EXTERNAL; i++) {
        if (strcmp(name, tier_names[i]) == 0) {
            *tier = (fp_gpu_tier)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "tier is '%s': use \"auto\", \"callbacks\" or \"external\"",
                 name);
    return -1;
}

static PyObject *
answer(const fp_recorder *r, const char *state)
{
    const fp_gpu *g = fp_gpu_if_any();
    const char *tier = r->gpu_on && g->used ? tier_names[g->used] : NULL;
    PyObject *reason = r->gpu.reason != NULL ? Py_NewRef(r->gpu.reason)
                                             : PyUnicode_FromString("");
    return Py_BuildValue("{sssNsz}", "state", state, "reason", reason, "tier",
                         tier);
}

/* Returns the reason why this recorder cannot have the collector; NULL: it
 * can. */
static const char *
refusal(const fp_recorder *r)
{
    if (r->state->forced_off) {
        return "FASTPROF=0";
    }
    if (r->config.timer != NULL) {
        return "an external timer cannot be compared with the GPU's clock";
    }
    if (fp_gpu_owner != NULL && fp_gpu_owner != r && fp_gpu_owner->gpu_on) {
        return "another fastprof recording has the GPU";
    }
    return NULL;
}

/* Takes the collector from its owner; its sums are lost. */
static void
take_from_owner(fp_recorder *r)
{
    if (fp_gpu_owner != NULL && fp_gpu_owner != r) {
        fp_gpu_layer_hide_all(fp_gpu_owner);
        fp_gpu_layer_set_reason(
            fp_gpu_owner, "another fastprof recording has taken the GPU");
        fp_gpu_owner = NULL;
    }
}

static PyObject *
start(fp_recorder *r, PyObject *paths, const char *driver_path, int initialise,
      const fp_gpu_options *o)
{
    fp_gpu *g = fp_gpu_the_collector(&r->clock);
    if (g == NULL || atomic_load(&g->state) == FP_GPU_DEAD) {
        fp_gpu_layer_set_reason(
            r, g == NULL ? "there is no memory for GPU records"
               : g->why.text[0]
                   ? g->why.text
                   : "this process was forked from one that had the "
                     "GPU; CUDA does not work here");
        return answer(r, "off");
    }
    /* Open into local variables: until the start succeeds, the collector's
     * libraries belong to the previous recording. */
    fp_cuda_driver driver;
    fp_cupti cupti;
    int state = fp_gpu_layer_open_driver(r, &driver, driver_path, initialise);
    if (state != FP_DRIVER_READY) {
        return answer(r, state == FP_DRIVER_WAITING ? "waiting" : "off");
    }
    Py_ssize_t next = 0;
    int found =
        fp_gpu_layer_open_cupti(r, &cupti, driver.version, paths, &next);
    if (found <= 0) {
        return found < 0 ? NULL : answer(r, "off");
    }
    take_from_owner(r);
    int rc;
    do {
        g->driver = driver;
        g->cupti = cupti;
        Py_BEGIN_ALLOW_THREADS
        rc = fp_gpu_start(g, o);
        Py_END_ALLOW_THREADS
        fp_gpu_layer_set_reason(r, g->why.text);
        /* A copy of CUPTI that is not the driver's rejects every call; try the
         * next. */
    } while (rc != 0 && g->refused == FP_CUPTI_NOT_INITIALIZED &&
             atomic_load(&g->state) == FP_GPU_OFF &&
             next < PyTuple_GET_SIZE(paths) &&
             fp_gpu_layer_open_cupti(r, &cupti, driver.version, paths, &next) >
                 0);
    if (rc != 0) {
        if (PyErr_Occurred()) {
            return NULL;
        }
        return answer(r, "off");
    }
    adopt(r, g);
    return answer(r, "on");
}

static PyObject *
start_if_free(fp_recorder *r, PyObject *paths, const char *driver_path,
              int initialise, const fp_gpu_options *o)
{
    if (r->gpu_on) {
        return answer(r, "on");
    }
    r->gpu.asked = 1;
    const char *why = refusal(r);
    if (why != NULL) {
        fp_gpu_layer_set_reason(r, why);
        return answer(r, "off");
    }
    if (fp_gpu_starting) {
        return answer(r, "waiting"); /* another thread is starting it */
    }
    fp_gpu_starting = r->gpu.switching = 1;
    PyObject *result = start(r, paths, driver_path, initialise, o);
    fp_gpu_starting = r->gpu.switching = 0;
    return result;
}

PyObject *
fp_gpu_layer_start(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    fp_recorder *r = (fp_recorder *)self;
    PyObject *paths;
    const char *driver_path, *tier_name = "auto", *nvml_path = NULL;
    int initialise = 0, takes_slot = 1;
    double period_s = 1.0, patience_s = 15.0;
    fp_gpu_options o;
    static char *names[] = {"cupti_paths", "driver_path", "initialise",
                            "tier",        "period_s",    "patience_s",
                            "nvml",        "takes_slot",  NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oz|$psddzp:gpu_start",
                                     names, &paths, &driver_path, &initialise,
                                     &tier_name, &period_s, &patience_s,
                                     &nvml_path, &takes_slot) ||
        tier_of(tier_name, &o.tier) < 0) {
        return NULL;
    }
    if (fp_recorder_ready(r) < 0) {
        return NULL;
    }
    if (!(period_s >= 0.001 && period_s <= 3600.0 && patience_s >= 0.0 &&
          patience_s <= 3600.0)) {
        PyErr_SetString(PyExc_ValueError,
                        "period_s must be 0.001 to 3600 and patience_s 0 to "
                        "3600 seconds");
        return NULL;
    }
    o.takes_slot = takes_slot;
    o.period_ns = (int64_t)(period_s * second_ns);
    o.patience_ns = (int64_t)(patience_s * second_ns);
    /* A copy, because another thread may change the list while the GIL is
     * released. */
    PyObject *mine = PySequence_Tuple(paths);
    if (mine == NULL) {
        return NULL;
    }
    int was_on = r->gpu_on;
    PyObject *result = start_if_free(r, mine, driver_path, initialise, &o);
    Py_DECREF(mine);
    if (result != NULL && r->gpu_on && !was_on) {
        fp_gpu_health_begin(r, nvml_path, o.period_ns);
    }
    return result;
}

void
fp_gpu_layer_stop_within(fp_recorder *r, double grace_s)
{
    fp_gpu *g = fp_gpu_if_any();
    if (!r->gpu_on) {
        return;
    }
    /* Wait for a pause in another thread. */
    Py_BEGIN_ALLOW_THREADS
    fp_gpu_health_end();
    fp_gpu_stop(g, (int64_t)(grace_s * second_ns));
    Py_END_ALLOW_THREADS
    int state = atomic_load(&g->state);
    /* not restarted meanwhile */
    if (state == FP_GPU_OFF || state == FP_GPU_DEAD) {
        let_go(r, g);
    }
}

static int
seconds_of(PyObject *args, PyObject *kwargs, const char *format, double *value)
{
    static char *names[] = {"timeout_s", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, value)) {
        return -1;
    }
    if (!(*value >= 0.0 && *value <= 3600.0)) {
        PyErr_SetString(PyExc_ValueError,
                        "timeout_s must be 0 to 3600 seconds");
        return -1;
    }
    return 0;
}

PyObject *
fp_gpu_layer_stop(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    double grace_s = 2.0;
    if (seconds_of(args, kwargs, "|d:gpu_stop", &grace_s) < 0) {
        return NULL;
    }
    fp_gpu_layer_stop_within((fp_recorder *)self, grace_s);
    Py_RETURN_NONE;
}

PyObject *
fp_gpu_layer_pause(PyObject *self, PyObject *args)
{
    FP_GUARD();
    fp_recorder *r = (fp_recorder *)self;
    fp_gpu *g = fp_gpu_if_any();
    const char *why;
    if (!PyArg_ParseTuple(args, "s:gpu_pause", &why)) {
        return NULL;
    }
    if (r->gpu_on && !r->gpu.switching) {
        r->gpu.switching = 1;
        fp_gpu_layer_pop_own(g); /* another client of CUPTI would see them */
        Py_BEGIN_ALLOW_THREADS
        fp_gpu_pause(g, (int64_t)second_ns);
        Py_END_ALLOW_THREADS
        r->gpu.switching = 0;
        /* A pause drops the ids; threads push them again afterwards. */
        r->gpu.external = 0;
        fp_recorder_set_mode(r);
        r->gpu.partial = 1;
        if (atomic_load(&g->state) == FP_GPU_PAUSED) {
            fp_gpu_layer_set_reason(r, why);
            Py_XSETREF(r->gpu.pause_reason, Py_XNewRef(r->gpu.reason));
        }
    }
    Py_RETURN_NONE;
}

PyObject *
fp_gpu_layer_resume(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = (fp_recorder *)self;
    fp_gpu *g = fp_gpu_if_any();
    if (r->gpu_on && !r->gpu.switching) {
        r->gpu.switching = 1;
        Py_BEGIN_ALLOW_THREADS
        fp_gpu_resume(g);
        Py_END_ALLOW_THREADS
        r->gpu.switching = 0;
        r->gpu.external = r->gpu_on && fp_gpu_layer_pushes(g);
        r->gpu.partial = 1;
        fp_recorder_set_mode(r);
        fp_gpu_layer_set_reason(r, g->why.text);
    }
    Py_RETURN_NONE;
}

PyObject *
fp_gpu_layer_flush(PyObject *self, PyObject *args)
{
    FP_GUARD();
    fp_recorder *r = (fp_recorder *)self;
    fp_gpu *g = fp_gpu_if_any();
    double patience_s = 1.0;
    if (seconds_of(args, NULL, "|d:gpu_flush", &patience_s) < 0) {
        return NULL;
    }
    int rc = -1;
    if (r->gpu_on) {
        Py_BEGIN_ALLOW_THREADS
        rc = fp_gpu_flush(g, (int64_t)(patience_s * second_ns));
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(rc == 0);
}

/* The samples of the devices' health so far: a list of dicts, or of None. */
static PyObject *
health_so_far(void)
{
    fp_health_view view;
    fp_gpu_health_look(&view);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < FP_GPU_DEVICES; i++) {
        fp_export_add(&list, fp_gpu_health_export(&view, i));
    }
    return list;
}

PyObject *
fp_gpu_layer_status(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    const fp_recorder *r = (fp_recorder *)self;
    static const char *const names[] = {"off", "on", "paused", "off"};
    fp_gpu *g = fp_gpu_if_any();
    PyObject *d = answer(r, r->gpu_on ? names[atomic_load(&g->state)] : "off");
    if (r->gpu_on) {
        fp_export_put(&d, "health", health_so_far());
    }
    return d;
}
