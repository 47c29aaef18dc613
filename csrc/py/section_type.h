/* section_type: `with profile_section("forward")`. */
#ifndef FP_PY_SECTION_TYPE_H
#define FP_PY_SECTION_TYPE_H

#include "py/recorder.h"

typedef struct fp_section_object {
    PyObject_HEAD
    fp_state *state; /* borrowed */
    PyObject *name;  /* owned */
    uint32_t id;
    uint8_t phase; /* fp_phase */
    int8_t sync;   /* -1: as the recorder says */
    uint8_t cover; /* fp_kind of all time in it, or 0 */
    uint8_t plain; /* it covers nothing, and waits for no GPU by itself */
} fp_section_object;

/* The section called [name], not empty; new reference or NULL with an exception. */
PyObject *
fp_section_named(fp_state *st, PyObject *name);

/* Opens it in this thread, without waiting for the GPU; the thread's record, or
 * NULL where it was not opened. */
fp_thread *
fp_section_begin(fp_recorder *r, const fp_section_object *s);

/* Closes the section that lingers in this thread, if there is one. */
void
fp_section_end_lingering(fp_recorder *r);

int
fp_section_add_type(PyObject *module, fp_state *st);

/* PyIter_Next in the section, for Recorder.next_batch. */
PyObject *
fp_section_next_batch(fp_recorder *r, int32_t tag, PyObject *iterator,
                      fp_section_object *section);

#endif
