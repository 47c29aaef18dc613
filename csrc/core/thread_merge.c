/* Adds the recording of an ended thread to another one, and counts bytes.
 * Cold code. */
#include "core/outliers.h"
#include "core/path.h"
#include "core/steps_split.h"
#include "core/thread_sections.h"
#include "core/trace.h"

/* The truncated node of the phase of the run that contains [n]. */
static fp_node *
truncated_of(fp_thread *into, const fp_node *n)
{
    while (!fp_key_is_base(n->key)) {
        n = n->parent;
    }
    fp_node *truncated = NULL;
    fp_tree_base(&into->tree, fp_run_phase_of(n->key), &truncated);
    return truncated != NULL ? truncated : fp_tree_truncated(&into->tree);
}

/* The node of [into] for [n], whose parent became [parent]. */
static fp_node *
merged_node(fp_thread *into, fp_node *parent, const fp_node *n)
{
    fp_tree *tree = &into->tree;
    if (fp_key_is_base(n->key)) {
        fp_node *truncated = NULL;
        fp_node *base =
            fp_tree_base(tree, fp_run_phase_of(n->key), &truncated);
        into->counters.dropped += base == NULL;
        return base != NULL ? base : fp_tree_truncated(tree);
    }
    if (fp_node_is_flat(parent) && parent->key != FP_KEY_TRUNCATED) {
        parent = parent->parent; /* flat nodes have no children */
    }
    if (n->key == FP_KEY_TRUNCATED && parent->key == FP_KEY_TRUNCATED) {
        return parent; /* both are calls beyond a cap */
    }
    fp_node *m = fp_tree_find(tree, parent, n->key);
    if (m != NULL) {
        return m;
    }
    unsigned flat = fp_node_is_flat(n) || fp_node_is_flat(parent);
    if (tree->count >= into->limits.max_nodes && !flat) {
        parent = truncated_of(into, parent);
        flat = FP_NODE_FLAT;
        m = fp_tree_find(tree, parent, n->key);
        if (m != NULL) {
            return m;
        }
    }
    if (tree->count >= (uint64_t)into->limits.max_nodes * 2) {
        return truncated_of(into, parent);
    }
    m = fp_tree_add(tree, parent, n->key);
    if (m == NULL) {
        into->counters.dropped++;
        return truncated_of(into, parent);
    }
    m->flags |= flat ? FP_NODE_FLAT : 0;
    return m;
}

static fp_status
merge_trees(fp_thread *into, const fp_thread *from, uint32_t *index)
{
    uint32_t n = from->tree.count;
    fp_node **became = fp_alloc_zeroed(&into->alloc, n, sizeof(*became));
    if (became == NULL) {
        return FP_ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        const fp_node *f = fp_tree_node(&from->tree, i);
        fp_node *m = i == 0 ? fp_tree_root(&into->tree)
                            : merged_node(into, became[f->parent->index], f);
        m->calls += f->calls;
        m->resumes += f->resumes;
        m->self_ticks += f->self_ticks;
        became[i] = m;
        if (index != NULL) {
            index[i] = m->index;
        }
    }
    fp_alloc_give(&into->alloc, became, n, sizeof(*became));
    return FP_OK;
}

static fp_status
merge_sections_of(fp_thread *into, const fp_thread *from, fp_run_phase phase)
{
    fp_section_table of = fp_thread_sections_of(from, phase);
    for (uint32_t i = 0; i < of.capacity; i++) {
        if (of.section[i] == NULL) {
            continue;
        }
        if (fp_thread_set_run_phase(into, phase, into->last) != FP_OK ||
            fp_thread_reserve_section(into, i) != FP_OK) {
            return FP_ENOMEM;
        }
        fp_section_merge(into->section[i], &into->alloc, of.section[i]);
    }
    return FP_OK;
}

/* No thread runs in [into], so its phase may change here. */
static fp_status
merge_sections(fp_thread *into, const fp_thread *from)
{
    fp_run_phase before = into->run_phase;
    fp_status status = FP_OK;
    for (int p = 0; p < FP_RUN_PHASES && status == FP_OK; p++) {
        status = merge_sections_of(into, from, (fp_run_phase)p);
    }
    (void)fp_thread_set_run_phase(into, before, into->last);
    return status;
}

void
fp_counters_add(fp_counters *c, const fp_counters *more)
{
    c->unbalanced += more->unbalanced;
    c->unmatched += more->unmatched;
    c->dropped += more->dropped;
    c->truncated += more->truncated;
    c->out_of_order += more->out_of_order;
    c->stray_exit += more->stray_exit;
    c->wrong_thread += more->wrong_thread;
    c->clock_back += more->clock_back;
}

fp_status
fp_thread_merge(fp_thread *into, const fp_thread *from, uint32_t *became)
{
    fp_counters_add(&into->counters, &from->counters);
    fp_status phases =
        fp_phases_merge(&into->phases, &into->alloc, &from->phases);
    fp_status trees = merge_trees(into, from, became);
    fp_status sections = merge_sections(into, from);
    if (phases != FP_OK || trees != FP_OK || sections != FP_OK) {
        into->counters.dropped++;
        return FP_ENOMEM;
    }
    return FP_OK;
}

static size_t
hist_bytes(const fp_hist *h)
{
    size_t bytes = 0;
    for (int o = 0; o < FP_HIST_OCTAVES; o++) {
        bytes += h->octave[o] != NULL ? FP_HIST_SUB * sizeof(uint64_t) : 0;
    }
    return bytes;
}

size_t
fp_thread_bytes(const fp_thread *t)
{
    size_t bytes = sizeof(*t) + fp_tree_bytes(&t->tree);
    bytes += t->over_capacity * sizeof(*t->over);
    bytes += t->open_capacity * sizeof(*t->open);
    bytes += t->scratch_capacity * sizeof(*t->scratch);
    bytes += t->phases.capacity * sizeof(*t->phases.loader);
    if (t->trace != NULL) {
        bytes +=
            sizeof(*t->trace) + t->trace->capacity * sizeof(*t->trace->frame);
    }
    bytes += t->waits.capacity * sizeof(*t->waits.wait);
    if (t->split != NULL) {
        bytes += fp_split_bytes(t->split);
    }
    if (t->steps != NULL) {
        bytes += sizeof(*t->steps) + hist_bytes(&t->steps->measured.hist) +
                 hist_bytes(&t->steps->plain.hist);
    }
    bytes += fp_outliers_bytes(t->outliers);
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        fp_section_table of = fp_thread_sections_of(t, (fp_run_phase)p);
        bytes += of.capacity * sizeof(*of.section);
        for (uint32_t i = 0; i < of.capacity; i++) {
            if (of.section[i] != NULL) {
                bytes += sizeof(fp_section) + hist_bytes(&of.section[i]->hist);
            }
        }
    }
    return bytes;
}
