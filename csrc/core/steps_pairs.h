/* steps_pairs: compares steps without the function hook to steps with it, to
 * measure the hook's cost for this program.
 *
 *      with with with with | change without without | with with with with
 *      -- FP_PAIRS_NEAR --    not   FP_PAIRS_PLAIN    not  FP_PAIRS_NEAR
 *
 * The first steps after each change are used for neither side: the interpreter
 * changes its code lazily, and the processor's caches hold what the change
 * needed.  A block stores one such comparison: the wall time of each step and
 * of the sections at the bottom of the stack, and how long the thread waited
 * for a CPU.  The last FP_PAIRS_BLOCKS blocks are kept. */
#ifndef FP_CORE_STEPS_PAIRS_H
#define FP_CORE_STEPS_PAIRS_H

#include "core/thread.h"

enum {
    FP_PAIRS_BLOCKS = 128,
    FP_PAIRS_PLAIN = 4,
    FP_PAIRS_NEAR = 4, /* before, and as many after */
    FP_PAIRS_COLUMNS = 16,
    FP_PAIRS_MOST_SETTLE = 24,
};

typedef struct fp_pair_step {
    int64_t ticks;
    int64_t delay_ns; /* ready to run, without a CPU; 0 if unknown */
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
    uint32_t nth;            /* step after the hook is set again */
    uint32_t settle;         /* steps left out after each change */
    uint64_t blocks;         /* completed; the last ones are kept */
    fp_pair_block under_way; /* while the hook is off */
    fp_pair_block block[FP_PAIRS_BLOCKS]; /* ring */
} fp_pairs;

/* Steps to leave out after a change whose effects last for [ticks]; at least
 * one. */
uint32_t
fp_pairs_settle(const fp_steps *s, int64_t ticks);

/* Number of steps without the hook if [settle] of them are left out. */
uint32_t
fp_pairs_length(uint32_t settle);

/* The next steps of [t] run without the hook.  Creates *pairs if it is
 * NULL. */
fp_status
fp_pairs_begin(fp_pairs **pairs, const fp_thread *t, uint32_t settle);

/* The hook is on again.  If not [valid], the steps without it did other work
 * and the block is dropped. */
void
fp_pairs_end(fp_pairs *p, int valid);

/* Number of blocks kept. */
uint32_t
fp_pairs_kept(const fp_pairs *p);

/* The medians in ns of the steps of a block, less their waits for a CPU;
 * [back] counts from the last block, 0.  Returns 0 if a side has no step. */
int
fp_pairs_medians(const fp_pairs *p, uint32_t back, double ns_per_tick,
                 int64_t *plain_ns, int64_t *hooked_ns);

/* A step of [t] has ended; call this before its section times are reset. */
void
fp_pairs_end_step(fp_pairs *p, const fp_thread *t, fp_step_kind kind);

#endif
