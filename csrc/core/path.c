#include "core/path.h"

#include "core/outliers_look.h"

/* ---- finding the node of a call ---- */

/* The truncated node for calls made from the current node.  NULL: not created
 * yet. */
static fp_node *
truncated_here(const fp_thread *t)
{
    if (t->over_len == 0) {
        return fp_tree_find(&t->tree, t->cur, FP_KEY_TRUNCATED);
    }
    return t->cur->key == FP_KEY_TRUNCATED ? t->cur : t->cur->parent;
}

fp_node *
fp_thread_find(fp_thread *t, fp_key key)
{
    if (FP_UNLIKELY(t->over_len != 0)) {
        return fp_tree_find(&t->tree, truncated_here(t), key);
    }
    fp_node *n = fp_tree_find(&t->tree, t->cur, key);
    if (n != NULL) {
        fp_tree_learn(t->cur, n);
    }
    return n;
}

/* Adds a node beyond a cap.  At twice max_nodes the key is lost too: the call
 * is counted on the truncated node. */
static fp_node *
add_flat(fp_thread *t, fp_key key)
{
    int room = t->tree.count < (uint64_t)t->limits.max_nodes * 2;
    fp_node *truncated = truncated_here(t);
    if (truncated == NULL && room && t->tree.count < t->limits.max_nodes) {
        truncated = fp_tree_add(&t->tree, t->cur, FP_KEY_TRUNCATED);
        if (truncated != NULL) {
            truncated->flags |= FP_NODE_FLAT;
        }
    }
    if (truncated == NULL) {
        truncated = t->base_truncated;
    }
    fp_node *n = fp_tree_find(&t->tree, truncated, key);
    if (n == NULL && room) {
        n = fp_tree_add(&t->tree, truncated, key);
        if (n != NULL) {
            n->flags |= FP_NODE_FLAT;
        }
    }
    return n != NULL ? n : truncated;
}

fp_node *
fp_thread_add(fp_thread *t, fp_key key)
{
    if (t->over_len == 0 && t->tree.count < t->limits.max_nodes &&
        t->cur->depth + 1u < t->limits.max_depth) {
        fp_node *n = fp_tree_add(&t->tree, t->cur, key);
        if (n != NULL) {
            fp_tree_learn(t->cur, n);
            return n;
        }
        t->counters.dropped++;
    }
    return add_flat(t, key);
}

static fp_status
push_over(fp_thread *t)
{
    if (t->over_len == t->over_capacity &&
        fp_alloc_room(&t->alloc, &t->over, &t->over_capacity, t->over_len + 1,
                      64, sizeof(*t->over)) != FP_OK) {
        return FP_ENOMEM;
    }
    t->over[t->over_len++] = t->cur;
    return FP_OK;
}

fp_status
fp_thread_enter_flat(fp_thread *t, fp_node *n, int64_t now)
{
    fp_thread_charge(t, now);
    if (push_over(t) != FP_OK) {
        t->counters.dropped++;
        return FP_ENOMEM;
    }
    t->counters.truncated++;
    fp_thread_stand(t, n);
    return FP_OK;
}

/* ---- rebuilding the path ---- */

static int
is_section(const fp_node *n)
{
    return fp_key_tag(n->key) == FP_TAG_SECTION;
}

/* The node of [key] under the current node, added if needed. */
static fp_node *
node_above(fp_thread *t, fp_key key)
{
    if (key == FP_KEY_TRUNCATED) {
        /* It stands for a call whose key was lost and must not become a
         * context. */
        fp_node *truncated = truncated_here(t);
        return truncated != NULL ? truncated : t->base_truncated;
    }
    fp_node *n = fp_thread_find(t, key);
    return n != NULL ? n : fp_thread_add(t, key);
}

fp_status
fp_thread_rejoin(fp_thread *t, fp_key key)
{
    fp_node *n = node_above(t, key);
    fp_outliers_rejoined(t->outliers, n);
    if (!fp_node_is_flat(n)) {
        fp_thread_stand(t, n);
        return FP_OK;
    }
    if (n->key != key && fp_key_tag(key) == FP_TAG_SECTION) {
        return FP_ENOMEM; /* see fp_thread_open_section */
    }
    if (push_over(t) != FP_OK) {
        t->counters.dropped++;
        return FP_ENOMEM;
    }
    fp_thread_stand(t, n);
    return FP_OK;
}

