/* ledger_parts: what the ledger's own files call of each other; for nobody else.
 *
 *   ledger.c             life; settling and ageing
 *   ledger_lanes.c       what lanes say
 *   ledger_external.c    API and external correlation records
 *   ledger_activities.c  records of what the device did */
#ifndef FP_GPU_LEDGER_PARTS_H
#define FP_GPU_LEDGER_PARTS_H

#include "gpu/ledger.h"

/* Nothing takes two weeks; sums of what CUPTI makes up must not overflow. */
#define FP_LONGEST_NS (INT64_C(1) << 50)

/* Another client of CUPTI may have replaced its clock. */
static inline int
fp_ledger_is_misdated(const fp_ledger *l, int64_t start, int64_t end)
{
    return l->latest_ns != 0 &&
           (start < l->begin_ns - FP_LONGEST_NS || end > l->latest_ns);
}

/* Nodes of graphs that were copied find those that they were copied from. */
void
fp_ledger_settle_clones(fp_ledger *l);

/* Launches whose places are known are counted; [last]: the others do not wait
 * any longer. */
void
fp_ledger_settle_launches(fp_ledger *l, int last);

/* Activities that wait for their launches look for them again; [last]: for the
 * last time. */
void
fp_ledger_retry_parked(fp_ledger *l, int last);

#endif
