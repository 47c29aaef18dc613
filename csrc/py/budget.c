/* budget: keeping the recording's own cost below max_overhead.
 *
 * Returning DISABLE from a sys.monitoring callback switches one event off at
 * one place of the code, and from then on that place costs nothing.  When the
 * estimated cost since the last look exceeds the budget, the functions that are
 * called most and do least are muted, most calls first, until the rest fits.
 * Their time moves to their callers; the report names them.
 *
 * A C function is muted at the call sites that call it; what else such a site
 * calls later is lost with it. */
#include "py/recorder.h"

#include "core/path_rebuild.h"

#include <stdlib.h>

/* A function is trivial if a call takes less than so many times its cost. */
enum { TRIVIAL = 8, MAX_MUTED_AT_ONCE = 64 };

typedef struct usage {
    fp_keyent *entry;
    uint64_t calls;
    int64_t self_ticks;
    uint8_t open; /* on the path of a thread */
} usage;

int
fp_recorder_is_muted_slow(fp_recorder *r, fp_key key)
{
    const fp_keyent *e = fp_keytab_find(&r->keys, key);
    return e != NULL && e->muted;
}

static int
is_c(fp_key key)
{
    int tag = fp_key_tag(key);
    return tag == FP_TAG_C || tag == FP_TAG_TYPE || tag == FP_TAG_CALLABLE;
}

/* Calls that are open.  Their places send an end that is waited for: muted now, the
 * next call from somewhere else would switch it off, and they would be open for
 * ever.  They are looked at again the next time. */
static void
find_open(fp_recorder *r, usage *u)
{
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_path_walk w = fp_path_walk_begin(t);
        for (const fp_node *n; (n = fp_path_walk_next(t, &w)) != NULL;) {
            const fp_keyent *e = fp_keytab_find(&r->keys, n->key);
            if (e != NULL) {
                u[e - r->keys.entry].open = 1;
            }
        }
    }
}

static void
sum_usage(fp_recorder *r, usage *u, uint64_t *python, uint64_t *c)
{
    *python = *c = 0;
    for (uint32_t i = 0; i < r->keys.count; i++) {
        u[i].entry = &r->keys.entry[i];
    }
    /* Ended threads, too, or the totals would fall when they are joined. */
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        for (uint32_t i = 0; i < t->tree.count; i++) {
            const fp_node *n = fp_tree_node(&t->tree, i);
            const fp_keyent *e = fp_keytab_find(&r->keys, n->key);
            if (e == NULL) {
                continue;
            }
            usage *one = &u[e - r->keys.entry];
            one->calls += n->calls + n->resumes;
            one->self_ticks += n->self_ticks;
            *(is_c(n->key) ? c : python) += n->calls + n->resumes;
        }
    }
}

/* A generator's places are reached by calls and by resumes; muting one kind
 * would leave the other without its return. */
static int
can_be_muted(const usage *u)
{
    const fp_keyent *e = u->entry;
    return !e->muted && !u->open &&
           (fp_key_tag(e->key) != FP_TAG_PYTHON ||
            !fp_code_can_suspend((PyCodeObject *)e->object));
}

static int
by_calls(const void *a, const void *b)
{
    uint64_t x = ((const usage *)a)->calls, y = ((const usage *)b)->calls;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* A bit for each key, by which most of those that are not meant are told. */
static uint64_t
key_bit(fp_key key)
{
    return (uint64_t)1 << ((key >> 4 ^ key >> 10) & 63);
}

/* Marks the nodes of what was muted just now: in one walk, as there may be many. */
static void
mark_nodes(fp_recorder *r, uint64_t bits)
{
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        /* Calls of them may go on that a pause has only counted. */
        t->stale |= t->unseen != 0;
        for (uint32_t i = 0; i < t->tree.count; i++) {
            fp_node *n = fp_tree_node(&t->tree, i);
            if ((bits & key_bit(n->key)) != 0 &&
                fp_recorder_is_muted_slow(r, n->key)) {
                n->flags |= FP_NODE_MUTED;
            }
        }
    }
    r->any_muted = 1;
    r->state->restart_events = 1;
}

/* Mutes until [excess_ns] of the cost since the last look is gone.  [share] is
 * the part of all calls that fell into that time. */
static void
mute_most_called(fp_recorder *r, usage *u, double excess_ns, double share,
                 double scale)
{
    qsort(u, r->keys.count, sizeof(*u), by_calls);
    int muted = 0;
    uint64_t bits = 0;
    for (uint32_t i = 0;
         i < r->keys.count && excess_ns > 0.0 && muted < MAX_MUTED_AT_ONCE;
         i++) {
        double cost = is_c(u[i].entry->key) ? r->cost_c_ns : r->cost_python_ns;
        double self_ns = (double)u[i].self_ticks * scale;
        if (!can_be_muted(&u[i]) || u[i].calls == 0 ||
            self_ns > (double)u[i].calls * cost * TRIVIAL) {
            continue;
        }
        u[i].entry->muted = 1;
        u[i].entry->calls_before_mute = u[i].calls;
        bits |= key_bit(u[i].entry->key);
        muted++;
        excess_ns -= (double)u[i].calls * share * cost;
    }
    if (muted != 0) {
        mark_nodes(r, bits);
    }
}

void
fp_recorder_check_budget(fp_recorder *r)
{
    if (r->backend != FP_BACKEND_MONITORING || r->max_overhead <= 0.0 ||
        r->cost_python_ns <= 0.0 || r->paused || r->keys.count == 0) {
        return;
    }
    usage *u = fp_alloc_zeroed(&r->alloc, r->keys.count, sizeof(*u));
    if (u == NULL) {
        return;
    }
    uint64_t python, c;
    sum_usage(r, u, &python, &c);
    int64_t now = fp_clock_now(&r->clock);
    double scale = fp_clock_ns_per_tick(&r->clock);
    double wall_ns = (double)(now - r->budget_ticks) * scale;
    uint64_t new_python =
        python > r->budget_python ? python - r->budget_python : 0;
    uint64_t new_c = c > r->budget_c ? c - r->budget_c : 0;
    double cost_ns =
        (double)new_python * r->cost_python_ns + (double)new_c * r->cost_c_ns;
    double allowed_ns = wall_ns * r->max_overhead;
    if (r->budget_ticks != 0 && cost_ns > allowed_ns && python + c > 0) {
        double share = (double)(new_python + new_c) / (double)(python + c);
        find_open(r, u);
        mute_most_called(r, u, cost_ns - allowed_ns, share, scale);
    }
    r->budget_ticks = now;
    r->budget_python = python;
    r->budget_c = c;
    fp_alloc_give(&r->alloc, u, r->keys.count, sizeof(*u));
}
