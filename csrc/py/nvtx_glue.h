/* nvtx_glue: NVTX as the module and the sections see it. */
#ifndef FP_PY_NVTX_GLUE_H
#define FP_PY_NVTX_GLUE_H

#include "py/section_type.h"

/* Adds nvtx_in(), nvtx_out() and nvtx_tool(). */
int
fp_nvtx_add_functions(PyObject *module, fp_state *st);

/* Off, both ways: in a forked child. */
void
fp_nvtx_switch_off(fp_state *st);

/* The module goes, or may record nothing. */
void
fp_nvtx_forbid(fp_state *st);

extern const fp_layer fp_nvtx_layer;

#endif
