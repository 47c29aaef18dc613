#include "gpu/owners.h"
#include "gpu_kit.h"
#include "thread_kit.h"

#include "core/path.h"

#include <pthread.h>

/* ---- the rule ---- */

static const fp_owner_state idle = {0, 0, 90, 0};
static const fp_owner_state early = {11, 0, 10, 0};
static const fp_owner_state late = {22, 0, 20, 0};
static const fp_owner_state late_phase = {33, 0, 21, 1};
static const fp_owner_state early_phase = {44, 0, 9, 1};
static const fp_owner_state back_early = {55, 56, 5, 0};
static const fp_owner_state back_late = {66, 67, 15, 0};
static const fp_owner_state back_bare = {0, 78, 2, 0};

FP_TEST(gpu_owners_the_rule_case_by_case)
{
    static const struct {
        const fp_owner_state *state[3];
        fp_place known;   /* functions are recorded */
        fp_place unknown; /* ... are not */
    } cases[] = {
        {{NULL}, 0, 0},
        {{&idle}, 0, 0},
        {{&early}, 0, 11},
        {{&early, &late}, 0, 22},
        {{&late, &early}, 0, 22},
        {{&late, &late_phase}, 33, 33},
        {{&late_phase, &early, &late}, 33, 33},
        /* A backward phase that is not the latest section owns no work. */
        {{&late, &early_phase}, 0, 22},
        /* A thread inside a backward call comes first, whatever was opened
         * later. */
        {{&back_early, &late}, 56, 56},
        {{&late_phase, &back_early}, 56, 56},
        {{&back_early, &back_late}, 67, 67},
        {{&back_late, &back_early}, 67, 67},
        {{&back_bare}, 78, 78},
        {{&idle, &back_bare, &late_phase}, 78, 78},
        {{&back_bare, &back_early}, 56, 56},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fp_owner_state state[3];
        uint32_t n = 0;
        while (n < 3 && cases[i].state[n] != NULL) {
            state[n] = *cases[i].state[n];
            n++;
        }
        CHECK_UINT(fp_owner_choose(state, n, 1), cases[i].known);
        CHECK_UINT(fp_owner_choose(state, n, 0), cases[i].unknown);
    }
}

/* ---- owners at the present ---- */

static const fp_key backward_key = (fp_key)99 << 6 | FP_TAG_C;

static int
is_backward(fp_key key)
{
    return key == backward_key;
}

typedef struct setting {
    fake_memory memory;
    fp_alloc alloc;
    fp_owners owners;
    fp_thread *thread[3];
} setting;

static void
set_up(setting *s)
{
    memset(s, 0, sizeof(*s));
    s->alloc = fake_alloc(&s->memory);
    s->owners.is_backward = is_backward;
    for (uint64_t i = 0; i < 3; i++) {
        s->thread[i] = fp_thread_create(&s->alloc, kit_wide, 0);
        s->thread[i]->serial = i + 1;
        CHECK_INT(fp_owners_join(&s->owners, s->thread[i]), (int)i);
    }
}

static void
tear_down(setting *s)
{
    for (int i = 0; i < 3; i++) {
        fp_thread_destroy(s->thread[i]);
    }
    CHECK_UINT(s->memory.bytes, 0);
}

static fp_place
stand_in_section(setting *s, int i, uint32_t id, int backward)
{
    kit_open(s->thread[i], id, 1);
    fp_place p = fp_place_of(s->thread[i], s->thread[i]->cur);
    fp_owners_section(&s->owners, i, p, backward);
    return p;
}

