/* path: the open functions and sections of a thread.
 *
 * The path is the chain of nodes from `cur`, the current node, up to the root:
 * functions and sections in the order in which they were opened.  Time is
 * charged to `cur` whenever the path changes, so every tick belongs to exactly
 * one node.
 *
 * Beyond the depth or node cap the path continues as a stack (`over`) of flat
 * nodes under a truncated node.  Counts and self times stay exact; only the
 * context is lost.
 *
 *      root - f - g - (truncated) - f      cur = that f,
 *                                          over = [g, f, h, ...] below it */
#ifndef FP_CORE_PATH_H
#define FP_CORE_PATH_H

#include "core/thread.h"

/* Makes [n] the current node.  Another thread may read it at any moment
 * (fp_thread_stands) and must find a complete node; on x86 this is an ordinary
 * store. */
static inline void
fp_thread_stand(fp_thread *t, fp_node *n)
{
    __atomic_store_n(&t->cur, n, __ATOMIC_RELEASE);
}

/* The current node, for other threads.  They may read only its key, parent,
 * depth and index, and only while the trees are kept. */
static inline const fp_node *
fp_thread_stands(const fp_thread *t)
{
    return __atomic_load_n(&t->cur, __ATOMIC_ACQUIRE);
}

/* Ticks: a clock that goes back farther was set, and goes on from there.  That
 * is 1 ms of a counter at 4 GHz; processors differ by less. */
#define FP_CLOCK_WAS_SET ((uint64_t)1 << 22)

/* Charges the time up to [now] to the current node.  If the clock goes back, no
 * time is charged a second time. */
static inline void
fp_thread_charge(fp_thread *t, int64_t now)
{
    if (FP_UNLIKELY(now < t->last)) {
        t->counters.clock_back++;
        if ((uint64_t)t->last - (uint64_t)now < FP_CLOCK_WAS_SET) {
            return;
        }
    }
    else {
        /* Unsigned: an external timer may return any value, and signed
         * overflow is undefined. */
        uint64_t ticks = (uint64_t)now - (uint64_t)t->last;
        ticks += (uint64_t)t->cur->self_ticks;
        t->cur->self_ticks = (int64_t)ticks;
    }
    t->last = now;
}

/* ---- functions ---- */

/* The expected child of the current node.  NULL: the next call is another
 * one. */
static inline fp_node *
fp_thread_predict(fp_thread *t, fp_key key)
{
    return fp_tree_predict(t->cur, key);
}

/* The child [key] of the current node, by lookup; NULL if none exists. */
fp_node *
fp_thread_find(fp_thread *t, fp_key key);

/* Adds the child [key], which must not exist.  Never NULL: without memory, or
 * beyond a cap, it returns a flat or truncated node. */
fp_node *
fp_thread_add(fp_thread *t, fp_key key);

/* Enters a node returned by one of the three functions above, at [now]. */
static inline void
fp_thread_enter(fp_thread *t, fp_node *n, int64_t now)
{
    fp_thread_charge(t, now);
    fp_thread_stand(t, n);
}

/* The same for a flat node.  FP_ENOMEM: not entered; counted as dropped. */
fp_status
fp_thread_enter_flat(fp_thread *t, fp_node *n, int64_t now);

void
fp_thread_leave_slow(fp_thread *t, fp_key key, int64_t now);

/* The function [key] returns at [now].  A return without a call is ignored,
 * and counted unless the call may have begun before the recording. */
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

/* Is a function open on the path? */
int
fp_thread_in_function(const fp_thread *t);

/* Closes every open function at [now]; sections stay open. */
void
fp_thread_drop_functions(fp_thread *t, int64_t now);

/* ---- changes in the middle of the path ---- */

static inline int
fp_thread_is_parked(const fp_thread *t)
{
    return t->parked != NULL;
}

/* The element below [n] on the path; [over] counts the rest of the stack. */
static inline fp_node *
fp_path_below(const fp_thread *t, const fp_node *n, uint32_t *over)
{
    return *over > 0 ? t->over[--*over] : n->parent;
}

/* Puts [key] on top of the path without counting a call.  FP_ENOMEM: not on
 * the path; counted as dropped. */
fp_status
fp_thread_rejoin(fp_thread *t, fp_key key);

/* Puts the innermost [count] sections that are on the path back on it. */
void
fp_thread_rejoin_sections(fp_thread *t, uint32_t count);

/* Takes the section of entry [i], which is on the path, off the path; the
 * elements above it move down.  The entries with on_path name the sections on
 * the path in order.  Its node is found by that order, which must still hold
 * afterwards.  So without memory to remember the calls above it, those calls
 * are closed and counted as dropped. */
void
fp_thread_take_off_path(fp_thread *t, uint32_t i);

/* Copies the nodes of the path without the base to `scratch`, innermost first,
 * and their number to *length. */
fp_status
fp_thread_copy_path(fp_thread *t, uint32_t *length);

#endif
