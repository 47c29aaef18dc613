/* budget: keeping the recording's own cost below max_overhead.
 *
 * Returning DISABLE from a sys.monitoring callback switches one event off at
 * one place of the code, and from then on that place costs nothing.  When the
 * estimated cost since the last look exceeds the budget, the functions that are
 * called most and do least are muted, most calls first, until the rest fits.
 * Their time moves to their callers; the report names them.
 *
 * A C function is muted at the call sites that call it; what else such a site
 * calls later is lost with it.  Before any function is muted, places that call
 * Python functions are switched off when they do: these calls are announced
 * twice.  What such a place calls later is lost if it is a C function.
 *
 * There may be a million nodes, and a look happens within a step of the program: so
 * each step does a part of it, at most some thousandths of what the step took, and
 * a look goes on over as many steps as that needs.  A function is muted when all
 * of its nodes are marked and none of its calls goes on, at one moment. */
#include "py/budget.h"

#include "py/hooks.h"

#include "core/path_rebuild.h"

#include <string.h>

/* A function is trivial if a call takes less than so many times its cost. */
enum { TRIVIAL = 8 };

/* Where the budget cannot be kept, a function is worth muting if its calls since the
 * last look cost this part of what is too much: the others would be lost for nothing. */
#define LEAST_PART 0.01

/* So many nodes or keys a step at least, and one more per so many ns that it took:
 * one takes some tens of ns. */
enum { FEWEST = 256, NS_PER_VISIT = 10000 };

static fp_budget_kind
kind_of(fp_key key)
{
    switch (fp_key_tag(key)) {
    case FP_TAG_C:
        return FP_BUDGET_C;
    case FP_TAG_TYPE:
    case FP_TAG_CALLABLE:
        return FP_BUDGET_CONSTRUCTOR;
    default:
        return FP_BUDGET_PYTHON;
    }
}

/* Of a call, in ns.  Without an event at the place that calls it, a call of a Python
 * function costs what an implicit one does. */
static double
cost_of(const fp_recorder *r, fp_budget_kind kind)
{
    switch (kind) {
    case FP_BUDGET_C:
        return r->config.cost_c_ns;
    case FP_BUDGET_CONSTRUCTOR:
        return r->config.cost_constructor_ns;
    default:
        return r->recording.leaves_out_sites ? r->config.cost_implicit_ns
                                             : r->config.cost_python_ns;
    }
}

/* Calls that are open.  Their places send an end that is waited for: muted now, the
 * next call from somewhere else would switch it off, and they would be open for
 * ever.  They are looked at again the next time. */
static void
find_open(fp_recorder *r)
{
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_path_walk w = fp_path_walk_begin(t);
        for (const fp_node *n; (n = fp_path_walk_next(t, &w)) != NULL;) {
            fp_keyent *e = fp_keytab_find(&r->keys, n->key);
            if (e != NULL) {
                e->open_look = r->recording.budget.look;
            }
        }
    }
}

/* One more, if there is any of *left. */
static int
visit(fp_recorder *r, uint32_t *left)
{
    if (*left == 0) {
        return 0;
    }
    --*left;
    r->recording.budget.visits++;
    return 1;
}

/* ---- counting ---- */

static void
begin_look(fp_recorder *r)
{
    fp_budget *b = &r->recording.budget;
    b->stage = FP_BUDGET_COUNTING;
    b->look++;
    memset(b->new_calls, 0, sizeof(b->new_calls));
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        t->looked_at = 0;
    }
}

static void
count_node(fp_recorder *r, const fp_node *n)
{
    fp_budget *b = &r->recording.budget;
    fp_keyent *e = fp_keytab_find(&r->keys, n->key);
    if (e == NULL) {
        return;
    }
    if (e->look != b->look) {
        e->calls_then = e->look == b->ended ? e->calls : e->calls_then;
        e->look = b->look;
        e->calls = 0;
        e->self_ticks = 0;
    }
    e->calls += n->calls + n->resumes;
    e->self_ticks += n->self_ticks;
    b->new_calls[kind_of(n->key)] += n->calls + n->resumes;
}

