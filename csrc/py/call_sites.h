/* call_sites: chooses the call sites of Python functions whose CALL events
 * are switched off: PY_START reports those calls anyway.  See budget.c. */
#ifndef FP_PY_CALL_SITES_H
#define FP_PY_CALL_SITES_H

#include "py/recorder.h"

/* The code [caller] calls a Python function.  Returns 1 if the event of this
 * call site must be switched off, and counts it; 0: not now. */
int
fp_call_site_goes_off(fp_recorder *r, fp_key caller);

/* All sites send events again: restarts the count. */
void
fp_call_sites_count_anew(fp_recorder *r);

/* The largest number of call sites that were off at the same time. */
uint64_t
fp_call_sites_off(const fp_recorder *r);

#endif
