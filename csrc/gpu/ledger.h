/* ledger: everything known about the device's work: which calls launched it,
 * where, and how long it took.  One decoder serves both ways of correlation:
 *
 *   lanes (launch callbacks) ------------\
 *                                         > launches -> sums, timelines, ...
 *   API + external correlation records --/
 *
 * One thread at a time. */
#ifndef FP_GPU_LEDGER_H
#define FP_GPU_LEDGER_H

#include "gpu/ledger_state.h"

/* Creates a ledger with [devices] timelines.  FP_ENOMEM: nothing is held. */
fp_status
fp_ledger_init(fp_ledger *l, const fp_alloc *a, uint32_t devices,
               double ns_per_tick);

/* Frees everything but the trace. */
void
fp_ledger_fini(fp_ledger *l);

/* Begins the recording at [begin_ns] of the device's clock. */
void
fp_ledger_begin(fp_ledger *l, int64_t begin_ns);

/* Forgets everything and begins again at [ticks] of the host's clock.
 * Activities of launches in progress will have no place. */
void
fp_ledger_clear(fp_ledger *l, int64_t ticks);

/* Takes an event of a lane. */
void
fp_ledger_event(fp_ledger *l, const fp_event *e);

/* First pass over records; external correlation only. */
void
fp_ledger_correlate(fp_ledger *l, const uint8_t *record);

/* Call this after all lanes and the first pass were read.  Resolves events
 * that refer to others of them.  Buffers come out of order, so a launch
 * without a place waits for some flush periods. */
void
fp_ledger_settle(fp_ledger *l);

/* Begins a buffer: the next records come from one buffer. */
void
fp_ledger_begin_buffer(fp_ledger *l);

/* Second pass over records, or the only one. */
void
fp_ledger_record(fp_ledger *l, const uint8_t *record);

/* Ends a flush period: ages waiting items and folds the timelines up to
 * [until], but not beyond activities that may still come.  [last]: nothing
 * more will come, so nothing waits any longer. */
void
fp_ledger_age(fp_ledger *l, int64_t until, int last);

/* Ends a period without any record: a long kernel runs, or nothing was
 * launched.  Nothing ages. */
void
fp_ledger_idle(fp_ledger *l, int64_t until);

/* Are activities of the newest launches still to come? */
int
fp_ledger_expects(const fp_ledger *l);

/* Number of activities without a known launch.  Marks launches that are known,
 * but have no place yet, as answered. */
uint32_t
fp_ledger_unmatched(fp_ledger *l);

/* Nothing was recorded between these device times. */
void
fp_ledger_gap(fp_ledger *l, int64_t from, int64_t to);

/* Nodes of thread [from] became nodes of thread [to]: node i is became[i]. */
void
fp_ledger_rename(fp_ledger *l, uint32_t from, uint32_t to,
                 const uint32_t *became, uint32_t nodes);

/* Builds an external correlation id.  The attachment is part of it because a
 * thread that has been idle may still have an id of an earlier one on CUPTI's
 * stack.
 *
 *   63      62          52 51       28 27      0
 *   +-------+-------------+-----------+---------+
 *   | alone | attachment  | thread    | node    |   alone: without a section
 *   +-------+-------------+-----------+---------+ */
uint64_t
fp_external_id(uint32_t attachment, fp_place place, int alone);

#endif
