/* export_steps: converts the steps of a recorder to Python values. */
#include "py/export_parts.h"

#include "core/steps_pairs.h"
#include "core/steps_split.h"

#include <string.h>

/* A copy of the state at one moment.  It is made without running Python code,
 * during which the thread may end another step. */
typedef struct copy {
    fp_run_phase phase; /* of the steps; FP_RUN_UNPROFILED: the plain ones */
    uint64_t count, skip, apart; /* as in fp_steps */
    fp_step_times times;         /* its histogram is borrowed */
    uint64_t cpu_reckoned;
    fp_split_steps split; /* its columns' ticks are in `ticks` */
    fp_split_place place[FP_SPLIT_PLACES];
    fp_wait wait[FP_WAITS_MAX];
    uint32_t waits;
    uint32_t columns; /* number of columns for which `ticks` has room */
    uint8_t has_split;
    fp_pairs *pairs;               /* owned or NULL */
    int64_t line[FP_STEPS_RECENT]; /* one ring's values, oldest first */
    int64_t ticks[];
} copy;

static size_t
size_of(uint32_t columns)
{
    return sizeof(copy) + columns * FP_STEPS_RECENT * sizeof(int64_t);
}

static const fp_split_steps *
split_of(const fp_thread *t, fp_run_phase phase)
{
    return t->split == NULL        ? NULL
           : phase == FP_RUN_STEPS ? &t->split->measured
                                   : t->split->plain;
}

static void
copy_split(copy *c, const fp_thread *t, const fp_split_steps *of)
{
    const fp_split *s = t->split;
    c->has_split = 1;
    c->cpu_reckoned = s->usage.reckoned;
    memcpy(&c->split, of, sizeof(c->split));
    for (uint32_t i = 0; i < c->columns; i++) {
        memcpy(&c->ticks[(size_t)i * FP_STEPS_RECENT],
               of->series.column[i].ticks, FP_STEPS_RECENT * sizeof(int64_t));
    }
    if (c->phase != FP_RUN_STEPS) {
        return; /* functions that wait are unknown there */
    }
    memcpy(c->place, s->place, sizeof(c->place));
    /* Copy field by field: the GPU's callbacks write to other fields. */
    c->waits = t->waits.count;
    for (uint32_t i = 0; i < c->waits; i++) {
        const fp_wait *w = &t->waits.wait[i];
        c->wait[i].node = w->node;
        c->wait[i].kind = w->kind;
        c->wait[i].sum_ticks = w->sum_ticks;
    }
}

static copy *
take_copy(const fp_export *x, const fp_thread *t, fp_run_phase phase)
{
    const fp_split_steps *of = split_of(t, phase);
    uint32_t columns = of != NULL ? of->series.columns : 0;
    copy *c = fp_alloc_zeroed(&x->r->alloc, 1, size_of(columns));
    if (c == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    c->columns = columns;
    c->phase = phase;
    c->times = phase == FP_RUN_STEPS ? t->steps->measured : t->steps->plain;
    c->count = t->steps->count;
    c->skip = t->steps->skip;
    c->apart = t->steps->apart;
    if (of != NULL) {
        copy_split(c, t, of);
    }
    if (phase == FP_RUN_STEPS && of != NULL && t->split->pairs != NULL) {
        c->pairs = fp_alloc_zeroed(&x->r->alloc, 1, sizeof(*c->pairs));
        if (c->pairs != NULL) { /* without memory they are left out */
            memcpy(c->pairs, t->split->pairs, sizeof(*c->pairs));
        }
    }
    return c;
}

static void
give_copy(const fp_export *x, copy *c)
{
    if (c != NULL) {
        fp_alloc_give(&x->r->alloc, c->pairs, 1, sizeof(*c->pairs));
        fp_alloc_give(&x->r->alloc, c, 1, size_of(c->columns));
    }
}

static uint32_t
kept(const copy *c)
{
    uint64_t n = c->times.count;
    return n < FP_STEPS_RECENT ? (uint32_t)n : FP_STEPS_RECENT;
}

/* The values of [r], oldest first; valid until the next call. */
static const int64_t *
straight(copy *c, fp_values r)
{
    uint64_t n = c->times.count;
    uint32_t rows = kept(c);
    for (uint32_t i = 0; i < rows; i++) {
        c->line[i] = fp_value_of(r, n - rows + i);
    }
    return c->line;
}

/* ---- the series ---- */

static PyObject *
times(const fp_export *x, copy *c, fp_values r)
{
    return fp_export_times(x, straight(c, r), kept(c));
}

static int
all_known(const int64_t *line, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (line[i] < 0) {
            return 0;
        }
    }
    return 1;
}

