/* budget: keeps the recording's own cost below max_overhead. */
#ifndef FP_PY_BUDGET_H
#define FP_PY_BUDGET_H

#include "py/recorder.h"

/* Call this at the end of a step.  Checks a part of the recording's cost, and
 * mutes frequent trivial functions if the cost is above max_overhead. */
void
fp_recorder_check_budget(fp_recorder *r, const fp_steps *steps);

#endif