static uint64_t
since(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

/* Is the recording too expensive?  The next look begins here. */
static int
is_exceeded(fp_recorder *r, uint64_t steps)
{
    fp_budget *b = &r->recording.budget;
    int64_t now = fp_clock_now(&r->clock);
    b->ns_per_tick = fp_clock_ns_per_tick(&r->clock);
    double wall_ns = (double)(now - b->ticks) * b->ns_per_tick;
    int known = b->ticks != 0;
    b->excess_ns = -wall_ns * r->config.max_overhead;
    for (int i = 0; i < FP_BUDGET_KINDS; i++) {
        uint64_t calls = since(b->calls[i], b->new_calls[i]);
        b->excess_ns += (double)calls * cost_of(r, (fp_budget_kind)i);
        b->calls[i] = b->new_calls[i];
    }
    b->window = since(b->steps, steps);
    b->steps = steps;
    b->ended = b->look;
    b->ticks = now;
    return known && b->excess_ns > 0.0;
}

/* 1: all of them. */
static int
count_nodes(fp_recorder *r, uint32_t *left)
{
    /* Ended threads, too, or the totals would fall when they are joined. */
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(r, t)) != NULL) {
        for (; t->looked_at < t->tree.count; t->looked_at++) {
            if (!visit(r, left)) {
                return 0;
            }
            count_node(r, fp_tree_node(&t->tree, t->looked_at));
        }
    }
    return 1;
}

/* ---- choosing ---- */

/* Its calls since the look before. */
static uint64_t
new_calls(const fp_keyent *e)
{
    return since(e->calls_then, e->calls);
}

/* A generator's places are reached by calls and by resumes; muting one kind
 * would leave the other without its return. */
static int
can_be_muted(const fp_recorder *r, const fp_keyent *e)
{
    if (e->muted || e->calls == 0 ||
        e->open_look == r->recording.budget.look ||
        (fp_key_tag(e->key) == FP_TAG_PYTHON &&
         fp_code_can_suspend((PyCodeObject *)e->object))) {
        return 0;
    }
    if (new_calls(e) < r->recording.budget.window) {
        return 0; /* not even once a step */
    }
    double self_ns = (double)e->self_ticks * r->recording.budget.ns_per_tick;
    return self_ns <= (double)e->calls * cost_of(r, kind_of(e->key)) * TRIVIAL;
}

/* Puts key [index] where it belongs among the choices. */
static void
choose(fp_recorder *r, uint32_t index)
{
    fp_budget *b = &r->recording.budget;
    const fp_keyent *e = r->keys.entry;
    uint32_t at = b->choices;
    if (at == FP_BUDGET_CHOICES) {
        if (new_calls(&e[b->choice[at - 1]]) >= new_calls(&e[index])) {
            return;
        }
        at--;
    }
    else {
        b->choices++;
    }
    for (; at > 0 && new_calls(&e[b->choice[at - 1]]) < new_calls(&e[index]);
         at--) {
        b->choice[at] = b->choice[at - 1];
    }
    b->choice[at] = index;
}

/* 1: all of them. */
static int
choose_keys(fp_recorder *r, uint32_t *left)
{
    fp_budget *b = &r->recording.budget;
    for (; b->key < r->keys.count; b->key++) {
        if (!visit(r, left)) {
            return 0;
        }
        if (r->keys.entry[b->key].look == b->look &&
            can_be_muted(r, &r->keys.entry[b->key])) {
            choose(r, b->key);
        }
    }
    return 1;
}

/* What muting it would save. */
static double
saved_ns(const fp_recorder *r, const fp_keyent *e)
{
    return (double)new_calls(e) * cost_of(r, kind_of(e->key));
}

