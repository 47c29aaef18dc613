#define _POSIX_C_SOURCE 200809L

#include "gpu/api_calls.h"
#include "gpu/collector.h"
#include "gpu_kit.h"

#include <pthread.h>
#include <time.h>

/* ---- a minimal CUPTI ---- */

enum {
    SUBSCRIBE,
    UNSUBSCRIBE,
    ENABLE_CALLBACK,
    REGISTER,
    ENABLE,
    DISABLE,
    FLUSH,
    NEXT,
    DROPPED,
    TIMESTAMP,
    ENABLE_API,
    FUNCTIONS,
};

enum { PENDING = 20000 };

static struct stub {
    _Atomic uint64_t calls[FUNCTIONS];
    _Atomic int fails[FUNCTIONS]; /* result of each function; 0: success */
    _Atomic int fails_kind;       /* enabling this kind fails */
    _Atomic int over;             /* no call may follow */
    _Atomic int hangs;            /* this function + 1 hangs until reset */
    _Atomic int hanging;
    _Atomic int keeps;            /* unforced flushes deliver nothing */
    _Atomic uint64_t on;          /* bit per kind */
    _Atomic uint64_t foreign_off; /* disabled without having been enabled */
    _Atomic int left_out;         /* calls without records in their kind */
    _Atomic size_t dropped;
    _Atomic(fp_cupti_callback) callback;
    void *user;
    fp_cupti_request request;
    fp_cupti_complete complete;
    pthread_mutex_t lock; /* guards the fields below */
    kit_record pending[PENDING];
    uint32_t count;
} stub = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* The result that a function returns. */
static int
called(int function)
{
    CHECK(!atomic_load(&stub.over));
    atomic_fetch_add(&stub.calls[function], 1);
    while (atomic_load(&stub.hangs) == function + 1) {
        atomic_store(&stub.hanging, 1);
        nap();
    }
    return atomic_load(&stub.fails[function]);
}

static int
stub_result(int result, const char **text)
{
    *text = result == FP_CUPTI_MULTIPLE_SUBSCRIBERS ? "CUPTI_ERROR_MANY" : "?";
    return 0;
}

static int
stub_subscribe(void **subscriber, fp_cupti_callback f, void *user)
{
    int rc = called(SUBSCRIBE);
    if (rc == 0) {
        stub.user = user;
        atomic_store(&stub.callback, f);
        *subscriber = &stub;
    }
    return rc;
}

static int
stub_unsubscribe(void *subscriber)
{
    CHECK(subscriber == &stub);
    atomic_store(&stub.callback, NULL);
    return called(UNSUBSCRIBE);
}

static int
stub_enable_callback(uint32_t on, void *subscriber, int domain, uint32_t cbid)
{
    CHECK(on && subscriber == &stub && domain >= 1 && cbid != 0);
    return called(ENABLE_CALLBACK);
}

static int
stub_register(fp_cupti_request request, fp_cupti_complete complete)
{
    stub.request = request;
    stub.complete = complete;
    return called(REGISTER);
}

static int
stub_enable(int kind)
{
    int rc = called(ENABLE);
    if (rc == 0 && atomic_load(&stub.fails_kind) == kind) {
        rc = FP_CUPTI_INVALID_KIND;
    }
    if (rc == 0) {
        atomic_fetch_or(&stub.on, (uint64_t)1 << kind);
    }
    return rc;
}

static int
stub_disable(int kind)
{
    uint64_t bit = (uint64_t)1 << kind;
    if ((atomic_fetch_and(&stub.on, ~bit) & bit) == 0) {
        atomic_fetch_or(&stub.foreign_off, bit);
    }
    return called(DISABLE);
}

static int
stub_enable_api(uint32_t cbid, uint8_t on)
{
    int rc = called(ENABLE_API);
    CHECK(cbid != 0);
    if (rc == 0) {
        atomic_fetch_add(&stub.left_out, on ? -1 : 1);
    }
    return rc;
}

