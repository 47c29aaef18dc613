/* nvtx_in: NVTX ranges of other libraries become sections.
 *
 * The extension is a tool to NVTX (see gpu/nvtx_abi.h).  Clients attach once and
 * for good, so their ranges come also while nothing records: then only the
 * levels are kept.  A range becomes a section if its thread holds the GIL; to
 * wait for the GIL in the middle of somebody's library could hang the program. */
#ifndef FP_PY_NVTX_IN_H
#define FP_PY_NVTX_IN_H

#include "py/recorder.h"

#include "gpu/nvtx_abi.h"

/* Clients may attach from now on, to this module. */
void
fp_nvtx_in_allow(fp_state *st);

/* No more. */
void
fp_nvtx_in_forbid(const fp_state *st);

/* Do ranges become sections? */
void
fp_nvtx_in_switch(int on);

/* Adds what was counted since the last time to [r]. */
void
fp_nvtx_in_collect(fp_recorder *r);

/* What a client calls at its first range; exported.  In nvtx_entry.c. */
int
InitializeInjectionNvtx2(fp_nvtx_get_export get_export);

#endif
