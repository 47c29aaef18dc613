/* gc_hook: an entry in gc.callbacks, which times collections for the steps.
 *
 * The collector calls it between other people's code and must not hear of it: it
 * runs no Python code, raises nothing, and does nothing for a recorder that is
 * gone.  Whoever empties gc.callbacks takes it out; that is noticed at the end of
 * the step. */
#ifndef FP_PY_GC_HOOK_H
#define FP_PY_GC_HOOK_H

#include "py/recorder.h"

extern const fp_layer fp_gc_layer;

int
fp_gc_hook_add_type(PyObject *module, fp_state *st);

#endif
