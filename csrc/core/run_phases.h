/* run_phases: which phase of the run a moment belongs to.
 *
 * Set-up, warm-up, measured steps, validation and checkpoints are recorded apart.
 * The tree has one subtree per phase, and a thread stands in one of them.  When the
 * phase changes, the open calls and sections move to the same place of the other
 * subtree:
 *
 *      (thread) - main - step            phase 0: measured steps
 *           |
 *           +---- (set-up) - main        cur moves from here to the main above
 *
 * So a call or a section costs the same in every phase, and only the change of the
 * phase costs time in proportion to the depth of the stack. */
#ifndef FP_CORE_RUN_PHASES_H
#define FP_CORE_RUN_PHASES_H

#include "core/tree.h"

typedef enum fp_run_phase {
    FP_RUN_STEPS, /* measured steps; all of a recording without phases */
    FP_RUN_SETUP, /* before the first step */
    FP_RUN_WARMUP,
    FP_RUN_VALIDATION,
    FP_RUN_CHECKPOINT,
    FP_RUN_OUTSIDE,    /* between epochs and after the loop */
    FP_RUN_UNPROFILED, /* steps without the function hook; see steps_pairs.h */
    FP_RUN_PHASES,
} fp_run_phase;

/* Is [phase] part of a step?  The time of all others lengthens none. */
static inline int
fp_run_phase_steps(fp_run_phase phase)
{
    return phase == FP_RUN_STEPS || phase == FP_RUN_WARMUP ||
           phase == FP_RUN_UNPROFILED;
}

/* The base of a phase: the node at which the paths of that phase begin.  That of
 * FP_RUN_STEPS is the root, those of the others are children of the root. */
static inline fp_key
fp_key_base(fp_run_phase phase)
{
    return phase == FP_RUN_STEPS ? FP_KEY_ROOT
                                 : ((fp_key)(phase + 1) << 3) | FP_TAG_SPECIAL;
}

static inline int
fp_key_is_base(fp_key key)
{
    return fp_key_tag(key) == FP_TAG_SPECIAL && key != FP_KEY_TRUNCATED;
}

/* The phase whose base has [key]. */
static inline fp_run_phase
fp_run_phase_of(fp_key key)
{
    return key == FP_KEY_ROOT ? FP_RUN_STEPS : (fp_run_phase)((key >> 3) - 1);
}

/* The base of [phase] and the truncated node under it, made if need be.  NULL: no
 * memory. */
fp_node *
fp_tree_base(fp_tree *t, fp_run_phase phase, fp_node **truncated);

#endif
