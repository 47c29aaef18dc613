/* budget: the recording's own cost is kept below max_overhead. */
#ifndef FP_PY_BUDGET_H
#define FP_PY_BUDGET_H

#include "py/recorder.h"

/* A step has ended: looks at a part of what the recording costs, and mutes hot
 * trivial functions if that is more than max_overhead. */
void
fp_recorder_check_budget(fp_recorder *r, const fp_steps *steps);

#endif
