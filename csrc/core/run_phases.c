/* Changes the run's phase in one thread. */
#include "core/outliers.h"
#include "core/path_rebuild.h"
#include "core/steps_split.h"
#include "core/thread_steps.h"

fp_node *
fp_tree_base(fp_tree *t, fp_run_phase phase, fp_node **truncated)
{
    fp_node *root = fp_tree_root(t), *base = root;
    if (phase != FP_RUN_STEPS) {
        base = fp_tree_find(t, root, fp_key_base(phase));
        if (base == NULL) {
            base = fp_tree_add(t, root, fp_key_base(phase));
            if (base == NULL) {
                return NULL;
            }
            base->depth = 0; /* an element has the same depth in each phase */
        }
    }
    *truncated = fp_tree_find(t, base, FP_KEY_TRUNCATED);
    if (*truncated == NULL) {
        *truncated = fp_tree_add(t, base, FP_KEY_TRUNCATED);
        if (*truncated == NULL) {
            return NULL;
        }
        (*truncated)->flags |= FP_NODE_FLAT;
    }
    return base;
}

/* The path's element at [depth]. */
static fp_node *
at_depth(const fp_thread *t, uint32_t depth)
{
    fp_node *n = t->over_len != 0 ? t->over[0] : t->cur;
    while (n->depth > depth) {
        n = n->parent;
    }
    return n;
}

/* A function that waits does so in every phase: list its new node, too. */
static void
list_wait_again(fp_thread *t, const fp_node *old)
{
    uint32_t number = fp_waits_number(old);
    if (number != 0 && t->cur->key == old->key) {
        fp_thread_list_wait(t, t->cur,
                            (fp_kind)t->waits.wait[number - 1].kind);
    }
}

static fp_status
change(fp_thread *t, fp_run_phase phase, int64_t now)
{
    fp_node *truncated = NULL;
    fp_node *base = fp_tree_base(&t->tree, phase, &truncated);
    uint32_t length = 0;
    if (base == NULL || fp_thread_copy_path(t, &length) != FP_OK) {
        t->counters.dropped++;
        return FP_ENOMEM;
    }
    if (t->last != INT64_MIN) {
        fp_thread_charge(t, now);
    }
    if (t->steps != NULL && fp_run_phase_steps(t->run_phase) &&
        !fp_run_phase_steps(phase)) {
        fp_thread_pause_step(t, now);
    }
    t->sections_of[t->run_phase] =
        (fp_section_table){t->section, t->section_capacity};
    t->section = t->sections_of[phase].section;
    t->section_capacity = t->sections_of[phase].capacity;
    fp_run_phase before = t->run_phase;
    t->run_phase = phase;
    t->phases.plain = 0; /* until the next step */
    t->base = base;
    t->base_truncated = truncated;
    fp_thread_stand(t, base);
    t->over_len = 0;
    uint32_t entry = 0;
    while (length > 0) {
        const fp_node *old = (const fp_node *)t->scratch[--length];
        fp_status joined = fp_thread_rejoin(t, old->key);
        if (fp_key_tag(old->key) == FP_TAG_SECTION) {
            while (!t->open[entry].on_path) {
                entry++;
            }
            t->open[entry++].on_path = joined == FP_OK;
        }
        else if (joined == FP_OK) {
            list_wait_again(t, old);
        }
    }
    fp_split *split = t->split;
    if (split != NULL && split->covers != 0 && split->cover_node != NULL) {
        split->cover_node = at_depth(t, split->cover_node->depth);
    }
    if (split != NULL && split->in_gc) {
        split->gc_node = at_depth(t, split->gc_node->depth);
        split->gc_self_ticks = split->gc_node->self_ticks;
    }
    if (t->steps != NULL && fp_run_phase_steps(phase) &&
        !fp_run_phase_steps(before)) {
        fp_thread_resume_step(t, now);
    }
    return FP_OK;
}

void
fp_thread_leave_out(fp_thread *t, int64_t since, int64_t now)
{
    for (uint32_t i = 0; i < t->open_len; i++) {
        fp_open *entry = &t->open[i];
        if (entry->start > since) {
            break; /* and so did all that were opened later */
        }
        int first = 1;
        for (uint32_t j = 0; j < i; j++) {
            first &= t->open[j].section != entry->section;
        }
        if (first) {
            entry->section->outer_since += now - since;
        }
        entry->start += now - since;
    }
}

fp_status
fp_thread_set_run_phase(fp_thread *t, fp_run_phase phase, int64_t now)
{
    if (phase == t->run_phase) {
        return FP_OK;
    }
    int parked = fp_thread_is_parked(t);
    fp_thread_unpark(t, now);
    fp_status status = change(t, phase, now);
    if (parked) {
        fp_thread_park(t, now);
    }
    return status;
}