static size_t
size_of(const uint8_t *record)
{
    switch (fp_read_u32(record, FP_AT_KIND)) {
    case FP_CUPTI_RUNTIME:
    case FP_CUPTI_DRIVER:
        return KIT_API;
    case FP_CUPTI_EXTERNAL_CORRELATION:
        return KIT_EXTERNAL;
    default:
        return KIT_RECORD;
    }
}

static int
stub_flush(uint32_t flags)
{
    int rc = called(FLUSH);
    if (rc != 0 || (atomic_load(&stub.keeps) && flags == 0)) {
        return rc;
    }
    pthread_mutex_lock(&stub.lock);
    uint32_t next = 0;
    while (next < stub.count) {
        uint8_t *buffer = NULL;
        size_t size = 0, limit = 1, valid = 0;
        stub.request(&buffer, &size, &limit);
        CHECK(limit == 0);
        if (buffer == NULL) { /* no memory: the records are lost */
            break;
        }
        while (next < stub.count &&
               valid + size_of(stub.pending[next].byte) <= size) {
            size_t bytes = size_of(stub.pending[next].byte);
            memcpy(buffer + valid, &stub.pending[next++], bytes);
            valid += bytes;
        }
        stub.complete(NULL, 0, buffer, size, valid);
    }
    stub.count = 0;
    pthread_mutex_unlock(&stub.lock);
    return 0;
}

static int
stub_next(uint8_t *buffer, size_t valid, uint8_t **record)
{
    int rc = called(NEXT);
    if (rc != 0) {
        return rc;
    }
    uint8_t *at = *record == NULL ? buffer : *record + size_of(*record);
    size_t left = valid - (size_t)(at - buffer);
    if (at > buffer + valid || left < 24 || left < size_of(at)) {
        return FP_CUPTI_MAX_LIMIT_REACHED;
    }
    *record = at;
    return 0;
}

static int
stub_dropped(void *context, uint32_t stream, size_t *count)
{
    CHECK(context == NULL && stream == 0);
    *count = atomic_exchange(&stub.dropped, 0);
    return called(DROPPED);
}

static int
stub_timestamp(uint64_t *ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return called(TIMESTAMP);
}

static int
stub_push(int kind, uint64_t id)
{
    (void)id;
    return kind == FP_CUPTI_EXTERNAL_CUSTOM2 ? 0 : 1;
}

static int
stub_pop(int kind, uint64_t *last)
{
    *last = 0;
    return kind == FP_CUPTI_EXTERNAL_CUSTOM2 ? 0 : 1;
}

/* ---- the program ---- */

static fp_gpu *g; /* as in the extension: one, never freed */
static _Thread_local fp_lane *my_lane;

static void
on_call(void *user, int domain, uint32_t cbid, const void *data)
{
    CHECK(user == g);
    if (!atomic_load(&g->accept)) {
        return;
    }
    if (my_lane == NULL && (my_lane = fp_lane_create(&g->lanes)) == NULL) {
        atomic_fetch_add(&g->lanes.lost, 1);
        return;
    }
    fp_lane_enter(my_lane);
    (void)fp_gpu_on_call(g, my_lane, NULL, domain, cbid, data);
    fp_lane_exit(my_lane);
}

static void
on_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = fp_buffers_lend(&g->buffers, size, 0);
    *max_records = 0;
}

static void
on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
            size_t valid)
{
    (void)size;
    if (fp_buffers_accept(&g->buffers, buffer, valid, context, stream)) {
        fp_gpu_wake(g);
    }
}

static int
never_backward(fp_key key)
{
    (void)key;
    return 0;
}

static kit_memory memory;

static const int64_t second_ns = 1000000000;
static const fp_gpu_options any_tier = {FP_TIER_NONE, 1000000000, 250000000000,
                                        0};

