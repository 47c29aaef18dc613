#include "gpu_kit.h"

enum { THREADS = 4, NODES = 30, MOST = 20000 };

/* The model: lists. */
typedef struct model {
    fp_activity_sum activity[MOST];
    uint32_t activities;
    fp_host_sum host[MOST];
    uint32_t hosts;
    int64_t total_ns;
} model;

static int
is_site(const fp_site *a, const fp_site *b)
{
    return a->place == b->place && a->via == b->via && a->how == b->how;
}

static void
model_add(model *m, const fp_activity_sum *a)
{
    uint32_t i = 0;
    while (i < m->activities && !(is_site(&m->activity[i].site, &a->site) &&
                                  m->activity[i].what == a->what)) {
        i++;
    }
    if (i == m->activities) {
        CHECK(i < MOST);
        m->activity[m->activities++] = (fp_activity_sum){
            .site = a->site,
            .what = a->what,
        };
    }
    m->activity[i].count += a->count;
    m->activity[i].ns += a->ns;
    m->activity[i].bytes += a->bytes;
}

static fp_host_sum *
model_host(model *m, const fp_site *site)
{
    for (uint32_t i = 0; i < m->hosts; i++) {
        if (is_site(&m->host[i].site, site)) {
            return &m->host[i];
        }
    }
    CHECK(m->hosts < MOST);
    m->host[m->hosts] = (fp_host_sum){.site = *site};
    return &m->host[m->hosts++];
}

static fp_site
random_site(uint64_t *state)
{
    fp_site site = {0, 0, (fp_how)fake_below(state, FP_HOW_UNKNOWN + 1)};
    site.place = kit_place(fake_below(state, THREADS), fake_below(state, 9));
    if (fake_below(state, 2)) {
        site.via =
            kit_place(fake_below(state, THREADS), fake_below(state, NODES));
    }
    return site;
}

static void
add_to_both(fp_sums *s, model *m, uint64_t *state)
{
    fp_activity_sum a = {.site = random_site(state),
                         .what = (int32_t)fake_below(state, 12) - 8,
                         .count = 1,
                         .ns = fake_below(state, 1000000),
                         .bytes = fake_below(state, 1000)};
    fp_sums_activity(s, &a.site, a.what, a.ns, a.bytes);
    model_add(m, &a);
    m->total_ns += a.ns;
    fp_site site = random_site(state);
    fp_host_sum *both[2] = {fp_sums_host(s, &site), model_host(m, &site)};
    int64_t ns = fake_below(state, 1000);
    for (int i = 0; i < 2; i++) {
        both[i]->launches++;
        both[i]->delays += 2;
        both[i]->delay_ns += ns;
        both[i]->delay_max_ns =
            ns > both[i]->delay_max_ns ? ns : both[i]->delay_max_ns;
        both[i]->syncs += 3;
        both[i]->blocked_ns += ns + 1;
    }
}

static fp_place
renamed(fp_place p, uint32_t from, uint32_t to, const uint32_t *became)
{
    return p >> 32 != from
               ? p
               : kit_place(to, (uint32_t)p < NODES ? became[(uint32_t)p] : 0);
}

static void
rename_in_both(fp_sums *s, model *m, uint64_t *state)
{
    uint32_t from = 1 + fake_below(state, THREADS - 1);
    uint32_t to = fake_below(state, THREADS), became[NODES];
    for (int i = 0; i < NODES; i++) {
        became[i] = fake_below(state, 6);
    }
    fp_sums_rename(s, from, to, became, NODES);
    static model old;
    old = *m;
    m->activities = m->hosts = 0;
    for (uint32_t i = 0; i < old.activities; i++) {
        fp_activity_sum a = old.activity[i];
        a.site.place = renamed(a.site.place, from, to, became);
        a.site.via = renamed(a.site.via, from, to, became);
        model_add(m, &a);
    }
    for (uint32_t i = 0; i < old.hosts; i++) {
        const fp_host_sum *h = &old.host[i];
        fp_site site = {renamed(h->site.place, from, to, became),
                        renamed(h->site.via, from, to, became), h->site.how};
        fp_host_sum *into = model_host(m, &site);
        into->launches += h->launches;
        into->delays += h->delays;
        into->delay_ns += h->delay_ns;
        into->delay_max_ns = h->delay_max_ns > into->delay_max_ns
                                 ? h->delay_max_ns
                                 : into->delay_max_ns;
        into->syncs += h->syncs;
        into->blocked_ns += h->blocked_ns;
    }
}