FP_TEST(gpu_owners_find_applies_the_rule_to_other_threads)
{
    setting s;
    set_up(&s);
    fp_owners *o = &s.owners;
    fp_thread **t = s.thread;
    CHECK_UINT(fp_owners_find(o, NULL), 0);
    fp_place a = stand_in_section(&s, 0, 1, 0);
    CHECK_UINT(fp_owners_find(o, NULL), a);
    CHECK_UINT(fp_owners_find(o, t[0]), 0); /* not its own owner */
    fp_place b = stand_in_section(&s, 1, 2, 0);
    CHECK_UINT(fp_owners_find(o, t[2]), b);
    CHECK_UINT(fp_owners_find(o, t[1]), a);
    atomic_store(&o->functions_known, 1);
    CHECK_UINT(fp_owners_find(o, t[2]), 0);
    /* The call, and anything that it calls, makes the thread the owner. */
    fp_node *call = kit_enter(t[0], backward_key, 2);
    (void)kit_enter(t[0], kit_function(4), 3);
    fp_place in = fp_place_of(t[0], call);
    CHECK_UINT(fp_owners_find(o, t[2]), in);
    CHECK_UINT(fp_owners_find(o, NULL), in);
    CHECK_UINT(fp_owners_find(o, t[0]), 0);
    fp_thread_leave(t[0], kit_function(4), 4);
    fp_thread_leave(t[0], backward_key, 5);
    CHECK_UINT(fp_owners_find(o, t[2]), 0);
    fp_place phase = stand_in_section(&s, 1, 3, 1);
    CHECK_UINT(fp_owners_find(o, t[2]), phase);
    fp_owners_leave(o, t[1]);
    CHECK_UINT(fp_owners_find(o, t[2]), 0);
    tear_down(&s);
}

FP_TEST(gpu_owners_are_limited_and_slots_are_reused)
{
    fp_owners o = {.is_backward = is_backward};
    static fp_thread t[FP_OWNERS + 1];
    for (int i = 0; i < FP_OWNERS; i++) {
        CHECK_INT(fp_owners_join(&o, &t[i]), i);
    }
    CHECK_INT(fp_owners_join(&o, &t[FP_OWNERS]), -1);
    CHECK_INT(fp_owners_join(&o, &t[7]), 7); /* has a slot already */
    fp_owners_section(&o, 7, kit_place(8, 1), 1);
    fp_owners_leave(&o, &t[7]);
    fp_owners_leave(&o, &t[7]);
    CHECK_INT(fp_owners_join(&o, &t[FP_OWNERS]), 7);
    /* The slot keeps nothing of the last thread. */
    CHECK_UINT(o.slot[7].section, 0);
    CHECK_UINT(o.slot[7].opened, 0);
    CHECK_INT(o.slot[7].is_backward_phase, 0);
}

FP_TEST(gpu_owners_search_a_limited_depth_for_backward)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    fp_owners o = {.is_backward = is_backward};
    fp_node *call = kit_enter(t, backward_key, 0);
    CHECK(fp_owners_backward_node(&o, t->cur) == call);
    for (uint32_t i = 0; i < 63; i++) {
        (void)kit_enter(t, kit_function(i), 0);
    }
    CHECK(fp_owners_backward_node(&o, t->cur) == call);
    (void)kit_enter(t, kit_function(63), 0);
    CHECK(fp_owners_backward_node(&o, t->cur) == NULL);
    CHECK(fp_owners_backward_node(&o, NULL) == NULL);
    fp_thread_destroy(t);
}

/* Owners join, change and leave while another thread queries them. */

typedef struct mover {
    pthread_t thread;
    fp_owners *owners;
    uint32_t serial;
    _Atomic int *stop;
} mover;

static void *
move(void *arg)
{
    mover *m = arg;
    fp_alloc a = fp_alloc_libc();
    fp_thread *t = fp_thread_create(&a, kit_wide, 0);
    t->serial = m->serial;
    /* The nodes first: the query reads the tree of a running thread. */
    for (int64_t i = 0; !atomic_load(m->stop); i++) {
        int slot = fp_owners_join(m->owners, t);
        CHECK(slot >= 0);
        (void)kit_enter(t, backward_key, i);
        fp_owners_section(m->owners, slot, kit_place(m->serial, 2), 1);
        (void)kit_enter(t, kit_function((uint32_t)i % 50 * 2), i);
        fp_thread_leave(t, kit_function((uint32_t)i % 50 * 2), i);
        fp_thread_leave(t, backward_key, i);
        if (i % 7 == 0) {
            fp_owners_leave(m->owners, t);
        }
    }
    fp_owners_leave(m->owners, t);
    return t;
}

