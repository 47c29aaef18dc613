/* ledger: everything that is known about the device's work: what was launched
 * where, what came of it, how long it took.  The one decoder for both ways of
 * correlation:
 *
 *   lanes (launch callbacks) ------------\
 *                                         > launches -> sums, kernels, timelines
 *   API + external correlation records --/
 *
 * One thread at a time. */
#ifndef FP_GPU_LEDGER_H
#define FP_GPU_LEDGER_H

#include "gpu/ledger_state.h"

/* [devices] timelines.  FP_ENOMEM: nothing is held. */
fp_status
fp_ledger_init(fp_ledger *l, const fp_alloc *a, uint32_t devices,
               double ns_per_tick);

void
fp_ledger_fini(fp_ledger *l);

/* The recording begins, at [begin_ns] of the device's clock. */
void
fp_ledger_begin(fp_ledger *l, int64_t begin_ns);

/* Forgets everything; the activities of what is under way will be unattributed.
 * The recording begins anew at [ticks] of the host's clock. */
void
fp_ledger_clear(fp_ledger *l, int64_t ticks);

/* Takes what a lane has to say. */
void
fp_ledger_event(fp_ledger *l, const fp_event *e);

/* First pass over records, external correlation only. */
void
fp_ledger_correlate(fp_ledger *l, const uint8_t *record);

/* When all lanes were read, and after that pass: what needed others of them finds
 * them now.  Buffers may come out of order, so a launch whose place did not come
 * yet waits for some flush periods. */
void
fp_ledger_settle(fp_ledger *l);

/* The records that come now are of one buffer. */
void
fp_ledger_begin_buffer(fp_ledger *l);

/* Second pass, or the only one. */
void
fp_ledger_record(fp_ledger *l, const uint8_t *record);

/* A flush period is over: ages what waits, folds timelines up to [until], but not
 * beyond what may still come.  [last]: nothing more will come, nothing may wait any
 * longer. */
void
fp_ledger_age(fp_ledger *l, int64_t until, int last);

/* The same, and no record came in it: one kernel runs longer than that, or nothing
 * is launched.  Nothing gets older. */
void
fp_ledger_idle(fp_ledger *l, int64_t until);

/* Do activities of the launches that were made last have to come? */
int
fp_ledger_expects(const fp_ledger *l);

/* Activities whose launch has not been told yet.  Launches that are known by now,
 * though nobody knows their place, are answered. */
uint32_t
fp_ledger_unmatched(fp_ledger *l);

/* Nothing was recorded between these two (device clock). */
void
fp_ledger_gap(fp_ledger *l, int64_t from, int64_t to);

/* Nodes of thread [from] are now nodes of thread [to]. */
void
fp_ledger_rename(fp_ledger *l, uint32_t from, uint32_t to,
                 const uint32_t *became, uint32_t nodes);

/* What CUPTI is told as external correlation id.  A thread that did nothing since
 * may still have one of an earlier attachment on CUPTI's stack.
 *
 *   63      62          52 51       28 27      0
 *   +-------+-------------+-----------+---------+
 *   | alone | attachment  | thread    | node    |   alone: without a section
 *   +-------+-------------+-----------+---------+ */
uint64_t
fp_external_id(uint32_t attachment, fp_place place, int alone);

#endif