/* Puts the sections from entry [first] on back on the path. */
static void
rejoin_from(fp_thread *t, uint32_t first)
{
    for (uint32_t i = first; i < t->open_len; i++) {
        if (t->open[i].on_path &&
            fp_thread_rejoin(t, t->open[i].key) != FP_OK) {
            t->open[i].on_path = 0;
        }
    }
}

void
fp_thread_rejoin_sections(fp_thread *t, uint32_t count)
{
    uint32_t first = t->open_len;
    for (uint32_t seen = 0; seen < count && first > 0;) {
        seen += t->open[--first].on_path;
    }
    rejoin_from(t, first);
}

void
fp_thread_leave_slow(fp_thread *t, fp_key key, int64_t now)
{
    const fp_node *base = t->base;
    fp_node *n = t->cur;
    uint32_t over = t->over_len, sections = 0, functions = 0;
    /* A truncated node on the path stands for a call whose key was lost. */
    while (n != base && n->key != key && n->key != FP_KEY_TRUNCATED) {
        if (is_section(n)) {
            sections++;
        }
        else {
            functions++;
        }
        n = fp_path_below(t, n, &over);
    }
    if (n == base) {
        /* If no function is open, the call began before the recording. */
        t->counters.unmatched += functions != 0;
        return;
    }
    fp_thread_charge(t, now);
    t->counters.unbalanced += functions;
    fp_thread_stand(t, fp_path_below(t, n, &over));
    t->over_len = over;
    /* A generator that yields inside a `with` leaves its frame but not the
     * section: the section stays open and moves down to the caller. */
    fp_thread_rejoin_sections(t, sections);
}

int
fp_thread_in_function(const fp_thread *t)
{
    const fp_node *base = t->base;
    uint32_t over = t->over_len;
    for (const fp_node *n = t->cur; n != base;
         n = fp_path_below(t, n, &over)) {
        if (!is_section(n)) {
            return 1;
        }
    }
    return 0;
}

void
fp_thread_drop_functions(fp_thread *t, int64_t now)
{
    fp_thread_charge(t, now);
    if (!fp_thread_in_function(t)) {
        return;
    }
    fp_thread_stand(t, t->base);
    t->over_len = 0;
    rejoin_from(t, 0);
}

/* ---- closing an element in the middle of the path ---- */

static fp_status
reserve_scratch(fp_thread *t, uint32_t wanted)
{
    return fp_alloc_room(&t->alloc, &t->scratch, &t->scratch_capacity, wanted,
                         64, sizeof(*t->scratch));
}

void
fp_thread_take_off_path(fp_thread *t, uint32_t i)
{
    const fp_node *base = t->base;
    uint32_t over = t->over_len, above = 0, functions = 0, rank = 0;
    for (uint32_t j = i + 1; j < t->open_len; j++) {
        rank += t->open[j].on_path;
    }
    fp_node *n = t->cur;
    fp_status room = FP_OK;
    for (; n != base; n = fp_path_below(t, n, &over), above++) {
        if (!is_section(n)) {
            functions++;
        }
        else if (rank-- == 0) {
            break;
        }
        room = room == FP_OK ? reserve_scratch(t, above + 1) : room;
        if (room == FP_OK) {
            t->scratch[above] = n->key;
        }
    }
    if (n == base) {
        return; /* impossible: the entry says that it is on the path */
    }
    fp_thread_stand(t, fp_path_below(t, n, &over));
    t->over_len = over;
    if (room != FP_OK) {
        t->counters.dropped += functions;
        rejoin_from(t, i + 1);
        return;
    }
    while (above > 0) {
        fp_key key = t->scratch[--above];
        fp_status joined = fp_thread_rejoin(t, key);
        if (fp_key_tag(key) == FP_TAG_SECTION) {
            do {
                i++;
            } while (!t->open[i].on_path);
            t->open[i].on_path = joined == FP_OK;
        }
    }
}

fp_status
fp_thread_copy_path(fp_thread *t, uint32_t *length)
{
    uint32_t over = t->over_len;
    *length = 0;
    for (fp_node *n = t->cur; n != t->base; n = fp_path_below(t, n, &over)) {
        if (reserve_scratch(t, *length + 1) != FP_OK) {
            return FP_ENOMEM;
        }
        t->scratch[(*length)++] = (fp_key)(uintptr_t)n;
    }
    return FP_OK;
}
