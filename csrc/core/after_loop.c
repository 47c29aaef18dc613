#include "core/after_loop.h"

#include "core/outliers_look.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"

/* The part of one node's counts that belongs after the loop. */
typedef struct part {
    int64_t ticks; /* estimated ticks after the loop */
    int64_t most;  /* growth since the last look: the upper bound of ticks */
    int64_t moved; /* of this node and its descendants */
    uint64_t calls;
    uint64_t resumes;
    fp_node *to;     /* its counterpart in the other subtree */
    uint8_t inside;  /* in the subtree of measured steps */
    uint8_t entered; /* after the last step, or open when it ended */
    uint8_t wanted;  /* this node or a descendant has something to move */
} part;

/* Ticks from the end of the last step to the start of the pause, without
 * earlier pauses. */
static int64_t
ticks_beyond(const fp_steps *s)
{
    return s->paused_at - s->start - s->paused_ticks;
}

/* The entries of [grown] beyond the usual number, [usual] times [windows]. */
static uint64_t
excess(uint64_t grown, uint64_t usual, double windows)
{
    uint64_t expected = (uint64_t)((double)usual * windows + 0.5);
    return grown > expected ? grown - expected : 0;
}

/* Estimates [p]: the growth of [n] since the last look, less the usual growth
 * in [steps] steps. */
static void
reckon(part *p, const fp_outliers *o, const fp_node *n, uint64_t steps)
{
    const fp_outlier_mark *m = fp_outliers_mark(o, n);
    if (m == NULL && n->index < o->looked) {
        return; /* the last look did not mark it: its growth is unknown */
    }
    uint64_t calls = n->calls - (m != NULL ? m->calls : 0);
    uint64_t resumes = n->resumes - (m != NULL ? m->resumes : 0);
    int64_t ticks = n->self_ticks - (m != NULL ? m->ticks : 0);
    p->most = p->ticks = ticks > 0 ? ticks : 0;
    p->calls = calls;
    p->resumes = resumes;
    p->entered = 1;
    if (steps == 0 || m == NULL) {
        return;
    }
    const fp_outlier_row usual = fp_outliers_usual(o, n->index);
    double windows = (double)steps / (double)o->seen_steps;
    double of_steps = (double)usual.ticks * windows;
    p->calls = excess(calls, usual.calls, windows);
    p->resumes = excess(resumes, usual.resumes, windows);
    p->entered = p->calls != 0 || p->resumes != 0 || m->open;
    p->ticks = p->entered && of_steps < (double)p->most
                   ? p->most - (int64_t)of_steps
                   : 0;
}

/* Scales the parts so that their sum is [beyond], or as close to it as they
 * allow. */
static void
adjust(part *parts, uint32_t count, int64_t beyond)
{
    int64_t sum = 0, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += parts[i].ticks;
        most += parts[i].entered ? parts[i].most : 0;
    }
    double down = sum > beyond ? (double)beyond / (double)sum : 1;
    double up = sum < beyond && most > sum
                    ? (double)(beyond - sum) / (double)(most - sum)
                    : 0;
    up = up > 1 ? 1 : up;
    for (uint32_t i = 0; i < count; i++) {
        part *p = &parts[i];
        if (p->entered) {
            double ticks = (double)p->ticks * down;
            p->ticks = (int64_t)(ticks + up * ((double)p->most - ticks));
        }
    }
}

/* The counterpart of [n] under [parent], added if needed.  NULL: no room. */
static fp_node *
place_of(fp_thread *t, fp_node *parent, const fp_node *n)
{
    fp_node *to = fp_tree_find(&t->tree, parent, n->key);
    if (to == NULL && t->tree.count < t->limits.max_nodes) {
        to = fp_tree_add(&t->tree, parent, n->key);
        if (to != NULL) {
            to->flags |= n->flags & FP_NODE_FLAT;
        }
    }
    return to;
}

static int64_t
move(fp_thread *t, part *parts, uint32_t count, fp_node *base)
{
    int64_t moved = 0;
    for (uint32_t i = count; i-- > 1;) {
        part *p = &parts[i];
        p->wanted |= p->ticks != 0 || p->calls != 0 || p->resumes != 0;
        if (p->inside && p->wanted) {
            parts[fp_tree_node(&t->tree, i)->parent->index].wanted = 1;
        }
    }
    parts[0].to = base;
    for (uint32_t i = 0; i < count; i++) {
        part *p = &parts[i];
        fp_node *n = fp_tree_node(&t->tree, i);
        if (i > 0 && p->inside && p->wanted) {
            fp_node *parent = parts[n->parent->index].to;
            p->to = parent != NULL ? place_of(t, parent, n) : NULL;
        }
        if (p->to == NULL) {
            continue;
        }
        n->calls -= p->calls;
        n->resumes -= p->resumes;
        n->self_ticks -= p->ticks;
        p->to->calls += p->calls;
        p->to->resumes += p->resumes;
        p->to->self_ticks += p->ticks;
        p->moved = p->ticks;
        moved += p->ticks;
    }
    for (uint32_t i = count; i-- > 1;) {
        const fp_node *n = fp_tree_node(&t->tree, i);
        if (parts[i].inside) {
            parts[n->parent->index].moved += parts[i].moved;
        }
    }
    return moved;
}

