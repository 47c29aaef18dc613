/* gpu_export: what the collector recorded, as the dict of Recorder.export(). */
#include "py/export.h"

#include <dlfcn.h>
#include <stdlib.h>

/* A copy, made under the collector's lock: making Python objects may run any
 * code, and the drain thread must not wait for it. */
struct fp_gpu_view {
    fp_activity_sum *activity;
    fp_host_sum *host;
    fp_kernel *kernel;
    char *names;           /* of the kernels */
    fp_timeline *timeline; /* sums only */
    uint32_t activities, hosts, kernels, timelines;
    uint16_t section[FP_TIMELINE_SECTIONS];
    fp_gpu_counters counters;
    int64_t total_ns;
    int64_t paused_ns;
    uint64_t pauses, cupti_errors, taken, lost_launches, rows_dropped,
        names_dropped, timeline_lost, late, clock_steps, lost_graph_nodes,
        owners_lost, discarded;
    uint64_t cupti_version;
    int driver_version;
    fp_gpu_tier tier;
    fp_gpu_device device[FP_GPU_DEVICES];
    int empty;               /* nothing was ever recorded */
    fp_trace_record *record; /* of the trace, and what follows */
    fp_trace_call *call;
    uint64_t records, calls, trace_lost, trace_no_memory;
    int64_t trace_lost_until;
    int traced;
};

void
fp_gpu_view_free(fp_gpu_view *v)
{
    if (v != NULL) {
        free(v->activity);
        free(v->host);
        free(v->kernel);
        free(v->names);
        free(v->timeline);
        free(v->record);
        free(v->call);
        free(v);
    }
}

/* [rows] rows of [bytes] and room for [more]; NULL: no memory. */
static void *
copy(const void *rows, size_t count, size_t bytes, size_t more)
{
    void *made = calloc(count + more + 1, bytes);
    if (made != NULL && count != 0) {
        memcpy(made, rows, count * bytes);
    }
    return made;
}

/* Another recording may begin meanwhile, and the ledger's names go. */
static int
copy_names(fp_gpu_view *v)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < v->kernels; i++) {
        bytes += v->kernel[i].name_bytes;
    }
    char *at = v->names = malloc(bytes);
    for (uint32_t i = 0; at != NULL && i < v->kernels; i++) {
        fp_kernel *k = &v->kernel[i];
        memcpy(at, k->name, k->name_bytes);
        k->name = at;
        at += k->name_bytes;
    }
    return at != NULL ? 0 : -1;
}

static int
copy_tables(fp_gpu_view *v, const fp_ledger *l)
{
    const fp_sums *s = &l->sums;
    v->activities = s->activity.count;
    v->hosts = s->host.count;
    v->kernels = l->kernels.count;
    v->timelines = l->timelines;
    v->activity = copy(s->activity.row, v->activities, sizeof(*v->activity),
                       FP_HOW_UNKNOWN + 1);
    v->host = copy(s->host.row, v->hosts, sizeof(*v->host), 1);
    v->kernel = copy(l->kernels.row, v->kernels, sizeof(*v->kernel), 0);
    v->timeline = copy(l->timeline, v->timelines, sizeof(*v->timeline), 0);
    if (v->activity == NULL || v->host == NULL || v->kernel == NULL ||
        v->timeline == NULL || copy_names(v) < 0) {
        return -1;
    }
    for (int how = 0; how <= FP_HOW_UNKNOWN; how++) {
        if (s->no_room[how].count != 0) {
            v->activity[v->activities++] = s->no_room[how];
        }
    }
    v->host[v->hosts++] = s->no_room_host;
    return 0;
}

static int
copy_ledger(fp_gpu_view *v, fp_gpu *g)
{
    const fp_ledger *l = &g->ledger;
    if (copy_tables(v, l) < 0) {
        return -1;
    }
    memcpy(v->section, l->section, sizeof(v->section));
    memcpy(v->device, g->driver.device, sizeof(v->device));
    v->counters = l->counters;
    v->total_ns = l->sums.total_ns;
    v->paused_ns = g->paused_ns;
    v->pauses = g->pauses;
    v->cupti_errors = g->cupti_errors + atomic_load(&g->push_errors);
    v->taken = g->taken;
    v->lost_launches = atomic_load(&g->lanes.lost) + l->launches.lost;
    v->discarded = atomic_load(&g->buffers.discarded);
    v->rows_dropped = l->sums.dropped;
    v->names_dropped = l->kernels.dropped;
    v->clock_steps = l->clock.steps;
    v->lost_graph_nodes = l->graphs.lost;
    v->owners_lost = l->owners.lost;
    for (uint32_t i = 0; i < l->timelines; i++) {
        v->timeline_lost += l->timeline[i].lost;
        v->late += l->timeline[i].late;
    }
    v->cupti_version = g->cupti.version;
    v->driver_version = g->driver.version;
    v->tier = g->used;
    return 0;
}

static int
copy_trace(fp_gpu_view *v, const fp_trace_records *t)
{
    v->records = fp_ring_count(&t->record);
    v->calls = fp_ring_count(&t->call);
    v->record = calloc(v->records + 1, sizeof(*v->record));
    v->call = calloc(v->calls + 1, sizeof(*v->call));
    if (v->record == NULL || v->call == NULL) {
        return -1;
    }
    for (uint64_t i = 0; i < v->records; i++) {
        v->record[i] = *(fp_trace_record *)fp_ring_at(&t->record, i);
    }
    for (uint64_t i = 0; i < v->calls; i++) {
        v->call[i] = *(fp_trace_call *)fp_ring_at(&t->call, i);
    }
    v->trace_lost = t->lost;
    v->trace_lost_until = t->lost_until;
    v->trace_no_memory = t->no_memory;
    v->traced = 1;
    return 0;
}