/* Like times, but an empty list if a value is unknown. */
static PyObject *
known_times(const fp_export *x, copy *c, fp_values r)
{
    const int64_t *line = straight(c, r);
    return all_known(line, kept(c)) ? fp_export_times(x, line, kept(c))
                                    : PyList_New(0);
}

/* Plain numbers; an empty list if a value is unknown. */
static PyObject *
numbers(copy *c, fp_values r)
{
    return known_times(NULL, c, r);
}

static PyObject *
starts(const fp_export *x, copy *c)
{
    for (uint32_t i = 0; i < FP_STEPS_RECENT; i++) {
        fp_series_row *row = &c->split.series.row[i];
        int64_t since = row->start - x->r->recording.origin;
        row->start = since > 0 ? since : 0;
    }
    return times(x, c, fp_values_in_rows(&c->split.series.row->start));
}

static PyObject *
columns(fp_export *x, copy *c)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < c->columns; i++) {
        fp_key key = fp_key_section(c->split.series.column[i].section->id);
        Py_ssize_t index = fp_export_key(x, key);
        fp_values ticks = {&c->ticks[(size_t)i * FP_STEPS_RECENT], 1};
        fp_export_add(&list, index < 0 ? NULL
                                       : Py_BuildValue("(nN)", index,
                                                       times(x, c, ticks)));
    }
    return list;
}

/* An empty dict if there was no memory for single steps. */
static PyObject *
series(fp_export *x, copy *c)
{
    PyObject *d = PyDict_New();
    if (d == NULL || !c->has_split) {
        return d;
    }
    fp_series_row *s = c->split.series.row;
    uint64_t first =
        kept(c) == 0 ? c->count
                     : (uint64_t)straight(c, fp_values_in_rows(&s->number))[0];
    fp_export_put(&d, "first", PyLong_FromUnsignedLongLong(first));
    fp_export_put(&d, "number", numbers(c, fp_values_in_rows(&s->number)));
    fp_export_put(&d, "start_ns", starts(x, c));
    fp_export_put(&d, "wall_ns", times(x, c, (fp_values){c->times.recent, 1}));
    fp_export_put(&d, "sections", columns(x, c));
    fp_export_put(&d, "cpu_ns", numbers(c, fp_values_in_rows(&s->cpu_ns)));
    fp_export_put(&d, "gc_ns", times(x, c, fp_values_in_rows(&s->gc_ticks)));
    fp_export_put(&d, "switches", numbers(c, fp_values_in_rows(&s->switches)));
    fp_export_put(&d, "faults", numbers(c, fp_values_in_rows(&s->faults)));
    fp_export_put(&d, "cpu_wait_ns",
                  numbers(c, fp_values_in_rows(&s->delay_ns)));
    fp_export_put(&d, "communication_ns",
                  known_times(x, c, fp_values_in_rows(&s->communication)));
    fp_export_put(&d, "autograd_ns",
                  known_times(x, c, fp_values_in_rows(&s->autograd)));
    fp_export_put(&d, "sections_left_out",
                  PyLong_FromUnsignedLong(c->split.series.left_out));
    return d;
}

/* ---- kinds of time ---- */

static const char *const kind_names[FP_KIND_COUNT] = {
    [FP_KIND_DATA] = "data",         [FP_KIND_COMMUNICATION] = "communication",
    [FP_KIND_LOCK] = "lock",         [FP_KIND_IO] = "io",
    [FP_KIND_GPU] = "gpu_wait",      [FP_KIND_GC] = "gc",
    [FP_KIND_AUTOGRAD] = "autograd", [FP_KIND_CPU] = "cpu_wait",
};

