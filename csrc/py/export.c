/* export: converts everything that a recorder holds to one dict of plain
 * lists.  It changes nothing, so it may run while recording. */
#include "py/export.h"

#include "py/export_outliers.h"
#include "py/export_parts.h"
#include "py/gpu_layer.h"
#include "py/guard.h"
#include "py/recorder_reset.h"
#include "py/run_phase.h"
#include "py/trace_layer.h"

#include <stdlib.h>
#include <string.h>

/* ---- sections, steps, loaders ---- */

/* A section at one moment: the thread goes on. */
typedef struct section_copy {
    const fp_section *from;
    fp_section s;
    uint64_t octave[FP_HIST_OCTAVES][FP_HIST_SUB];
} section_copy;

static void
copy_section(void *arg)
{
    section_copy *c = arg;
    c->s = *c->from;
    for (int i = 0; i < FP_HIST_OCTAVES; i++) {
        if (c->s.hist.octave[i] != NULL) {
            memcpy(c->octave[i], c->s.hist.octave[i], sizeof(c->octave[i]));
            c->s.hist.octave[i] = c->octave[i];
        }
    }
}

static int
export_section(fp_export *x, section_copy *c, Py_ssize_t thread,
               fp_run_phase phase, PyObject *list)
{
    fp_world_stopped(copy_section, c);
    const fp_section *s = &c->s;
    Py_ssize_t index = fp_export_key(x, fp_key_section(s->id));
    PyObject *hist = index < 0 ? NULL : fp_export_hist(x, &s->hist);
    if (hist == NULL) {
        return -1;
    }
    return fp_export_append(
        list, Py_BuildValue("(nnKLLLLKINi)", index, thread,
                            (unsigned long long)s->count,
                            (long long)fp_export_ns(x, s->sum_ticks),
                            (long long)fp_export_ns(x, s->outer_ticks),
                            (long long)fp_export_ns(x, s->min_ticks),
                            (long long)fp_export_ns(x, s->max_ticks),
                            (unsigned long long)s->errors,
                            (unsigned int)s->open, hist, (int)phase));
}

static int
export_sections_of(fp_export *x, const fp_thread *t, fp_run_phase phase,
                   Py_ssize_t thread, PyObject *list)
{
    section_copy *c = malloc(sizeof(*c));
    if (c == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0;; i++) {
        /* Read the table again: Python code may run below and open new
         * sections. */
        fp_section_table of = fp_thread_sections_of(t, phase);
        c->from = i < of.capacity ? of.section[i] : NULL;
        int rc = 0;
        if (c->from != NULL && (c->from->count != 0 || c->from->open != 0)) {
            rc = export_section(x, c, thread, phase, list);
        }
        if (rc < 0 || i >= of.capacity) {
            free(c);
            return rc;
        }
    }
}

static int
export_sections(fp_export *x, const fp_thread *t, Py_ssize_t thread,
                PyObject *list)
{
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        if (export_sections_of(x, t, (fp_run_phase)p, thread, list) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Number of durations lost because a histogram had no memory. */
static uint64_t
lost_samples(const fp_thread *t)
{
    uint64_t lost = t->steps != NULL ? t->steps->hist.lost : 0;
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        fp_section_table of = fp_thread_sections_of(t, (fp_run_phase)p);
        for (uint32_t i = 0; i < of.capacity; i++) {
            lost += of.section[i] != NULL ? of.section[i]->hist.lost : 0;
        }
    }
    return lost;
}

static PyObject *
export_counters(const fp_recorder *r)
{
    fp_counters c = {0};
    const fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        c.unbalanced += t->counters.unbalanced;
        c.unmatched += t->counters.unmatched;
        c.dropped += t->counters.dropped;
        c.truncated += t->counters.truncated;
        c.out_of_order += t->counters.out_of_order;
        c.stray_exit += t->counters.stray_exit;
        c.wrong_thread += t->counters.wrong_thread;
        c.clock_back += t->counters.clock_back;
        c.dropped += lost_samples(t);
    }
    typedef unsigned long long ull;
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsisKsKsKsKsKsKsKsKsKsi}", "unbalanced",
        (ull)c.unbalanced, "unmatched", (ull)c.unmatched, "dropped",
        (ull)c.dropped, "truncated", (ull)c.truncated, "out_of_order",
        (ull)c.out_of_order, "stray_exit", (ull)c.stray_exit, "wrong_thread",
        (ull)c.wrong_thread, "clock_back", (ull)c.clock_back, "clock_jumps",
        fp_clock_has_jumped(&r->clock), "timer_errors",
        (ull)r->recording.timer_errors, "sync_errors",
        (ull)r->recording.sync_errors, "wrong_step_thread",
        (ull)r->recording.wrong_step_thread, "dropped_threads",
        (ull)r->recording.dropped_threads, "names_dropped",
        (ull)r->state->names_dropped, "nvtx_without_gil",
        (ull)r->recording.nvtx_without_gil, "nvtx_unmatched",
        (ull)r->recording.nvtx_unmatched, "nvtx_unbalanced",
        (ull)r->recording.nvtx_unbalanced, "call_sites_off",
        (ull)(r->recording.sites_off > r->recording.sites_off_most
                  ? r->recording.sites_off
                  : r->recording.sites_off_most),
        "displaced", (int)r->recording.displaced);
}