static fp_status
make_collector(void)
{
    g = calloc(1, sizeof(*g));
    fp_alloc a = kit_alloc(&memory);
    fp_clock clock;
    fp_clock_init(&clock);
    fp_gpu_entries entries = {on_call, on_request, on_complete};
    fp_status made = fp_gpu_init(g, &a, &clock, &entries, never_backward);
    g->driver.devices = 1;
    g->cupti = (fp_cupti){
        .version = FP_CUPTI_GRAPHS_HAVE_THEIR_IDS,
        .get_result_string = stub_result,
        .subscribe = stub_subscribe,
        .unsubscribe = stub_unsubscribe,
        .enable_callback = stub_enable_callback,
        .register_buffers = stub_register,
        .enable = stub_enable,
        .disable = stub_disable,
        .flush_all = stub_flush,
        .next_record = stub_next,
        .dropped = stub_dropped,
        .get_timestamp = stub_timestamp,
        .push_external = stub_push,
        .pop_external = stub_pop,
        .enable_runtime_api = stub_enable_api,
        .enable_driver_api = stub_enable_api,
    };
    return made;
}

/* Only while OFF. */
static void
drop_collector(void)
{
    fp_gpu_forget(g);
    fp_lanes_fini(&g->lanes);
    fp_buffers_fini(&g->buffers);
    free(g);
    my_lane = NULL;
}

static void
queue(kit_record r)
{
    pthread_mutex_lock(&stub.lock);
    if (stub.count < PENDING) {
        stub.pending[stub.count++] = r;
    }
    pthread_mutex_unlock(&stub.lock);
}

static int
is_on(int kind)
{
    return (atomic_load(&stub.on) >> kind & 1) != 0;
}

static int64_t
device_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * second_ns + t.tv_nsec;
}

/* A kernel of 1000 ns. */
static void
launch(uint32_t corr)
{
    fp_cupti_callback f = atomic_load(&stub.callback);
    fp_cupti_call call = {.site = FP_CUPTI_API_ENTER, .correlation = corr};
    int64_t now = device_now();
    if (f != NULL) {
        f(g, FP_CUPTI_DOMAIN_RUNTIME, 211, &call);
        call.site = FP_CUPTI_API_EXIT;
        f(g, FP_CUPTI_DOMAIN_RUNTIME, 211, &call);
    }
    if (is_on(FP_CUPTI_RUNTIME)) {
        if (is_on(FP_CUPTI_EXTERNAL_CORRELATION)) {
            uint64_t id =
                fp_external_id(g->ledger.attachment, kit_place(1, 2), 0);
            queue(kit_external(FP_CUPTI_EXTERNAL_CUSTOM2, id, corr));
        }
        queue(kit_api(FP_CUPTI_RUNTIME, 211, corr, now, now + 100));
    }
    if (is_on(FP_CUPTI_CONCURRENT_KERNEL)) {
        queue(kit_kernel(corr, now + 50000, now + 51000, "k"));
    }
}

static void
start(void)
{
    CHECK_INT(fp_gpu_start(g, &any_tier), 0);
    CHECK_INT(atomic_load(&g->state), FP_GPU_ON);
}

/* Checks that nothing is enabled and that no call follows. */
static void
check_over(void)
{
    CHECK_INT(atomic_load(&g->state), FP_GPU_OFF);
    CHECK_INT(atomic_load(&g->accept), 0);
    CHECK_INT(atomic_load(&g->tier), FP_TIER_NONE);
    CHECK(atomic_load(&stub.callback) == NULL);
    CHECK_UINT(stub.on, 0);
    CHECK_INT(stub.left_out, 0);
    CHECK_UINT(fp_buffers_lent(&g->buffers), 0);
}

static void
stop(void)
{
    fp_gpu_stop(g, second_ns);
    check_over();
    atomic_store(&stub.over, 1);
    launch(1);
    CHECK_INT(fp_gpu_flush(g, second_ns), -1);
    fp_gpu_stop(g, second_ns);
    fp_gpu_pause(g, second_ns);
    fp_gpu_resume(g);
    nap();
    atomic_store(&stub.over, 0);
    CHECK_INT(kit_sum_rows(&g->ledger.sums).ns, g->ledger.sums.total_ns);
}