/* Moves a section that was entered only after the last step. */
static void
move_section(fp_thread *t, fp_section *s)
{
    if (fp_thread_reserve_section(t, s->id) != FP_OK) {
        t->counters.dropped++;
        return;
    }
    fp_section_merge(t->section[s->id], &t->alloc, s);
    s->count = s->errors = 0;
    s->sum_ticks = s->outer_ticks = s->min_ticks = s->max_ticks = 0;
    fp_hist_fini(&s->hist, &t->alloc);
    s->hist = (fp_hist){0};
}

/* Moves [ticks] of a section's time: a histogram and extremes cannot be
 * divided. */
static void
move_time(fp_thread *t, fp_section *s, int64_t ticks)
{
    if (fp_thread_reserve_section(t, s->id) != FP_OK) {
        t->counters.dropped++;
        return;
    }
    ticks = ticks < s->outer_ticks ? ticks : s->outer_ticks;
    s->outer_ticks -= ticks;
    t->section[s->id]->outer_ticks += ticks;
}

/* Is [n] in another entry of its section, whose time contains its own? */
static int
is_in_itself(const fp_node *n)
{
    const fp_node *above = n->parent;
    while (above != NULL && above->key != n->key) {
        above = above->parent;
    }
    return above != NULL;
}

static void
move_sections(fp_thread *t, const part *parts, uint32_t count)
{
    fp_section_table of = fp_thread_sections_of(t, FP_RUN_STEPS);
    for (uint32_t id = 0; id < of.capacity; id++) {
        fp_section *s = of.section[id];
        uint64_t left = 0;
        int64_t moved = 0;
        for (uint32_t i = 0; s != NULL && i < count; i++) {
            const fp_node *n = fp_tree_node(&t->tree, i);
            if (parts[i].inside && n->key == fp_key_section(id)) {
                left += n->calls;
                moved += is_in_itself(n) ? 0 : parts[i].moved;
            }
        }
        if (s != NULL && s->count != 0 && s->open == 0 && left == 0) {
            move_section(t, s);
        }
        else if (s != NULL && s->open == 0 && moved > 0) {
            /* The nodes' part is an estimate; at the bottom of the stack it is
             * known. */
            move_time(t, s, s->step_ticks > 0 ? s->step_ticks : moved);
        }
    }
}

int64_t
fp_thread_end_loop(fp_thread *t)
{
    const fp_outliers *o = t->outliers;
    if (t->steps == NULL || o == NULL || !t->steps->paused ||
        t->steps->measured.count == 0 ||
        (o->window_steps != 0 && o->seen_steps == 0)) {
        return 0; /* no look since the first step: usual values are unknown */
    }
    int64_t beyond = ticks_beyond(t->steps);
    if (beyond <= 0) {
        return 0;
    }
    uint32_t count = t->tree.count;
    fp_node *truncated = NULL;
    fp_node *base = fp_tree_base(&t->tree, FP_RUN_OUTSIDE, &truncated);
    part *parts = fp_alloc_zeroed(&t->alloc, count, sizeof(*parts));
    if (base == NULL || parts == NULL) {
        fp_alloc_give(&t->alloc, parts, count, sizeof(*parts));
        t->counters.dropped++;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        const fp_node *n = fp_tree_node(&t->tree, i);
        parts[i].inside = i == 0 || (parts[n->parent->index].inside &&
                                     !fp_key_is_base(n->key));
        if (parts[i].inside) {
            reckon(&parts[i], o, n, o->window_steps);
        }
    }
    adjust(parts, count, beyond);
    int64_t moved = move(t, parts, count, base);
    if (t->run_phase == FP_RUN_OUTSIDE) {
        move_sections(t, parts, count);
    }
    fp_alloc_give(&t->alloc, parts, count, sizeof(*parts));
    /* Neither a second call nor the next step, if the loop goes on, must get
     * the same time again. */
    fp_thread_restart_step(t, t->last);
    return moved;
}
