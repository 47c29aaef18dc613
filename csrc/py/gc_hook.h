/* gc_hook: an entry in gc.callbacks that times garbage collections for the
 * steps.
 *
 * The collector calls it in the middle of other code, which must not be
 * disturbed: the hook runs no Python code, raises nothing, and does nothing
 * once its recorder is gone.  If the program empties gc.callbacks, the end of
 * the step detects it. */
#ifndef FP_PY_GC_HOOK_H
#define FP_PY_GC_HOOK_H

#include "py/recorder.h"

extern const fp_layer fp_gc_layer;

int
fp_gc_hook_add_type(PyObject *module, fp_state *st);

#endif
