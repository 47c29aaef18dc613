/* gpu_export: converts the collector's records to the dict of
 * Recorder.export(). */
#include "py/export_parts.h"
#include "py/gpu_view.h"
#include "py/gpu_probe.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef unsigned long long ull;
typedef long long sll;

/* ---- kernels ---- */

/* The demangler of the C++ library, if the program has loaded one (torch
 * has). */
typedef char *(*demangler)(const char *name, char *buffer, size_t *size,
                           int *status);

static demangler
find_demangler(void)
{
    void *found = dlsym(RTLD_DEFAULT, "__cxa_demangle");
#ifdef RTLD_NOLOAD
    if (found == NULL) {
        void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, "__cxa_demangle") : NULL;
    }
#endif
    demangler f;
    memcpy(&f, &found, sizeof(f)); /* ISO C has no cast for it */
    return f;
}

static PyObject *
text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                "backslashreplace");
}

static PyObject *
kernel_name(const char *name, demangler demangle)
{
    int status = -1;
    char *plain = name[0] == '_' && name[1] == 'Z' && demangle != NULL
                      ? demangle(name, NULL, NULL, &status)
                      : NULL;
    const char *text = status == 0 && plain != NULL ? plain : name;
    PyObject *result = text_of(text);
    free(plain);
    return result;
}

static PyObject *
export_kernels(const fp_gpu_view *v)
{
    demangler demangle = find_demangler();
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->kernels; i++) {
        const fp_kernel *k = &v->kernel[i];
        const fp_kernel_shape *s = &k->shape;
        fp_export_add(
            &list,
            Py_BuildValue(
                "[NIiiiIIIiiiiKLLLKLd]", kernel_name(k->name, demangle),
                s->device, s->block[0], s->block[1], s->block[2], s->registers,
                s->static_shared, s->dynamic_shared, k->grid[0], k->grid[1],
                k->grid[2], (int)k->grid_varied, (ull)k->count, (sll)k->sum_ns,
                (sll)k->min_ns, (sll)k->max_ns, (ull)k->small_count,
                (sll)k->small_ns, k->blocks_ns));
    }
    return list;
}

/* ---- sites ---- */

/* The exported index of a place's thread, and the row of its node. */
static void
resolve(const fp_export *x, fp_place place, int *thread, long *node)
{
    *thread = -1;
    *node = -1;
    for (uint32_t i = 0; place != 0 && i < x->threads; i++) {
        const fp_exported_thread *t = &x->thread[i];
        if (t->serial == fp_place_thread(place) &&
            fp_place_node(place) < t->nodes) {
            *thread = (int)i;
            *node = fp_exported_row(t, fp_place_node(place));
            *node = *node < 0 ? 0 : *node;
            return;
        }
    }
}

/* The kind of attribution; less precise if the site's thread was cleared. */
static int
how_of(const fp_site *site, int thread, int via)
{
    if (site->place != 0 && thread < 0) {
        return FP_HOW_UNKNOWN;
    }
    return site->via != 0 && via < 0 && site->how == FP_HOW_INHERITED
               ? (thread < 0 ? FP_HOW_OTHER : FP_HOW_OWN)
               : (int)site->how;
}

static PyObject *
export_activity(const fp_gpu_view *v, const fp_export *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->activities; i++) {
        const fp_activity_sum *a = &v->activity[i];
        int thread, via;
        long node, via_node;
        resolve(x, a->site.place, &thread, &node);
        resolve(x, a->site.via, &via, &via_node);
        fp_export_add(&list,
                      Py_BuildValue("[ililiiKLK]", thread, node, via, via_node,
                                    how_of(&a->site, thread, via), a->what,
                                    (ull)a->count, (sll)a->ns, (ull)a->bytes));
    }
    return list;
}

static PyObject *
export_host(const fp_gpu_view *v, const fp_export *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->hosts; i++) {
        const fp_host_sum *h = &v->host[i];
        if (h->launches == 0 && h->delays == 0 && h->syncs == 0) {
            continue;
        }
        int thread, via;
        long node, via_node;
        resolve(x, h->site.place, &thread, &node);
        resolve(x, h->site.via, &via, &via_node);
        fp_export_add(&list,
                      Py_BuildValue("[ililiKKLLKL]", thread, node, via,
                                    via_node, how_of(&h->site, thread, via),
                                    (ull)h->launches, (ull)h->delays,
                                    (sll)h->delay_ns, (sll)h->delay_max_ns,
                                    (ull)h->syncs, (sll)h->blocked_ns));
    }
    return list;
}