static kit_total
total(void)
{
    pthread_mutex_lock(&g->lock);
    kit_total t = kit_sum_rows(&g->ledger.sums);
    pthread_mutex_unlock(&g->lock);
    return t;
}

FP_TEST(gpu_collector_records_from_start_to_stop)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    CHECK_INT(fp_gpu_start(g, &any_tier), 0); /* already on */
    CHECK_INT(g->used, FP_TIER_CALLBACKS);
    CHECK_STR(g->why.text, "");
    for (uint32_t i = 1; i <= 100; i++) {
        launch(i);
    }
    CHECK_INT(fp_gpu_flush(g, 100 * second_ns), 0);
    CHECK_UINT(total().count, 100);
    CHECK_INT(total().ns, 100000);
    for (uint32_t i = 101; i <= 9000; i++) { /* more than fits one buffer */
        launch(i);
    }
    atomic_store(&stub.dropped, 5);
    stop();
    CHECK_UINT(total().count, 9000);
    const fp_gpu_counters *c = &g->ledger.counters;
    CHECK_UINT(c->launches, 9000);
    CHECK_UINT(c->kernels, 9000);
    CHECK_UINT(c->dropped, 5);
    CHECK_UINT(c->truncated + c->expired_launches, 0);
    CHECK_UINT(g->cupti_errors, 0);
    CHECK_UINT(g->ledger.outstanding, 0);
    const fp_site other = {0, 0, FP_HOW_OTHER};
    CHECK_UINT(kit_activity(&g->ledger.sums, other, 0)->count, 9000);
    fp_gpu_forget(g);
    CHECK_INT(g->has_ledger, 0);
    fp_gpu_forget(g);
    fp_gpu_clear(g);
}

FP_TEST(gpu_collector_two_recordings_in_a_row_share_nothing)
{
    CHECK_INT(make_collector(), FP_OK);
    for (uint32_t round = 1; round <= 3; round++) {
        start();
        for (uint32_t i = 1; i <= 10 * round; i++) {
            launch(i);
        }
        CHECK_UINT(g->lanes.lost, 0);
        CHECK_UINT(g->buffers.discarded, 0);
        stop();
        CHECK_UINT(total().count, 10 * round);
        CHECK_UINT(g->ledger.counters.launches, 10 * round);
        CHECK_UINT(g->ledger.counters.expired_launches, 0);
        CHECK_UINT(kit_sum_rows(&g->ledger.sums).count, 10 * round);
        atomic_store(&g->lanes.lost, 7);
        atomic_store(&g->buffers.discarded, 7);
    }
}

FP_TEST(gpu_collector_flushes_every_period)
{
    CHECK_INT(make_collector(), FP_OK);
    fp_gpu_options o = any_tier;
    o.period_ns = 5000000;
    CHECK_INT(fp_gpu_start(g, &o), 0);
    for (uint32_t i = 1; i <= 50; i++) {
        launch(i);
        nap();
    }
    while (total().count != 50) {
        nap();
    }
    stop();
}

FP_TEST(gpu_collector_f49_without_the_subscriber_slot_uses_external_ids)
{
    CHECK_INT(make_collector(), FP_OK);
    atomic_store(&stub.fails[SUBSCRIBE], FP_CUPTI_MULTIPLE_SUBSCRIBERS);
    for (int old = 0; old < 2; old++) {
        if (old) { /* before 12.6 */
            g->cupti.enable_runtime_api = NULL;
            g->cupti.enable_driver_api = NULL;
        }
        start();
        CHECK_INT(g->used, FP_TIER_EXTERNAL);
        CHECK(strstr(g->why.text, "39 (CUPTI_ERROR_MANY)") != NULL);
        int others = 2 * (FP_API_CALLS - 1) - (int)fp_api_call_count;
        CHECK_INT(stub.left_out, old ? 0 : others);
        CHECK(is_on(FP_CUPTI_RUNTIME) && is_on(FP_CUPTI_DRIVER));
        for (uint32_t i = 1; i <= 500; i++) {
            launch(i);
        }
        stop();
        CHECK_INT(kit_own_ns(&g->ledger.sums, kit_place(1, 2), 0), 500000);
        CHECK_UINT(g->ledger.counters.launches, 500);
    }
    /* A caller that wants callbacks only gets nothing else. */
    fp_gpu_options o = any_tier;
    o.tier = FP_TIER_CALLBACKS;
    CHECK_INT(fp_gpu_start(g, &o), -1);
    CHECK(strstr(g->why.text, "slot is held") != NULL);
    check_over();
}

