/* nvtx_in: turns NVTX ranges of other libraries into sections.
 *
 * The extension is an NVTX tool (see gpu/nvtx_abi.h).  Clients attach once and
 * never detach, so their ranges also arrive while nothing is recorded; then
 * only the levels are counted.  A range becomes a section if its thread holds
 * the GIL.  Waiting for the GIL inside a foreign library could hang the
 * program. */
#ifndef FP_PY_NVTX_IN_H
#define FP_PY_NVTX_IN_H

#include "py/nvtx_names.h"
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

/* ---- called on any thread, with or without the GIL ---- */

/* May a client attach? */
int
fp_nvtx_in_may_attach(void);

/* The name of a range; both fields may be NULL. */
typedef struct fp_nvtx_message {
    fp_nvtx_name *registered;
    const char *text;
} fp_nvtx_message;

/* Begins a range of the calling thread in [domain].  Returns the number of
 * ranges that were open before, or a negative number. */
int
fp_nvtx_in_push(const fp_nvtx_name *domain, fp_nvtx_message m);

/* Ends the latest range of the calling thread in [domain].  Returns the number
 * of ranges still open, or a negative number. */
int
fp_nvtx_in_pop(const fp_nvtx_name *domain);

/* Begins a range of the process and returns its number. */
uint64_t
fp_nvtx_in_start(const fp_nvtx_name *domain, fp_nvtx_message m);

void
fp_nvtx_in_end(uint64_t number);

/* The exported function that a client calls at its first range; defined in
 * nvtx_entry.c.  Returns 1 if the tool attaches. */
int
InitializeInjectionNvtx2(fp_nvtx_get_export get_export);

#endif
