#include "core/path_rebuild.h"

#include "core/outliers_look.h"

static int
has_tag(const fp_node *n, int tag)
{
    return fp_key_tag(n->key) == tag;
}

void
fp_thread_park(fp_thread *t, int64_t now)
{
    if (fp_thread_is_parked(t)) {
        return;
    }
    fp_thread_charge(t, now);
    fp_node *n = t->cur;
    t->parked = n;
    t->parked_over = t->over_len;
    uint32_t over = t->over_len;
    while (n != t->base && !has_tag(n, FP_TAG_SECTION)) {
        n = fp_path_below(t, n, &over);
    }
    fp_thread_stand(t, n);
    t->over_len = over;
}

void
fp_thread_unpark(fp_thread *t, int64_t now)
{
    if (!fp_thread_is_parked(t)) {
        return;
    }
    fp_thread_charge(t, now);
    fp_thread_stand(t, t->parked);
    t->over_len = t->parked_over;
    t->parked = NULL;
    /* These nodes will get time without being entered. */
    for (fp_node *n = t->cur; t->outliers != NULL && n != NULL;
         n = n->parent) {
        fp_outliers_rejoined(t->outliers, n);
    }
}

uint32_t
fp_thread_python_depth(const fp_thread *t, fp_key *bottom)
{
    uint32_t depth = 0;
    fp_path_walk w = fp_path_walk_begin(t);
    for (const fp_node *n; (n = fp_path_walk_next(t, &w)) != NULL;) {
        if (has_tag(n, FP_TAG_PYTHON)) {
            depth++;
            *bottom = n->key;
        }
    }
    return depth;
}

/* Is Python function number [number] of the path (from 1) still running? */
static int
is_live(const fp_key *live, uint32_t first, uint32_t count, uint32_t number,
        fp_key key)
{
    return number <= count - first && live[first + number - 1] == key;
}

uint32_t
fp_thread_keep_live(fp_thread *t, const fp_key *live, uint32_t first,
                    uint32_t count)
{
    fp_key bottom;
    uint32_t number = fp_thread_python_depth(t, &bottom), kept = number;
    /* Innermost first: the outermost function that has ended decides. */
    fp_path_walk w = fp_path_walk_begin(t);
    for (const fp_node *n; (n = fp_path_walk_next(t, &w)) != NULL;) {
        if (has_tag(n, FP_TAG_PYTHON)) {
            kept = is_live(live, first, count, number, n->key) ? kept
                                                               : number - 1;
            number--;
        }
    }
    /* Remove everything above the last function that is kept, except
     * sections. */
    number = fp_thread_python_depth(t, &bottom);
    fp_node *n = t->cur;
    uint32_t sections = 0, others = 0, over = t->over_len;
    while (n != t->base && !(has_tag(n, FP_TAG_PYTHON) && number == kept)) {
        if (has_tag(n, FP_TAG_SECTION)) {
            sections++;
        }
        else {
            number -= has_tag(n, FP_TAG_PYTHON) ? 1 : 0;
            others++;
        }
        n = fp_path_below(t, n, &over);
    }
    if (others != 0) {
        fp_thread_stand(t, n);
        t->over_len = over;
        fp_thread_rejoin_sections(t, sections);
    }
    return first + kept;
}