FP_TEST(gpu_collector_p8_a_failed_start_does_not_disturb_other_clients)
{
    CHECK_INT(make_collector(), FP_OK);
    static const struct {
        int function;
        const char *why;
    } cases[] = {
        {REGISTER, "buffers"}, {ENABLE, "kernels"}, {TIMESTAMP, "time"}};
    for (int i = 0; i < 3; i++) {
        atomic_store(&stub.fails[cases[i].function], FP_CUPTI_UNKNOWN);
        CHECK_INT(fp_gpu_start(g, &any_tier), -1);
        CHECK(strstr(g->why.text, cases[i].why) != NULL);
        check_over();
        /* Kinds belong to the process: disabling one affects all clients. */
        CHECK_UINT(stub.foreign_off, 0);
        CHECK_UINT(stub.calls[DISABLE], 0);
        atomic_store(&stub.fails[cases[i].function], 0);
    }
    /* No callback is known and no API record is available. */
    atomic_store(&stub.fails[ENABLE_CALLBACK], FP_CUPTI_INVALID_PARAMETER);
    atomic_store(&stub.fails_kind, FP_CUPTI_DRIVER);
    CHECK_INT(fp_gpu_start(g, &any_tier), -1);
    CHECK(strstr(g->why.text, "external correlation") != NULL);
    check_over();
    g->cupti.push_external = NULL;
    CHECK_INT(fp_gpu_start(g, &any_tier), -1);
    check_over();
    atomic_store(&stub.fails[ENABLE_CALLBACK], 0);
    start();
    stop();
}

FP_TEST(gpu_collector_f49_errors_while_it_runs_are_counted)
{
    CHECK_INT(make_collector(), FP_OK);
    static const int functions[] = {UNSUBSCRIBE, DISABLE, FLUSH,
                                    NEXT,        DROPPED, TIMESTAMP};
    for (int i = 0; i < 6; i++) {
        start();
        for (uint32_t n = 1; n <= 20; n++) {
            launch(n);
        }
        atomic_store(&stub.fails[functions[i]], FP_CUPTI_UNKNOWN);
        stop();
        atomic_store(&stub.fails[functions[i]], 0);
        CHECK(g->cupti_errors != 0 || functions[i] == NEXT);
        CHECK_UINT(g->ledger.counters.truncated, functions[i] == NEXT);
        int none = functions[i] == FLUSH || functions[i] == NEXT;
        CHECK_UINT(total().count, none ? 0 : 20);
        CHECK_UINT(g->ledger.counters.expired_launches, none ? 20 : 0);
        stub.count = 0;
    }
    /* Copies cannot be recorded, but kernels can. */
    atomic_store(&stub.fails_kind, FP_CUPTI_MEMCPY);
    start();
    launch(1);
    stop();
    CHECK_UINT(g->cupti_errors, 1);
    CHECK_UINT(total().count, 1);
}

