/* export: converts everything that a recorder holds to one dict of plain
 * lists.  It changes nothing, so it may run while recording. */
#include "py/export_parts.h"

#include "py/gpu_view.h"
#include "py/guard.h"
#include "py/run_phase.h"

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

static PyObject *
export_section(fp_export *x, section_copy *c, Py_ssize_t thread, int phase)
{
    fp_world_stopped(copy_section, c);
    const fp_section *s = &c->s;
    Py_ssize_t index = fp_export_key(x, fp_key_section(s->id));
    return index < 0 ? NULL
                     : Py_BuildValue("(nnKNNNNKINi)", index, thread,
                                     (unsigned long long)s->count,
                                     fp_export_time(x, s->sum_ticks),
                                     fp_export_time(x, s->outer_ticks),
                                     fp_export_time(x, s->min_ticks),
                                     fp_export_time(x, s->max_ticks),
                                     (unsigned long long)s->errors,
                                     (unsigned int)s->open,
                                     fp_export_hist(x, &s->hist), phase);
}

static void
export_sections(fp_export *x, const fp_thread *t, Py_ssize_t thread,
                PyObject **list)
{
    section_copy *c = malloc(sizeof(*c));
    if (c == NULL) {
        Py_CLEAR(*list);
        PyErr_NoMemory();
    }
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        uint32_t at = 0;
        while (*list != NULL && (c->from = fp_export_next_section(
                                     t, (fp_run_phase)p, &at)) != NULL) {
            if (c->from->count != 0 || c->from->open != 0) {
                fp_export_add(list, export_section(x, c, thread, p));
            }
        }
    }
    free(c);
}

/* Number of durations lost because a histogram had no memory. */
static uint64_t
lost_samples(const fp_thread *t)
{
    uint64_t lost = t->steps != NULL ? t->steps->measured.hist.lost +
                                           t->steps->plain.hist.lost
                                     : 0;
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        const fp_section *s;
        uint32_t at = 0;
        while ((s = fp_export_next_section(t, (fp_run_phase)p, &at)) != NULL) {
            lost += s->hist.lost;
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
        fp_counters_add(&c, &t->counters);
        c.dropped += lost_samples(t);
    }
    typedef unsigned long long ull;
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsisKsKsKsKsKsKsKsKsi}", "unbalanced",
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
        (ull)r->recording.nvtx_unbalanced, "displaced",
        (int)r->recording.displaced);
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

static void
export_threads(fp_export *x, PyObject **threads, PyObject **sections)
{
    fp_recorder *r = x->r;
    int recording = r->functions_on || r->sections_on;
    uint64_t after = 0;
    for (int ended = 0; !ended && *threads != NULL && *sections != NULL;) {
        fp_thread *t = thread_by_age(r, after);
        ended = t == NULL;
        if (ended && (t = r->ended) == NULL) {
            return;
        }
        after = t->serial;
        int64_t now = !recording || ended || r->config.timer != NULL
                          ? t->last
                          : fp_clock_now(&r->clock);
        Py_ssize_t index = PyList_GET_SIZE(*threads);
        fp_export_add(threads, fp_export_thread(x, t, now, ended));
        export_sections(x, t, index, sections);
    }
}

static PyObject *
export_trace(fp_export *x, const fp_gpu_view *view)
{
    PyObject *d = fp_export_trace(x);
    if (d != NULL && d != Py_None) {
        fp_export_put(&d, "gpu", fp_gpu_view_trace(x, view));
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
        unsigned long long entries = r->recording.phases.entries[p];
        fp_export_add(&list, Py_BuildValue("(iNK)", p,
                                           fp_export_time(x, ticks), entries));
    }
    return list;
}

static PyObject *
export_all(fp_export *x, const fp_gpu_view *view, int with_trace)
{
    fp_recorder *r = x->r;
    PyObject *d = PyDict_New();
    PyObject *threads = PyList_New(0), *sections = PyList_New(0);
    export_threads(x, &threads, &sections);
    int64_t ticks = r->recording.recorded_ticks;
    if ((r->functions_on || r->sections_on) && r->config.timer == NULL) {
        ticks += fp_clock_now(&r->clock) - r->started;
    }
    static const char *const backends[] = {NULL, "setprofile", "monitoring"};
    fp_export_put(&d, "threads", threads);
    fp_export_put(&d, "sections", sections);
    fp_export_put(&d, "phases", export_phases(x));
    /* Export outliers before the steps: then the steps include every
     * outlier. */
    fp_export_put(&d, "outliers", fp_outliers_export(x));
    fp_export_put(&d, "steps", fp_export_steps(x));
    fp_export_put(&d, "plain_steps", fp_export_plain_steps(x));
    fp_export_put(&d, "gpu", fp_gpu_view_export(x, view));
    fp_export_put(&d, "trace",
                  with_trace ? export_trace(x, view) : Py_NewRef(Py_None));
    FP_LAYERS(r, exporting, r);
    fp_export_put(&d, "counters", export_counters(r));
    fp_export_put(&d, "duration_ns", fp_export_time(x, ticks));
    fp_export_put(&d, "clock", PyUnicode_FromString(fp_clock_name(&r->clock)));
    fp_export_put(&d, "backend",
                  Py_BuildValue("z", backends[r->hooks.backend]));
    fp_export_put(&d, "fell_back", PyBool_FromLong(r->hooks.fell_back));
    fp_export_put(&d, "new_threads_lost",
                  PyBool_FromLong(r->hooks.new_threads_lost));
    fp_export_put(&d, "ended_threads",
                  PyLong_FromUnsignedLongLong(r->recording.ended_threads));
    fp_export_put(&d, "folded", PyLong_FromUnsignedLongLong(x->folded));
    fp_export_put(&d, "keys", Py_XNewRef(x->keys));
    fp_export_put(&d, "forms", Py_XNewRef(x->forms));
    return d;
}

PyObject *
fp_recorder_export(fp_recorder *r, int with_trace, PyObject *fold)
{
    fp_export x;
    PyObject *d = NULL;
    int rc = fp_export_begin(&x, r);
    x.fold = fold;
    fp_gpu_view *view = fp_gpu_view_take(r, with_trace);
    if (rc == 0 && (view != NULL || !PyErr_Occurred())) {
        d = export_all(&x, view, with_trace);
    }
    fp_gpu_view_free(view);
    fp_export_forget_threads(&x);
    fp_export_end(&x);
    return d;
}
