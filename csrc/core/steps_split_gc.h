/* steps_split_gc: the time that steps spend in Python's garbage collector.
 * Every function needs a thread with a split (steps_split.h).
 *
 * A collection is dropped if it has not ended when a second step ends, or if
 * no hook reports collections any more. */
#ifndef FP_CORE_STEPS_SPLIT_GC_H
#define FP_CORE_STEPS_SPLIT_GC_H

#include "core/thread.h"

/* A collection begins at [now].  Ignored inside a collection. */
void
fp_split_gc_begin(fp_thread *t, int64_t now);

/* The collection of [generation] ends at [now].  Ignored if none has begun. */
void
fp_split_gc_end(fp_thread *t, int64_t now, int generation);

/* Drops the open collection, whose end will not be reported.  Any thread may
 * call this. */
void
fp_split_gc_forget(fp_thread *t);

/* Charges the open collection up to [now]. */
void
fp_split_gc_charge(fp_thread *t, int64_t now);

#endif