static PyObject *
export_muted(fp_export *x)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < x->r->keys.count; i++) {
        fp_keyent e = x->r->keys.entry[i];
        if (!e.muted) {
            continue;
        }
        Py_ssize_t index = fp_export_key(x, e.key);
        PyObject *one =
            index < 0 ? NULL
                      : Py_BuildValue("(nK)", index,
                                      (unsigned long long)e.calls_before_mute);
        fp_export_add(&list, one);
    }
    return list;
}

/* ---- all of it ---- */

/* The thread that follows serial [after]: the list begins with the newest
 * thread, the export with the oldest. */
static fp_thread *
thread_by_age(const fp_recorder *r, uint64_t after)
{
    fp_thread *oldest = NULL;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        if (t->serial > after &&
            (oldest == NULL || t->serial < oldest->serial)) {
            oldest = t;
        }
    }
    return oldest;
}

static int
export_threads(fp_export *x, PyObject *threads, PyObject *sections)
{
    fp_recorder *r = x->r;
    int recording = r->functions_on || r->sections_on;
    uint64_t after = 0;
    for (;;) {
        fp_thread *t = thread_by_age(r, after);
        int ended = t == NULL;
        if (ended && (t = r->ended) == NULL) {
            return 0;
        }
        after = t->serial;
        int64_t now = !recording || ended || r->config.timer != NULL
                          ? t->last
                          : fp_clock_now(&r->clock);
        Py_ssize_t index = PyList_GET_SIZE(threads);
        if (fp_export_append(threads, fp_export_thread(x, t, now, ended)) <
                0 ||
            export_sections(x, t, index, sections) < 0) {
            return -1;
        }
        if (ended) {
            return 0;
        }
    }
}

static Py_ssize_t
section_key(void *ctx, uint32_t section)
{
    return fp_export_key(ctx, fp_key_section(section));
}

static fp_exported
exported_by(fp_export *x)
{
    return (fp_exported){x->thread, x->threads, x->ns_per_tick, section_key,
                         x};
}

static PyObject *
export_outliers(fp_export *x)
{
    const fp_exported exported = exported_by(x);
    return fp_outliers_export(x->r, &exported);
}

/* None: the GPU layer was never requested. */
static PyObject *
export_gpu(fp_export *x, const fp_gpu_view *view)
{
    if (view == NULL) {
        Py_RETURN_NONE;
    }
    const fp_exported exported = exported_by(x);
    return fp_gpu_view_export(x->r, view, &exported);
}

static Py_ssize_t
any_key(void *ctx, fp_key key)
{
    return fp_export_key(ctx, key);
}

static PyObject *
export_trace(fp_export *x, const fp_gpu_view *view)
{
    fp_recorder *r = x->r;
    PyObject *d = fp_recorder_export_trace(r, x->ns_per_tick, any_key, x);
    if (d != NULL && d != Py_None &&
        fp_export_put(
            d, "gpu",
            fp_gpu_view_trace(view, r->trace.origin, x->ns_per_tick)) < 0) {
        Py_CLEAR(d);
    }
    return d;
}

