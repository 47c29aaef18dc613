/* step_waits: how long a device waited for other ranks, and computed, in each
 * of the last measured steps.  A ring, allocated when the device first runs a
 * collective.  One thread at a time. */
#ifndef FP_GPU_STEP_WAITS_H
#define FP_GPU_STEP_WAITS_H

#include "core/alloc.h"
#include "core/steps.h"

typedef struct fp_step_wait {
    uint64_t number; /* of the step in the run, from 0 */
    int64_t ns;
    int64_t compute_ns;
} fp_step_wait;

typedef struct fp_step_waits {
    fp_step_wait *row; /* owned; ring of FP_STEPS_RECENT; NULL: none */
    uint64_t count;    /* steps put */
} fp_step_waits;

/* Keeps steps from now on.  Without memory it keeps none; call it again. */
void
fp_step_waits_begin(fp_step_waits *w, const fp_alloc *a);

void
fp_step_waits_fini(fp_step_waits *w, const fp_alloc *a);

/* Puts a step with a larger number than the last one; ignored before begin. */
void
fp_step_waits_put(fp_step_waits *w, const fp_step_wait *step);

/* Number of the last step put; -1: none. */
int64_t
fp_step_waits_last(const fp_step_waits *w);

/* Reads [count] steps with ascending numbers; raises ns[i] and compute_ns[i] to
 * the times of step number[i] if these are known and larger. */
void
fp_step_waits_read(const fp_step_waits *w, const int64_t *number, int64_t *ns,
                   int64_t *compute_ns, uint32_t count);

#endif
