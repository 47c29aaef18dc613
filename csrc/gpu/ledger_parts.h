/* ledger_parts: functions that the ledger's files share with each other only.
 *
 *   ledger.c             create and clear; settling and ageing
 *   ledger_lanes.c       events of lanes
 *   ledger_external.c    API and external correlation records
 *   ledger_activities.c  records of activities */
#ifndef FP_GPU_LEDGER_PARTS_H
#define FP_GPU_LEDGER_PARTS_H

#include "gpu/ledger.h"

/* Longer times (two weeks) are invalid; this keeps sums from overflowing. */
#define FP_LONGEST_NS (INT64_C(1) << 50)

_Static_assert((int)FP_COMMUNICATION_OTHER == (int)FP_GPU_COMMUNICATION &&
                   (int)FP_COMMUNICATION_COLLECTIVE == (int)FP_GPU_COLLECTIVE,
               "a kernel's communication is its class");

/* Are the times impossible, because another client replaced CUPTI's clock? */
static inline int
fp_ledger_is_misdated(const fp_ledger *l, int64_t start, int64_t end)
{
    return l->latest_ns != 0 &&
           (start < l->begin_ns - FP_LONGEST_NS || end > l->latest_ns);
}

/* Gives copied nodes of graphs the places of their originals. */
void
fp_ledger_settle_clones(fp_ledger *l);

/* Counts launches with known places.  [last]: counts the others, too. */
void
fp_ledger_settle_launches(fp_ledger *l, int last);

/* Looks again for the launches of waiting activities.  [last]: counts those
 * without one as unattributed. */
void
fp_ledger_retry_parked(fp_ledger *l, int last);

#endif
