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
kernel_name(const char *name, demangler demangle)
{
    int status = -1;
    char *plain = name[0] == '_' && name[1] == 'Z' && demangle != NULL
                      ? demangle(name, NULL, NULL, &status)
                      : NULL;
    const char *text = status == 0 && plain != NULL ? plain : name;
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                            "backslashreplace");
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
        PyObject *name = kernel_name(k->name, demangle);
        PyObject *row =
            name == NULL
                ? NULL
                : Py_BuildValue(
                      "[NIiiiIIIiiiiKLLLKLd]", name, s->device, s->block[0],
                      s->block[1], s->block[2], s->registers, s->static_shared,
                      s->dynamic_shared, k->grid[0], k->grid[1], k->grid[2],
                      (int)k->grid_varied, (ull)k->count, (sll)k->sum_ns,
                      (sll)k->min_ns, (sll)k->max_ns, (ull)k->small_count,
                      (sll)k->small_ns, k->blocks_ns);
        fp_export_add(&list, row);
    }
    return list;
}

/* ---- sites ---- */

/* The exported index of a place's thread, and the row of its node. */
static void
resolve(const fp_exported *x, fp_place place, int *thread, long *node)
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
export_activity(const fp_gpu_view *v, const fp_exported *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->activities; i++) {
        const fp_activity_sum *a = &v->activity[i];
        int thread, via;
        long node, via_node;
        resolve(x, a->site.place, &thread, &node);
        resolve(x, a->site.via, &via, &via_node);
        PyObject *row =
            Py_BuildValue("[ililiiKLK]", thread, node, via, via_node,
                          how_of(&a->site, thread, via), a->what,
                          (ull)a->count, (sll)a->ns, (ull)a->bytes);
        fp_export_add(&list, row);
    }
    return list;
}

static PyObject *
export_host(const fp_gpu_view *v, const fp_exported *x)
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
        PyObject *row = Py_BuildValue("[ililiKKLLKL]", thread, node, via,
                                      via_node, how_of(&h->site, thread, via),
                                      (ull)h->launches, (ull)h->delays,
                                      (sll)h->delay_ns, (sll)h->delay_max_ns,
                                      (ull)h->syncs, (sll)h->blocked_ns);
        fp_export_add(&list, row);
    }
    return list;
}

static PyObject *
export_lines(const fp_recorder *r, const fp_exported *x)
{
    /* A copy: a wait that ends meanwhile adds to the dict. */
    PyObject *lines =
        r->gpu.lines != NULL ? PyDict_Copy(r->gpu.lines) : PyDict_New();
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
export_idle(const fp_gpu_view *v, const fp_timeline_sums *s,
            const fp_exported *x)
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
        Py_ssize_t key = x->section_key(x->ctx, v->section[i] - 1u);
        PyObject *row =
            key < 0 ? NULL : Py_BuildValue("[nL]", key, (sll)s->idle_ns[i]);
        fp_export_add(&list, row);
    }
    if (list != NULL && nowhere != 0) {
        fp_export_add(&list, Py_BuildValue("[iL]", -1, (sll)nowhere));
    }
    return list;
}

static PyObject *
export_sums(const fp_gpu_view *v, const fp_timeline_sums *s,
            const fp_exported *x)
{
    PyObject *idle = export_idle(v, s, x);
    if (idle == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "{sLsLsLsLsLsLsLsLsN}", "wall_ns", (sll)s->wall_ns, "busy_ns",
        (sll)s->busy_ns, "kernel_ns", (sll)s->kernel_ns, "compute_ns",
        (sll)s->compute_ns, "communication_ns", (sll)s->communication_ns,
        "overlap_ns", (sll)s->overlap_ns, "copy_ns", (sll)s->copy_ns,
        "copy_alone_ns", (sll)s->copy_alone_ns, "idle", idle);
}

