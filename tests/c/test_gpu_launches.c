#include "gpu/launches.h"
#include "gpu_kit.h"

/* The model is a list.  Ids are neighbours across 2^32, and others with the
 * same low bits collide. */
enum { IDS = 6000, AGE = 4 };

typedef struct entry {
    int present;
    uint32_t generation;
    uint8_t flags;
    fp_place place;
    fp_place via;
} entry;

static uint32_t
id_of(uint32_t i)
{
    return i < IDS / 2 ? (uint32_t)-1500 + i
                       : (uint32_t)-1000 + (i - IDS / 2) % 40 +
                             (((i - IDS / 2) / 40 + 1) << 13);
}

/* Checks that no entry could be closer to its first slot. */
static void
check_places(const fp_launches *l)
{
    uint32_t mask = l->capacity - 1, count = 0;
    for (uint32_t i = 0; i < l->capacity; i++) {
        const fp_launch *e = &l->slot[i];
        const fp_launch *before = &l->slot[(i - 1) & mask];
        if (!e->occupied) {
            continue;
        }
        count++;
        uint32_t far = (i - e->corr) & mask;
        uint32_t its = (i - 1 - before->corr) & mask;
        CHECK(far == 0 || (before->occupied && far <= its + 1));
    }
    CHECK_UINT(count, l->count);
}

static void
check_all(fp_launches *l, entry *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        const fp_launch *e = fp_launches_find(l, id_of(i));
        CHECK((e != NULL) == model[i].present);
        if (e != NULL) {
            CHECK_UINT(e->corr, id_of(i));
            CHECK_UINT(e->place, model[i].place);
            CHECK_UINT(e->via, model[i].via);
            CHECK_UINT(e->flags, model[i].flags);
            model[i].generation = l->generation;
            count++;
        }
    }
    CHECK_UINT(l->count, count);
    if (l->capacity != 0) {
        check_places(l);
    }
}

static void
put_in_both(fp_launches *l, entry *m, uint32_t id, uint64_t *state)
{
    fp_launch *e = fp_launches_put(l, id);
    CHECK(e != NULL);
    if (!m->present) {
        *m = (entry){.present = 1};
    }
    CHECK_UINT(e->place, m->place);
    CHECK_UINT(e->flags, m->flags);
    m->generation = l->generation;
    m->flags |= (uint8_t)(fake_below(state, 2) ? FP_LAUNCH_GIVES : 0);
    m->flags |= (uint8_t)(fake_below(state, 3) ? 0 : FP_LAUNCH_HIT);
    m->place = kit_place(1 + fake_below(state, 3), fake_below(state, 8));
    m->via = kit_place(fake_below(state, 4), fake_below(state, 8));
    e->flags = m->flags;
    e->place = m->place;
    e->via = m->via;
}

static void
age_both(fp_launches *l, entry *model)
{
    uint64_t unheard = 0;
    uint32_t generation = l->generation + 1;
    for (uint32_t i = 0; i < IDS; i++) {
        entry *m = &model[i];
        int heard =
            (m->flags & FP_LAUNCH_HIT) || !(m->flags & FP_LAUNCH_GIVES);
        if (m->present && generation - m->generation > (heard ? 1u : AGE)) {
            m->present = 0;
            unheard += !heard;
        }
    }
    CHECK_UINT(fp_launches_age(l, AGE), unheard);
}

static void
rename_both(fp_launches *l, entry *model)
{
    const uint32_t became[3] = {0, 9, 10}; /* nodes from 3 on are unknown */
    fp_launches_rename(l, 1, 2, became, 3);
    for (uint32_t i = 0; i < IDS; i++) {
        fp_place *p[2] = {&model[i].place, &model[i].via};
        for (int k = 0; k < 2; k++) {
            if (*p[k] >> 32 == 1) {
                uint32_t node = (uint32_t)*p[k];
                *p[k] = kit_place(2, node < 3 ? became[node] : 0);
            }
        }
    }
}

