/* kineto_slot: takes CUPTI's one subscriber slot back from torch.profiler.
 *
 * Kineto, torch.profiler's collector, subscribes at its first profile and keeps
 * the slot until the process ends, although all that it needs are activity
 * records.  No function of it gives the slot back.  See
 * docs/decisions/0058-kinetos-slot.md. */
#ifndef FP_GPU_KINETO_SLOT_H
#define FP_GPU_KINETO_SLOT_H

#include "gpu/cupti_lib.h"

/* Ends Kineto's subscription.  Only while no session of torch.profiler
 * records.  Returns 1, or 0 if Kineto is not in this process, is built in an
 * unknown way, or does not hold the slot. */
int
fp_kineto_slot_take(const fp_cupti *c);

#endif
