/* ledger_parts: what the ledger's own files call of each other; for nobody else.
 *
 *   ledger.c             life; settling and ageing
 *   ledger_lanes.c       what lanes say
 *   ledger_external.c    API and external correlation records
 *   ledger_activities.c  records of what the device did */
#ifndef FP_GPU_LEDGER_PARTS_H
#define FP_GPU_LEDGER_PARTS_H

#include "gpu/ledger.h"

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
