/* section_methods: the functions behind the method table of section_type.c,
 * from section_enter.c, section_sync.c and section_names.c. */
#ifndef FP_PY_SECTION_METHODS_H
#define FP_PY_SECTION_METHODS_H

#include "py/section_type.h"

/* Open and close [s] in this thread; under the guard.  [flags]: FP_EXIT_...
 * of core/thread_sections.h. */
void
fp_section_open(fp_section_object *s);

void
fp_section_close(fp_section_object *s, unsigned flags);

/* Is [s], or another section of its phase, open in this thread?  Under the
 * guard. */
int
fp_section_is_open(const fp_section_object *s);

/* Calls torch.cuda.synchronize(), or the function that was set, if [s] or the
 * recorder asks for it.  Never fails. */
void
fp_section_synchronize(fp_recorder *r, const fp_section_object *s);

PyObject *
fp_section_enter(PyObject *self, PyObject *ignored);

PyObject *
fp_section_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

PyObject *
fp_section_enter_phase(PyObject *self, PyObject *ignored);

PyObject *
fp_section_phase_is_open(PyObject *self, PyObject *ignored);

PyObject *
fp_section_leave_later(PyObject *self, PyObject *ignored);

PyObject *
fp_section_leave_now(PyObject *self, PyObject *ignored);

PyObject *
fp_section_park(PyObject *self, PyObject *ignored);

PyObject *
fp_section_resume(PyObject *self, PyObject *ignored);

/* Adds the tuple COVERING_SECTIONS to [module].  Returns 0, or -1 with an
 * exception. */
int
fp_section_add_covering(PyObject *module);

/* The module's function profile_section(). */
PyObject *
fp_profile_section(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames);

#endif
