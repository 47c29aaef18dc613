/* nvtx_in: turns NVTX ranges of other libraries into sections.
 *
 * The extension is an NVTX tool (see gpu/nvtx_abi.h).  Clients attach once and
 * never detach, so their ranges also arrive while nothing is recorded; then
 * only the levels are counted.  A range becomes a section if its thread holds
 * the GIL.  Waiting for the GIL inside a foreign library could hang the
 * program. */
#ifndef FP_PY_NVTX_IN_H
#define FP_PY_NVTX_IN_H

#include "py/recorder.h"

#include "gpu/nvtx_abi.h"

/* Clients may attach from now on, for this module. */
void
fp_nvtx_in_allow(fp_state *st);

/* Clients may no longer attach. */
void
fp_nvtx_in_forbid(const fp_state *st);

/* Turns the conversion of ranges to sections on or off. */
void
fp_nvtx_in_switch(int on);

/* Adds the counts since the last call to [r]. */
void
fp_nvtx_in_collect(fp_recorder *r);

/* The exported function that a client calls at its first range; defined in
 * nvtx_entry.c.  Returns 1 if the tool attaches. */
int
InitializeInjectionNvtx2(fp_nvtx_get_export get_export);

#endif