/* Of the choices, so many as it takes.  1: there are some. */
static int
take_choices(fp_recorder *r)
{
    fp_budget *b = &r->recording.budget;
    double most = 0.0;
    for (uint32_t i = 0; i < b->choices; i++) {
        most += saved_ns(r, &r->keys.entry[b->choice[i]]);
    }
    double least = most < b->excess_ns ? b->excess_ns * LEAST_PART : 0.0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < b->choices && b->excess_ns > 0.0; i++) {
        fp_keyent *e = &r->keys.entry[b->choice[i]];
        if (saved_ns(r, e) >= least) {
            e->chosen = 1;
            b->excess_ns -= saved_ns(r, e);
            b->choice[taken++] = b->choice[i];
        }
    }
    b->choices = taken;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        t->looked_at = 0;
    }
    return taken != 0;
}

/* ---- marking ---- */

/* 1: every node of what was chosen is marked, at this moment. */
static int
mark_nodes(fp_recorder *r, uint32_t *left)
{
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        for (; t->looked_at < t->tree.count; t->looked_at++) {
            if (!visit(r, left)) {
                return 0;
            }
            fp_node *n = fp_tree_node(&t->tree, t->looked_at);
            const fp_keyent *e = fp_keytab_find(&r->keys, n->key);
            n->flags |= e != NULL && e->chosen ? FP_NODE_MUTED : 0;
        }
    }
    return 1;
}

/* A function of which a call goes on by now stays what it is, and may be chosen
 * again. */
static void
mute(fp_recorder *r)
{
    fp_budget *b = &r->recording.budget;
    b->look++;
    find_open(r);
    for (uint32_t i = 0; i < b->choices; i++) {
        fp_keyent *e = &r->keys.entry[b->choice[i]];
        e->chosen = 0;
        if (e->open_look != b->look) {
            e->muted = 1;
            e->calls_before_mute = e->calls;
            r->recording.any_muted = 1;
            r->state->restart_events = 1;
        }
    }
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        /* Calls of them may go on that a pause has only counted. */
        t->stale |= t->unseen != 0;
    }
}

/* ---- places that call Python functions ---- */

/* The cheapest cut comes first: it loses no call of a Python function.  1: it was
 * made just now. */
static int
leave_out_sites(fp_recorder *r)
{
    if (r->recording.leaves_out_sites || !fp_monitoring_leave_out_sites(r)) {
        return 0;
    }
    r->recording.calls_before_off =
        r->recording.budget.calls[FP_BUDGET_PYTHON];
    return 1;
}

/* ---- steps ---- */

/* Often at first, while the program warms up, then now and then. */
static int
is_due(uint64_t step)
{
    return step >= 8 && ((step & (step - 1)) == 0 || step % 256 == 0);
}

/* How many nodes or keys may be looked at after a step that took [ticks]. */
static uint32_t
allowance(const fp_recorder *r, int64_t ticks)
{
    double more =
        (double)ticks * r->recording.budget.ns_per_tick / NS_PER_VISIT;
    return FEWEST + (more > 0.0 && more < 1e9 ? (uint32_t)more : 0);
}

void
fp_recorder_check_budget(fp_recorder *r, const fp_steps *steps)
{
    fp_budget *b = &r->recording.budget;
    if (b->stage == FP_BUDGET_IDLE && !is_due(steps->count)) {
        return;
    }
    if (r->hooks.backend != FP_BACKEND_MONITORING ||
        r->config.max_overhead <= 0.0 || r->config.cost_python_ns <= 0.0 ||
        r->paused || r->keys.count == 0) {
        return;
    }
    if (b->stage == FP_BUDGET_IDLE) {
        begin_look(r);
    }
    uint32_t left = allowance(r, steps->ticks);
    if (b->stage == FP_BUDGET_COUNTING && count_nodes(r, &left)) {
        b->stage = FP_BUDGET_IDLE;
        if (is_exceeded(r, steps->count) && !leave_out_sites(r)) {
            b->stage = FP_BUDGET_CHOOSING;
            b->choices = b->key = 0;
            find_open(r);
        }
    }
    if (b->stage == FP_BUDGET_CHOOSING && choose_keys(r, &left)) {
        b->stage = take_choices(r) ? FP_BUDGET_MARKING : FP_BUDGET_IDLE;
    }
    if (b->stage == FP_BUDGET_MARKING && mark_nodes(r, &left)) {
        mute(r);
        b->stage = FP_BUDGET_IDLE;
    }
}