static void
check_rows(const fp_sums *s, const model *m)
{
    CHECK_UINT(s->activity.count, m->activities);
    CHECK_UINT(s->host.count, m->hosts);
    for (uint32_t i = 0; i < m->activities; i++) {
        const fp_activity_sum *want = &m->activity[i];
        const fp_activity_sum *got = kit_activity(s, want->site, want->what);
        CHECK(got != NULL);
        CHECK_UINT(got->count, want->count);
        CHECK_INT(got->ns, want->ns);
        CHECK_UINT(got->bytes, want->bytes);
    }
    for (uint32_t i = 0; i < m->hosts; i++) {
        const fp_host_sum *want = &m->host[i];
        const fp_host_sum *got = kit_host(s, want->site);
        CHECK(got != NULL);
        CHECK_UINT(got->launches, want->launches);
        CHECK_UINT(got->delays, want->delays);
        CHECK_INT(got->delay_ns, want->delay_ns);
        CHECK_INT(got->delay_max_ns, want->delay_max_ns);
        CHECK_UINT(got->syncs, want->syncs);
        CHECK_INT(got->blocked_ns, want->blocked_ns);
    }
    CHECK_INT(s->total_ns, m->total_ns);
    CHECK_INT(kit_sum_rows(s).ns, m->total_ns);
    CHECK_UINT(s->dropped, 0);
}

FP_TEST(gpu_sums_do_what_the_model_does)
{
    static model m;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        fake_memory memory = {0};
        fp_alloc a = fake_alloc(&memory);
        fp_sums s;
        fp_sums_init(&s, &a);
        memset(&m, 0, sizeof(m));
        uint64_t state = seed;
        for (int i = 0; i < 900; i++) {
            add_to_both(&s, &m, &state);
            if (fake_below(&state, 300) == 0) {
                rename_in_both(&s, &m, &state);
            }
        }
        check_rows(&s, &m);
        rename_in_both(&s, &m, &state);
        check_rows(&s, &m);
        fp_sums_fini(&s);
        CHECK_UINT(memory.bytes, 0);
        CHECK_INT(s.total_ns, 0);
    }
}

FP_TEST(gpu_sums_renaming_an_unknown_thread_changes_nothing)
{
    fp_alloc a = fp_alloc_libc();
    fp_sums s;
    fp_sums_init(&s, &a);
    const uint32_t became[1] = {0};
    fp_sums_rename(&s, 1, 2, became, 1);
    fp_site site = {kit_place(5, 1), 0, FP_HOW_OWN};
    fp_sums_activity(&s, &site, 0, 10, 0);
    const void *row = s.activity.row;
    fp_sums_rename(&s, 6, 5, became, 1);
    CHECK(s.activity.row == row);
    fp_sums_fini(&s);
}

FP_TEST(gpu_sums_f31_beyond_the_cap_the_total_is_kept)
{
    fp_alloc a = fp_alloc_libc();
    fp_sums s;
    fp_sums_init(&s, &a);
    uint32_t more = FP_SUMS_MAX + 1000;
    for (uint32_t i = 0; i < more; i++) {
        fp_site site = {kit_place(1, i), 0, FP_HOW_INHERITED};
        fp_sums_activity(&s, &site, 3, 7, 1);
    }
    CHECK_UINT(s.activity.count, FP_SUMS_MAX);
    CHECK_UINT(s.dropped, 1000);
    CHECK_UINT(s.no_room[FP_HOW_INHERITED].count, 1000);
    CHECK_INT(s.total_ns, 7 * (int64_t)more);
    kit_total t = kit_sum_rows(&s);
    CHECK_INT(t.ns, s.total_ns);
    CHECK_UINT(t.count, more);
    CHECK_UINT(t.bytes, more);
    fp_site known = {kit_place(1, 99), 0, FP_HOW_INHERITED};
    fp_sums_activity(&s, &known, 3, 1, 0);
    CHECK_INT(kit_activity(&s, known, 3)->ns, 8);
    fp_sums_fini(&s);
}

static void
fill(fp_sums *s)
{
    for (uint32_t i = 0; i < 700; i++) {
        fp_site site = {kit_place(1 + i % 2, i), 0, (fp_how)(i % 5)};
        fp_sums_activity(s, &site, (int32_t)i % 7, i, 2);
        fp_sums_host(s, &site)->launches++;
    }
}

static uint64_t
all_launches(const fp_sums *s)
{
    const fp_host_sum *row = s->host.row;
    uint64_t n = s->no_room_host.launches;
    for (uint32_t i = 0; i < s->host.count; i++) {
        n += row[i].launches;
    }
    return n;
}

FP_TEST(gpu_sums_f36_each_allocation_keeps_the_total)
{
    uint32_t became[700];
    for (uint32_t i = 0; i < 700; i++) {
        became[i] = i / 2;
    }
    for (int on = 0; on < 2; on++) {
        for (uint64_t at = 1;; at++) {
            fake_memory memory = {.fail_at = at, .fail_on = on != 0};
            fp_alloc a = fake_alloc(&memory);
            fp_sums s;
            fp_sums_init(&s, &a);
            fill(&s);
            fp_sums_rename(&s, 1, 2, became, 700);
            fill(&s);
            kit_total t = kit_sum_rows(&s);
            CHECK_INT(t.ns, 2 * 699 * 350);
            CHECK_INT(s.total_ns, t.ns);
            CHECK_UINT(t.count, 1400);
            CHECK_UINT(t.bytes, 2800);
            CHECK_UINT(all_launches(&s), 1400);
            CHECK((s.dropped != 0) == (memory.failures != 0));
            fp_sums_fini(&s);
            CHECK_UINT(memory.bytes, 0);
            if (memory.failures == 0) {
                break;
            }
        }
    }
}