static void
add_place(const fp_export *x, const fp_thread *t, PyObject **list, int kind,
          const fp_node *n, int64_t ticks)
{
    uint32_t thread, row;
    if (ticks > 0 && fp_export_node(x, t, n, &thread, &row)) {
        fp_export_add(list, Py_BuildValue("(sIIN)", kind_names[kind], thread,
                                          row, fp_export_time(x, ticks)));
    }
}

static PyObject *
places(const fp_export *x, const copy *c, const fp_thread *t)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < c->waits; i++) {
        const fp_wait *w = &c->wait[i];
        add_place(x, t, &list, w->kind, w->node, w->sum_ticks);
    }
    for (uint32_t i = 0; i < FP_SPLIT_PLACES; i++) {
        const fp_split_place *p = &c->place[i];
        if (p->node != NULL) {
            add_place(x, t, &list, p->kind, p->node, p->sum_ticks);
        }
    }
    return list;
}

static PyObject *
kinds(const fp_export *x, const copy *c)
{
    PyObject *d = PyDict_New();
    for (int k = FP_KIND_NONE + 1; k < FP_KIND_COUNT; k++) {
        fp_export_put(&d, kind_names[k],
                      fp_export_time(x, c->split.sum.kind[k]));
    }
    return d;
}

/* The time per kind, and how many steps each signal covers. */
static PyObject *
spent(const fp_export *x, const copy *c, const fp_thread *t)
{
    if (!c->has_split) {
        Py_RETURN_NONE;
    }
    typedef unsigned long long ull;
    const uint64_t *runs = c->split.sum.gc_runs, *seen = c->split.signal_steps;
    return Py_BuildValue(
        "{sNsNsNsLsLsLsKsLsLsKsKsKsKs(KKK)sKsKsK}", "kinds", kinds(x, c),
        "places", places(x, c, t), "covered_ns",
        fp_export_time(x, c->split.sum.covered_ticks), "covered_cpu_ns",
        (long long)c->split.sum.covered_cpu_ns, "gc_cpu_ns",
        (long long)c->split.sum.gc_cpu_ns, "cpu_ns",
        (long long)c->split.cpu_ns, "cpu_steps", (ull)c->split.cpu_steps,
        "delay_ns", (long long)c->split.sum.delay_ns, "covered_delay_ns",
        (long long)c->split.sum.covered_delay_ns, "delay_steps",
        (ull)c->split.delay_steps, "function_steps", (ull)seen[0], "gc_steps",
        (ull)seen[1], "gpu_steps", (ull)seen[2], "gc_runs", (ull)runs[0],
        (ull)runs[1], (ull)runs[2], "gc_elsewhere",
        (ull)x->r->recording.gc_elsewhere, "waits_left_out",
        (ull)t->waits.left_out, "cpu_reckoned", (ull)c->cpu_reckoned);
}

/* ---- steps without the hook ---- */

static PyObject *
pair_steps(const fp_export *x, const fp_pair_step *step, uint32_t n,
           uint32_t sections)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        fp_export_add(
            &list,
            Py_BuildValue("(NLN)", fp_export_time(x, step[i].ticks),
                          (long long)step[i].delay_ns,
                          fp_export_times(x, step[i].section, sections)));
    }
    return list;
}

/* A list of (number of the first step, steps without the hook, steps with it);
 * a step is its wall time, its wait for a CPU and the times of its first
 * sections, at most [columns].  [p]: NULL gives an empty list. */
static PyObject *
pairs(const fp_export *x, const fp_pairs *p, uint32_t columns)
{
    PyObject *list = PyList_New(0);
    uint64_t n = p != NULL ? fp_pairs_kept(p) : 0;
    uint32_t sections =
        columns < FP_PAIRS_COLUMNS ? columns : FP_PAIRS_COLUMNS;
    for (uint64_t i = 0; list != NULL && i < n; i++) {
        const fp_pair_block *b =
            &p->block[(p->blocks - n + i) % FP_PAIRS_BLOCKS];
        fp_export_add(
            &list,
            Py_BuildValue("(KNN)", (unsigned long long)b->first,
                          pair_steps(x, b->plain, b->plain_count, sections),
                          pair_steps(x, b->near, b->near_count, sections)));
    }
    return list;
}