static PyObject *
export_lines(const fp_export *x)
{
    /* A copy: a wait that ends meanwhile adds to the dict. */
    PyObject *lines =
        x->r->gpu.lines != NULL ? PyDict_Copy(x->r->gpu.lines) : PyDict_New();
    PyObject *list = lines != NULL ? PyList_New(0) : NULL, *key, *value;
    Py_ssize_t at = 0;
    while (list != NULL && PyDict_Next(lines, &at, &key, &value)) {
        ull place, count;
        sll ticks;
        PyObject *file, *name;
        int line, thread;
        long node;
        PyObject *row = NULL;
        if (PyArg_ParseTuple(key, "KOiO", &place, &file, &line, &name) &&
            PyArg_ParseTuple(value, "KL", &count, &ticks)) {
            resolve(x, place, &thread, &node);
            row = Py_BuildValue("[ilOiOKL]", thread, node, file, line, name,
                                count, (sll)((double)ticks * x->ns_per_tick));
        }
        fp_export_add(&list, row);
    }
    Py_XDECREF(lines);
    return list;
}

/* ---- devices ---- */

static PyObject *
export_idle(const fp_gpu_view *v, const fp_timeline_sums *s, fp_export *x)
{
    PyObject *list = PyList_New(0);
    int64_t nowhere = s->idle_ns[0];
    for (int i = 1; list != NULL && i < FP_TIMELINE_SECTIONS; i++) {
        if (s->idle_ns[i] == 0) {
            continue;
        }
        if (v->section[i] == 0 || v->section[i] == UINT16_MAX) {
            nowhere += s->idle_ns[i]; /* sections without a slot */
            continue;
        }
        Py_ssize_t key = fp_export_key(x, fp_key_section(v->section[i] - 1u));
        sll ns = s->idle_ns[i];
        fp_export_add(&list, key < 0 ? NULL : Py_BuildValue("[nL]", key, ns));
    }
    if (list != NULL && nowhere != 0) {
        fp_export_add(&list, Py_BuildValue("[iL]", -1, (sll)nowhere));
    }
    return list;
}

static PyObject *
export_sums(const fp_gpu_view *v, const fp_timeline_sums *s, fp_export *x)
{
    return Py_BuildValue(
        "{sLsLsLsLsLsLsLsLsN}", "wall_ns", (sll)s->wall_ns, "busy_ns",
        (sll)s->busy_ns, "kernel_ns", (sll)s->kernel_ns, "compute_ns",
        (sll)s->compute_ns, "communication_ns", (sll)s->communication_ns,
        "overlap_ns", (sll)s->overlap_ns, "copy_ns", (sll)s->copy_ns,
        "copy_alone_ns", (sll)s->copy_alone_ns, "idle", export_idle(v, s, x));
}

static PyObject *
export_devices(const fp_gpu_view *v, fp_export *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->timelines; i++) {
        const fp_timeline *t = &v->timeline[i];
        PyObject *d = fp_gpu_device_dict(&v->device[i], i);
        fp_export_put(&d, "name", text_of(v->device[i].name));
        fp_export_put(&d, "whole", export_sums(v, &t->whole, x));
        fp_export_put(&d, "steps", export_sums(v, &t->steps, x));
        fp_export_put(&d, "step_count",
                      PyLong_FromUnsignedLongLong(t->step_count));
        fp_export_put(&d, "health", fp_gpu_health_export(&v->health, i));
        fp_export_add(&list, d);
    }
    return list;
}

/* ---- all of it ---- */

static PyObject *
export_counters(const fp_gpu_view *v)
{
    const fp_gpu_counters *c = &v->counters;
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"records", c->records},
        {"kernels", c->kernels},
        {"copies", c->copies},
        {"memsets", c->memsets},
        {"launches", c->launches},
        {"syncs", c->syncs},
        {"graph_launches", c->graph_launches},
        {"dropped", c->dropped},
        {"discarded", v->discarded},
        {"incomplete", c->incomplete},
        {"zero_time", c->zero_time},
        {"whole_graphs", c->whole_graphs},
        {"invalid", c->invalid},
        {"unknown_kind", c->unknown_kind},
        {"truncated", c->truncated},
        {"late", v->late},
        {"stale", c->stale},
        {"misdated", c->misdated},
        {"graph_ids", c->graph_ids},
        {"unheard", v->unheard},
        {"clocks_taken_back", v->clocks_taken_back},
        {"lost_launches", v->lost_launches},
        {"expired_launches", c->expired_launches},
        {"negative_delay", c->negative_delay},
        {"cupti_errors", v->cupti_errors},
        {"taken", v->taken},
        {"rows_dropped", v->rows_dropped},
        {"names_dropped", v->names_dropped},
        {"timeline_lost", v->timeline_lost},
        {"clock_steps", v->clock_steps},
        {"graph_nodes_lost", v->lost_graph_nodes},
        {"owners_lost", v->owners_lost},
    };
    PyObject *d = PyDict_New();
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        fp_export_put(&d, all[i].name,
                      PyLong_FromUnsignedLongLong(all[i].value));
    }
    return d;
}

