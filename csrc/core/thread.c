#include "core/outliers.h"
#include "core/path.h"
#include "core/steps_split.h"
#include "core/trace.h"

fp_thread *
fp_thread_create(const fp_alloc *a, fp_limits limits, int64_t now)
{
    fp_thread *t = fp_alloc_zeroed(a, 1, sizeof(*t));
    if (t == NULL) {
        return NULL;
    }
    t->alloc = *a;
    t->limits = limits;
    t->phases.tag = -1;
    if (fp_tree_init(&t->tree, a) != FP_OK) {
        fp_alloc_give(a, t, 1, sizeof(*t));
        return NULL;
    }
    t->base = fp_tree_root(&t->tree);
    t->base_truncated = fp_tree_truncated(&t->tree);
    fp_thread_stand(t, t->base);
    t->last = now;
    return t;
}

static void
free_sections(fp_section_table of, const fp_alloc *a)
{
    for (uint32_t i = 0; i < of.capacity; i++) {
        if (of.section[i] != NULL) {
            fp_hist_fini(&of.section[i]->hist, a);
            fp_alloc_give(a, of.section[i], 1, sizeof(fp_section));
        }
    }
    fp_alloc_give(a, of.section, of.capacity, sizeof(*of.section));
}

void
fp_thread_destroy(fp_thread *t)
{
    if (t == NULL) {
        return;
    }
    fp_alloc a = t->alloc;
    fp_trace_free(t);
    for (int p = 0; p < FP_RUN_PHASES; p++) {
        free_sections(fp_thread_sections_of(t, (fp_run_phase)p), &a);
    }
    fp_split_destroy(t);
    fp_waits_fini(&t->waits, &a);
    if (t->steps != NULL) {
        fp_hist_fini(&t->steps->measured.hist, &a);
        fp_hist_fini(&t->steps->plain.hist, &a);
        fp_alloc_give(&a, t->steps, 1, sizeof(*t->steps));
    }
    fp_outliers_destroy(t->outliers);
    fp_phases_fini(&t->phases, &a);
    fp_alloc_give(&a, t->over, t->over_capacity, sizeof(*t->over));
    fp_alloc_give(&a, t->open, t->open_capacity, sizeof(*t->open));
    fp_alloc_give(&a, t->scratch, t->scratch_capacity, sizeof(*t->scratch));
    fp_tree_fini(&t->tree);
    fp_alloc_give(&a, t, 1, sizeof(*t));
}
