/* section_type: the type of `with profile_section("forward")`. */
#ifndef FP_PY_SECTION_TYPE_H
#define FP_PY_SECTION_TYPE_H

#include "py/recorder.h"

typedef struct fp_section_object {
    PyObject_HEAD
    fp_state *state; /* borrowed */
    PyObject *name;  /* owned */
    uint32_t id;
    uint8_t phase; /* fp_phase */
    int8_t sync;   /* 1 or 0; -1: the recorder's setting */
    uint8_t cover; /* fp_kind of all time in the section, or 0 */
    uint8_t plain; /* covers no kind and never synchronizes by itself */
} fp_section_object;

/* The section named [name], which must not be empty; new reference or NULL
 * with an exception. */
PyObject *
fp_section_named(fp_state *st, PyObject *name);

/* Opens the section in this thread without synchronizing.  Returns the
 * thread's record; NULL: not opened. */
fp_thread *
fp_section_begin(fp_recorder *r, const fp_section_object *s);

/* Ends the lingering section of this thread, if there is one. */
void
fp_section_end_lingering(fp_recorder *r);

int
fp_section_add_type(PyObject *module, fp_state *st);

#endif