fp_gpu_view *
fp_gpu_view_take(fp_recorder *r, int with_trace)
{
    if (!r->gpu_asked) {
        return NULL;
    }
    fp_gpu *g = fp_gpu_if_any();
    fp_gpu_view *v = calloc(1, sizeof(*v));
    int ok = v != NULL;
    if (ok && g != NULL && fp_gpu_layer_owns(r)) {
        pthread_mutex_lock(&g->lock);
        v->empty = !g->has_ledger || g->ledger.begin_ns == 0;
        ok = v->empty || copy_ledger(v, g) == 0;
        if (ok && with_trace && g->ledger.trace != NULL && !v->empty) {
            ok = copy_trace(v, &g->trace) == 0;
        }
        pthread_mutex_unlock(&g->lock);
    }
    else if (ok) {
        v->empty = 1;
    }
    if (!ok) {
        fp_gpu_view_free(v);
        PyErr_NoMemory();
        return NULL;
    }
    return v;
}

/* ---- values ---- */

typedef unsigned long long ull;
typedef long long sll;

/* C++'s own demangler, if the program has loaded it (torch has). */
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
        if (fp_export_append(list, row) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* ---- trace ---- */

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
        if (fp_export_append(
                records, record_row(&v->record[i], origin, ns_per_tick)) < 0) {
            Py_CLEAR(records);
        }
    }
    for (uint64_t i = 0; calls != NULL && i < v->calls; i++) {
        if (fp_export_append(calls,
                             call_row(&v->call[i], origin, ns_per_tick)) < 0) {
            Py_CLEAR(calls);
        }
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

/* ---- sites ---- */

/* Index of the thread and the row of a place, as they are exported. */
static void
resolve(const fp_exported *x, fp_place place, int *thread, long *node)
{
    *thread = -1;
    *node = -1;
    for (uint32_t i = 0; place != 0 && i < x->threads; i++) {
        const fp_exported_thread *t = &x->thread[i];
        if (t->serial == fp_place_thread(place) &&
            fp_place_node(place) < t->nodes) {
            uint32_t at = fp_place_node(place);
            *thread = (int)i;
            /* Row 1 is left out when it is empty. */
            *node = t->without_truncated && at >= 1 ? (long)at - 1 : (long)at;
            return;
        }
    }
}

/* What is left of a site whose thread was cleared away. */
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
        if (fp_export_append(list, row) < 0) {
            Py_CLEAR(list);
        }
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
        if (fp_export_append(list, row) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
export_lines(const fp_recorder *r, const fp_exported *x)
{
    /* A wait that ends meanwhile adds to the dict. */
    PyObject *lines =
        r->gpu_lines != NULL ? PyDict_Copy(r->gpu_lines) : PyDict_New();
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
        if (fp_export_append(list, row) < 0) {
            Py_CLEAR(list);
        }
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
            nowhere += s->idle_ns[i]; /* sections beyond the last slot */
            continue;
        }
        Py_ssize_t key = x->section_key(x->ctx, v->section[i] - 1u);
        PyObject *row =
            key < 0 ? NULL : Py_BuildValue("[nL]", key, (sll)s->idle_ns[i]);
        if (fp_export_append(list, row) < 0) {
            Py_CLEAR(list);
        }
    }
    if (list != NULL && nowhere != 0 &&
        fp_export_append(list, Py_BuildValue("[iL]", -1, (sll)nowhere)) < 0) {
        Py_CLEAR(list);
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
        "{sIsNsisKsisisisisis[ii]sNsNsK}", "index", i, "name", name,
        "multiprocessors", d->multiprocessors, "memory_bytes",
        (ull)d->memory_bytes, "threads_per_multiprocessor",
        d->threads_per_multiprocessor, "blocks_per_multiprocessor",
        d->blocks_per_multiprocessor, "registers_per_multiprocessor",
        d->registers_per_multiprocessor, "shared_bytes_per_multiprocessor",
        d->shared_bytes_per_multiprocessor, "warp_size", d->warp_size,
        "capability", d->capability_major, d->capability_minor, "whole", whole,
        "steps", steps, "step_count", (ull)t->step_count);
}

static PyObject *
export_devices(const fp_gpu_view *v, const fp_exported *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < v->timelines; i++) {
        if (fp_export_append(list, export_device(v, i, x)) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

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
    PyObject *why = r->gpu_pause_reason != NULL
                        ? Py_NewRef(r->gpu_pause_reason)
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
                        r->gpu_reason != NULL ? Py_NewRef(r->gpu_reason)
                                              : PyUnicode_FromString(""));
    rc |= fp_export_put(d, "tier", Py_BuildValue("z", tiers[v->tier]));
    rc |= fp_export_put(d, "cupti_version",
                        v->cupti_version
                            ? PyLong_FromUnsignedLongLong(v->cupti_version)
                            : Py_NewRef(none));
    rc |= fp_export_put(d, "cupti_path",
                        text_or_none(v->empty ? NULL : r->gpu_path));
    rc |= fp_export_put(d, "driver_version",
                        v->driver_version ? PyLong_FromLong(v->driver_version)
                                          : Py_NewRef(none));
    rc |= fp_export_put(d, "devices", export_devices(v, x));
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