FP_TEST(gpu_collector_a_buffer_cut_inside_a_record_is_counted)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    uint8_t *buffer = NULL;
    size_t size = 0, limit = 0;
    on_request(&buffer, &size, &limit);
    int64_t now = device_now();
    for (uint32_t i = 0; i < 4; i++) {
        kit_record r = kit_kernel(i, now, now + 10, "k");
        memcpy(buffer + i * KIT_RECORD, &r, KIT_RECORD);
    }
    on_complete(NULL, 0, buffer, size, 3 * KIT_RECORD + 100);
    CHECK_INT(fp_gpu_flush(g, 100 * second_ns), 0);
    CHECK_UINT(g->ledger.counters.truncated, 1);
    on_request(&buffer, &size, &limit);
    on_complete(NULL, 0, buffer, size, 2 * KIT_RECORD);
    CHECK_INT(fp_gpu_flush(g, 100 * second_ns), 0);
    CHECK_UINT(g->ledger.counters.truncated, 1);
    CHECK_UINT(total().count, 5);
    stop();
}

/* ---- pauses ---- */

FP_TEST(gpu_collector_a_pause_gives_everything_back)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    launch(1);
    int64_t before = device_now();
    fp_gpu_pause(g, second_ns);
    CHECK_INT(atomic_load(&g->state), FP_GPU_PAUSED);
    CHECK(atomic_load(&stub.callback) == NULL && stub.on == 0);
    CHECK_UINT(total().count, 1);
    atomic_store(&stub.over, 1);
    fp_gpu_pause(g, second_ns);
    CHECK_INT(fp_gpu_flush(g, second_ns), -1);
    CHECK_INT(fp_gpu_start(g, &any_tier), 0); /* already started */
    launch(2);
    for (int i = 0; i < 20; i++) {
        nap();
    }
    atomic_store(&stub.over, 0);
    /* Another client keeps the slot: the collector stays paused and counts one
     * pause. */
    atomic_store(&stub.fails[REGISTER], FP_CUPTI_UNKNOWN);
    for (int i = 0; i < 3; i++) {
        fp_gpu_resume(g);
        CHECK_INT(atomic_load(&g->state), FP_GPU_PAUSED);
        CHECK(stub.on == 0 && atomic_load(&stub.callback) == NULL);
    }
    atomic_store(&stub.fails[REGISTER], 0);
    fp_gpu_resume(g);
    CHECK_INT(atomic_load(&g->state), FP_GPU_ON);
    int64_t after = device_now();
    CHECK(g->paused_ns >= 20000000);
    CHECK(g->paused_ns <= after - before + 1000000);
    CHECK_UINT(g->pauses, 1);
    launch(1); /* ids start again */
    CHECK_INT(fp_gpu_flush(g, 100 * second_ns), 0);
    CHECK_UINT(total().count, 2);
    int64_t once = g->paused_ns;
    fp_gpu_pause(g, second_ns);
    for (int i = 0; i < 20; i++) {
        nap();
    }
    stop(); /* while it is paused */
    CHECK(g->paused_ns >= once + 20000000);
    CHECK_UINT(g->pauses, 2);
    CHECK_UINT(g->ledger.counters.launches, 2);
    int64_t wall = g->ledger.timeline[0].whole.wall_ns;
    CHECK(wall > 0 &&
          wall + g->paused_ns <= device_now() - before + second_ns);
}

FP_TEST(gpu_collector_clear_forgets_and_goes_on)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    launch(1);
    CHECK_INT(fp_gpu_flush(g, 100 * second_ns), 0);
    fp_gpu_clear(g);
    CHECK_UINT(total().count, 0);
    launch(2);
    fp_gpu_pause(g, second_ns);
    CHECK_UINT(total().count, 1);
    for (int i = 0; i < 300; i++) {
        nap();
    }
    int64_t cleared = device_now();
    fp_gpu_clear(g);
    fp_gpu_resume(g);
    CHECK(g->paused_ns <= device_now() - cleared + 1000000);
    CHECK_UINT(g->pauses, 0);
    launch(3);
    stop();
    CHECK_UINT(total().count, 1);
}

/* ---- hanging calls and forks ---- */

static void
await_hanging(void)
{
    while (!atomic_load(&stub.hanging)) {
        nap();
    }
}