FP_TEST(gpu_owners_survive_concurrent_changes_and_queries)
{
    fp_owners o = {.is_backward = is_backward, .functions_known = 1};
    _Atomic int stop = 0;
    mover m[2];
    for (uint32_t i = 0; i < 2; i++) {
        m[i] = (mover){.owners = &o, .serial = i + 1, .stop = &stop};
        CHECK(pthread_create(&m[i].thread, NULL, move, &m[i]) == 0);
    }
    uint64_t found = 0;
    for (int i = 0; i < 30000 || found == 0; i++) {
        fp_place p = fp_owners_find(&o, NULL);
        CHECK(p == 0 || fp_place_thread(p) == 1 || fp_place_thread(p) == 2);
        CHECK(fp_place_node(p) < 60);
        found += p != 0;
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        void *t;
        pthread_join(m[i].thread, &t);
        fp_thread_destroy(t);
    }
    CHECK_UINT(fp_owners_find(&o, NULL), 0);
}

/* ---- owners at an earlier time ---- */

enum { SLOTS = 5, EVENTS = 400, QUERIES = 60 };

typedef struct history {
    fp_owner_event event[EVENTS]; /* in the order in which they were added */
    uint32_t events;
} history;

/* The answer from the whole history, by the rule as written in owners.h. */
static fp_place
answer(const history *h, int64_t at, fp_place launcher)
{
    fp_owner_state s[SLOTS] = {{0}};
    uint64_t opened = 0;
    int known = 0;
    for (int64_t t = 0; t <= at; t++) {
        for (uint32_t i = 0; i < h->events; i++) {
            const fp_owner_event *e = &h->event[i];
            if (e->at != t) {
                continue;
            }
            if (e->slot == FP_OWNER_FUNCTIONS) {
                known = e->is_backward_phase;
                continue;
            }
            if (s[e->slot].section != e->section) {
                s[e->slot].opened = ++opened;
            }
            s[e->slot].section = e->section;
            s[e->slot].backward = e->backward;
            s[e->slot].is_backward_phase = e->is_backward_phase;
        }
    }
    const fp_owner_state *in = NULL, *last = NULL;
    uint32_t self = fp_place_thread(launcher);
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (self == i + 1) {
            continue;
        }
        if (s[i].backward != 0 && (in == NULL || s[i].opened >= in->opened)) {
            in = &s[i];
        }
        if (s[i].section != 0 &&
            (last == NULL || s[i].opened >= last->opened)) {
            last = &s[i];
        }
    }
    if (in != NULL) {
        return in->backward;
    }
    return last != NULL && (!known || last->is_backward_phase) ? last->section
                                                               : 0;
}

/* Adds the events of each slot in order, and the slots in any order. */
static void
add_period(fp_owner_log *l, history *h, uint64_t *state, int64_t from,
           int64_t to)
{
    uint32_t order[SLOTS + 1] = {0, 1, 2, 3, 4, FP_OWNER_FUNCTIONS};
    for (uint32_t k = 0; k <= SLOTS; k++) {
        uint32_t other = k + fake_below(state, SLOTS + 1 - k);
        uint32_t slot = order[other];
        order[other] = order[k];
        for (int64_t at = from; at < to; at += fake_below(state, 9)) {
            if (h->events == EVENTS || fake_below(state, 5) == 0) {
                break;
            }
            fp_place p = kit_place(slot + 1, 1 + fake_below(state, 4));
            fp_owner_event e = {
                .at = at,
                .slot = slot,
                .section = fake_below(state, 3) ? p : 0,
                .backward = fake_below(state, 4) ? 0 : p + 100,
                .is_backward_phase = (int)fake_below(state, 2),
            };
            fp_owner_log_add(l, &e);
            h->event[h->events++] = e;
        }
    }
}

