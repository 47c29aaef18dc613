/* path_rebuild: the path of a thread whose calls are not recorded for a while.
 *
 * A parked thread stands in its innermost section: which functions are open is
 * unknown until it is unparked.  Its path is kept:
 *
 *      path      root - main - section - f          f: `parked`
 *      stands in root - main - section              time is charged here
 *
 * While the thread is parked, the caller reports the return of each call on
 * the path and counts the new calls that are not on it (`unseen`), or marks
 * the path as `stale`.  Unpark the thread before you change the path; then put
 * the calls that began meanwhile on it, without counting them.  thread.h says
 * which thread may call. */
#ifndef FP_CORE_PATH_REBUILD_H
#define FP_CORE_PATH_REBUILD_H

#include "core/path.h"

/* Stops recording calls at [now].  Does nothing if [t] is parked already. */
void
fp_thread_park(fp_thread *t, int64_t now);

/* Restores the path.  Does nothing if [t] is not parked. */
void
fp_thread_unpark(fp_thread *t, int64_t now);

/* Removes the functions that have ended from the path; [t] is not parked.
 * live[first..count) are the Python functions that run now, outermost first.
 * Sections in functions that have ended move down.  A C function between two
 * functions that still run is kept.  Returns the index of the first function
 * in [live] that is not on the path. */
uint32_t
fp_thread_keep_live(fp_thread *t, const fp_key *live, uint32_t first,
                    uint32_t count);

/* Walks the path from the top down.  Works for parked threads too. */
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

/* NULL at the end. */
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

/* The next function; NULL: there is none. */
static inline const fp_node *
fp_path_walk_function(const fp_thread *t, fp_path_walk *w)
{
    const fp_node *n = fp_path_walk_next(t, w);
    while (n != NULL && fp_key_tag(n->key) == FP_TAG_SECTION) {
        n = fp_path_walk_next(t, w);
    }
    return n;
}

/* Number of Python functions on the path; *bottom becomes the key of the
 * outermost one, if there is one. */
uint32_t
fp_thread_python_depth(const fp_thread *t, fp_key *bottom);

/* The innermost open function, or the base if there is none. */
static inline const fp_node *
fp_thread_innermost(const fp_thread *t)
{
    const fp_node *n = t->cur;
    uint32_t over = t->over_len;
    while (fp_key_tag(n->key) == FP_TAG_SECTION) {
        n = fp_path_below(t, n, &over);
    }
    return n;
}

/* The calls on the path were put back without knowing the C functions among
 * them. */
static inline void
fp_thread_mark_refound(fp_thread *t)
{
    t->refound = t->cur->depth;
}

/* Did a C function that [caller] called directly end now, after it began while
 * calls were not recorded? */
static inline int
fp_thread_unseen_ends(const fp_thread *t, fp_key caller)
{
    const fp_node *n = fp_thread_innermost(t);
    return t->refound != 0 && t->over_len == 0 && n->key == caller &&
           n->depth <= t->refound;
}

#endif
