/* Methods of the Recorder type for loaders: batches and their times. */
#include "py/recorder_methods.h"

#include "py/export_parts.h"
#include "py/guard.h"
#include "py/section_methods.h"
#include "py/threads.h"

#include "core/thread_sections.h"

#include <math.h>

enum { MAX_TAG = 65535 };

int
fp_loader_tag(PyObject *value, int32_t *tag)
{
    long v = PyLong_AsLong(value);
    if (v == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (v < -1 || v > MAX_TAG) {
        PyErr_Format(PyExc_ValueError,
                     "loader tag is %ld: allowed are -1 to %d", v, MAX_TAG);
        return -1;
    }
    *tag = (int32_t)v;
    return 0;
}

PyObject *
fp_recorder_set_loader_method(PyObject *self, PyObject *value)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    int32_t tag;
    if (fp_loader_tag(value, &tag) < 0) {
        return NULL;
    }
    fp_thread *t = r->initialised ? fp_recorder_section_thread(r) : NULL;
    if (t != NULL && fp_phases_reserve(&t->phases, &t->alloc, tag) == FP_OK) {
        t->phases.tag = tag;
    }
    Py_RETURN_NONE;
}

/* The batch is about to be fetched. */
static void
batch_asked(fp_recorder *r, int32_t tag, fp_section_object *s)
{
    FP_GUARD();
    /* The lingering section belongs to the previous batch. */
    fp_section_end_lingering(r);
    fp_thread *t = fp_recorder_section_thread(r);
    if (t != NULL && fp_phases_reserve(&t->phases, &t->alloc, tag) == FP_OK) {
        t->phases.tag = tag;
        fp_phases_ask(&t->phases, tag, fp_clock_now(&r->clock));
    }
    if (s->state->section_owner != NULL) {
        fp_section_open(s);
    }
}

static void
batch_arrived(fp_recorder *r, int32_t tag, fp_section_object *s, int is_item,
              unsigned flags)
{
    FP_GUARD();
    if (s->state->section_owner != NULL) {
        fp_section_close(s, flags);
    }
    fp_thread *t = fp_recorder_section_thread(r);
    if (is_item && t != NULL) {
        fp_phases_deliver(&t->phases, tag, fp_clock_now(&r->clock));
    }
}

PyObject *
fp_loader_next_batch(fp_recorder *r, int32_t tag, PyObject *iterator,
                     fp_section_object *s, PyObject *fetch, int64_t *ticks)
{
    batch_asked(r, tag, s);
    int64_t began = ticks != NULL ? fp_clock_now(&r->clock) : 0;
    PyObject *item = fetch != NULL ? PyObject_CallOneArg(fetch, iterator)
                                   : Py_TYPE(iterator)->tp_iternext(iterator);
    if (ticks != NULL) {
        *ticks = fp_clock_now(&r->clock) - began;
    }
    unsigned flags = 0;
    if (item == NULL) {
        int end = PyErr_Occurred() == NULL ||
                  PyErr_ExceptionMatches(PyExc_StopIteration);
        flags = end ? FP_EXIT_CANCEL : FP_EXIT_ERROR;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    batch_arrived(r, tag, s, item != NULL, flags);
    PyErr_Restore(type, exc, tb);
    if (item == NULL && !PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    return item;
}

PyObject *
fp_recorder_next_batch_method(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs)
{
    fp_recorder *r = fp_recorder_cast(self);
    int32_t tag;
    if (nargs != 3 && nargs != 4) {
        PyErr_SetString(PyExc_TypeError,
                        "next_batch() takes a tag, an iterator, a section "
                        "and the function that fetches");
        return NULL;
    }
    if (fp_loader_tag(args[0], &tag) < 0) {
        return NULL;
    }
    if (!PyIter_Check(args[1]) || Py_TYPE(args[2]) != r->state->section_type) {
        return PyErr_Format(PyExc_TypeError,
                            "next_batch() takes an iterator and a Section, "
                            "not %.80s and %.80s",
                            Py_TYPE(args[1])->tp_name,
                            Py_TYPE(args[2])->tp_name);
    }
    if (fp_recorder_ready(r) < 0) {
        return NULL;
    }
    return fp_loader_next_batch(
        r, tag, args[1], (fp_section_object *)args[2],
        nargs == 4 && args[3] != Py_None ? args[3] : NULL, NULL);
}

typedef struct loader_sums {
    fp_sum *sum; /* [tags][FP_PHASE_SUMS]; owned */
    uint32_t tags;
    const fp_recorder *r;
    int total;
} loader_sums;

static void
add_loaders_of(loader_sums *out, fp_thread *t, int total)
{
    for (uint32_t i = 0; i < t->phases.capacity && i < out->tags; i++) {
        fp_loader *ld = &t->phases.loader[i];
        for (int ph = 0; ph < FP_PHASE_SUMS; ph++) {
            fp_sum *from = total ? &ld->total[ph] : &ld->since_take[ph];
            out->sum[i * FP_PHASE_SUMS + (uint32_t)ph].ticks += from->ticks;
            out->sum[i * FP_PHASE_SUMS + (uint32_t)ph].count += from->count;
            if (!total) {
                *from = (fp_sum){0, 0};
            }
        }
    }
}

static void
add_loaders(void *arg)
{
    loader_sums *out = arg;
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(out->r, t)) != NULL) {
        add_loaders_of(out, t, out->total);
    }
}

static PyObject *
loader_rows(fp_recorder *r, int total)
{
    loader_sums all = {.r = r, .total = total};
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        all.tags =
            t->phases.capacity > all.tags ? t->phases.capacity : all.tags;
    }
    size_t n = (size_t)all.tags * FP_PHASE_SUMS;
    all.sum = fp_alloc_zeroed(&r->alloc, n + 1, sizeof(*all.sum));
    PyObject *list = all.sum ? PyList_New(0) : PyErr_NoMemory();
    if (list == NULL) {
        fp_alloc_give(&r->alloc, all.sum, n + 1, sizeof(*all.sum));
        return NULL;
    }
    fp_world_stopped(add_loaders, &all);
    double scale = fp_clock_ns_per_tick(&r->clock);
    for (size_t i = 0; i < n && list != NULL; i++) {
        if (all.sum[i].count == 0) {
            continue;
        }
        PyObject *one = Py_BuildValue(
            "(iiKL)", (int)(i / FP_PHASE_SUMS) - 1, (int)(i % FP_PHASE_SUMS),
            (unsigned long long)all.sum[i].count,
            (long long)llround((double)all.sum[i].ticks * scale));
        fp_export_add(&list, one);
    }
    fp_alloc_give(&r->alloc, all.sum, n + 1, sizeof(*all.sum));
    return list;
}

PyObject *
fp_recorder_take_loaders_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    return loader_rows(fp_recorder_cast(self), 0);
}

PyObject *
fp_recorder_loader_totals_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    return loader_rows(fp_recorder_cast(self), 1);
}