/* ---- all of it ---- */

static PyObject *
step_rows(fp_export *x, const fp_thread *t, fp_run_phase phase)
{
    PyObject *list = PyList_New(0);
    const fp_section *s;
    uint32_t at = 0;
    while (list != NULL &&
           (s = fp_export_next_section(t, phase, &at)) != NULL) {
        if (s->steps == 0) {
            continue;
        }
        Py_ssize_t index = fp_export_key(x, fp_key_section(s->id));
        unsigned long long steps = s->steps;
        fp_export_add(&list,
                      index < 0
                          ? NULL
                          : Py_BuildValue("(nKN)", index, steps,
                                          fp_export_time(x, s->steps_ticks)));
    }
    return list;
}

static PyObject *
as_dict(fp_export *x, const fp_thread *t, copy *c)
{
    PyObject *d = PyDict_New();
    const fp_step_times *s = &c->times;
    double seconds = x->ns_per_tick * 1e-9;
    double sum_sq = s->sum_sq * seconds * seconds;
    uint32_t thread = fp_export_thread_index(x, t);
    fp_export_put(&d, "thread",
                  thread < x->threads ? PyLong_FromUnsignedLong(thread)
                                      : Py_NewRef(Py_None));
    fp_export_put(&d, "sum_ns", fp_export_time(x, s->sum_ticks));
    fp_export_put(&d, "sum_sq", PyFloat_FromDouble(sum_sq));
    fp_export_put(&d, "min_ns", fp_export_time(x, s->min_ticks));
    fp_export_put(&d, "max_ns", fp_export_time(x, s->max_ticks));
    fp_export_put(&d, "recent_ns", times(x, c, (fp_values){s->recent, 1}));
    fp_export_put(&d, "hist", fp_export_hist(x, &s->hist));
    fp_export_put(&d, "rows", step_rows(x, t, c->phase));
    fp_export_put(&d, "series", series(x, c));
    fp_export_put(&d, "spent", spent(x, c, t));
    return d;
}

/* Adds what concerns all steps, not one kind of them. */
static void
put_counts(const fp_export *x, PyObject **d, const copy *c)
{
    uint64_t skipped = c->count < c->skip ? c->count : c->skip;
    fp_export_put(d, "count", PyLong_FromUnsignedLongLong(c->count));
    fp_export_put(d, "skipped", PyLong_FromUnsignedLongLong(skipped));
    fp_export_put(d, "apart", PyLong_FromUnsignedLongLong(c->apart));
    fp_export_put(d, "unprofiled", pairs(x, c->pairs, c->columns));
}

static PyObject *
steps_of(fp_export *x, const fp_thread *t, fp_run_phase phase)
{
    copy *c = take_copy(x, t, phase);
    PyObject *d = c != NULL ? as_dict(x, t, c) : NULL;
    if (c != NULL && phase == FP_RUN_STEPS) {
        put_counts(x, &d, c);
    }
    else if (c != NULL) {
        fp_export_put(&d, "count",
                      PyLong_FromUnsignedLongLong(c->times.count));
    }
    give_copy(x, c);
    return d;
}

PyObject *
fp_export_steps(fp_export *x)
{
    const fp_thread *t = x->r->stepper;
    if (t == NULL || t->steps == NULL) {
        Py_RETURN_NONE;
    }
    return steps_of(x, t, FP_RUN_STEPS);
}

PyObject *
fp_export_plain_steps(fp_export *x)
{
    const fp_thread *t = x->r->stepper;
    if (t == NULL || t->steps == NULL || t->steps->plain.count == 0) {
        Py_RETURN_NONE;
    }
    return steps_of(x, t, FP_RUN_UNPROFILED);
}
