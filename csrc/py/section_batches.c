/* Fetches a loader's batches inside the section of loading. */
#include "py/section_methods.h"

#include "py/guard.h"
#include "py/threads.h"

#include "core/thread_sections.h"

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
fp_section_next_batch(fp_recorder *r, int32_t tag, PyObject *iterator,
                      fp_section_object *s)
{
    batch_asked(r, tag, s);
    PyObject *item = Py_TYPE(iterator)->tp_iternext(iterator);
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
