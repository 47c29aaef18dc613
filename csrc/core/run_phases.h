/* run_phases: the phases of a run.
 *
 * Set-up, warm-up, measured steps, validation and checkpoints are recorded
 * separately.  The tree has one subtree per phase, and a thread stands in one of
 * them.  When the phase changes, the open calls and sections move to the same
 * place in the other subtree:
 *
 *      (thread) - main - step            phase 0: measured steps
 *           |
 *           +---- (set-up) - main        cur moves from here to the main above
 *
 * So a call or a section costs the same in every phase; only a change of phase
 * takes time in proportion to the depth of the stack. */
#ifndef FP_CORE_RUN_PHASES_H
#define FP_CORE_RUN_PHASES_H

#include "core/tree.h"

typedef enum fp_run_phase {
    FP_RUN_STEPS, /* measured steps; everything, if no phase is set */
    FP_RUN_SETUP, /* before the first step */
    FP_RUN_WARMUP,
    FP_RUN_VALIDATION,
    FP_RUN_CHECKPOINT,
    FP_RUN_OUTSIDE,    /* between epochs and after the loop */
    FP_RUN_UNPROFILED, /* steps without the function hook; see steps_pairs.h */
    /* of a run without steps, without the hook or with it; see plain_time.c */
    FP_RUN_UNHOOKED,
    FP_RUN_WINDOWS,
    FP_RUN_COMPILE, /* a compiler translates the program's functions */
    FP_RUN_PHASES,
} fp_run_phase;

/* Does the time of [phase] belong to a step? */
static inline int
fp_run_phase_steps(fp_run_phase phase)
{
    return phase == FP_RUN_STEPS || phase == FP_RUN_WARMUP ||
           phase == FP_RUN_UNPROFILED;
}

/* Key of a phase's base, the node at which its paths begin: the root for
 * FP_RUN_STEPS, a child of the root for the other phases. */
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

/* Returns the base of [phase] and its truncated node, added if needed.  NULL:
 * no memory. */
fp_node *
fp_tree_base(fp_tree *t, fp_run_phase phase, fp_node **truncated);

#endif