FP_TEST(gpu_launches_do_what_the_model_does)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_launches l;
    fp_launches_init(&l, &a);
    l.generation = UINT32_MAX - 20; /* generations wrap around, too */
    static entry model[IDS];
    uint64_t state = 11;
    check_all(&l, model);
    for (int step = 0; step < 150000; step++) {
        uint32_t i = fake_below(&state, IDS);
        uint32_t what = fake_below(&state, 3000);
        if (what < 1800) {
            put_in_both(&l, &model[i], id_of(i), &state);
        }
        else if (what < 2990) {
            fp_launch *e = fp_launches_find(&l, id_of(i));
            CHECK((e != NULL) == model[i].present);
            model[i].generation = l.generation;
            if (e != NULL && what < 1900) {
                fp_launches_remove(&l, e);
                model[i].present = 0;
            }
        }
        else if (what < 2991) {
            age_both(&l, model);
        }
        else if (what < 2993) {
            rename_both(&l, model);
            check_all(&l, model);
        }
        else if (what == 2993 && fake_below(&state, 20) == 0) {
            fp_launches_clear(&l);
            memset(model, 0, sizeof(model));
        }
    }
    check_all(&l, model);
    CHECK(l.capacity > 4096);
    CHECK_UINT(l.lost, 0);
    fp_launches_fini(&l);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(gpu_launches_f35_ids_begin_again_after_the_last)
{
    fp_alloc a = fp_alloc_libc();
    fp_launches l;
    fp_launches_init(&l, &a);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t id = (uint32_t)-10000 + i;
        fp_launches_put(&l, id)->at_ns = i;
        CHECK_INT(fp_launches_find(&l, (uint32_t)-10000 + i / 2)->at_ns,
                  i / 2);
    }
    CHECK_UINT(l.count, 20000);
    fp_launches_fini(&l);
}

FP_TEST(gpu_launches_a_graph_stays_while_activities_come)
{
    fp_alloc a = fp_alloc_libc();
    fp_launches l;
    fp_launches_init(&l, &a);
    fp_launch *e = fp_launches_put(&l, 5);
    e->flags = FP_LAUNCH_GIVES | FP_LAUNCH_HIT;
    fp_launches_put(&l, 6)->flags = FP_LAUNCH_GIVES;
    for (int i = 0; i < 10; i++) {
        CHECK_UINT(fp_launches_age(&l, 20), 0);
        CHECK(fp_launches_find(&l, 5) != NULL);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_UINT(l.count, 2); /* find() would count as a use */
        CHECK_UINT(fp_launches_age(&l, 20), 0);
    }
    CHECK(fp_launches_find(&l, 5) == NULL); /* three generations without use */
    for (int i = 0; i < 7; i++) {
        CHECK_UINT(fp_launches_age(&l, 20), 0);
    }
    CHECK_UINT(fp_launches_age(&l, 20), 1); /* 6 had no activity */
    CHECK_UINT(l.count, 0);
    fp_launches_fini(&l);
}

FP_TEST(gpu_launches_f36_without_memory_old_entries_are_found)
{
    fake_memory memory = {.fail_at = 1};
    fp_alloc a = fake_alloc(&memory);
    fp_launches l;
    fp_launches_init(&l, &a);
    CHECK(fp_launches_put(&l, 1) == NULL);
    CHECK(fp_launches_find(&l, 1) == NULL);
    CHECK_UINT(fp_launches_age(&l, 1), 0);
    fp_launches_clear(&l);
    CHECK_UINT(l.lost, 1);
    memory.fail_at = 3;
    memory.fail_on = true;
    uint32_t made = 0;
    for (uint32_t i = 0; i < 5000; i++) {
        made += fp_launches_put(&l, i * 3) != NULL;
    }
    CHECK_UINT(made, l.capacity / 8 * 7);
    CHECK_UINT(l.lost, 1 + 5000 - made);
    for (uint32_t i = 0; i < 5000; i++) {
        CHECK((fp_launches_find(&l, i * 3) != NULL) == (i < made));
    }
    memory.fail_at = 0;
    CHECK(fp_launches_put(&l, 5000 * 3) != NULL);
    check_places(&l);
    fp_launches_fini(&l);
    CHECK_UINT(memory.bytes, 0);
}

/* If another client takes the records, more launches stay than the table
 * holds.  Each further one used to move all of them. */
FP_TEST(gpu_launches_f35_a_full_table_is_not_moved_by_each_id)
{
    fake_memory memory = {.fail_at = 3, .fail_on = true};
    fp_alloc a = fake_alloc(&memory);
    fp_launches l;
    fp_launches_init(&l, &a);
    for (uint32_t i = 0; i < 7000; i++) {
        CHECK(fp_launches_put(&l, i) != NULL);
    }
    for (uint32_t i = 0; i < 100; i++) {
        CHECK(fp_launches_put(&l, l.capacity + i) == NULL);
    }
    CHECK_UINT(l.lost, 100);
    for (uint32_t i = 0; i < 7000; i++) {
        CHECK_UINT(l.slot[i].corr, i);
    }
    memory.fail_at = 0;
    CHECK(fp_launches_put(&l, 8192) != NULL); /* a larger table has room */
    check_places(&l);
    fp_launches_fini(&l);
    CHECK_UINT(memory.bytes, 0);
}
