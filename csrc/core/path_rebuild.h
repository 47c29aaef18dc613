/* path_rebuild: the path of a thread whose calls are not recorded for a while.
 *
 * A parked thread stands in its innermost section (in no function: nobody knows
 * in which it is), and its path is kept for later:
 *
 *      path      root - main - section - f          f: `parked`
 *      stands in root - main - section              time is charged here
 *
 * Who parked it either tells every end of a call meanwhile, and how many calls
 * have begun that are not on the path (`unseen`), or says that the path may be
 * `stale`.  Before anything is put on the path or taken off it, the thread is
 * unparked; calls that have begun meanwhile are then put on without being
 * counted.  The same rules for threads as in thread.h. */
#ifndef FP_CORE_PATH_REBUILD_H
#define FP_CORE_PATH_REBUILD_H

#include "core/path.h"

/* No calls are recorded from [now] on.  Parked twice is parked once. */
void
fp_thread_park(fp_thread *t, int64_t now);

/* The path is as it was; does nothing to a thread that is not parked. */
void
fp_thread_unpark(fp_thread *t, int64_t now);

/* Of an unparked thread.  live[first..count) are the Python functions that run
 * now, outermost first; those of the path that are not among them have ended, and
 * sections in them move down.  A C function between two that go on is taken to go
 * on, too.  Returns the index of the first one that is not on
 * the path. */
uint32_t
fp_thread_keep_live(fp_thread *t, const fp_key *live, uint32_t first,
                    uint32_t count);

/* The elements of a path from the top down, of a parked thread, too. */
typedef struct fp_path_walk {
    const fp_node *node;
    uint32_t over;
} fp_path_walk;

static inline fp_path_walk
fp_path_walk_begin(const fp_thread *t)
{
    return fp_thread_is_parked(t) ? (fp_path_walk){t->parked, t->parked_over}
                                  : (fp_path_walk){t->cur, t->over_len};
}

/* NULL: no more. */
static inline const fp_node *
fp_path_walk_next(const fp_thread *t, fp_path_walk *w)
{
    const fp_node *n = w->node;
    if (n == t->base) {
        return NULL;
    }
    w->node = fp_path_below(t, n, &w->over);
    return n;
}

/* Number of Python functions on the path; *bottom is the outermost one's key. */
uint32_t
fp_thread_python_depth(const fp_thread *t, fp_key *bottom);

/* What is on the path now was put there without the calls of C functions being
 * seen. */
static inline void
fp_thread_mark_refound(fp_thread *t)
{
    t->refound = t->cur->depth;
}

/* Does a call of a C function end, directly called by [caller], that began while
 * calls were not recorded? */
static inline int
fp_thread_unseen_ends(const fp_thread *t, fp_key caller)
{
    if (t->refound == 0 || t->over_len != 0) {
        return 0;
    }
    const fp_node *n = t->cur;
    while (fp_key_tag(n->key) == FP_TAG_SECTION) {
        n = n->parent;
    }
    return n->key == caller && n->depth <= t->refound;
}

#endif