/* [(phase, ns, number of times it began)] */
static PyObject *
export_phases(const fp_export *x)
{
    const fp_recorder *r = x->r;
    PyObject *list = PyList_New(0);
    for (int p = 0; list != NULL && p < FP_RUN_PHASES; p++) {
        int64_t ticks = fp_recorder_phase_ticks(r, (fp_run_phase)p);
        PyObject *one =
            Py_BuildValue("(iLK)", p, (long long)fp_export_ns(x, ticks),
                          (unsigned long long)r->recording.phases.entries[p]);
        fp_export_add(&list, one);
    }
    return list;
}

static int
export_into(fp_export *x, PyObject *d, const fp_gpu_view *view, int with_trace)
{
    fp_recorder *r = x->r;
    PyObject *threads = PyList_New(0), *sections = PyList_New(0);
    if (threads == NULL || sections == NULL ||
        export_threads(x, threads, sections) < 0) {
        Py_XDECREF(threads);
        Py_XDECREF(sections);
        return -1;
    }
    int64_t ticks = r->recording.recorded_ticks;
    if ((r->functions_on || r->sections_on) && r->config.timer == NULL) {
        ticks += fp_clock_now(&r->clock) - r->started;
    }
    static const char *const backends[] = {NULL, "setprofile", "monitoring"};
    int rc = fp_export_put(d, "threads", threads);
    rc |= fp_export_put(d, "sections", sections);
    rc |= fp_export_put(d, "phases", export_phases(x));
    /* Export outliers before the steps: then the steps include every
     * outlier. */
    rc |= fp_export_put(d, "outliers", export_outliers(x));
    rc |= fp_export_put(d, "steps", fp_export_steps(x));
    rc |= fp_export_put(d, "muted", export_muted(x));
    rc |= fp_export_put(
        d, "calls_before_off",
        PyLong_FromUnsignedLongLong(r->recording.calls_before_off));
    rc |= fp_export_put(d, "gpu", export_gpu(x, view));
    rc |= fp_export_put(
        d, "trace", with_trace ? export_trace(x, view) : Py_NewRef(Py_None));
    FP_LAYERS(r, exporting, r);
    rc |= fp_export_put(d, "counters", export_counters(r));
    rc |= fp_export_put(d, "duration_ns",
                        PyLong_FromLongLong(fp_export_ns(x, ticks)));
    rc |= fp_export_put(d, "clock",
                        PyUnicode_FromString(fp_clock_name(&r->clock)));
    rc |= fp_export_put(d, "backend",
                        Py_BuildValue("z", backends[r->hooks.backend]));
    rc |= fp_export_put(d, "fell_back", PyBool_FromLong(r->hooks.fell_back));
    rc |= fp_export_put(d, "new_threads_lost",
                        PyBool_FromLong(r->hooks.new_threads_lost));
    rc |=
        fp_export_put(d, "ended_threads",
                      PyLong_FromUnsignedLongLong(r->recording.ended_threads));
    rc |= fp_export_put(d, "folded", PyLong_FromUnsignedLongLong(x->folded));
    rc |= fp_export_put(d, "keys", Py_NewRef(x->keys));
    rc |= fp_export_put(d, "forms", Py_NewRef(x->forms));
    return rc;
}

PyObject *
fp_recorder_export(fp_recorder *r, int with_trace, PyObject *fold)
{
    fp_export x = {
        .r = r,
        .ns_per_tick = fp_clock_ns_per_tick(&r->clock),
        .fold = fold,
    };
    PyObject *d = PyDict_New();
    x.key_index = PyDict_New();
    x.keys = PyList_New(0);
    x.forms = PyList_New(0);
    /* Describing keys runs Python code; the records must not be freed
     * meanwhile. */
    fp_recorder_begin_export(r);
    fp_gpu_view *view = fp_gpu_view_take(r, with_trace);
    if (d == NULL || x.key_index == NULL || x.keys == NULL ||
        x.forms == NULL || (view == NULL && PyErr_Occurred()) ||
        export_into(&x, d, view, with_trace) < 0) {
        Py_CLEAR(d);
    }
    fp_gpu_view_free(view);
    fp_export_forget_threads(&x);
    fp_recorder_end_export(r);
    Py_XDECREF(x.key_index);
    Py_XDECREF(x.keys);
    Py_XDECREF(x.forms);
    return d;
}
