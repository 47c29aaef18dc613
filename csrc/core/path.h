/* path: where a thread stands in its tree.
 *
 * The path is the chain from `cur` up to the root: functions and sections in
 * the order in which they were opened.  Time is charged to `cur` whenever the
 * path changes, so every tick belongs to exactly one node.
 *
 * Beyond the depth or node cap the path goes on as a stack (`over`) of flat
 * nodes under a truncated node: counts and self times stay exact, only the
 * context is lost.
 *
 *      root - f - g - (truncated) - f      cur = that f,
 *                                          over = [g, f, h, ...] below it
 */
#ifndef FP_CORE_PATH_H
#define FP_CORE_PATH_H

#include "core/thread.h"

/* The thread stands in [n] from here on.  Another thread may look at any moment
 * (fp_thread_stands), and must then find the node complete; on x86 that is an
 * ordinary store. */
static inline void
fp_thread_stand(fp_thread *t, fp_node *n)
{
    __atomic_store_n(&t->cur, n, __ATOMIC_RELEASE);
}

/* For other threads: of the node, only key, parent, depth and index may be
 * read, and only while the trees are kept. */
static inline const fp_node *
fp_thread_stands(const fp_thread *t)
{
    return __atomic_load_n(&t->cur, __ATOMIC_ACQUIRE);
}

/* Charges the time up to [now] to where the thread stands. */
static inline void
fp_thread_charge(fp_thread *t, int64_t now)
{
    if (FP_UNLIKELY(now < t->last)) {
        t->counters.clock_back++;
    }
    else {
        /* Unsigned, because an external timer may answer anything and signed
         * overflow is undefined. */
        uint64_t ticks = (uint64_t)now - (uint64_t)t->last;
        ticks += (uint64_t)t->cur->self_ticks;
        t->cur->self_ticks = (int64_t)ticks;
    }
    t->last = now;
}

/* ---- functions ---- */

/* The child of the place where the thread stands; NULL: there is none yet. */
static inline fp_node *
fp_thread_predict(fp_thread *t, fp_key key)
{
    return fp_tree_predict(t->cur, key);
}

fp_node *
fp_thread_find(fp_thread *t, fp_key key);

/* Makes it (it must not exist).  Never NULL: without memory or beyond a cap the
 * node is a truncated one. */
fp_node *
fp_thread_add(fp_thread *t, fp_key key);

/* Steps into a node got from the three above, at [now]. */
static inline void
fp_thread_enter(fp_thread *t, fp_node *n, int64_t now)
{
    fp_thread_charge(t, now);
    fp_thread_stand(t, n);
}

/* The same for a node that is flat.  FP_ENOMEM: not entered, counted as
 * dropped. */
fp_status
fp_thread_enter_flat(fp_thread *t, fp_node *n, int64_t now);

void
fp_thread_leave_slow(fp_thread *t, fp_key key, int64_t now);

/* The function [key] has ended at [now].  A return without a call is ignored
 * (and counted unless the call may have been before the recording). */
static inline void
fp_thread_leave(fp_thread *t, fp_key key, int64_t now)
{
    fp_node *n = t->cur;
    if (FP_LIKELY(n->key == key && t->over_len == 0)) {
        fp_thread_charge(t, now);
        fp_thread_stand(t, n->parent);
        return;
    }
    fp_thread_leave_slow(t, key, now);
}

/* Is any function open on the path? */
int
fp_thread_in_function(const fp_thread *t);

/* Closes every function at [now]; sections stay open. */
void
fp_thread_drop_functions(fp_thread *t, int64_t now);

/* ---- surgery ---- */

static inline int
fp_thread_is_parked(const fp_thread *t)
{
    return t->parked != NULL;
}

/* One element down the path from [n]; [over] is how much of the stack is left. */
static inline fp_node *
fp_path_below(const fp_thread *t, const fp_node *n, uint32_t *over)
{
    return *over > 0 ? t->over[--*over] : n->parent;
}

/* Puts [key] on top of the path without counting an entry.  FP_ENOMEM: it is not
 * on it, and was counted as dropped. */
fp_status
fp_thread_rejoin(fp_thread *t, fp_key key);

/* Puts the innermost [count] sections that are on the path back on it. */
void
fp_thread_rejoin_sections(fp_thread *t, uint32_t count);

/* Takes the section of entry [i], which is on the path,
 * off it; what lies above moves down.  The sections on the path are the entries
 * that say so, in the same order: that is how its node is found, and must hold
 * afterwards.  So without memory to remember the calls above, those are closed
 * and counted as dropped. */
void
fp_thread_take_off_path(fp_thread *t, uint32_t i);

/* Copies the nodes of the path to `scratch`, the last one first,
 * without the base; *length is how many. */
fp_status
fp_thread_copy_path(fp_thread *t, uint32_t *length);

#endif
