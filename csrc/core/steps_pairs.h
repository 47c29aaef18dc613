/* steps_pairs: compares steps without the function hook to steps with it, to
 * measure what the hook costs this program.
 *
 *      with with with with | change without without | with with with with
 *      -- FP_PAIRS_NEAR --    not   FP_PAIRS_PLAIN    not  FP_PAIRS_NEAR
 *
 * The first step after each change is not used: the interpreter changes its
 * code lazily.  A block stores one such comparison: the wall time of each step
 * and of the sections at the bottom of the stack.  The last FP_PAIRS_BLOCKS
 * blocks are kept. */
#ifndef FP_CORE_STEPS_PAIRS_H
#define FP_CORE_STEPS_PAIRS_H

#include "core/thread.h"

enum {
    FP_PAIRS_BLOCKS = 128,
    FP_PAIRS_PLAIN = 2,
    FP_PAIRS_NEAR = 4, /* before, and as many after */
    FP_PAIRS_COLUMNS = 16,
};

typedef struct fp_pair_step {
    int64_t ticks;
    int64_t section[FP_PAIRS_COLUMNS]; /* by column of the series */
} fp_pair_step;

typedef struct fp_pair_block {
    uint64_t first; /* first step without the hook, from 0 */
    uint32_t plain_count;
    uint32_t near_count;
    fp_pair_step plain[FP_PAIRS_PLAIN];
    fp_pair_step near[2 * FP_PAIRS_NEAR];
} fp_pair_block;

typedef enum fp_pairs_state {
    FP_PAIRS_IDLE,
    FP_PAIRS_WITHOUT,
    FP_PAIRS_WITH_AGAIN,
} fp_pairs_state;

typedef struct fp_pairs {
    fp_pairs_state state;
    uint32_t nth;            /* step in that state */
    uint64_t blocks;         /* completed; the last ones are kept */
    fp_pair_block under_way; /* while the hook is off */
    fp_pair_block block[FP_PAIRS_BLOCKS]; /* ring */
} fp_pairs;

/* The next steps of [t] run without the hook.  Creates *pairs if it is
 * NULL. */
fp_status
fp_pairs_begin(fp_pairs **pairs, const fp_thread *t);

/* The hook is on again.  If not [valid], the steps without it did other work
 * and the block is dropped. */
void
fp_pairs_end(fp_pairs *p, int valid);

/* A step of [t] has ended; call this before its section times are reset. */
void
fp_pairs_end_step(fp_pairs *p, const fp_thread *t, int measured);

/* Accepts NULL. */
void
fp_pairs_destroy(fp_pairs *p, const fp_alloc *a);

#endif