static PyObject *
export_device(const fp_gpu_view *v, uint32_t i, const fp_exported *x)
{
    const fp_gpu_device *d = &v->device[i];
    const fp_timeline *t = &v->timeline[i];
    PyObject *whole = export_sums(v, &t->whole, x);
    PyObject *steps = export_sums(v, &t->steps, x);
    PyObject *name = PyUnicode_DecodeUTF8(d->name, (Py_ssize_t)strlen(d->name),
                                          "backslashreplace");
    if (whole == NULL || steps == NULL || name == NULL) {
        Py_XDECREF(whole);
        Py_XDECREF(steps);
        Py_XDECREF(name);
        return NULL;
    }
    return Py_BuildValue(
        "{sIsNsisKsisisisisis[ii]sNsNsKsN}", "index", i, "name", name,
        "multiprocessors", d->multiprocessors, "memory_bytes",
        (ull)d->memory_bytes, "threads_per_multiprocessor",
        d->threads_per_multiprocessor, "blocks_per_multiprocessor",
        d->blocks_per_multiprocessor, "registers_per_multiprocessor",
        d->registers_per_multiprocessor, "shared_bytes_per_multiprocessor",
        d->shared_bytes_per_multiprocessor, "warp_size", d->warp_size,
        "capability", d->capability_major, d->capability_minor, "whole", whole,
        "steps", steps, "step_count", (ull)t->step_count, "health",
        fp_gpu_health_export(&v->health, i));
}

static PyObject *
export_devices(const fp_gpu_view *v, const fp_exported *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->timelines; i++) {
        fp_export_add(&list, export_device(v, i, x));
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
    for (size_t i = 0; d != NULL && i < sizeof(all) / sizeof(all[0]); i++) {
        if (fp_export_put(d, all[i].name,
                          PyLong_FromUnsignedLongLong(all[i].value)) < 0) {
            Py_CLEAR(d);
        }
    }
    return d;
}

static PyObject *
text_or_none(PyObject *text)
{
    return Py_NewRef(text != NULL ? text : Py_None);
}

static PyObject *
export_pauses(const fp_recorder *r, const fp_gpu_view *v)
{
    if (v->pauses == 0) {
        return PyList_New(0);
    }
    PyObject *why = r->gpu.pause_reason != NULL
                        ? Py_NewRef(r->gpu.pause_reason)
                        : PyUnicode_FromString("");
    return why == NULL ? NULL
                       : Py_BuildValue("[[NL]]", why, (sll)v->paused_ns);
}

static int
fill(PyObject *d, const fp_recorder *r, const fp_gpu_view *v,
     const fp_exported *x)
{
    static const char *const tiers[] = {NULL, "callbacks", "external"};
    PyObject *none = Py_None;
    int rc = fp_export_put(d, "status",
                           PyUnicode_FromString(v->empty ? "off" : "on"));
    rc |= fp_export_put(d, "reason",
                        r->gpu.reason != NULL ? Py_NewRef(r->gpu.reason)
                                              : PyUnicode_FromString(""));
    rc |= fp_export_put(d, "tier", Py_BuildValue("z", tiers[v->tier]));
    rc |= fp_export_put(d, "cupti_version",
                        v->cupti_version
                            ? PyLong_FromUnsignedLongLong(v->cupti_version)
                            : Py_NewRef(none));
    rc |= fp_export_put(d, "cupti_path",
                        text_or_none(v->empty ? NULL : r->gpu.path));
    rc |= fp_export_put(d, "driver_version",
                        v->driver_version ? PyLong_FromLong(v->driver_version)
                                          : Py_NewRef(none));
    rc |= fp_export_put(d, "devices", export_devices(v, x));
    rc |= fp_export_put(d, "health_reason", fp_why_text(&v->health.why));
    rc |= fp_export_put(d, "health_hung", PyBool_FromLong(v->health.hung));
    rc |= fp_export_put(d, "kernels", export_kernels(v));
    rc |= fp_export_put(d, "activity", export_activity(v, x));
    rc |= fp_export_put(d, "host", export_host(v, x));
    rc |= fp_export_put(d, "lines", export_lines(r, x));
    rc |= fp_export_put(d, "sum_ns", PyLong_FromLongLong(v->total_ns));
    rc |= fp_export_put(d, "paused_ns", PyLong_FromLongLong(v->paused_ns));
    rc |= fp_export_put(d, "pauses", export_pauses(r, v));
    rc |= fp_export_put(d, "counters", export_counters(v));
    return rc;
}

PyObject *
fp_gpu_view_export(fp_recorder *r, const fp_gpu_view *v, const fp_exported *x)
{
    PyObject *d = PyDict_New();
    if (d != NULL && fill(d, r, v, x) < 0) {
        Py_CLEAR(d);
    }
    return d;
}