FP_TEST(gpu_collector_f49_a_flush_that_never_returns_costs_the_recording)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    launch(1);
    atomic_store(&stub.hangs, FLUSH + 1);
    CHECK_INT(fp_gpu_flush(g, 10000000), -1);
    await_hanging();
    CHECK_INT(atomic_load(&g->state), FP_GPU_ON);
    g->options.patience_ns = 10000000;
    fp_gpu_stop(g, 0);
    CHECK_INT(atomic_load(&g->state), FP_GPU_DEAD);
    CHECK_INT(atomic_load(&g->accept), 0);
    CHECK(strstr(g->why.text, "switched off") != NULL);
    CHECK_INT(fp_gpu_start(g, &any_tier), -1);
    fp_gpu_stop(g, 0);
    fp_gpu_pause(g, 0);
    CHECK_INT(fp_gpu_flush(g, 0), -1);
    fp_gpu_forget(g); /* the thread may still need it */
    CHECK_INT(g->has_ledger, 1);
    /* The call returns: the thread detaches from CUPTI and ends. */
    atomic_store(&stub.hangs, 0);
    pthread_join(g->thread, NULL);
    CHECK(atomic_load(&stub.callback) == NULL && stub.on == 0);
    CHECK_INT(atomic_load(&g->state), FP_GPU_DEAD);
}

FP_TEST(gpu_collector_f49_a_hanging_clock_does_not_block_readers)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    launch(1);
    CHECK_INT(fp_gpu_flush(g, 100 * second_ns), 0);
    atomic_store(&stub.hangs, TIMESTAMP + 1);
    CHECK_INT(fp_gpu_flush(g, 10000000), -1);
    await_hanging();
    CHECK_INT(pthread_mutex_trylock(&g->lock), 0);
    pthread_mutex_unlock(&g->lock);
    atomic_store(&stub.hangs, 0);
    stop();
}

static void
check_let_go_after_hanging(int function, int pausing)
{
    atomic_store(&stub.hangs, function + 1);
    if (pausing) {
        start();
        g->options.patience_ns = 10000000;
        fp_gpu_pause(g, 0);
    }
    else {
        fp_gpu_options o = any_tier;
        o.patience_ns = 10000000;
        CHECK_INT(fp_gpu_start(g, &o), -1);
    }
    CHECK_INT(atomic_load(&g->state), FP_GPU_DEAD);
    await_hanging();
    atomic_store(&stub.hangs, 0);
    pthread_join(g->thread, NULL);
    CHECK_INT(atomic_load(&g->accept), 0);
    CHECK_INT(g->attached, 0);
    CHECK(atomic_load(&stub.callback) == NULL && stub.on == 0);
}

FP_TEST(gpu_collector_f49_a_start_that_hangs_is_undone_when_it_returns)
{
    CHECK_INT(make_collector(), FP_OK);
    check_let_go_after_hanging(REGISTER, 0);
}

FP_TEST(gpu_collector_f49_a_hanging_pause_ends_the_recording)
{
    CHECK_INT(make_collector(), FP_OK);
    check_let_go_after_hanging(DISABLE, 1);
}

FP_TEST(gpu_collector_f17_a_forked_child_calls_nothing)
{
    CHECK_INT(make_collector(), FP_OK);
    start();
    launch(1);
    stop();
    /* As in the child of a recording process: no thread, and locks that are
     * held. */
    atomic_store(&g->state, FP_GPU_ON);
    pthread_mutex_lock(&g->control);
    fp_lane *other = fp_lane_create(&g->lanes);
    CHECK(other != NULL);
    fp_lane_enter(other); /* a thread that was in a callback */
    fp_gpu_forked(g);
    fp_lanes_quiesce(&g->lanes, NULL);
    atomic_store(&g->lanes.first, other); /* the child's memory; no leak */
    atomic_store(&stub.over, 1);
    CHECK_INT(fp_gpu_start(g, &any_tier), -1);
    CHECK_INT(fp_gpu_flush(g, second_ns), -1);
    fp_gpu_stop(g, second_ns);
    fp_gpu_pause(g, second_ns);
    fp_gpu_resume(g);
    fp_gpu_clear(g);
    fp_gpu_forget(g);
    launch(2);
    CHECK_INT(atomic_load(&g->state), FP_GPU_DEAD);
    CHECK_INT(atomic_load(&g->tier), FP_TIER_NONE);
}

