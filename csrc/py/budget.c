/* budget: keeps the recording's own cost below max_overhead.
 *
 * A sys.monitoring callback that returns DISABLE switches off one event at one
 * place of the code; that place then costs nothing.  When the estimated cost
 * since the last look exceeds the budget, trivial functions are muted, those
 * with most calls first, until the rest fits.  Their time moves to their
 * callers; the report names them.
 *
 * A C function is muted at its call sites; later calls of other functions from
 * such a site are lost, too.  Before any function is muted, call sites that
 * call a Python function are switched off, because such a call sends two
 * events.  If such a site later calls a C function, that call is lost.
 *
 * There may be a million nodes, and a look runs inside the program's steps.
 * So each step does a part of it, limited to a few thousandths of the step's
 * time, and a look takes as many steps as it needs.  A function is muted once
 * all of its nodes are marked, if none of its calls is open at that moment. */
#include "py/budget.h"

#include "py/guard.h"
#include "py/hooks.h"

#include "core/path_rebuild.h"

#include <string.h>

/* A function is trivial if a call takes less than TRIVIAL times its cost. */
enum { TRIVIAL = 8 };

/* If muting cannot keep the budget, a function is muted only if its calls
 * since the last look cost at least this part of the excess.  Muting the
 * others would lose their calls and save almost nothing. */
#define LEAST_PART 0.01

/* Each step visits at least FEWEST nodes or keys, and one more per
 * NS_PER_VISIT ns that it took.  A visit takes some tens of ns. */
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

/* Cost of a call in ns.  A Python function whose call site sends no event
 * costs as much as an implicit call. */
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

/* Marks the keys of open calls.  Their functions must not be muted now: their
 * end is still expected, and a call from elsewhere would switch it off, so
 * that they would stay open forever.  The next look considers them again. */
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

/* Takes one visit from *left.  Returns 0 if none is left. */
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

/* Ends the counting.  Returns 1 if the recording is too expensive. */
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

/* Returns 1 when all nodes are counted. */
static int
count_nodes(fp_recorder *r, uint32_t *left)
{
    /* Include ended threads: the totals must not drop when they are joined. */
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

/* Calls since the look before. */
static uint64_t
new_calls(const fp_keyent *e)
{
    return since(e->calls_then, e->calls);
}

/* A generator's code is entered by calls and by resumes; muting one kind would
 * leave the other without its return. */
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
        return 0; /* fewer than one call per step */
    }
    double self_ns = (double)e->self_ticks * r->recording.budget.ns_per_tick;
    return self_ns <= (double)e->calls * cost_of(r, kind_of(e->key)) * TRIVIAL;
}

/* Inserts key [index] into the choices, which are sorted by calls. */
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

/* Returns 1 when all keys are considered. */
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

/* Time that muting the function would save, in ns. */
static double
saved_ns(const fp_recorder *r, const fp_keyent *e)
{
    return (double)new_calls(e) * cost_of(r, kind_of(e->key));
}

/* Keeps as many choices as the excess needs.  Returns 1 if any are left. */
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

/* Returns 1 when every node of the chosen functions is marked. */
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

/* Mutes the chosen functions.  A function with an open call stays as it is; a
 * later look may choose it again. */
static void
mute_chosen(fp_recorder *r)
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
        /* A pause counts open calls without their keys; muted functions may be
         * among them, so the path is rebuilt. */
        t->stale |= t->unseen != 0;
    }
}

/* The cheapest measure: it loses no call of a Python function.  Returns 1 if
 * this call took it. */
static int
leave_out_sites(fp_recorder *r)
{
    /* Without the GIL, a thread may be about to call a C function there. */
    if (FP_FREE_THREADED || r->recording.leaves_out_sites ||
        !fp_monitoring_leave_out_sites(r)) {
        return 0;
    }
    r->recording.calls_before_off =
        r->recording.budget.calls[FP_BUDGET_PYTHON];
    return 1;
}

/* ---- steps ---- */

/* Is a look due?  Looks are frequent during warm-up, then every 256 steps. */
static int
is_due(uint64_t step)
{
    return step >= 8 && ((step & (step - 1)) == 0 || step % 256 == 0);
}

/* Number of nodes or keys to visit after a step that took [ticks]. */
static uint32_t
allowance(const fp_recorder *r, int64_t ticks)
{
    double more =
        (double)ticks * r->recording.budget.ns_per_tick / NS_PER_VISIT;
    return FEWEST + (more > 0.0 && more < 1e9 ? (uint32_t)more : 0);
}

typedef struct {
    fp_recorder *recorder;
    const fp_steps *steps;
} look;

/* Does the part of a look that this step allows. */
static void
look_on(void *arg)
{
    const fp_steps *steps = ((look *)arg)->steps;
    fp_recorder *r = ((look *)arg)->recorder;
    fp_budget *b = &r->recording.budget;
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
        mute_chosen(r);
        b->stage = FP_BUDGET_IDLE;
    }
}

void
fp_recorder_check_budget(fp_recorder *r, const fp_steps *steps)
{
    if (r->recording.budget.stage == FP_BUDGET_IDLE && !is_due(steps->count)) {
        return;
    }
    if (r->hooks.backend != FP_BACKEND_MONITORING ||
        r->config.max_overhead <= 0.0 || r->config.cost_python_ns <= 0.0 ||
        r->paused || r->keys.count == 0) {
        return;
    }
    look arg = {r, steps};
    fp_world_stopped(look_on, &arg);
}
