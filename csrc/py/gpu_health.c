/* gpu_health: starts and stops the sampler of the devices' health, and exports
 * its samples. */
#include "py/gpu_health.h"

#include "py/export_parts.h"
#include "py/gpu_layer.h"
#include "py/gpu_probe.h"

#include <stdlib.h>

/* Limit for waiting.  A call of NVML takes microseconds to some
 * milliseconds. */
static const int64_t patience_ns = 1000000000;

static fp_health *the_health; /* owned; written once, under the GIL */

static void
forked(void)
{
    fp_health_forked(the_health);
}

static fp_health *
make(void)
{
    if (the_health == NULL) {
        fp_health *h = malloc(sizeof(*h));
        if (h == NULL || fp_health_init(h) != FP_OK) {
            free(h);
            return NULL;
        }
        the_health = h;
        pthread_atfork(NULL, NULL, forked);
    }
    return the_health;
}

/* Runs on the sampler's thread.  It must not wait for the lock: if it misses a
 * device now, it finds it in the next period. */
static void
add_used(void *collector, uint32_t *mask)
{
    fp_gpu *g = collector;
    if (pthread_mutex_trylock(&g->lock) != 0) {
        return;
    }
    for (uint32_t i = 0; g->has_ledger && i < g->ledger.timelines; i++) {
        const fp_timeline *t = &g->ledger.timeline[i];
        if (t->intervals != 0 || t->whole.busy_ns != 0) {
            *mask |= 1u << i;
        }
    }
    pthread_mutex_unlock(&g->lock);
}

void
fp_gpu_health_begin(fp_recorder *r, const char *path, int64_t period_ns)
{
    fp_gpu *g = fp_gpu_if_any();
    fp_health *h = path != NULL ? make() : the_health;
    if (h == NULL) {
        return;
    }
    fp_nvml nvml;
    fp_why why = {""};
    int opened = -1;
    if (path != NULL) {
        Py_BEGIN_ALLOW_THREADS
        opened = fp_nvml_open(&nvml, path, &why);
        Py_END_ALLOW_THREADS
    }
    if (opened != 0) {
        fp_health_refuse(h, &why);
    }
    else if (r->gpu_on) { /* not stopped meanwhile */
        fp_health_start(h, &nvml, &g->driver, period_ns, add_used, g);
    }
}

void
fp_gpu_health_end(void)
{
    if (the_health != NULL) {
        fp_health_stop(the_health, patience_ns);
    }
}

void
fp_gpu_health_clear(void)
{
    if (the_health != NULL) {
        fp_health_clear(the_health);
    }
}

void
fp_gpu_health_look(fp_health_view *view)
{
    if (the_health != NULL) {
        fp_health_look(the_health, view);
    }
    else {
        memset(view, 0, sizeof(*view));
    }
}

/* ---- values ---- */

typedef unsigned long long ull;

static const char *const figure_names[FP_NVML_FIGURES] = {
    [FP_NVML_TEMPERATURE] = "temperature_c",
    [FP_NVML_SM_CLOCK] = "sm_clock_mhz",
    [FP_NVML_POWER] = "power_mw",
    [FP_NVML_REASONS] = "reasons",
};

static const char *const reason_names[FP_HEALTH_REASONS] = {
    [FP_HEALTH_SW_POWER_CAP] = "sw_power_cap",
    [FP_HEALTH_HW_SLOWDOWN] = "hw_slowdown",
    [FP_HEALTH_SW_THERMAL] = "sw_thermal",
    [FP_HEALTH_HW_THERMAL] = "hw_thermal",
    [FP_HEALTH_HW_POWER_BRAKE] = "hw_power_brake",
};

static PyObject *
export_figure(const fp_health_figure *f)
{
    if (f->count == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("[KKKKK]", (ull)f->count, (ull)f->sum, (ull)f->min,
                         (ull)f->max, (ull)f->last);
}

static PyObject *
export_reasons(const fp_health_sums *s)
{
    if (s->judged == 0) {
        Py_RETURN_NONE;
    }
    PyObject *d =
        Py_BuildValue("{sKsKsK}", "samples", (ull)s->judged, "throttled",
                      (ull)s->throttled, "slowed", (ull)s->slowed);
    for (int i = 0; i < FP_HEALTH_REASONS; i++) {
        fp_export_put(&d, reason_names[i],
                      PyLong_FromUnsignedLongLong(s->reason[i]));
    }
    return d;
}

PyObject *
fp_gpu_health_export(const fp_health_view *view, uint32_t device)
{
    const fp_health_sums *s = &view->sums[device];
    int known = s->judged != 0;
    for (int i = 0; i < FP_NVML_REASONS; i++) {
        known |= s->figure[i].count != 0;
    }
    if (!known) {
        Py_RETURN_NONE;
    }
    PyObject *d = PyDict_New();
    for (int i = 0; i < FP_NVML_REASONS; i++) {
        fp_export_put(&d, figure_names[i], export_figure(&s->figure[i]));
    }
    fp_export_put(&d, "reasons", export_reasons(s));
    return d;
}

/* ---- for fastprof doctor ---- */

/* The current values of a device: a dict, with None for unknown values; NULL
 * with an exception. */
static PyObject *
probe_device(const fp_nvml *n, const char *bus_id)
{
    void *device = NULL;
    int found = n->find(bus_id, &device) == FP_NVML_SUCCESS;
    PyObject *d = PyDict_New();
    for (int i = 0; d != NULL && i < FP_NVML_FIGURES; i++) {
        uint64_t value;
        PyObject *told = found && fp_nvml_ask(n, device, (fp_nvml_figure)i,
                                              &value) == FP_NVML_SUCCESS
                             ? PyLong_FromUnsignedLongLong(value)
                             : Py_NewRef(Py_None);
        fp_export_put(&d, figure_names[i], told);
    }
    return d;
}

static PyObject *
probe_devices(const fp_nvml *n, PyObject *bus_ids, fp_why *why)
{
    PyObject *list = PyList_New(0);
    int result = list != NULL ? n->init() : FP_NVML_SUCCESS;
    if (result != FP_NVML_SUCCESS) {
        char text[100];
        fp_nvml_describe(n, result, text, sizeof(text));
        fp_why_set(why, "nvmlInit_v2 failed with %s", text);
        return list;
    }
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_GET_SIZE(bus_ids);
         i++) {
        const char *id = PyUnicode_AsUTF8(PyTuple_GET_ITEM(bus_ids, i));
        fp_export_add(&list, id == NULL ? NULL : probe_device(n, id));
    }
    (void)n->shutdown();
    return list;
}

static PyObject *
nvml_probe(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    PyObject *bus_ids;
    if (!PyArg_ParseTuple(args, "sO!:nvml_probe", &path, &PyTuple_Type,
                          &bus_ids)) {
        return NULL;
    }
    fp_nvml n;
    fp_why why;
    PyObject *devices = fp_nvml_open(&n, path, &why) == 0
                            ? probe_devices(&n, bus_ids, &why)
                            : PyList_New(0);
    if (devices == NULL) {
        return NULL;
    }
    return Py_BuildValue("{sNsN}", "reason", fp_text_of(why.text), "devices",
                         devices);
}

PyMethodDef fp_gpu_health_methods[] = {
    {"nvml_probe", nvml_probe, METH_VARARGS,
     "nvml_probe($module, path, bus_ids, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
