/* Synchronizes the GPU at the borders of sections. */
#include "py/section_methods.h"

#include "py/interrupts.h"

void
fp_section_synchronize(fp_recorder *r, const fp_section_object *s)
{
    int wanted = s->sync < 0 ? r->sync && s->phase != FP_PHASE_DATA : s->sync;
    if (!wanted || r->state->sync_function == NULL) {
        return;
    }
    /* The function may drop the last reference to either. */
    PyObject *function = Py_NewRef(r->state->sync_function);
    Py_INCREF((PyObject *)r);
    PyObject *done = PyObject_CallNoArgs(function);
    if (done == NULL && !fp_error_drop()) {
        r->recording.sync_errors++;
    }
    Py_XDECREF(done);
    Py_DECREF((PyObject *)r);
    Py_DECREF(function);
}
