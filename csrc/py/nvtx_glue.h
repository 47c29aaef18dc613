/* nvtx_glue: NVTX for the module and its sections. */
#ifndef FP_PY_NVTX_GLUE_H
#define FP_PY_NVTX_GLUE_H

#include "py/section_type.h"

/* Adds nvtx_in(), nvtx_out() and nvtx_tool(). */
int
fp_nvtx_add_functions(PyObject *module, fp_state *st);

/* In a forked child: switches both directions off. */
void
fp_nvtx_switch_off(fp_state *st);

/* The module is about to be freed, or may not record: no more clients can
 * attach. */
void
fp_nvtx_forbid(fp_state *st);

extern const fp_layer fp_nvtx_layer;

#endif