static void
ask_both(fp_owner_log *l, const history *h, uint64_t *state, int64_t from,
         int64_t to)
{
    fp_owner_query q[QUERIES];
    for (uint32_t i = 0; i < QUERIES; i++) {
        q[i] = (fp_owner_query){
            .at = from + fake_below(state, (uint32_t)(to - from)),
            .tag = i,
            .launcher = kit_place(fake_below(state, SLOTS + 2), 3),
        };
    }
    fp_owner_log_ask(l, q, QUERIES);
    uint64_t tags = 0;
    for (uint32_t i = 0; i < QUERIES; i++) {
        CHECK(i == 0 || q[i - 1].at <= q[i].at);
        CHECK_UINT(q[i].answer, answer(h, q[i].at, q[i].launcher));
        tags |= (uint64_t)1 << q[i].tag;
    }
    CHECK_UINT(tags, ((uint64_t)1 << QUERIES) - 1);
}

FP_TEST(gpu_owner_log_answers_like_a_full_replay)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fake_memory memory = {0};
        fp_alloc a = fake_alloc(&memory);
        fp_owner_log l;
        fp_owner_log_init(&l, &a);
        static history h;
        h.events = 0;
        uint64_t state = seed;
        for (int64_t period = 0; period < 6; period++) {
            int64_t from = period * 50;
            add_period(&l, &h, &state, from, from + 50);
            ask_both(&l, &h, &state, from, from + 50);
            ask_both(&l, &h, &state, from, from + 90);
            fp_owner_log_forget(&l, from + 50);
            ask_both(&l, &h, &state, from + 50, from + 70);
        }
        CHECK_UINT(l.lost, 0);
        CHECK_UINT(l.events, 0);
        fp_owner_log_fini(&l);
        CHECK_UINT(memory.bytes, 0);
    }
}

FP_TEST(gpu_owner_log_f32_a_full_log_forgets_its_older_half)
{
    fp_alloc a = fp_alloc_libc();
    fp_owner_log l;
    fp_owner_log_init(&l, &a);
    for (int64_t at = 0; at < FP_OWNER_EVENTS + 10; at++) {
        fp_owner_log_add(
            &l, &(fp_owner_event){.at = at,
                                  .slot = (uint32_t)at % 3,
                                  .section = kit_place(1, (uint32_t)at)});
    }
    CHECK_UINT(l.lost, FP_OWNER_EVENTS / 2);
    CHECK_UINT(l.events, FP_OWNER_EVENTS / 2 + 10);
    CHECK_UINT(l.capacity, FP_OWNER_EVENTS);
    fp_owner_query q[2] = {{.at = FP_OWNER_EVENTS + 9},
                           {.at = FP_OWNER_EVENTS / 2 + 5}};
    fp_owner_log_ask(&l, q, 2);
    CHECK_UINT(fp_place_node(q[0].answer), FP_OWNER_EVENTS / 2 + 5);
    CHECK_UINT(fp_place_node(q[1].answer), FP_OWNER_EVENTS + 9);
    fp_owner_log_fini(&l);
}

FP_TEST(gpu_owner_log_f36_each_allocation)
{
    for (uint64_t at = 1; at <= 3; at++) {
        for (int on = 0; on < 2; on++) {
            fake_memory memory = {.fail_at = at, .fail_on = on != 0};
            fp_alloc a = fake_alloc(&memory);
            fp_owner_log l;
            fp_owner_log_init(&l, &a);
            for (int64_t t = 0; t < 1000; t++) {
                fp_owner_log_add(
                    &l, &(fp_owner_event){
                            .at = t, .slot = 0, .section = kit_place(1, 7)});
            }
            fp_owner_query q = {.at = 999};
            fp_owner_log_ask(&l, &q, 1);
            /* Without memory nothing is known. */
            CHECK_UINT(q.answer, at == 1 && on ? 0 : kit_place(1, 7));
            CHECK((l.lost != 0) == (memory.failures != 0));
            fp_owner_log_fini(&l);
            CHECK_UINT(memory.bytes, 0);
        }
    }
}