/* ---- threads ---- */

enum { LAUNCHERS = 4 };

static _Atomic int done, floods;
static _Atomic uint32_t correlation;

static void *
launch_on(void *ignored)
{
    (void)ignored;
    while (!atomic_load(&done)) {
        uint32_t corr = atomic_fetch_add(&correlation, 1);
        launch(corr);
        if (corr % 64 == 0 && !atomic_load(&floods)) {
            nap();
        }
    }
    if (my_lane != NULL) {
        atomic_store(&my_lane->ended, 1);
    }
    return NULL;
}

static void *
look_on(void *ignored)
{
    (void)ignored;
    while (!atomic_load(&done)) {
        pthread_mutex_lock(&g->lock);
        if (g->has_ledger) {
            CHECK_INT(kit_sum_rows(&g->ledger.sums).ns,
                      g->ledger.sums.total_ns);
        }
        pthread_mutex_unlock(&g->lock);
        CHECK(atomic_load(&g->cupti_errors) == 0);
        (void)fp_gpu_flush(g, second_ns);
        nap();
    }
    return NULL;
}

FP_TEST(gpu_collector_p9_callbacks_go_on_while_it_starts_and_stops)
{
    CHECK_INT(make_collector(), FP_OK);
    pthread_t thread[LAUNCHERS + 1];
    for (int i = 0; i < LAUNCHERS; i++) {
        CHECK(pthread_create(&thread[i], NULL, launch_on, NULL) == 0);
    }
    CHECK(pthread_create(&thread[LAUNCHERS], NULL, look_on, NULL) == 0);
    uint64_t recorded = 0;
    for (int round = 0; round < 8; round++) {
        start();
        nap();
        if (round % 2) {
            fp_gpu_pause(g, 1000000);
            fp_gpu_resume(g);
            nap();
        }
        if (round % 4 == 2) {
            fp_gpu_clear(g);
        }
        fp_gpu_stop(g, 5000000);
        check_over();
        recorded += total().count;
    }
    atomic_store(&done, 1);
    for (int i = 0; i <= LAUNCHERS; i++) {
        pthread_join(thread[i], NULL);
    }
    CHECK(recorded > 0);
    CHECK_INT(kit_sum_rows(&g->ledger.sums).ns, g->ledger.sums.total_ns);
}

FP_TEST(gpu_collector_p9_a_flood_of_launches_does_not_block_it)
{
    CHECK_INT(make_collector(), FP_OK);
    atomic_store(&floods, 1);
    start();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, launch_on, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fp_gpu_flush(g, 250 * second_ns), 0);
    }
    fp_gpu_stop(g, 0);
    check_over();
    atomic_store(&done, 1);
    pthread_join(thread, NULL);
}

FP_TEST(gpu_collector_f36_each_allocation)
{
    for (uint64_t at = 1; at <= 24; at++) {
        memory.takes = 0;
        memory.fail_at = at;
        memory.fail_on = at % 2;
        if (make_collector() != FP_OK) {
            CHECK_UINT(at, 1);
            free(g);
            continue;
        }
        if (fp_gpu_start(g, &any_tier) == 0) {
            for (uint32_t i = 1; i <= 600; i++) {
                launch(i);
            }
            stop();
        }
        else {
            check_over();
        }
        if (g->has_ledger) {
            CHECK_INT(kit_sum_rows(&g->ledger.sums).ns,
                      g->ledger.sums.total_ns);
        }
        memory.fail_at = 0;
        start();
        launch(1);
        stop();
        CHECK_UINT(total().count, 1);
        drop_collector();
    }
}