/* The recorder's text; "": it has none. */
static PyObject *
text_or_empty(PyObject *text)
{
    return text != NULL ? Py_NewRef(text) : PyUnicode_FromString("");
}

static PyObject *
export_pauses(const fp_recorder *r, const fp_gpu_view *v)
{
    if (v->pauses == 0) {
        return PyList_New(0);
    }
    return Py_BuildValue("[[NL]]", text_or_empty(r->gpu.pause_reason),
                         (sll)v->paused_ns);
}

PyObject *
fp_gpu_view_export(fp_export *x, const fp_gpu_view *v)
{
    static const char *const tiers[] = {NULL, "callbacks", "external"};
    const fp_recorder *r = x->r;
    if (v == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *d = PyDict_New();
    fp_export_put(&d, "status", PyUnicode_FromString(v->empty ? "off" : "on"));
    fp_export_put(&d, "reason", text_or_empty(r->gpu.reason));
    fp_export_put(&d, "tier", Py_BuildValue("z", tiers[v->tier]));
    fp_export_put(&d, "cupti_version",
                  fp_version_or_none((long)v->cupti_version));
    fp_export_put(
        &d, "cupti_path",
        Py_NewRef(v->empty || r->gpu.path == NULL ? Py_None : r->gpu.path));
    fp_export_put(&d, "driver_version", fp_version_or_none(v->driver_version));
    fp_export_put(&d, "devices", export_devices(v, x));
    fp_export_put(&d, "health_reason", fp_text_of(v->health.why.text));
    fp_export_put(&d, "health_hung", PyBool_FromLong(v->health.hung));
    fp_export_put(&d, "kernels", export_kernels(v));
    fp_export_put(&d, "activity", export_activity(v, x));
    fp_export_put(&d, "host", export_host(v, x));
    fp_export_put(&d, "lines", export_lines(x));
    fp_export_put(&d, "sum_ns", PyLong_FromLongLong(v->total_ns));
    fp_export_put(&d, "paused_ns", PyLong_FromLongLong(v->paused_ns));
    fp_export_put(&d, "pauses", export_pauses(r, v));
    fp_export_put(&d, "counters", export_counters(v));
    return d;
}

/* ---- the trace ---- */

static PyObject *
record_row(const fp_export *x, const fp_trace_record *r)
{
    return Py_BuildValue("(iIINNKiiiI)", r->what, r->device, r->stream,
                         fp_export_trace_time(x, r->start),
                         fp_export_trace_time(x, r->end), (ull)r->bytes,
                         r->grid[0], r->grid[1], r->grid[2], r->corr);
}

static PyObject *
call_row(const fp_export *x, const fp_trace_call *c)
{
    return Py_BuildValue("(iINNI)", (int)c->kind, c->thread,
                         fp_export_trace_time(x, c->start),
                         fp_export_trace_time(x, c->end), c->corr);
}

PyObject *
fp_gpu_view_trace(const fp_export *x, const fp_gpu_view *v)
{
    if (v == NULL || !v->traced) {
        Py_RETURN_NONE;
    }
    PyObject *records = PyList_New(0), *calls = PyList_New(0);
    for (uint64_t i = 0; records != NULL && i < v->records; i++) {
        fp_export_add(&records, record_row(x, &v->record[i]));
    }
    for (uint64_t i = 0; calls != NULL && i < v->calls; i++) {
        fp_export_add(&calls, call_row(x, &v->call[i]));
    }
    PyObject *until =
        fp_export_trace_time(x, v->trace_lost != 0 ? v->trace_lost_until : 0);
    return Py_BuildValue("{sNsNsKsNsK}", "records", records, "calls", calls,
                         "lost", (ull)v->trace_lost, "lost_until_ns", until,
                         "no_memory", (ull)v->trace_no_memory);
}
